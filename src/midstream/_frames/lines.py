"""Bytes to lines: what the text framings share.

A line ends with LF; one byte order mark at the begin of the body is stripped, and
compressed bytes that no header announced are refused. One ``split`` per piece, no copy
of what is still incomplete: pieces of an open line wait in a list and are joined when
its end arrives, so that a record of any size costs linear time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream._frames import MAX_RECORD
from midstream._values.errors import EventTooLarge, WireError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"


class LineSplitter:
    """Cuts bytes into lines.

    Args:
        limit: The most bytes of one line, or of one event's lines together.
    """

    __slots__ = ("_begun", "_offset", "_parts", "_size", "limit")

    def __init__(self, limit: int = MAX_RECORD) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._offset = 0
        self._begun = False

    def split(self, piece: bytes) -> Iterator[bytes]:
        """The lines that ``piece`` completes, without their LF.

        Raises:
            EventTooLarge: A line is too long, once those before it were given.
            WireError: The body is compressed.
        """
        self._offset += len(piece)
        if not self._begun:
            piece = self._begin(piece)
        lines = piece.split(b"\n")
        rest = lines.pop()
        if lines and self._parts:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts.clear()
            self._size = 0
        for line in lines:
            if len(line) > self.limit:
                raise self.too_large()
            yield line
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > self.limit:
                raise self.too_large()

    def rest(self) -> bytes:
        """The line that the end of the body left open."""
        rest = b"".join(self._parts)
        self._parts.clear()
        return rest

    def too_large(self) -> EventTooLarge:
        """The error for a record beyond the limit."""
        return EventTooLarge(
            f"a record of more than {self.limit:,} bytes", offset=self._offset
        )

    def _begin(self, piece: bytes) -> bytes:
        """Strip one byte order mark; refuse compressed bytes that nobody announced."""
        piece = self.rest() + piece
        self._size = 0
        if len(piece) < len(_BOM) and (_BOM.startswith(piece) or piece == _GZIP[:1]):
            self._parts.append(piece)
            return b""
        self._begun = True
        if piece.startswith(_GZIP):
            raise WireError("gzip bytes without a Content-Encoding header")
        return piece.removeprefix(_BOM)
