r"""Lines: each with its ending, which is ``\n``, ``\r\n`` or ``\r``.

Only these end a line; U+2028, form feed and the others of ``str.splitlines`` may
stand inside a line of code or JSON. A ``\r`` at the end of what came waits, as the
``\n`` of the same ending may be the next character. Parts of a line are joined when
its end has come, so that a long line in short parts costs no more than its length.
"""

import re
from typing import Self

from midstream._regroup.segmentation import edge_until

LIMIT = 65_536
"""Characters after which a line without an end is cut at a grapheme edge."""

_ending = re.compile(r"\r\n?|\n").search


class Lines:
    """Re-aggregator that gives whole lines, with their endings."""

    __slots__ = ("_open", "_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0
        self._open = False  # a CR at the end may be the first half of a CR LF

    def fresh(self) -> Self:
        """Give one that has seen no text."""
        return type(self)()

    def feed(self, text: str, now: float) -> list[str]:
        """Take text and give the lines that are whole.

        Args:
            text: What came.
            now: Not used: a line waits for its end.

        Returns:
            The lines, in order.
        """
        if not text:
            return []
        self._parts.append(text)
        self._size += len(text)
        if (
            "\n" not in text
            and "\r" not in text
            and not self._open
            and self._size <= LIMIT
        ):
            return []
        return self._cut("".join(self._parts))

    def flush(self) -> list[str]:
        """Give the last line, which may lack its ending.

        Returns:
            One piece, or none.
        """
        rest = "".join(self._parts)
        self._keep("")
        return [rest] if rest else []

    @property
    def deadline(self) -> None:
        """None: lines wait for their end, however long that takes."""
        return

    def _cut(self, text: str) -> list[str]:
        lines: list[str] = []
        start, size = 0, len(text)
        while start < size:
            ending = _ending(text, start, start + LIMIT + 2)
            end = ending.end() if ending else min(size, start + LIMIT + 2)
            if end - start > LIMIT:
                window = text[start : start + LIMIT + 1]
                end = start + edge_until(window, LIMIT)
            elif end == size and text[-1] != "\n":
                break
            lines.append(text[start:end])
            start = end
        self._keep(text[start:])
        return lines

    def _keep(self, rest: str) -> None:
        self._parts = [rest] if rest else []
        self._size = len(rest)
        self._open = rest.endswith("\r")
