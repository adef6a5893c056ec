r"""The one incremental UTF-8 decoder that every dialect's text goes through.

Text reaches it as `bytes` (tensors, token bytes) or as `str` in which lone surrogates
stand for what JSON could not say in whole characters: a raw byte that was no UTF-8
(U+DC80 to U+DCFF, by ``surrogateescape``), or half of a ``\uD83D\uDE00`` pair whose
other half comes with the next record. Everything is turned into bytes with the
surrogate halves kept, and only whole characters are given out.

Half a character waits for its rest; it is never shown, and after a drop it is
forgotten, as the continuation sends it again.
"""

from __future__ import annotations

import codecs
import re
from typing import Literal

from midstream._values.errors import WireError

_HIGH = re.compile("[\ud800-\udbff]\\Z")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE = re.compile("[\ud800-\udbff]|[\udc00-\udc7f\udd00-\udfff]")
REPLACEMENT = "\ufffd"


def _joined(match: re.Match[str]) -> str:
    return match.group().encode("utf-16", "surrogatepass").decode("utf-16")


class Utf8Decoder:
    """Whole characters from pieces that may end inside one.

    Args:
        errors: ``"replace"`` gives U+FFFD for bytes that are no UTF-8 and counts
            them; ``"strict"`` raises.

    Attributes:
        replaced: How many U+FFFD were put in for bytes that are no UTF-8.
    """

    __slots__ = ("_errors", "_half", "_high", "replaced")

    def __init__(self, errors: Literal["replace", "strict"] = "replace") -> None:
        self._errors = errors
        self._half = b""
        self._high = ""
        self.replaced = 0

    @property
    def pending(self) -> bool:
        """Whether half a character waits."""
        return bool(self._half or self._high)

    def decode(self, piece: bytes | str) -> str:
        """The whole characters that ``piece`` completes.

        Raises:
            WireError: Under ``errors="strict"``, for bytes that are no UTF-8.
        """
        if not self._half and not self._high:
            if piece.isascii():
                return piece if isinstance(piece, str) else piece.decode("ascii")
            if isinstance(piece, str):
                try:
                    piece.encode()
                except UnicodeEncodeError:
                    pass
                else:
                    return piece
        return self._whole(self._bytes(piece), final=False)

    def flush(self) -> str:
        """What is left at the end of the stream: U+FFFD for half a character."""
        high, self._high = self._high, ""
        rest = self._whole(b"", final=True)
        return rest + self._replace(high) if high else rest

    def forget(self) -> None:
        """Drop the waiting half: a continuation will send that character again."""
        self._half = b""
        self._high = ""

    def _bytes(self, piece: bytes | str) -> bytes:
        """UTF-8 of the piece, halves of surrogate pairs joined across pieces."""
        if isinstance(piece, bytes):
            lone, self._high = self._high, ""
            return self._replace(lone).encode() + piece if lone else piece
        piece = _PAIR.sub(_joined, self._high + piece)
        high = _HIGH.search(piece)
        self._high = high.group() if high else ""
        whole = piece[: high.start()] if high else piece
        return _LONE.sub(lambda m: self._replace(m.group()), whole).encode(
            "utf-8", "surrogateescape"
        )

    def _whole(self, more: bytes, *, final: bool) -> str:
        data = self._half + more
        try:
            text, used = codecs.utf_8_decode(data, "strict", final)
        except UnicodeDecodeError as error:
            if self._errors == "strict":
                raise WireError(f"not UTF-8: {error.reason}") from error
            text, used = codecs.utf_8_decode(data, "replace", final)
            self.replaced += text.count(REPLACEMENT) - data.count(b"\xef\xbf\xbd")
        self._half = data[used:]
        return text

    def _replace(self, lone: str) -> str:
        if self._errors == "strict":
            raise WireError(f"a lone surrogate U+{ord(lone[0]):04X}")
        self.replaced += 1
        return REPLACEMENT
