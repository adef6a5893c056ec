"""Streams: text and events out, and an end from wherever it comes; twins side by side.

Blocking iteration reads by itself. Async iteration has one reader, made at the first
read: a consumer that is cancelled leaves the read running for the next one, so that
``asyncio.wait_for(anext(texts), 1)`` makes a heartbeat, and limits count on meanwhile.

Closing first does all that needs no waiting: the lifecycle ends, what is pending is
broken, the key's release begins. Only then it waits, and whoever is cancelled there, as
often as one likes, has left nothing undone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import anyio
import anyio.to_thread

from midstream._regroup.protocol import fresh
from midstream._streaming.beside import AsyncReader, Reading
from midstream._streaming.lifecycle import Lifecycle, Phase
from midstream._streaming.line import AsyncLine, Line
from midstream._streaming.pacing import PATIENCE, AsyncPieces, paced
from midstream._streaming.view import View
from midstream._values.events import TextDelta

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import TracebackType

    from midstream._keeping.keeper import Kept
    from midstream._regroup import Regrouper
    from midstream._session.session import Session
    from midstream._streaming.pacing import Batch
    from midstream._transports import AsyncTransport, Transport
    from midstream._values.checkpoint import Checkpoint
    from midstream._values.events import Event

_RELEASE = 6.0  # seconds to wait for a store, whose calls have limits of their own


class Stream(View):
    """An answer as it comes; made by `Client.stream`, used with ``with``.

    Iterating gives text pieces, never empty, never half a character.

    Raises:
        StreamInterrupted: The stream broke and could not be finished.
        ServerError: The server said no.
        TransportError: No connection came about, or the total time is over.
        WireError: The server sent bytes that break its protocol.
        UsageError: It is read though it was left before its end, or had broken.
    """

    def __init__(
        self,
        session: Session,
        owner: object,
        transport_of: Callable[[Session], Transport],
        kept: Kept | None = None,
        restore: Callable[[Checkpoint | None], Session] | None = None,
    ) -> None:
        life = Lifecycle("with client.stream(…) as stream:")
        self._line = Line(session, transport_of, life)
        super().__init__(self._line, owner, kept, restore)
        self._reading = Reading(self._line.read)

    def __enter__(self) -> Self:
        """The stream; the request goes out with the first read."""
        self._life.enter()
        if self._kept is not None:
            try:
                self._begin(self._kept)
            except BaseException:
                self._life.close()
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
            events = self._next()
            if events is None:
                return
            ready.extend(events)

    def chunks(self, by: Regrouper) -> Iterator[str]:
        """The text, regrouped.

        Args:
            by: How, as in ``Words()``.

        Yields:
            Pieces whose joined text is exactly the stream's.
        """
        return paced(self._next_batch, fresh(by))

    def read(self) -> str:
        """Read to the end.

        Returns:
            The whole text; of a stream that was resumed, what follows the text that
            the caller has.

        Raises:
            UsageError: The stream was left before its end.
        """
        while self._next() is not None:
            pass
        self._ready.clear()
        return self._rest()

    def close(self) -> None:
        """Leave at once: close the connection and stop the generation.

        May be called twice, and from another thread.
        """
        before = self._life.close()
        if before is None or before is Phase.NEW:
            return
        try:
            self._line.abort()
            self._forget()
            self._reading.close(PATIENCE)
            self._line.leave()
        finally:
            if self._kept is not None:
                self._kept.close()

    def __del__(self) -> None:
        """Nobody will read on: what reads beside ends, and the server is told so."""
        if self._life.closed:
            return
        if self._life.open:
            self._line.abort()
        self._abandon_key()

    def _next(self, deadline: float | None = None) -> list[Event] | None:
        self._check()
        events = self._reading.next(deadline)
        if events is None:
            self._end()
        return events

    def _next_batch(self, deadline: float | None) -> Batch | None:
        events = self._take_ready() or self._next(deadline)
        return None if events is None else self._text_of(events)


class AsyncStream(View):
    """An answer as it comes; made by `AsyncClient.stream`, used with ``async with``.

    Iterating gives text pieces, never empty, never half a character.

    Raises:
        StreamInterrupted: The stream broke and could not be finished.
        ServerError: The server said no.
        TransportError: No connection came about, or the total time is over.
        WireError: The server sent bytes that break its protocol.
        UsageError: It is read though it was left before its end, or had broken.
    """

    def __init__(
        self,
        session: Session,
        owner: object,
        transport_of: Callable[[Session], AsyncTransport],
        kept: Kept | None = None,
        restore: Callable[[Checkpoint | None], Session] | None = None,
    ) -> None:
        life = Lifecycle("async with client.stream(…) as stream:")
        self._line = AsyncLine(session, transport_of, life)
        super().__init__(self._line, owner, kept, restore)
        self._reader: AsyncReader[list[Event]] | None = None

    async def __aenter__(self) -> Self:
        """The stream; the request goes out with the first read."""
        self._life.enter()
        if self._kept is not None:
            try:
                await anyio.to_thread.run_sync(
                    self._begin,
                    self._kept,
                    abandon_on_cancel=True,
                    limiter=anyio.CapacityLimiter(1),
                )
            except BaseException:
                self._life.close()
                self._release()
                await self._released()
                raise
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
        return _Texts(self)

    def events(self) -> AsyncIterator[Event]:
        """Everything the stream says, in order.

        Returns:
            An async iterator of text, reasoning, refusal and tool-call deltas, usage,
            resumptions, and one `Finish` at the end.
        """
        return _Events(self)

    def chunks(self, by: Regrouper) -> AsyncIterator[str]:
        """The text, regrouped.

        Args:
            by: How, as in ``Words()``.

        Returns:
            An async iterator of pieces whose joined text is exactly the stream's.
        """
        return AsyncPieces(self._next_batch, fresh(by))

    async def read(self) -> str:
        """Read to the end.

        Returns:
            The whole text; of a stream that was resumed, what follows the text that
            the caller has.

        Raises:
            UsageError: The stream was left before its end.
        """
        while await self._next() is not None:
            pass
        self._ready.clear()
        return self._rest()

    async def aclose(self) -> None:
        """Leave at once: close the connection and stop the generation.

        May be called twice, and from another task.
        """
        before = self._life.close()
        if before is not None and before is not Phase.NEW:
            self._forget()
            reader = self._reader or self._read_beside()  # which takes leave as well
            self._line.abort()
            reader.stop()
            self._release()
        if self._reader is not None:
            with anyio.CancelScope(shield=True):
                await self._reader.over.wait()
        await self._released()

    def __del__(self) -> None:
        """Nobody will read on: its reader ends."""
        if self._life.closed:
            return
        self._abandon_key()
        self._life.close()
        if self._reader is None:
            return
        line, reader = self._line, self._reader

        def leave() -> None:
            line.abort()
            reader.stop()

        reader.loop.soon(leave)

    async def _next(self, deadline: float | None = None) -> list[Event] | None:
        self._check()
        reader = self._reader
        if reader is None and self._life.open:
            reader = self._read_beside()
        events = None if reader is None else await reader.next(deadline)
        if events is None:
            self._end()
        return events

    async def _next_batch(self, deadline: float | None) -> Batch | None:
        events = self._take_ready() or await self._next(deadline)
        return None if events is None else self._text_of(events)

    def _read_beside(self) -> AsyncReader[list[Event]]:
        self._reader = reader = AsyncReader(self._line)
        self._line.loop = reader.loop
        return reader

    async def _released(self) -> None:
        if self._releasing is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(
                    self._releasing.join,
                    _RELEASE,
                    abandon_on_cancel=True,
                    limiter=anyio.CapacityLimiter(1),
                )


class _Events:
    """Iterates an async stream's events; no generator, so nothing to leave open."""

    __slots__ = ("_next", "_ready")

    def __init__(self, stream: AsyncStream) -> None:
        self._ready = stream._ready  # noqa: SLF001 - its own iterator
        self._next = stream._next  # noqa: SLF001 - as above

    def __aiter__(self) -> AsyncIterator[Event]:
        """Itself."""
        return self

    async def __anext__(self) -> Event:
        """The next event."""
        while not self._ready:
            events = await self._next()
            if events is None:
                raise StopAsyncIteration
            self._ready.extend(events)
        return self._ready.popleft()


class _Texts:
    """Iterates an async stream's text."""

    __slots__ = ("_choice", "_next", "_ready")

    def __init__(self, stream: AsyncStream) -> None:
        self._ready = stream._ready  # noqa: SLF001 - its own iterator
        self._next = stream._next  # noqa: SLF001 - as above
        self._choice = stream._choice  # noqa: SLF001 - as above

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
            events = await self._next()
            if events is None:
                raise StopAsyncIteration
            ready.extend(events)
