"""The body of a streamed response: compression and HTTP chunks around the records.

It is told bytes of the body and counts them; how they travel is `Chunking`'s business.
What is not sent yet can be flushed (before a cut) or is flushed by the end.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from midstream.testing._fake.faults import Chunking
    from midstream.testing._fake.wire import Line

_GZIP = 31  # window bits for a gzip header


class Body:
    """One streamed body.

    Args:
        line: The connection.
        chunking: How it travels.
        gzip: Whether it is compressed, with a flush for each piece.
    """

    def __init__(self, line: Line, chunking: Chunking, *, gzip: bool = False) -> None:
        self._line = line
        self._how = chunking.how
        self._zip = zlib.compressobj(wbits=_GZIP) if gzip else None
        self._waiting: list[bytes] = []
        self.size = 0

    def send(self, data: bytes) -> None:
        """Send a piece of the body."""
        self.size += len(data)
        if self._zip is not None:
            data = self._zip.compress(data) + self._zip.flush(zlib.Z_SYNC_FLUSH)
        if isinstance(self._how, int):
            for start in range(0, len(data), self._how):
                self._wire(self._chunk(data[start : start + self._how]))
        elif data:
            self._wire(self._chunk(data))

    def send_part(self, data: bytes, size: int) -> None:
        """Send the first bytes of a chunk that promises all of `data`."""
        self.size += size
        self.flush()
        if self._zip is not None:
            data = self._zip.compress(data) + self._zip.flush(zlib.Z_SYNC_FLUSH)
            size = len(data) // 2
        part = data[:size]
        self._line.send(part if self._how == "close" else b"%x\r\n" % len(data) + part)

    def end(self) -> None:
        """End the body properly."""
        rest = self._zip.flush() if self._zip is not None else b""
        if rest:
            self._wire(self._chunk(rest))
        if self._how == "close":
            self._line.finish()
        else:
            self._wire(b"0\r\n\r\n")
        self.flush()

    def flush(self) -> None:
        """Send what waits."""
        data = b"".join(self._waiting)
        self._waiting.clear()
        if data:
            self._line.send(data)

    def _chunk(self, data: bytes) -> bytes:
        return data if self._how == "close" else b"%x\r\n%s\r\n" % (len(data), data)

    def _wire(self, data: bytes) -> None:
        if self._how == "whole":
            self._waiting.append(data)
        elif self._how == "bytes":
            for byte in data:
                self._line.send(bytes([byte]))
        else:
            self._line.send(data)
