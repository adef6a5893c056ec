"""Tokenizers in Hugging Face's ``tokenizer.json``.

Source: huggingface/tokenizers ``tokenizer/serialization.rs``. The vocabulary and the
decoder in it are read here, so that answers need no further package: byte-level and
SentencePiece decoders spell each token by itself. Any other decoder is left to the
package `tokenizers`, which is asked what a token adds behind another one; that gives
whole characters only, which such vocabularies have. Text to ids is always its work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from midstream._tokenizers import byte_fallback, byte_level
from midstream._tokenizers.protocol import needs
from midstream._values.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SENTENCE_PIECE = {"ByteFallback", "Fuse", "Metaspace", "Replace", "Strip"}
_ANCHOR = "a"  # what a token is asked to stand behind


class HuggingFace:
    """A ``tokenizer.json``.

    Args:
        text: The file's text.

    Attributes:
        special: Ids of control tokens.

    Raises:
        UsageError: It is no such file.
    """

    def __init__(self, text: str | bytes) -> None:
        self._library: Any = None
        self._known: dict[int, bytes] = {}
        try:
            self._text = text.decode() if isinstance(text, bytes) else text
            self._read(from_json(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"no tokenizer.json: {error!r}") from error

    def _read(self, document: Mapping[str, Any]) -> None:
        vocabulary = document["model"]["vocab"]
        added = document.get("added_tokens") or ()
        if isinstance(vocabulary, list):  # Unigram: pieces with their scores
            self._tokens = {id_: piece for id_, (piece, _) in enumerate(vocabulary)}
        else:
            self._tokens = {id_: token for token, id_ in vocabulary.items()}
        self._tokens |= {one["id"]: one["content"] for one in added}
        self.special = frozenset(one["id"] for one in added if one["special"])
        self._decode = _decode(document.get("decoder")) or self._behind_another

    def token_bytes(self, id_: int) -> bytes:
        """See `Tokenizer.token_bytes`."""
        known = self._known.get(id_)
        if known is None:
            token = self._tokens.get(id_)
            known = b"" if token is None else self._decode(token)
            self._known[id_] = known
        return known

    def encode(self, text: str, *, whole: bool) -> list[int]:
        """See `Tokenizer.encode`; no token that begins a sequence comes twice."""
        package = self._package()
        try:
            ids: list[int] = package.encode(text, add_special_tokens=whole).ids
        except Exception as error:  # all that the library ever raises
            raise UsageError(f"no ids for a text: {error}") from error
        if whole and len(ids) > 1 and ids[0] == ids[1] and ids[0] in self.special:
            return ids[1:]
        return ids

    def _behind_another(self, token: str) -> bytes:
        """What the library's decoder adds for a token behind another one."""
        decoder = self._package().decoder
        if decoder is None:
            raise UsageError("there is no decoder in this tokenizer.json")
        alone, both = decoder.decode([_ANCHOR]), decoder.decode([_ANCHOR, token])
        return str(both).removeprefix(alone).encode("utf-8", "replace")

    def _package(self) -> Any:
        if self._library is None:
            module = needs("tokenizers", "turning text into token ids")
            try:
                library = module.Tokenizer.from_str(self._text)
            except Exception as error:  # as above
                raise UsageError(f"no tokenizer.json: {error}") from error
            library.no_truncation()
            library.no_padding()
            self._library = library
            self._text = ""  # it has megabytes
        return self._library


def _decode(decoder: Any) -> Callable[[str], bytes] | None:
    """The function that does what a decoder would do with one token, if one can."""
    if not decoder:
        return None
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds and kinds <= {"ByteLevel", "Fuse"}:
        return byte_level.decode
    replaced = [step for step in steps if step["type"] == "Replace"]
    if not kinds <= _SENTENCE_PIECE or not all(map(_is_space, replaced)):
        return None
    if "ByteFallback" in kinds:
        return byte_fallback.decode
    return byte_fallback.decode_words


def _is_space(step: Mapping[str, Any]) -> bool:
    """Whether a decoder's step puts the space where its mark stands."""
    return bool(step["pattern"] == {"String": "\u2581"} and step["content"] == " ")
