"""The byte-level vocabularies of GPT-2 and all its heirs: a printable letter a byte.

Source: openai/gpt-2 ``src/encoder.py`` (``bytes_to_unicode``), huggingface/tokenizers
``decoders/byte_level.rs``: bytes that are printable in Latin-1 stand for themselves,
the others for the letters from U+0100 on. A token with any other letter in it is no
byte-level token but an added one, whose text is itself.
"""

from __future__ import annotations

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(0x100) if byte not in _PRINTABLE]

LETTERS: dict[int, str] = {byte: chr(byte) for byte in _PRINTABLE} | {
    byte: chr(0x100 + nth) for nth, byte in enumerate(_OTHERS)
}
"""The letter of each byte."""
_BYTES = {letter: byte for byte, letter in LETTERS.items()}


def decode(token: str) -> bytes:
    """The bytes that a token's letters stand for.

    Args:
        token: It, as the vocabulary spells it.
    """
    try:
        return bytes([_BYTES[letter] for letter in token])
    except KeyError:
        return token.encode("utf-8", "replace")


def encode(data: bytes) -> str:
    """The letters for bytes.

    Args:
        data: The bytes of a token.
    """
    return "".join(map(LETTERS.__getitem__, data))
