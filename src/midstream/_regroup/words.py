r"""Words: a word of UAX #29 with the marks and the white space that belong to it.

A piece is: opening marks, one word, closing marks, white space. It is finished when a
character that must begin the next piece has come, so every edge is decided by what
stands before it and by one character after it, and any split of a text gives the same
pieces. Edges of words that lie inside a grapheme cluster (Thai sara am, a prepended
sign) are no edges here.

Scripts without spaces follow UAX #29: each ideograph, hiragana or Thai cluster is a
word, a run of katakana is one. Text in ASCII, the usual case, is cut by a pattern of
the standard library that is the same grammar.
"""

import re
from typing import Self

from midstream._regroup.holdback import Holdback
from midstream._regroup.segmentation import edge_until, is_edge, rules

LIMIT = 256
"""Characters after which a word without an end is cut at a grapheme edge."""

# WB6-WB7 and WB11-WB12 join letters over ' : . and digits over ' . , and ;
_ascii_pieces = re.compile(
    r"""
    (?=.)                              # not the empty piece at the end
    [^\w\s]*+
    (?: \w+ (?: (?<=[A-Za-z]) [':.] (?=[A-Za-z]) \w+
              | (?<=[0-9]) ['.,;] (?=[0-9]) \w+ )* )?
    [^\w\s(\[{]*+
    [\t-\r\x20]*
    """,
    re.VERBOSE | re.ASCII | re.DOTALL,
).findall


class Words:
    """Re-aggregator that gives words: ``"hello, "``, ``"東"``.

    Args:
        max_wait: Seconds that text may be held back for its word to become whole;
            None for as long as it takes. Once they are over, it is given as it is, but
            for a grapheme cluster that is visibly unfinished (👩 with a joiner).

    Raises:
        UsageError: If `max_wait` is no number of seconds, 0 or more.
    """

    __slots__ = ("_held",)

    def __init__(self, max_wait: float | None = 0.2) -> None:
        self._held = Holdback(max_wait, "Words(max_wait=0.2)")

    def fresh(self) -> Self:
        """Give one with the same settings that has seen no text."""
        return type(self)(self._held.max_wait)

    def feed(self, text: str, now: float) -> list[str]:
        """Take text and give the words that are whole.

        Args:
            text: What came, or ``""`` at the deadline.
            now: The caller's monotonic clock, in seconds.

        Returns:
            The pieces, in order.
        """
        held = self._held
        if not text:
            overdue = held.release(now)
            return [overdue] if overdue else []
        buffer = held.text + text
        if len(buffer) <= LIMIT and buffer.isascii():
            pieces: list[str] = _ascii_pieces(buffer)
        else:
            pieces = _cut(buffer)
        overdue = held.keep(pieces.pop(), len(text), now)
        if overdue:
            pieces.append(overdue)
        return pieces

    def flush(self) -> list[str]:
        """Give the last word.

        Returns:
            One piece, or none.
        """
        return self._held.flush()

    @property
    def deadline(self) -> float | None:
        """When `feed` must be called with ``""``, in seconds; None for never."""
        return self._held.deadline


def _cut(text: str) -> list[str]:
    """Split text into words; the last may be unfinished."""
    match = rules().WORD.match
    pieces = []
    start, size = 0, len(text)
    while start < size:
        # A window, so that a piece is cut the same however much came with it.
        window = text[start : start + LIMIT + 1]
        end: int = match(window).end()
        while end < len(window) and not is_edge(window, end):
            end = match(window, end).end()
        if end > LIMIT:
            end = edge_until(window, LIMIT) or LIMIT
        pieces.append(window[:end])
        start += end
    return pieces
