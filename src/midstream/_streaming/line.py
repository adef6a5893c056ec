"""What drives a session: one step at a time, connect or read once; twins side by side.

All that is decided is decided in `_session`. A line holds no generator and no cancel
scope between steps. Nothing is awaited, and nothing can fail, between booking what came
and giving it on: the connection is hung up before or behind.

A line knows its stream's lifecycle and not its stream: readers hold lines, so that a
stream that nobody holds any more is collected, and ends its line.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from math import inf
from threading import Event as Flag
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

import anyio

from midstream._values.errors import (
    MidstreamError,
    ServerError,
    TransportError,
    UsageError,
    WireError,
)
from midstream._values.interruptions import StreamInterrupted
from midstream._values.timeouts import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from midstream._dialects.base import Call, Flow, Reply
    from midstream._session.session import Session
    from midstream._streaming.lifecycle import Lifecycle
    from midstream._streaming.loops import Loop
    from midstream._transports import AsyncBody, AsyncTransport, Body, Transport
    from midstream._values.events import Event

T = TypeVar("T")

_FAULTS = (
    TransportError,
    ServerError,
    WireError,
    StreamInterrupted,
)
_LEAVE_FAULTS = (*_FAULTS, UsageError)  # its HTTP client may be closed by now
_LEAVE = 2.0  # seconds to tell a server that nobody listens any more
_ERROR_BODY = 1 << 20  # bytes of an error's body that are read
_AHEAD = 4  # reads that may wait for a slow consumer of an async stream


class _Line:
    """What both colours know.

    Attributes:
        session: What it drives; another one once a stored stream was found.
        life: The lifecycle of its stream.
        lock: Held while something is booked; whoever looks at the session takes it.
    """

    def __init__(self, session: Session, life: Lifecycle) -> None:
        self.session = session
        self.life = life
        self.lock = Lock()
        self._begun = self._lost = False

    def _book(self, piece: bytes | None) -> list[Event]:
        session, now = self.session, time.monotonic()
        with self.lock:
            if not self.life.open:
                return []
            events = session.eof(now) if piece is None else session.receive(piece, now)
            if session.ended:
                self.life.complete()
            return events

    def _drop(self, fault: MidstreamError) -> list[Event]:
        """Book that the connection is gone."""
        _forget_frames(fault)
        with self.lock:
            if not self.life.open:
                return []
            events = self.session.dropped(fault, time.monotonic())
            if self.session.ended:
                self.life.complete()
            return events

    def _backlog(self) -> list[Event]:
        with self.lock:
            return self.session.backlog()

    def _lose(self, error: MidstreamError) -> bool:
        """Whether that ends it; the server's generation is the new owner's then."""
        self._lost = lost = self.life.fail(error) or self._lost
        return lost


class Line(_Line):
    """Drives a session by blocking.

    Args:
        session: What decides.
        transport_of: Gives the transport for a session's server.
        life: The lifecycle of its stream.
    """

    def __init__(
        self,
        session: Session,
        transport_of: Callable[[Session], Transport],
        life: Lifecycle,
    ) -> None:
        super().__init__(session, life)
        self._transport_of = transport_of
        self._body: Body | None = None
        self._booked: deque[list[Event]] = deque()
        self._aborted = Flag()

    def read(self) -> list[Event] | None:
        """What the next read brings; None when nothing more comes.

        Errors end the stream's life; its verdict has them. What was booked by a read
        that was interrupted is given by the next one.
        """
        while not self._booked:
            if not self.life.open:
                return None
            self._step()
        return self._booked.popleft()

    def lose(self, error: MidstreamError) -> None:
        """End the stream, whose key is another's now; from any thread."""
        if self._lose(error):
            self.abort()

    def abort(self) -> None:
        """Break what is pending and close the connection; from any thread."""
        self._aborted.set()
        if self._begun:
            with suppress(*_LEAVE_FAULTS):
                transport = self._transport_of(self.session)
                transport.interrupt(self.session.deadline)
            self._hang_up()

    def leave(self) -> None:
        """Tell a server that nobody listens any more."""
        if not self._lost:
            try:
                self._run(self.session.leave(), _leave_by())
            except _LEAVE_FAULTS as error:
                self.session.history.notes.append(f"leave: {error}")

    def _step(self) -> None:
        """Connect or read once."""
        try:
            try:
                events = self._connect() if self._body is None else self._read()
            except _FAULTS as fault:
                self._hang_up()
                events = self._drop(fault)
            if events:
                self._booked.append(events)
            if self.session.ended:
                self._hang_up()
        except Exception as error:  # noqa: BLE001 - raised by whoever reads
            self._hang_up()
            self.life.fail(error)
        except BaseException:
            self._hang_up()
            raise

    def _connect(self) -> list[Event]:
        session = self.session
        if session.pause and self._aborted.wait(session.pause):
            return []
        self._begun = True
        call = self._run(session.connect(time.monotonic()), session.deadline)
        body = self._transport_of(session).open(call, session.deadline)
        self._body = body
        if not self.life.open:  # meanwhile, and there was no body to close yet
            body.close()
            return []
        if not session.opened(body.status, body.headers):
            session.refused(_reply(body, _whole(body)))
        return self._backlog()

    def _read(self) -> list[Event]:
        self.session.check()
        body = self._body
        return [] if body is None else self._book(body.read())

    def _run(self, flow: Flow[T], deadline: Deadline) -> T:
        transport = self._transport_of(self.session)
        reply: Reply | None = None
        fault: MidstreamError | None = None
        while True:
            try:
                call: Call = (
                    flow.throw(fault) if fault else flow.send(reply)  # type: ignore[arg-type]  # None starts it
                )
            except StopIteration as stop:
                result: T = stop.value
                return result
            reply, fault = None, None
            try:
                reply = transport.send(call, deadline)
            except _FAULTS as error:
                fault = error

    def _hang_up(self) -> None:
        body = self._body
        if body is None:
            return
        try:
            body.close()
        except BaseException:  # an interrupt came between
            body.close()
            raise
        finally:
            self._body = None


