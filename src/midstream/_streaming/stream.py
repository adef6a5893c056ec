"""Streams: the only loops that read, wait and reconnect; sync and async side by side.

All that is decided is decided in `_session`. A stream does one step at a time: connect,
or read once. It holds no generator and no cancel scope between steps, so that each step
may run in a task of its own and the close in yet another.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Self, TypeVar

import anyio
import anyio.to_thread

from midstream._streaming.beside import AsyncReading, Reading
from midstream._streaming.pacing import PATIENCE, AsyncPieces, paced
from midstream._values.errors import (
    MidstreamError,
    ServerError,
    TransportError,
    UsageError,
    WireError,
)
from midstream._values.events import TextDelta
from midstream._values.interruptions import ResumeDiverged, ResumeUnsupported
from midstream._values.timeouts import Deadline

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Iterator,
        Mapping,
    )
    from types import TracebackType

    from midstream._dialects.base import Call, Flow, Reply
    from midstream._keeping.keeper import Kept
    from midstream._metrics import Metrics
    from midstream._regroup import Regrouper
    from midstream._resume.ledger import Choice
    from midstream._session.session import Session
    from midstream._streaming.pacing import Batch
    from midstream._transports import AsyncBody, AsyncTransport, Body, Transport
    from midstream._values.checkpoint import Checkpoint
    from midstream._values.endpoint import Endpoint
    from midstream._values.events import Event
    from midstream._values.exactness import Exactness
    from midstream._values.resumption import Resumption
    from midstream._values.tool_call import ToolCall
    from midstream._values.usage import Usage

T = TypeVar("T")

_FAULTS = (
    TransportError,
    ServerError,
    WireError,
    ResumeDiverged,
    ResumeUnsupported,
)
_LEAVE_FAULTS = (*_FAULTS, UsageError)  # its HTTP client may be closed by now
_LEAVE = 2.0  # seconds to tell a server that nobody listens any more
_ERROR_BODY = 1 << 20  # bytes of an error's body that are read


class _State:
    """What both kinds of stream show; readable also after the stream was left."""

    def __init__(
        self,
        session: Session,
        owner: object,
        kept: Kept | None,
        restore: Callable[[Checkpoint | None], None] | None,
    ) -> None:
        self._session = session
        self._restore = restore
        self._lost: MidstreamError | None = None
        self._owner = owner  # a stream keeps its client alive
        self._kept = kept
        self._lock = threading.Lock()  # the session, against the keeper's look
        self._ready: deque[Event] = deque()
        self._choice = session.request.choice
        self._entered = False
        self._closed = False

    @property
    def text(self) -> str:
        """The text received so far."""
        return self._session.ledger.main.text

    @property
    def reasoning(self) -> str:
        """The reasoning received so far."""
        return self._session.ledger.main.reasoning

    @property
    def refusal(self) -> str:
        """What the model said in refusal."""
        return self._session.ledger.main.refusal

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls so far; act on none that is not ``complete``."""
        return self._session.ledger.main.tool_calls

    @property
    def choices(self) -> Mapping[int, Choice]:
        """All n answers by index."""
        return self._session.ledger.choices

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended; None while it runs and where the server never said."""
        return self._session.ledger.main.finish_reason

    @property
    def usage(self) -> Usage | None:
        """Tokens used, summed over all connections; None where no server said."""
        return self._session.ledger.usage

    @property
    def endpoint(self) -> Endpoint:
        """Who answers now; another than the first after a failover."""
        return self._session.server.endpoint

    @property
    def model(self) -> str | None:
        """The model that answers, as the server calls it."""
        return self._session.ledger.model

    @property
    def response_id(self) -> str | None:
        """The server's id of the response."""
        return self._session.ledger.response_id

    @property
    def complete(self) -> bool:
        """Whether the whole answer came: its end was seen, not only its silence."""
        return self._session.complete

    @property
    def resumes(self) -> list[Resumption]:
        """The drops that were survived."""
        return self._session.resumes

    @property
    def exactness(self) -> Exactness:
        """How surely the text equals the unbroken one: the weakest connection's."""
        return self._session.exactness

    @property
    def metrics(self) -> Metrics:
        """Latencies and counts."""
        return self._session.metrics

    @property
    def notes(self) -> list[str]:
        """What was odd but harmless, such as ``unterminated_tail``."""
        return self._session.notes

    def checkpoint(self) -> Checkpoint:
        """What is needed to continue later, without secrets."""
        return self._session.checkpoint()

    def __repr__(self) -> str:
        """Who answers, how much came, and whether it ended."""
        end = "complete" if self.complete else "closed" if self._closed else "open"
        length = self._session.ledger.main.length
        return (
            f"<{type(self).__name__} {self._session.server.endpoint} "
            f"{length} characters, {len(self.resumes)} resumes, {end}>"
        )

    def _enter(self) -> None:
        if self._entered:
            raise UsageError("a stream is entered once; ask for a new one")
        if self._kept is not None:
            stored = self._kept.open()
            if self._restore is not None:
                self._restore(stored)
            self._kept.begin(self._session, self._lock, self._lose)
            self._choice = self._session.request.choice
            self._ready.extend(self._session.backlog())
        self._entered = True

    def _lose(self, error: MidstreamError) -> None:
        """Another reader has the key: the next read raises."""
        self._lost = error
        self._session.deadline.interrupt()

    def _readable(self) -> bool:
        """Whether a step may bring more."""
        if self._kept is not None:
            self._kept.check()
        if not self._entered:
            word = "async with" if isinstance(self, AsyncStream) else "with"
            raise UsageError(
                f"enter the stream first: {word} client.stream(…) as stream:"
            )
        return not self._closed and not self._session.ended

    def _need_open(self) -> None:
        """Refuse to give what came as if it were the whole."""
        ended = self._session.ended
        if (ended or self._closed) and not self.complete:
            how = "broke" if ended else "was left"
            raise UsageError(
                f"the stream {how} before its end; what came is in stream.text"
            )

    def _text_of(self, events: list[Event]) -> Batch:
        return [
            (event.text, event.tokens)
            for event in events
            if type(event) is TextDelta and event.choice == self._choice
        ]

    def _take_ready(self) -> list[Event]:
        events = list(self._ready)
        self._ready.clear()
        return events


