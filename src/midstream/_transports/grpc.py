"""gRPC over grpcio: sync, asyncio, and trio by way of threads.

Every RPC is opened as one request with a stream of answers, which on the wire is also
what a unary one and a half-closed bidirectional one look like. A stream first waits for
its connection, under ``Timeouts(connect=…)``, and starts then: so a refused connection
is told from a dropped one.

A channel is kept per address, and given up as soon as one of its streams drops or goes
silent: a half-open connection would fail the next attempt too, and a channel that could
not connect waits before it tries again. It is closed when its last stream has ended. On
asyncio channels belong to a loop, so they are kept per loop and closed only in theirs.
"""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf
from threading import Event, RLock, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakSet

from anyio import CapacityLimiter

from midstream._dialects.base import Reply
from midstream._dialects.protobuf import extra
from midstream._frames import MAX_RECORD
from midstream._transports.grpc_body import (
    AsyncGrpcBody,
    GrpcBody,
    ThreadBody,
    aside,
)
from midstream._transports.grpc_status import metadata, options, target
from midstream._transports.grpc_watchdog import Watchdog
from midstream._values.errors import (
    Dropped,
    EventTooLarge,
    TimedOut,
    UsageError,
    WireError,
)
from midstream._values.timeouts import Deadline

if TYPE_CHECKING:
    from midstream._dialects.base import Call
    from midstream._transports import AsyncBody

MAX_REPLY = 16 * 1024 * 1024
"""The most bytes of an answer that is read whole."""
_PROMPT = 0.5
"""Seconds in which a call on a channel that cannot connect has failed."""


_LOOKS_UP = 0.25
"""Seconds after which grpc's watching thread has seen that it is not wanted."""


class _Line:
    """A channel and how many streams use it."""

    __slots__ = ("channel", "given_up", "users")

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.users = 0
        self.given_up = False


class _WatchedLine(_Line):
    """A channel whose first connection is watched, by one of grpc's threads.

    It is asked to watch once, and to stop once. That thread looks up five times a
    second, and dies with a traceback where it finds its channel closed.

    Attributes:
        failed: Whether the channel could not connect; None as long as it tries.
    """

    __slots__ = ("_begun", "_settles", "_stopped", "_waits", "failed")

    def __init__(self, channel: Any, states: Any) -> None:
        super().__init__(channel)
        self.failed: bool | None = None
        self._settles = {states.READY: False, states.TRANSIENT_FAILURE: True}
        self._waits: set[Wait] = set()
        self._begun = Event()
        self._stopped: float | None = None
        channel.subscribe(self._tell, try_to_connect=True)

    def join(self, wait: Wait) -> None:
        """Have ``wait`` told when it is connected or cannot be."""
        self._waits.add(wait)
        if self.failed is not None:
            wait.settle()

    def leave(self, wait: Wait) -> None:
        """Tell it no more."""
        self._waits.discard(wait)

    def close(self) -> None:
        """End the connection and its streams, when nobody watches it any more."""
        self._begun.wait(_PROMPT)
        watched_until = self._stop() + _LOOKS_UP
        sleep(max(watched_until - monotonic(), 0))
        self.channel.close()

    def _tell(self, state: Any) -> None:
        self._begun.set()
        if state in self._settles and self.failed is None:
            self.failed = self._settles[state]
            for wait in tuple(self._waits):
                wait.settle()
            self._stop()

    def _stop(self) -> float:
        """Ask to watch no more; when that was."""
        if self._stopped is None:
            self.channel.unsubscribe(self._tell)
            self._stopped = monotonic()
        return self._stopped


class Wait:
    """Waiting for a connection, which may be called off from elsewhere.

    Args:
        owner: The deadline by which it is interrupted.
    """

    __slots__ = ("_called_off", "_settled", "owner")

    def __init__(self, owner: Deadline) -> None:
        self.owner = owner
        self._called_off = False
        self._settled = Event()

    def settle(self) -> None:
        """A connection came about or did not."""
        self._settled.set()

    def call_off(self) -> None:
        """Wait no longer."""
        self._called_off = True
        self._settled.set()

    def over(self, seconds: float) -> bool:
        """Wait; whether it ended in time."""
        return self._settled.wait(None if seconds == inf else max(seconds, 0))

    def check(self) -> None:
        """Raise where it was called off.

        Raises:
            Dropped: It was.
        """
        if self._called_off or self.owner.interrupted:
            raise Dropped("the stream was closed while it waited for a connection")