class AsyncLine(_Line):
    """Drives a session by awaiting, in the task of the stream's one reader.

    Args:
        session: What decides.
        transport_of: Gives the transport for a session's server.
        life: The lifecycle of its stream.

    Attributes:
        loop: Where it is driven, once it is.
    """

    def __init__(
        self,
        session: Session,
        transport_of: Callable[[Session], AsyncTransport],
        life: Lifecycle,
    ) -> None:
        super().__init__(session, life)
        self._transport_of = transport_of
        self._body: AsyncBody | None = None
        self._aborted: anyio.Event | None = None
        self.loop: Loop | None = None

    @property
    def ahead(self) -> float:
        """How many reads may wait; a connection is not made before it is asked for."""
        if not self.life.open:
            return inf  # there is nothing to read, but an end to be made
        return 0 if self._body is None else _AHEAD

    async def read(self) -> list[Event] | None:
        """As `Line.read`; empty where that read brought nothing to see."""
        return await self._step() if self.life.open else None

    async def end(self) -> None:
        """Hang up, and tell a server that nobody listens any more."""
        await self._hang_up()
        if not self._lost:
            try:
                await self._run(self.session.leave(), _leave_by())
            except _LEAVE_FAULTS as error:
                self.session.history.notes.append(f"leave: {error}")

    def lose(self, error: MidstreamError) -> None:
        """As `Line.lose`."""
        if self._lose(error) and self.loop is not None:
            self.loop.soon(self.abort)

    def abort(self) -> None:
        """Break what is pending, from any task of the loop; its reader cleans up."""
        if self._aborted is not None:
            self._aborted.set()
        if self._begun:
            with suppress(*_LEAVE_FAULTS):
                transport = self._transport_of(self.session)
                transport.interrupt(self.session.deadline)

    async def _step(self) -> list[Event]:
        """Connect or read once."""
        try:
            try:
                return await (self._connect() if self._body is None else self._read())
            except _FAULTS as fault:
                await self._hang_up()
                return self._drop(fault)
        except Exception as error:  # noqa: BLE001 - raised by whoever reads
            self.life.fail(error)
            return []

    async def _connect(self) -> list[Event]:
        session = self.session
        if session.pause:
            self._aborted = aborted = self._aborted or anyio.Event()
            with anyio.move_on_after(session.pause):
                await aborted.wait()
                return []
        self._begun = True
        call = await self._run(session.connect(time.monotonic()), session.deadline)
        body = await self._transport_of(session).open(call, session.deadline)
        self._body = body
        if not self.life.open:  # as above
            return []
        if not session.opened(body.status, body.headers):
            session.refused(_reply(body, await _awhole(body)))
        return self._backlog()

    async def _read(self) -> list[Event]:
        self.session.check()
        body = self._body
        return [] if body is None else self._book(await body.read())

    async def _run(self, flow: Flow[T], deadline: Deadline) -> T:
        transport = self._transport_of(self.session)
        reply: Reply | None = None
        fault: MidstreamError | None = None
        while True:
            try:
                call: Call = (
                    flow.throw(fault) if fault else flow.send(reply)  # type: ignore[arg-type]  # None starts it
                )
            except StopIteration as stop:
                result: T = stop.value
                return result
            reply, fault = None, None
            try:
                reply = await transport.send(call, deadline)
            except _FAULTS as error:
                fault = error

    async def _hang_up(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            with anyio.CancelScope(shield=True):
                await body.aclose()


def _forget_frames(fault: BaseException | None) -> None:
    """Session and body keep a fault, whose frames and causes' frames keep both."""
    while fault is not None:
        fault.__traceback__ = None
        fault = fault.__cause__ or fault.__context__


def _leave_by() -> Deadline:
    """A deadline of its own: the stream's was interrupted."""
    deadline = Deadline()
    deadline.at = time.monotonic() + _LEAVE
    return deadline


def _reply(body: Body | AsyncBody, content: bytes) -> Reply:
    from midstream._dialects.base import Reply  # noqa: PLC0415 - only for refusals

    return Reply(body.status, body.headers, content)


def _whole(body: Body) -> bytes:
    content = b""
    while len(content) < _ERROR_BODY and (piece := body.read()) is not None:
        content += piece
    return content


async def _awhole(body: AsyncBody) -> bytes:
    content = b""
    while len(content) < _ERROR_BODY and (piece := await body.read()) is not None:
        content += piece
    return content
