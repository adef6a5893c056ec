"""The messages of one RPC: by blocking, by awaiting, and by awaiting a thread.

A call that is left must be cancelled, gRPC does not do so by itself (measured: the
server went on for 13 s): on close, on cancellation, and when the body is collected.

``grpc.aio`` says `asyncio.CancelledError` in the reading task also for a call that we
cancelled; `asyncio.Task.cancelling` tells that from a task which was. Its objects
belong to the loop they were made in.
"""

from __future__ import annotations

import asyncio
import weakref
from abc import ABC, abstractmethod
from math import inf
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from anyio import CapacityLimiter, get_cancelled_exc_class, to_thread

from midstream._dialects.protobuf import extra
from midstream._transports.grpc_status import failure
from midstream._transports.twin import twin
from midstream._values.errors import Dropped, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from midstream._transports.grpc_watchdog import Watchdog
    from midstream._values.errors import MidstreamError
    from midstream._values.timeouts import Deadline

T = TypeVar("T")
Done: TypeAlias = "Callable[[bool], object]"
"""Told once that a body has ended, and whether its line is to be trusted no more."""
_GRACE = 0.05
"""Seconds that a read whose reader came late has to find what has arrived already."""


class _Rpc(ABC):
    """What both colours know of an RPC.

    Attributes:
        status: 200; what the server says otherwise comes instead of messages.
        headers: None, as they come no earlier than the first message.
        owner: The deadline by which `Transport.interrupt` knows it.
    """

    status = 200

    def __init__(
        self, rpc: Any, deadline: Deadline, *, owner: Deadline, done: Done
    ) -> None:
        self.headers: Mapping[str, str] = {}
        self.owner = owner
        self._rpc: Any = rpc
        self._deadline = deadline
        self._done = done
        self._patient = inf
        self._heard = self._ended = self._closed = self._expired = False
        self._failed: MidstreamError | None = None

    @property
    def due(self) -> float:
        """Until when the read that is going on may block; ``inf`` when none is."""
        return inf if self._patient == inf else max(self._deadline.at, self._patient)

    def expire(self) -> None:
        """End the read that is going on: its deadline has passed."""
        self._expired = True
        self._rpc.cancel()

    def _before(self) -> bool:
        """A read begins; whether there is anything to read.

        Raises:
            MidstreamError: There was an error, which stays.
        """
        if self._failed is None and not self._ended:
            if not self._closed and not self.owner.interrupted:
                self._patient = monotonic() + _GRACE
                return True
            self._failed = _closed()
        if self._failed is not None:
            raise twin(self._failed)
        return False

    def _end(self, fault: Any, *, broken: bool = False) -> MidstreamError:
        """It failed: what an exception of gRPC means, to be raised."""
        error = self._verdict(fault)
        self._shut(broken=broken or isinstance(error, TransportError))
        return error

    @abstractmethod
    def _shut(self, *, broken: bool) -> None:
        """Let go of the call; whether its connection is of no use any more."""

    def _verdict(self, fault: Any) -> MidstreamError:
        """What an exception of gRPC means."""
        if self._closed or self.owner.interrupted:
            self._failed = _closed()
        elif self._expired:
            self._failed = self._deadline.error()
        elif hasattr(fault, "code"):
            self._failed = failure(
                fault.code().name,
                fault.details() or "",
                heard=self._heard,
                trailers=dict(fault.trailing_metadata() or ()),
            )
        else:
            self._failed = Dropped(f"the call ended: {fault}")
        return twin(self._failed)  # what is raised leads back to the frame that reads


def _closed() -> Dropped:
    return Dropped("the stream was closed while it waited for the server")