def _connect_limit(connect: float | None, deadline: Deadline) -> tuple[float, TimedOut]:
    """How long to wait for a connection, and what to raise then.

    Args:
        connect: Seconds that are usual; a stream may have a limit of its own.
        deadline: The stream's, or that of one of its calls.
    """
    if deadline.connect is not None:
        connect = deadline.connect
    left = deadline.at - monotonic()
    if connect is not None and connect < left:
        return connect, TimedOut("connect", connect)
    return left, deadline.error()


def _patience(call: Call, deadline: Deadline) -> Deadline:
    """The deadline of a call that is not the stream."""
    if call.patience is None:
        return deadline
    own = Deadline()
    own.at, own.kind, own.seconds = (
        monotonic() + call.patience,
        "total",
        call.patience,
    )
    return own


class _Answer:
    """The messages of an answer that is read whole."""

    __slots__ = ("_size", "messages")

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self._size = 0

    def add(self, message: bytes) -> None:
        self.messages.append(message)
        self._size += len(message)
        if self._size > MAX_REPLY:
            raise EventTooLarge(f"an answer of more than {MAX_REPLY} bytes")


def _reply(messages: list[bytes]) -> Reply:
    if not messages:
        raise WireError("an RPC that ended without a message")
    return Reply(200, {}, messages[0], messages)


class GrpcTransport:
    """Opens RPCs by blocking; see `Transport`.

    Args:
        connect: Seconds until the connection must stand; None for no limit.
        limit: The largest message in bytes.

    Raises:
        UsageError: grpcio is not installed.
    """

    def __init__(self, *, connect: float | None, limit: int = MAX_RECORD) -> None:
        self._grpc = extra("grpc")
        self._connect = connect
        self._limit = limit
        self._lines: dict[str, _WatchedLine] = {}
        self._waits: set[Wait] = set()
        self._bodies: WeakSet[GrpcBody] = WeakSet()
        self._closing: WeakSet[Thread] = WeakSet()
        self._watchdog = Watchdog()
        self._lock = RLock()
        self._closed = False

    def open(self, call: Call, deadline: Deadline) -> GrpcBody:
        """Send ``call``; see `Transport.open`."""
        return self.begin(call, deadline, Wait(deadline))

    def begin(self, call: Call, deadline: Deadline, wait: Wait) -> GrpcBody:
        """Send ``call`` unless ``wait`` is called off before.

        Raises:
            MidstreamError: As for `open`.
        """
        pairs = metadata(call)
        line = self._take(call.url, wait)
        try:
            self._ready(line, deadline, wait)
            rpc = line.channel.unary_stream(call.method)(call.content, metadata=pairs)
        except BaseException as error:
            self._release(call.url, line, broken=True)
            if isinstance(error, ValueError):  # grpc's word for a closed channel
                raise Dropped("the client was closed") from error
            raise
        finally:
            self._waits.discard(wait)
        body = GrpcBody(
            rpc,
            deadline,
            owner=wait.owner,
            done=lambda broken: self._release(call.url, line, broken=broken),
            watchdog=self._watchdog,
        )
        self._bodies.add(body)
        if line.failed:
            self._confirm(rpc, body)
        return body

    def send(self, call: Call, deadline: Deadline) -> Reply:
        """Send ``call`` and read all its messages; see `Transport.send`."""
        return _reply(self.gather(call, deadline))

    def gather(self, call: Call, deadline: Deadline) -> list[bytes]:
        """Send ``call`` and give all its messages, under the limits of `send`."""
        answer = _Answer()
        body = self.begin(call, _patience(call, deadline), Wait(deadline))
        try:
            while (message := body.read()) is not None:
                answer.add(message)
        finally:
            body.close()
        return answer.messages

    def interrupt(self, deadline: Deadline) -> None:
        """End whatever is pending with ``deadline``; see `Transport.interrupt`."""
        deadline.interrupt()
        with self._lock:
            waits, bodies = tuple(self._waits), tuple(self._bodies)
        for wait in waits:
            if wait.owner is deadline:
                wait.call_off()
        for body in bodies:
            if body.owner is deadline:
                body.close()

    def close(self) -> None:
        """End what is open; see `Transport.close`."""
        self.shut()
        for thread in tuple(self._closing):
            thread.join()

    def shut(self) -> None:
        """End what is open, and wait for nothing."""
        with self._lock:
            self._closed = True
            lines, self._lines = tuple(self._lines.values()), {}
            waits, bodies = tuple(self._waits), tuple(self._bodies)
        for wait in waits:
            wait.call_off()
        for body in bodies:
            body.close()
        for line in lines:
            self._close(line)

    def _close(self, line: _WatchedLine) -> None:
        """Close a line aside, as that may take a moment."""
        thread = Thread(target=line.close, name="midstream-grpc-close", daemon=True)
        thread.start()
        self._closing.add(thread)

    def _take(self, url: str, wait: Wait) -> _WatchedLine:
        with self._lock:
            if self._closed:
                raise UsageError("the client is closed")
            line = self._lines.get(url)
            if line is None:
                states = self._grpc.ChannelConnectivity
                line = _WatchedLine(self._channel(url), states)
                self._lines[url] = line
            line.users += 1
            self._waits.add(wait)
            return line

    def _release(self, url: str, line: _WatchedLine, *, broken: bool) -> None:
        with self._lock:
            line.users -= 1
            if broken and self._lines.get(url) is line:
                del self._lines[url]
            line.given_up = line.given_up or broken
            unused = line.given_up and not line.users
        if unused:
            self._close(line)

    def _channel(self, url: str) -> Any:
        host, secure = target(url)
        settings = options(self._connect, self._limit)
        if secure:
            credentials = self._grpc.ssl_channel_credentials()
            return self._grpc.secure_channel(host, credentials, settings)
        return self._grpc.insecure_channel(host, settings)

    def _ready(self, line: _WatchedLine, deadline: Deadline, wait: Wait) -> None:
        """Wait until the channel is connected or cannot be."""
        seconds, error = _connect_limit(self._connect, deadline)
        line.join(wait)
        try:
            in_time = wait.over(seconds)
        finally:
            line.leave(wait)
        wait.check()
        if not in_time:
            raise error

    def _confirm(self, rpc: Any, body: GrpcBody) -> None:
        """A call on a channel that cannot connect fails at once, and says why."""
        try:
            fault = rpc.exception(timeout=_PROMPT)
        except (self._grpc.FutureTimeoutError, self._grpc.FutureCancelledError):
            return  # it connected after all, or is closed: the next read says so
        if fault is not None:
            body.read()


