"""Regrouping, driven: text in, pieces out, and what waits goes out when it must.

The twins `regroup` and `aregroup` work on any iterator of text; a stream's ``chunks``
feeds the same machine with whole reads.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from midstream._regroup import Tokens
from midstream._regroup.protocol import fresh
from midstream._streaming.beside import AHEAD, AsyncReader, Late, Reading

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterable,
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Iterator,
    )

    from midstream._regroup import Regrouper

Batch: TypeAlias = "list[tuple[str, int | None]]"
"""What one read brought: texts and how many tokens each is, where told."""

PATIENCE = 0.2  # seconds for a reader whose source cannot be closed under it


def _fed(by: Regrouper, batch: Batch, now: float) -> list[str]:
    pieces: list[str] = []
    if isinstance(by, Tokens):
        for text, tokens in batch:
            pieces += by.feed(text, now, tokens=tokens)
    else:
        for text, _ in batch:
            pieces += by.feed(text, now)
    return pieces


def regroup(texts: Iterable[str], by: Regrouper) -> Iterator[str]:
    """Regroup any texts.

    Args:
        texts: Pieces of text, as they come.
        by: How to regroup.

    Yields:
        The same text in other pieces. Where ``by`` has a deadline, ``texts`` is read in
        a thread, so that what waits goes out in time though nothing comes.
    """
    source = iter(texts)

    def read() -> Batch | None:
        for text in source:
            return [(text, None)]
        return None

    reading = Reading(read)
    try:
        yield from paced(reading.next, fresh(by))
    finally:
        reading.close(PATIENCE)


def paced(read: Callable[[float | None], Batch | None], by: Regrouper) -> Iterator[str]:
    """Regroup what ``read`` gives, until it gives None.

    Args:
        read: Gives the texts of one read; raises `Late` at the deadline it is given.
        by: How to regroup.

    Yields:
        Pieces.
    """
    while True:
        batch: Batch | None = [("", None)]
        with suppress(Late):
            batch = read(by.deadline)
        if batch is None:
            break
        yield from _fed(by, batch, time.monotonic())
    yield from by.flush()


class AsyncPieces:
    """Regroups what ``read`` gives, until it gives None.

    A class and no async generator: it may be left half-way without a trace.

    Args:
        read: Gives the texts of one read; raises `Late` at the deadline it is given.
        by: How to regroup.
        close: Ends what ``read`` reads from, where that is not its owner's.
    """

    def __init__(
        self,
        read: Callable[[float | None], Awaitable[Batch | None]],
        by: Regrouper,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._read = read
        self._by = by
        self._close = close
        self._pieces: list[str] = []
        self._ended = False

    def __aiter__(self) -> AsyncIterator[str]:
        """Itself."""
        return self

    async def __anext__(self) -> str:
        """The next piece."""
        while not self._pieces:
            if self._ended:
                raise StopAsyncIteration
            self._pieces = await self._more()
            self._pieces.reverse()
        return self._pieces.pop()

    async def aclose(self) -> None:
        """Give nothing more."""
        self._ended = True
        self._pieces.clear()
        if self._close is not None:
            await self._close()

    async def _more(self) -> list[str]:
        batch: Batch | None = [("", None)]
        with suppress(Late):
            batch = await self._read(self._by.deadline)
        if batch is None:
            self._ended = True
            return self._by.flush()
        return _fed(self._by, batch, time.monotonic())


def aregroup(texts: AsyncIterable[str], by: Regrouper) -> AsyncPieces:
    """Regroup any texts, as `regroup` does.

    Args:
        texts: Pieces of text, as they come.
        by: How to regroup.

    Returns:
        An async iterator of pieces. Where ``by`` has a deadline, ``texts`` is read in a
        task; leave the iterator by its end or by ``aclose()``.
    """
    source = _AsyncTexts(texts)
    return AsyncPieces(source.next, fresh(by), source.aclose)


class _AsyncTexts:
    """Any texts, read beside once a deadline must fire."""

    ahead = AHEAD

    def __init__(self, texts: AsyncIterable[str]) -> None:
        self._texts = aiter(texts)
        self._reader: AsyncReader[Batch] | None = None

    async def next(self, deadline: float | None) -> Batch | None:
        if self._reader is None and deadline is not None:
            self._reader = AsyncReader(self)
        reader = self._reader
        return await (self.read() if reader is None else reader.next(deadline))

    async def read(self) -> Batch | None:
        try:
            return [(await anext(self._texts), None)]
        except StopAsyncIteration:
            return None

    async def end(self) -> None:
        """The source is the caller's."""

    async def aclose(self) -> None:
        if self._reader is not None:
            self._reader.stop()
            self._reader.loop.cancel()
            await self._reader.over.wait()