class Stream(_State):
    """An answer as it comes; made by `Client.stream`, used with ``with``.

    Iterating gives text pieces, never empty, never half a character.

    Raises:
        StreamInterrupted: The stream broke and could not be finished.
        ServerError: The server said no.
        TransportError: No connection came about, or the total time is over.
        WireError: The server sent bytes that break its protocol.
    """

    def __init__(
        self,
        session: Session,
        owner: object,
        transport_of: Callable[[], Transport],
        kept: Kept | None = None,
        restore: Callable[[Checkpoint | None], None] | None = None,
    ) -> None:
        super().__init__(session, owner, kept, restore)
        self._transport_of = transport_of
        self._body: Body | None = None
        self._reading = Reading(self._read_on)
        self._leaving = threading.Event()

    def __enter__(self) -> Self:
        """The stream; the request goes out with the first read."""
        try:
            self._enter()
        except BaseException:
            if self._kept is not None and not self._entered:
                self._kept.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def __iter__(self) -> Iterator[str]:
        """Text pieces of the chosen answer."""
        for event in self.events():
            if type(event) is TextDelta and event.choice == self._choice:
                yield event.text

    def events(self) -> Iterator[Event]:
        """Everything the stream says, in order.

        Yields:
            Text, reasoning, refusal and tool-call deltas, usage, resumptions, and one
            `Finish` at the end.
        """
        ready = self._ready
        while True:
            while ready:
                yield ready.popleft()
            events = self._reading.next()
            if events is None:
                return
            ready.extend(events)

    def chunks(self, by: Regrouper) -> Iterator[str]:
        """The text, regrouped.

        Args:
            by: How, as in ``Words()``; one instance serves one stream.

        Yields:
            Pieces whose joined text is exactly the stream's.
        """
        return paced(self._next_batch, by)

    def read(self) -> str:
        """Read to the end.

        Returns:
            The whole text.

        Raises:
            UsageError: The stream was left before its end.
        """
        self._need_open()
        while self._reading.next() is not None:
            pass
        self._ready.clear()
        return self.text

    def close(self) -> None:
        """Leave at once: close the connection and stop the generation.

        May be called twice, and from another thread.
        """
        if self._closed:
            return
        self._closed = True
        self._leaving.set()
        if not self._entered:
            return
        try:
            self._transport_of().interrupt(self._session.deadline)
            self._hang_up()
            self._reading.close(PATIENCE)
            self._run(self._session.leave(), _leave_by())
        except _LEAVE_FAULTS as error:
            self._session.notes.append(f"leave: {error}")
        finally:
            if self._kept is not None:
                self._kept.close()

    def _next_batch(self, deadline: float | None) -> Batch | None:
        events = self._take_ready() or self._reading.next(deadline)
        return None if events is None else self._text_of(events)

    def _read_on(self) -> list[Event] | None:
        return self._step() if self._readable() else None

    def _step(self) -> list[Event]:
        """Connect or read once."""
        session = self._session
        try:
            try:
                if self._lost is None:
                    return self._connect() if self._body is None else self._read()
                raise self._lost
            except _FAULTS as fault:
                self._hang_up()
                if self._closed:
                    return []
                if self._lost is not None:
                    raise self._lost from fault
                with self._lock:
                    return session.dropped(fault, time.monotonic())
        except MidstreamError as error:
            self._hang_up()
            raise session.signed(error)  # noqa: B904 - it keeps its own cause
        except BaseException:
            self._hang_up()
            raise

    def _connect(self) -> list[Event]:
        session = self._session
        if session.pause and self._leaving.wait(session.pause):
            return []
        call = self._run(session.connect(time.monotonic()), session.deadline)
        body = self._transport_of().open(call, session.deadline)
        self._body = body
        if self._closed:  # meanwhile, and there was no body to close yet
            self._hang_up()
            return []
        if not session.opened(body.status, body.headers):
            session.refused(_reply(body, _whole(body)))
        return session.backlog()

    def _read(self) -> list[Event]:
        session, body = self._session, self._body
        session.check()
        if body is None:
            return []
        piece = body.read()
        now = time.monotonic()
        with self._lock:
            events = session.eof(now) if piece is None else session.receive(piece, now)
        if session.ended:
            self._hang_up()
        return events

    def _run(self, flow: Flow[T], deadline: Deadline) -> T:
        transport = self._transport_of()
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
        body, self._body = self._body, None
        if body is not None:
            body.close()


