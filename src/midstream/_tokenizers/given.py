"""The tokenizer that a caller gives, whatever kind of thing it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from midstream._tokenizers.bundle import folder
from midstream._tokenizers.hugging_face import HuggingFace
from midstream._tokenizers.learned import Learned
from midstream._tokenizers.tiktoken_encoding import Tiktoken
from midstream._values.errors import UsageError


class Own:
    """A caller's own object with ``encode(text)`` and ``token_bytes(id)``.

    Args:
        inner: It; its ``special_ids``, where it has them, are the control tokens.

    Attributes:
        special: Ids of control tokens.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        ids: frozenset[int] = frozenset(getattr(inner, "special_ids", ()))
        self.special = ids

    def token_bytes(self, id_: int) -> bytes:
        """See `Tokenizer.token_bytes`."""
        return bytes(self._inner.token_bytes(id_))

    def encode(self, text: str, *, whole: bool) -> list[int]:
        """See `Tokenizer.encode`; what is added is the object's own affair."""
        del whole
        return list(self._inner.encode(text))


def learn(given: Any) -> Learned:
    """Make use of what a caller gave as ``Endpoint(tokenizer=…)``.

    Args:
        given: A path, a name, or an object.

    Raises:
        UsageError: Nothing can be made of it.
    """
    if isinstance(given, str | os.PathLike):
        return _named(given)
    if hasattr(given, "decode_single_token_bytes"):  # tiktoken.Encoding
        return Learned(tokenizer=Tiktoken(given))
    if hasattr(given, "to_str"):  # tokenizers.Tokenizer
        return Learned(tokenizer=HuggingFace(given.to_str()))
    if hasattr(given, "encode") and hasattr(given, "token_bytes"):
        return Learned(tokenizer=Own(given))
    raise UsageError(
        f"no tokenizer: {type(given).__name__}; give a tokenizer.json or its folder, a "
        "tokenizers.Tokenizer, a tiktoken.Encoding or its name, or an object with "
        "encode(text) and token_bytes(id)"
    )


def _named(name: str | os.PathLike[str]) -> Learned:
    path = Path(name)
    try:
        if path.is_dir():
            return folder(path).learned()
        if path.is_file():
            return Learned(tokenizer=HuggingFace(path.read_bytes()))
    except OSError as error:
        raise UsageError(f"tokenizer {str(name)!r}: {error}") from error
    import tiktoken  # noqa: PLC0415 - loaded on first use

    if str(name) not in tiktoken.list_encoding_names():
        raise UsageError(f"tokenizer {str(name)!r}: no file, folder or tiktoken name")
    try:
        return Learned(tokenizer=Tiktoken(tiktoken.get_encoding(str(name))))
    except Exception as error:  # whatever the download of a vocabulary raises
        raise UsageError(f"tiktoken's {str(name)!r} cannot be had: {error}") from error