class GrpcBody(_Rpc):
    """Read by blocking.

    Args:
        rpc: The call of ``grpc``.
        deadline: Until when reads wait.
        owner: The deadline by which it is interrupted.
        done: Told of its end.
        watchdog: Ends late reads.
    """

    def __init__(
        self,
        rpc: Any,
        deadline: Deadline,
        *,
        owner: Deadline,
        done: Done,
        watchdog: Watchdog,
    ) -> None:
        super().__init__(rpc, deadline, owner=owner, done=done)
        self._lock = RLock()
        self._watchdog = watchdog
        watchdog.add(self)

    def read(self) -> bytes | None:
        """The next message; see `Body.read`."""
        if not self._before():
            return None
        self._watchdog.look(self.due)
        try:
            message: bytes | None = next(self._rpc, None)
        except extra("grpc").RpcError as fault:
            # The error is the call itself: a traceback would make it hold this frame.
            raise self._end(fault) from fault.with_traceback(None)
        finally:
            self._patient = inf
        if message is None:
            self._ended = True
            self._shut(broken=False)
        self._heard = True
        return message

    def close(self) -> None:
        """Cancel the RPC; see `Body.close`."""
        self._shut(broken=False)

    def _shut(self, *, broken: bool) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._rpc.cancel()
        self._watchdog.remove(self)
        self._done(broken)

    def __del__(self) -> None:
        """Nobody will read on: stop the server."""
        self._shut(broken=False)


class AsyncGrpcBody(_Rpc):
    """Read by awaiting, on asyncio.

    Args:
        rpc: The call of ``grpc.aio``.
        deadline: Until when reads wait.
        owner: The deadline by which it is interrupted.
        done: Told of its end.
    """

    def __init__(
        self, rpc: Any, deadline: Deadline, *, owner: Deadline, done: Done
    ) -> None:
        super().__init__(rpc, deadline, owner=owner, done=done)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes = inf
        aio = extra("grpc.aio")
        self._faults = (aio.AioRpcError, aio.BaseError)
        self._eof = aio.EOF

    async def read(self) -> bytes | None:
        """The next message; see `AsyncBody.read`."""
        if not self._before():
            return None
        cancels = _cancels()
        self._arm()
        try:
            message = await self._rpc.read()
        except asyncio.CancelledError as fault:
            ours = self._expired or self._closed
            if _cancels() > cancels or not ours:
                self.close()
                raise
            raise self._end(fault, broken=True) from fault.with_traceback(None)
        except self._faults as fault:
            raise self._end(fault) from fault.with_traceback(None)
        finally:
            self._patient = inf
        if message is self._eof:
            self._ended = True
            self.close()
            return None
        self._heard = True
        return bytes(message)

    async def aclose(self) -> None:
        """Cancel the RPC; see `AsyncBody.aclose`."""
        self.close()

    def close(self) -> None:
        """Cancel the RPC."""
        self._shut(broken=False)

    def ring(self) -> None:
        """The timer fired; mostly the deadline has moved."""
        self._timer, self._wakes = None, inf
        if self.due <= monotonic():
            self.expire()
        else:
            self._arm()

    def _arm(self) -> None:
        """See that the one timer fires by the time that is due."""
        due = self.due
        if due < self._wakes:
            self._disarm()
            self._wakes = due
            left = max(due - monotonic(), 0)
            self._timer = self._loop.call_later(left, _ring, weakref.ref(self))

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _shut(self, *, broken: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self._disarm()
        self._rpc.cancel()
        self._rpc = None  # a call keeps its connection; errors keep their frames
        self._done(broken)

    def __del__(self) -> None:
        """Nobody will read on: stop the server, from whatever thread collects."""
        if not self._closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_abandon, self._rpc, self._done)


def _ring(body: Callable[[], AsyncGrpcBody | None]) -> None:
    """A timer must not keep alive a body that nobody reads."""
    alive = body()
    if alive is not None:
        alive.ring()


def _abandon(rpc: Any, done: Done) -> None:
    rpc.cancel()
    done(False)  # noqa: FBT003 - a `Done`


def _cancels() -> int:
    """How often somebody has asked to cancel this task."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


class ThreadBody:
    """Read by awaiting a thread that blocks.

    Attributes:
        status: As the blocking one's.
        headers: As the blocking one's.
    """

    def __init__(self, body: GrpcBody) -> None:
        self.status = body.status
        self.headers = body.headers
        self._body = body
        self._one = CapacityLimiter(1)

    async def read(self) -> bytes | None:
        """The next message; see `AsyncBody.read`."""
        return await aside(self._body.read, stop=self._body.close, limiter=self._one)

    async def aclose(self) -> None:
        """Cancel the RPC; see `AsyncBody.aclose`."""
        self._body.close()


async def aside(
    work: Callable[[], T], *, stop: Callable[[], None], limiter: CapacityLimiter
) -> T:
    """Block in a thread; a cancelled task leaves at once and stops the work."""
    try:
        return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
    except get_cancelled_exc_class():
        stop()
        raise