class AsyncStream(_State):
    """An answer as it comes; made by `AsyncClient.stream`, used with ``async with``.

    Iterating gives text pieces, never empty, never half a character.

    Raises:
        StreamInterrupted: The stream broke and could not be finished.
        ServerError: The server said no.
        TransportError: No connection came about, or the total time is over.
        WireError: The server sent bytes that break its protocol.
    """

    def __init__(
        self,
        session: Session,
        owner: object,
        transport_of: Callable[[], AsyncTransport],
        kept: Kept | None = None,
        restore: Callable[[Checkpoint | None], None] | None = None,
    ) -> None:
        super().__init__(session, owner, kept, restore)
        self._transport_of = transport_of
        self._body: AsyncBody | None = None
        self._reading = AsyncReading(self._read_on)
        self._leaving: anyio.Event | None = None

    async def __aenter__(self) -> Self:
        """The stream; the request goes out with the first read."""
        if self._kept is None or self._entered:
            self._enter()
        else:
            try:
                await anyio.to_thread.run_sync(self._enter)
            except BaseException:
                self._closed = True
                with anyio.CancelScope(shield=True):
                    await self._let_go()
                raise
        self._leaving = anyio.Event()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[str]:
        """Text pieces of the chosen answer."""
        return _Texts(self._ready, self._reading.next, self._choice)

    def events(self) -> AsyncIterator[Event]:
        """Everything the stream says, in order.

        Returns:
            An async iterator of text, reasoning, refusal and tool-call deltas, usage,
            resumptions, and one `Finish` at the end.
        """
        return _Events(self._ready, self._reading.next)

    def chunks(self, by: Regrouper) -> AsyncIterator[str]:
        """The text, regrouped.

        Args:
            by: How, as in ``Words()``; one instance serves one stream.

        Returns:
            An async iterator of pieces whose joined text is exactly the stream's.
        """
        return AsyncPieces(self._next_batch, by)

    async def read(self) -> str:
        """Read to the end.

        Returns:
            The whole text.

        Raises:
            UsageError: The stream was left before its end.
        """
        self._need_open()
        while await self._reading.next() is not None:
            pass
        self._ready.clear()
        return self.text

    async def aclose(self) -> None:
        """Leave at once: close the connection and stop the generation.

        May be called twice, and from another task.
        """
        if self._closed:
            return
        self._closed = True
        if self._leaving is None:
            return
        self._leaving.set()
        with anyio.CancelScope(shield=True):
            try:
                self._transport_of().interrupt(self._session.deadline)
                await self._hang_up()
                await self._reading.aclose()
                await self._run(self._session.leave(), _leave_by())
            except _LEAVE_FAULTS as error:
                self._session.notes.append(f"leave: {error}")
            finally:
                await self._let_go()

    async def _let_go(self) -> None:
        """Give the key back, though the task be cancelled over and over (asyncio)."""
        if self._kept is not None:
            thread = threading.Thread(target=self._kept.close, name="midstream-keeper")
            thread.start()
            await anyio.to_thread.run_sync(thread.join)

    async def _next_batch(self, deadline: float | None) -> Batch | None:
        events = self._take_ready() or await self._reading.next(deadline)
        return None if events is None else self._text_of(events)

    async def _read_on(self) -> list[Event] | None:
        return await self._step() if self._readable() else None

    async def _step(self) -> list[Event]:
        """Connect or read once."""
        session = self._session
        try:
            try:
                if self._lost is not None:
                    raise self._lost
                return await (self._connect() if self._body is None else self._read())
            except _FAULTS as fault:
                await self._hang_up()
                if self._closed:
                    return []
                if self._lost is not None:
                    raise self._lost from fault
                with self._lock:
                    return session.dropped(fault, time.monotonic())
        except MidstreamError as error:
            await self._hang_up()
            raise session.signed(error)  # noqa: B904 - it keeps its own cause
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._hang_up()
            raise

    async def _connect(self) -> list[Event]:
        session = self._session
        if session.pause and self._leaving is not None:
            with anyio.move_on_after(session.pause):
                await self._leaving.wait()
                return []
        call = await self._run(session.connect(time.monotonic()), session.deadline)
        body = await self._transport_of().open(call, session.deadline)
        self._body = body
        if self._closed:  # as above
            await self._hang_up()
            return []
        if not session.opened(body.status, body.headers):
            session.refused(_reply(body, await _awhole(body)))
        return session.backlog()

    async def _read(self) -> list[Event]:
        session, body = self._session, self._body
        session.check()
        if body is None:
            return []
        piece = await body.read()
        now = time.monotonic()
        with self._lock:
            events = session.eof(now) if piece is None else session.receive(piece, now)
        if session.ended:
            await self._hang_up()
        return events

    async def _run(self, flow: Flow[T], deadline: Deadline) -> T:
        transport = self._transport_of()
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
            await body.aclose()


