"""tiktoken's encodings: bytes by id are their nature."""

from __future__ import annotations

from typing import Any


class Tiktoken:
    """A tiktoken encoding.

    It knows of no tokens that begin or end a sequence: none are added.

    Args:
        encoding: A `tiktoken.Encoding`.

    Attributes:
        special: Ids of control tokens.
    """

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding
        self._names = encoding.special_tokens_set
        self.special = frozenset(map(encoding.encode_single_token, self._names))

    def token_bytes(self, id_: int) -> bytes:
        """See `Tokenizer.token_bytes`."""
        try:
            return bytes(self._encoding.decode_single_token_bytes(id_))
        except KeyError:
            return b""

    def encode(self, text: str, *, whole: bool) -> list[int]:
        """See `Tokenizer.encode`."""
        del whole
        return list(
            self._encoding.encode(
                text, allowed_special=self._names, disallowed_special=()
            )
        )
