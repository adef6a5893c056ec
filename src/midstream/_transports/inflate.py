"""Content-Encoding, undone piece by piece: what a flush of the server ended comes out.

We ask for ``identity``; this is for servers and proxies that compress in spite of it.
They can only know gzip and deflate of us. httpx could decode too, but only at the end
of a chain of async generators, and a decoding error there would leave the rest of the
chain to the garbage collector.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from midstream._values.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Mapping

_EITHER = 32 + zlib.MAX_WBITS  # a gzip or a zlib header
_HEADER = 2
_BARE = -zlib.MAX_WBITS  # some servers' idea of deflate: no header at all


class Inflater:
    """Decompresses one body.

    Args:
        bare: Whether it may come without a header.

    Attributes:
        whole: Whether what came ends with a trailer, or nothing came.
    """

    def __init__(self, *, bare: bool = False) -> None:
        self._bare = bare
        self._head = b""
        self._machine = zlib.decompressobj(_EITHER)
        self.whole = True

    def inflate(self, data: bytes) -> bytes:
        """What ``data`` completes, perhaps nothing yet.

        Raises:
            WireError: The body is not compressed as its header says.
        """
        if data:
            self.whole = False
        if self._bare:
            data = self._begin(data)
        parts: list[bytes] = []
        try:
            while data:
                parts.append(self._machine.decompress(data))
                data = self._machine.unused_data
                self.whole = self._machine.eof
                if self.whole:
                    self._machine = zlib.decompressobj(_EITHER)  # RFC 1952 §2.2
        except zlib.error as error:
            raise WireError(
                f"the body is not what its Content-Encoding says: {error}"
            ) from error
        return b"".join(parts)

    def _begin(self, data: bytes) -> bytes:
        """Wait for the two bytes that tell whether there is a header."""
        head = self._head + data
        if len(head) < _HEADER:
            self._head = head
            return b""
        self._bare = False
        method, check = head[0] & 15, int.from_bytes(head[:2], "big") % 31
        if (method, check) != (zlib.DEFLATED, 0):  # RFC 1950 §2.2
            self._machine = zlib.decompressobj(_BARE)
        return head


def inflater_for(headers: Mapping[str, str]) -> Inflater | None:
    """What the body needs; None: nothing.

    Raises:
        WireError: It needs something else.
    """
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding in ("identity", ""):
        return None
    if coding in ("gzip", "x-gzip", "deflate"):
        return Inflater(bare=coding == "deflate")
    raise WireError(
        f"the server sends Content-Encoding {coding!r} though it was asked for none"
    )