class _Events:
    """Iterates an async stream's events; no generator, so nothing to leave open."""

    __slots__ = ("_more", "_ready")

    def __init__(
        self, ready: deque[Event], more: Callable[[], Awaitable[list[Event] | None]]
    ) -> None:
        self._ready = ready
        self._more = more

    def __aiter__(self) -> AsyncIterator[Event]:
        """Itself."""
        return self

    async def __anext__(self) -> Event:
        """The next event."""
        while not self._ready:
            events = await self._more()
            if events is None:
                raise StopAsyncIteration
            self._ready.extend(events)
        return self._ready.popleft()


class _Texts:
    """Iterates an async stream's text."""

    __slots__ = ("_choice", "_more", "_ready")

    def __init__(
        self,
        ready: deque[Event],
        more: Callable[[], Awaitable[list[Event] | None]],
        choice: int,
    ) -> None:
        self._ready = ready
        self._more = more
        self._choice = choice

    def __aiter__(self) -> AsyncIterator[str]:
        """Itself."""
        return self

    async def __anext__(self) -> str:
        """The next piece."""
        ready = self._ready
        while True:
            while ready:
                event = ready.popleft()
                if type(event) is TextDelta and event.choice == self._choice:
                    return event.text
            events = await self._more()
            if events is None:
                raise StopAsyncIteration
            ready.extend(events)


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
