"""SentencePiece vocabularies: ``▁`` for the space, ``<0xE6>`` for a lone byte.

Source: google/sentencepiece ``doc/special_symbols.md`` and huggingface/tokenizers
``decoders/{byte_fallback,metaspace}.rs``. The space before a text's first word, which
these decoders strip, stays: an answer stands behind a prompt, where it is meant.
"""

from __future__ import annotations

import re

_SPACE = "\u2581"
_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


def decode(token: str) -> bytes:
    """The bytes of a token of a vocabulary with byte fallback.

    Args:
        token: It, as the vocabulary spells it.
    """
    byte = _BYTE.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else decode_words(token)


def decode_words(token: str) -> bytes:
    """The bytes of a token of a vocabulary without byte fallback.

    Args:
        token: It, as the vocabulary spells it.
    """
    return token.replace(_SPACE, " ").encode("utf-8", "replace")
