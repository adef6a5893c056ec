"""Server-sent events or a JSON array, told by the first byte.

Gemini sends the one with ``alt=sse`` and the other without, and errors as arrays in any
case. The body itself says which it is, so no header and no request need be known: one
that begins with ``[`` is an array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream._frames import MAX_RECORD
from midstream._frames.json_array import JSONArrayFramer
from midstream._frames.sse import SSEFramer

if TYPE_CHECKING:
    from midstream._frames import Framer, Record

_BOM = b"\xef\xbb\xbf"


class SSEOrArrayFramer:
    """Cuts a body into events or objects.

    Args:
        limit: The most bytes of one record.
    """

    __slots__ = ("_framer", "_head", "limit")

    def __init__(self, limit: int = MAX_RECORD) -> None:
        self.limit = limit
        self._head = b""
        self._framer: Framer | None = None

    def decode(self, piece: bytes) -> list[Record]:
        """The records that ``piece`` completes."""
        if self._framer is None:
            self._head += piece
            begin = self._head.removeprefix(_BOM).lstrip(b" \t\r\n")
            if not begin or _BOM.startswith(begin):
                return []
            piece, self._head = self._head, b""
            if begin.startswith(b"["):
                self._framer, piece = JSONArrayFramer(self.limit), begin
            else:
                self._framer = SSEFramer(self.limit)
        return self._framer.decode(piece)

    def flush(self) -> list[Record]:
        """The record that the end of the body leaves open."""
        return [] if self._framer is None else self._framer.flush()
