"""Tokens: pieces of ``n`` tokens, counted as the server counts, else by tiktoken.

A piece ends where the count is reached, at the next edge of a grapheme cluster, and
goes when the next text proves that edge. What the server counts as one record cannot
be divided, so a record of five tokens makes a piece of five.

tiktoken counts without reading anything twice: text is encoded up to the last word
edge (before the space, or before a mark of Chinese or Japanese), where the patterns
of its encodings always cut, and what follows waits for the next. A word without an
edge is encoded in parts, which may count a token too many.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from midstream._regroup.arguments import count, refused
from midstream._regroup.holdback import Holdback
from midstream._regroup.segmentation import CLUSTER_LIMIT, edge_from, edge_until, tail
from midstream._values.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 16_384
"""Characters after which a piece is cut at a grapheme edge, whatever it counts."""

_WORD_LIMIT = 256  # characters after which a word is counted before its end

_BEYOND = " 、。，！？；：「」『』（）"  # noqa: RUF001 - full-width marks are meant
_beyond = re.compile(f"[{_BEYOND}]").search
_to_word_edge = re.compile(rf"(?s:.*)(?:\S(?= )|\w(?=[{_BEYOND}]))").match


@runtime_checkable
class Encoding(Protocol):
    """What is needed of a ``tiktoken.Encoding``."""

    def encode_ordinary(self, text: str, /) -> list[int]:
        """Turn text into tokens, none of them special."""
        ...

    def decode_with_offsets(self, tokens: Sequence[int], /) -> tuple[str, list[int]]:
        """Tell at which character each token begins."""
        ...


class Tokens:
    """Re-aggregator that gives pieces of `n` tokens.

    Args:
        n: Tokens a piece, 1 or more.
        max_wait: Seconds that text may be held back for its piece to fill; None for
            as long as it takes. Once they are over, it is given as it is, but for a
            grapheme cluster that is visibly unfinished (👩 with a joiner).
        encoding: What counts when the server does not: the name of a tiktoken
            encoding, loaded when first needed, or an encoding of your own.

    Raises:
        UsageError: If `n` is no whole number, 1 or more, `max_wait` no number of
            seconds, 0 or more, or `encoding` neither a name nor an encoding.
    """

    __slots__ = ("_count", "_counted", "_encoding", "_held", "_marks", "_n")

    def __init__(
        self,
        n: int,
        max_wait: float | None = None,
        *,
        encoding: str | Encoding = "cl100k_base",
    ) -> None:
        self._n = count(n, "n is tokens a piece, 1 or more", "Tokens(8)")
        self._held = Holdback(max_wait, "Tokens(8, max_wait=0.5)")
        if not isinstance(encoding, str | Encoding):
            raise refused(
                encoding,
                "encoding is the name of a tiktoken encoding, or one itself",
                'Tokens(8, encoding="cl100k_base")',
            )
        self._encoding = encoding
        self._count = 0  # tokens since the last mark
        self._counted = 0  # index in the held text up to which they are counted
        self._marks: list[int] = []  # indices where pieces end

    def fresh(self) -> Self:
        """Give one with the same settings that has seen no text."""
        return type(self)(self._n, self._held.max_wait, encoding=self._encoding)

    def feed(self, text: str, now: float, *, tokens: int | None = None) -> list[str]:
        """Take text and give the pieces that are full.

        Args:
            text: What came, or ``""`` at the deadline.
            now: The caller's monotonic clock, in seconds.
            tokens: How many tokens the text is, by the server; None if it does not
                say.

        Returns:
            The pieces, in order.

        Raises:
            UsageError: If the server does not say and the vocabulary is missing.
                The text of this call is then not taken.
        """
        held = self._held
        buffer = held.text + text
        if tokens is not None:
            # Text that came before without a count is counted first.
            self._encode(held.text, len(held.text))
            self._counted = len(buffer)
            self._count += tokens
            if self._count >= self._n and self._mark(len(buffer)):
                self._count = 0
        elif text:
            self._load()
            # Without one of these in it, the text brings no new word edge.
            edge = _to_word_edge(buffer, self._counted) if _beyond(text) else None
            if edge:
                self._encode(buffer, edge.end())
            elif len(buffer) - self._counted > _WORD_LIMIT:
                self._encode(buffer, len(buffer))
        pieces, rest = self._cut(buffer, tail(buffer) if self._marks else 0)
        overdue = held.keep(rest, len(text), now)
        if overdue:
            self._count = 0
            self._marks = []
            self._counted = max(self._counted - len(overdue), 0)
            pieces.append(overdue)
        return pieces

    def flush(self) -> list[str]:
        """Give what is left, in pieces of `n` tokens and a last one that may be short.

        Returns:
            The last pieces.
        """
        rest = self._held.text
        self._encode(rest, len(rest))
        pieces, self._held.text = self._cut(rest, len(rest))
        self._count = self._counted = 0
        return pieces + self._held.flush()

    @property
    def deadline(self) -> float | None:
        """When `feed` must be called with ``""``, in seconds; None for never."""
        return self._held.deadline

    def _load(self) -> Encoding:
        if isinstance(self._encoding, str):
            import tiktoken  # noqa: PLC0415 - slow to load, and often not needed

            try:
                self._encoding = tiktoken.get_encoding(self._encoding)
            except (OSError, ValueError) as error:
                raise UsageError(
                    "Tokens must count, as the server does not, and tiktoken could "
                    f"not get its vocabulary {self._encoding!r} ({error}). Offline, "
                    "set TIKTOKEN_CACHE_DIR to a directory that tiktoken filled on a "
                    "machine with a network, or pass a tiktoken.Encoding: "
                    "Tokens(n, encoding=...)."
                ) from error
        return self._encoding

    def _encode(self, text: str, end: int) -> None:
        """Count the tokens up to an index, and mark where pieces end."""
        begin = self._counted
        if end <= begin:
            return
        encoding = self._load()
        part = text[begin:end]
        ids = encoding.encode_ordinary(part)
        self._counted = end
        before = self._count
        self._count = (before + len(ids)) % self._n
        if before + len(ids) >= self._n:
            starts = encoding.decode_with_offsets(ids)[1]
            ends = [*starts[1:], len(part)]
            for at in ends[self._n - before - 1 :: self._n]:
                self._mark(begin + at)

    def _mark(self, at: int) -> bool:
        """Let a piece end at an index, if that gives it any text."""
        if at <= (self._marks[-1] if self._marks else 0):
            return False
        self._marks.append(at)
        return True

    def _cut(self, text: str, stop: int) -> tuple[list[str], str]:
        """Cut at the marks up to an edge that is proven, and what is too long."""
        pieces: list[str] = []
        start = 0
        for mark in self._marks:
            if mark > stop:
                break
            start = _cut_long(text, start, mark, pieces)
            if mark > start:
                window = text[start : mark + CLUSTER_LIMIT]
                pieces.append(window[: edge_from(window, mark - start)])
                start += len(pieces[-1])
        start = _cut_long(text, start, len(text), pieces)
        self._marks = [mark - start for mark in self._marks if mark > max(start, stop)]
        self._counted = max(self._counted - start, 0)
        return pieces, text[start:]


def _cut_long(text: str, start: int, end: int, pieces: list[str]) -> int:
    """Cut what is longer than the limit; give where the rest begins."""
    while end - start > LIMIT:
        window = text[start : start + LIMIT + 1]
        pieces.append(window[: edge_until(window, LIMIT)])
        start += len(pieces[-1])
    return start
