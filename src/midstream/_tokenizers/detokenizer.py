"""Token ids that come, to text that may be shown, and to ids that were received.

Bytes go on at once, as text with lone surrogates for what is no whole character; the
session's decoder joins those. Only what may begin a stop string waits. An id counts as
received when all its bytes have gone on and end with a whole character: what is sent
back after a drop then spells whole characters, and nothing that a stop string may need.
Until then its text is worth no token, and comes again.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midstream._tokenizers.stop_strings import StopStrings
from midstream._values.events import TextDelta

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from midstream._tokenizers.protocol import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """How ids are to be spoken.

    Attributes:
        tokenizer: Knows their bytes.
        silent: Ids that have no text: control tokens, and those that end the answer.
        stop: Strings that end the answer.
        keep_stop: Whether these are part of it.
        min_tokens: Tokens before which nothing ends it.
    """

    tokenizer: Tokenizer
    silent: Container[int] = ()
    stop: Sequence[str] = ()
    keep_stop: bool = False
    min_tokens: int = 0

    def token_bytes(self, id_: int) -> bytes:
        """The bytes of one token of the answer."""
        return b"" if id_ in self.silent else self.tokenizer.token_bytes(id_)

    def spell(self, ids: Sequence[int]) -> bytes:
        """The bytes of an answer without stop strings in it."""
        return b"".join(map(self.token_bytes, ids))


class Detokenizer:
    """One answer's way from ids to text.

    Args:
        speech: How its ids are spoken.
        choice: Which of n answers it is.
    """

    __slots__ = ("_choice", "_count", "_half", "_logprobs", "_speech", "_stop", "_wait")

    def __init__(self, speech: Speech, choice: int = 0) -> None:
        self._speech = speech
        self._choice = choice
        self._stop = StopStrings(speech.stop, keep=speech.keep_stop)
        self._half = b""
        self._wait: list[int] = []
        self._logprobs: list[Any] = []
        self._count = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found; nothing more is said."""
        return self._stop.matched

    def feed(self, ids: Sequence[int], logprobs: Sequence[Any] = ()) -> list[TextDelta]:
        """What new ids say.

        Args:
            ids: They, in order.
            logprobs: The server's log probabilities for them, one item an id, if any.
        """
        self._logprobs += logprobs
        settled, said, whole = 0, b"", b""
        for id_ in ids:
            self._wait.append(id_)
            self._count += 1
            armed = self._count > self._speech.min_tokens
            out = self._stop.feed(self._speech.token_bytes(id_), armed=armed)
            said += out
            self._half = _half(self._half + out)
            if not (self._half or self._stop.holding or self._stop.matched):
                settled = len(self._wait)
                whole += said
                said = b""
        deltas = [self._settle(whole, settled)] if settled else []
        if said:
            deltas.append(TextDelta(_text(said), self._choice, 0))
        return deltas

    def flush(self) -> list[TextDelta]:
        """What waited for the answer's end."""
        rest = self._stop.flush()
        return [self._settle(rest, len(self._wait))] if self._wait else []

    def _settle(self, data: bytes, count: int) -> TextDelta:
        """Text, and the first ids that waited for it."""
        ids, logprobs = tuple(self._wait[:count]), self._logprobs[:count] or None
        del self._wait[:count], self._logprobs[:count]
        return TextDelta(_text(data), self._choice, count, ids, logprobs)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _half(data: bytes) -> bytes:
    """The begin of a character at the end of the data."""
    if data.isascii():
        return b""
    return data[codecs.utf_8_decode(data, "replace", False)[1] :]  # noqa: FBT003 - its only form
