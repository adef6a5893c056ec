"""Content-Encoding, undone piece by piece: what a flush of the server ended comes out.

We ask for ``identity``; this is for servers and proxies that compress in spite of it.
They can only know gzip and deflate of us. httpx could decode too, but only at the end
of a chain of async generators, and a decoding error there would leave the rest of the
chain to the garbage collector.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from midstream._errors import WireError

if TYPE_CHECKING:
    from collections.abc import Mapping

_EITHER = 32 + zlib.MAX_WBITS  # a gzip or a zlib header
_BARE = -zlib.MAX_WBITS  # some servers' idea of deflate: no header at all


class Inflater:
    """Decompresses one body."""

    def __init__(self) -> None:
        self._machine = zlib.decompressobj(_EITHER)
        self._begun = False

    def inflate(self, data: bytes) -> bytes:
        """What ``data`` completes, perhaps nothing yet.

        Raises:
            WireError: The body is not compressed as its header says.
        """
        parts: list[bytes] = []
        while data:
            parts.append(self._decompress(data))
            data = self._machine.unused_data
            if self._machine.eof:
                self._machine = zlib.decompressobj(_EITHER)  # gzip: RFC 1952 §2.2
        return b"".join(parts)

    def _decompress(self, data: bytes) -> bytes:
        begun, self._begun = self._begun, True
        try:
            return self._machine.decompress(data)
        except zlib.error as error:
            if begun:
                raise _wire_error(error) from error
        self._machine = zlib.decompressobj(_BARE)
        try:
            return self._machine.decompress(data)
        except zlib.error as error:
            raise _wire_error(error) from error


def inflater_for(headers: Mapping[str, str]) -> Inflater | None:
    """What the body needs; None: nothing.

    Raises:
        WireError: It needs something else.
    """
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding in ("identity", ""):
        return None
    if coding in ("gzip", "x-gzip", "deflate"):
        return Inflater()
    raise WireError(
        f"the server sends Content-Encoding {coding!r} though it was asked for none"
    )


def _wire_error(error: zlib.error) -> WireError:
    return WireError(f"the body is not what its Content-Encoding says: {error}")