_Key: TypeAlias = "tuple[asyncio.AbstractEventLoop, str]"


class AsyncGrpcTransport:
    """Opens RPCs by awaiting, on asyncio and trio; see `AsyncTransport`.

    Args:
        connect: Seconds until the connection must stand; None for no limit.
        limit: The largest message in bytes.

    Raises:
        UsageError: grpcio is not installed.
    """

    def __init__(self, *, connect: float | None, limit: int = MAX_RECORD) -> None:
        self._grpc = extra("grpc")
        self._connect = connect
        self._limit = limit
        self._threads = GrpcTransport(connect=connect, limit=limit)
        self._lines: dict[_Key, _Line] = {}
        self._given_up: list[tuple[asyncio.AbstractEventLoop, _Line]] = []
        self._bodies: WeakSet[AsyncGrpcBody] = WeakSet()
        self._waits: dict[asyncio.Future[None], Deadline] = {}
        self._closed = False

    async def open(self, call: Call, deadline: Deadline) -> AsyncBody:
        """Send ``call``; see `AsyncTransport.open`."""
        return await self._begin(call, deadline, deadline)

    async def send(self, call: Call, deadline: Deadline) -> Reply:
        """Send ``call`` and read all its messages; see `Transport.send`."""
        return _reply(await self.gather(call, deadline))

    async def gather(self, call: Call, deadline: Deadline) -> list[bytes]:
        """Send ``call`` and give all its messages, under the limits of `send`."""
        answer = _Answer()
        body = await self._begin(call, _patience(call, deadline), deadline)
        try:
            while (message := await body.read()) is not None:
                answer.add(message)
        finally:
            await body.aclose()
        return answer.messages

    def interrupt(self, deadline: Deadline) -> None:
        """End whatever is pending with ``deadline``; see `Transport.interrupt`."""
        self._threads.interrupt(deadline)
        for called_off, owner in tuple(self._waits.items()):
            if owner is deadline:
                _settle(called_off)
        for body in tuple(self._bodies):
            if body.owner is deadline:
                body.close()

    async def aclose(self) -> None:
        """End what is open; see `Transport.close`."""
        self._closed = True
        self._threads.shut()
        for called_off in tuple(self._waits):
            _settle(called_off)
        for body in tuple(self._bodies):
            body.close()
        self._given_up += [(loop, line) for (loop, _), line in self._lines.items()]
        self._lines.clear()
        await self._sweep(_loop())

    async def _begin(
        self, call: Call, deadline: Deadline, owner: Deadline
    ) -> AsyncBody:
        if self._closed:
            raise UsageError("the client is closed")
        loop = _loop()
        if loop is not None:
            return await self._native(loop, call, deadline, owner)
        wait = Wait(owner)
        begin = partial(self._threads.begin, call, deadline, wait)
        one = CapacityLimiter(1)
        return ThreadBody(await aside(begin, stop=wait.call_off, limiter=one))

    async def _native(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Call,
        deadline: Deadline,
        owner: Deadline,
    ) -> AsyncGrpcBody:
        pairs = metadata(call)
        await self._sweep(loop)
        key = loop, call.url
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(self._channel(call.url))
        line.users += 1
        done = partial(self._release, key, line)
        try:
            state = await self._ready(line.channel, deadline, owner)
            rpc = line.channel.unary_stream(call.method)(call.content, metadata=pairs)
        except BaseException:
            done(True)  # noqa: FBT003 - a `Done`
            raise
        body = AsyncGrpcBody(rpc, deadline, owner=owner, done=done)
        self._bodies.add(body)
        if state is self._grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            await self._confirm(rpc, body)
        return body

    def _release(self, key: _Key, line: _Line, broken: bool) -> None:  # noqa: FBT001 - a `Done`
        line.users -= 1
        if broken and not line.given_up:
            line.given_up = True
            self._given_up.append((key[0], line))
            if self._lines.get(key) is line:
                del self._lines[key]

    async def _sweep(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Close channels that were given up; forget those whose loop is gone."""
        given_up, self._given_up = self._given_up, []
        for home, line in given_up:
            if home is loop and (self._closed or not line.users):
                await line.channel.close()
            elif not home.is_closed():
                self._given_up.append((home, line))
        for key in tuple(self._lines):
            if key[0].is_closed():
                del self._lines[key]

    def _channel(self, url: str) -> Any:
        host, secure = target(url)
        settings = options(self._connect, self._limit)
        if secure:
            credentials = self._grpc.ssl_channel_credentials()
            return self._grpc.aio.secure_channel(host, credentials, settings)
        return self._grpc.aio.insecure_channel(host, settings)

    async def _ready(self, channel: Any, deadline: Deadline, owner: Deadline) -> Any:
        """Wait until the channel is connected or cannot be."""
        states = self._grpc.ChannelConnectivity
        seconds, error = _connect_limit(self._connect, deadline)
        called_off = asyncio.get_running_loop().create_future()
        self._waits[called_off] = owner
        try:
            async with asyncio.timeout(None if seconds == inf else seconds):
                while not called_off.done() and not owner.interrupted:
                    state = channel.get_state(try_to_connect=True)
                    if state in {states.READY, states.TRANSIENT_FAILURE}:
                        return state
                    await _either(channel.wait_for_state_change(state), called_off)
        except TimeoutError as fault:
            raise error from fault
        finally:
            del self._waits[called_off]
        raise Dropped("the stream was closed while it waited for a connection")

    async def _confirm(self, rpc: Any, body: AsyncGrpcBody) -> None:
        """A call on a channel that cannot connect fails at once, and says why."""
        try:
            async with asyncio.timeout(_PROMPT):
                code = await rpc.code()
        except TimeoutError:
            return  # it connected after all
        if code is not self._grpc.StatusCode.OK:
            await body.read()


async def _either(change: Any, called_off: asyncio.Future[None]) -> None:
    """Wait for a channel to change, or until called off."""
    changing = asyncio.ensure_future(change)
    try:
        await asyncio.wait({changing, called_off}, return_when="FIRST_COMPLETED")
    finally:
        if not changing.cancel():
            changing.exception()  # a closed channel's; the loop around it will see


def _settle(called_off: asyncio.Future[None]) -> None:
    if not called_off.done():
        called_off.set_result(None)


def _loop() -> asyncio.AbstractEventLoop | None:
    """The running asyncio loop; None under trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
