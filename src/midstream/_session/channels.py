"""The channels of one connection, each with a decoder of its own.

A server may stop in the middle of a character in one channel and go on in another, so
halves must not meet across channels or choices. Most text is whole; a decoder is made
where it is not. A token that ends inside a character of the answer waits with it: what
leaves with text has nothing open behind it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from midstream._session.shapes import integers, word
from midstream._utf8 import Utf8Decoder
from midstream._values.events import (
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)

if TYPE_CHECKING:
    from midstream._dialects.base import Generation


class Channels:
    """Whole characters of every channel of every choice.

    Args:
        generation: What was asked.

    Attributes:
        choice: Which of n answers is the stream's text.
        decoder: That text's.
    """

    __slots__ = ("_endpoint", "_ids", "_others", "_tokens", "choice", "decoder")

    def __init__(self, generation: Generation) -> None:
        self.choice = generation.request.choice
        self._endpoint = generation.endpoint
        self.decoder = Utf8Decoder(self._endpoint.errors)
        self._others: dict[tuple[int, str], Utf8Decoder] = {}
        self._tokens = 0
        self._ids: tuple[int, ...] = ()

    @property
    def replaced(self) -> int:
        """How many U+FFFD were put in for bytes that are no UTF-8."""
        return sum(one.replaced for one in (self.decoder, *self._others.values()))

    def text(self, delta: TextDelta) -> TextDelta:
        """The text's whole characters, with the tokens that these are.

        Raises:
            TypeError: A count or id of it is no integer.
            OverflowError: One is larger than 64 bits.
        """
        integers(delta.choice, delta.tokens or 0, *delta.token_ids)
        text = delta.text
        if delta.choice != self.choice:
            text = self._decoded(text, delta.choice, "text")
        elif self.decoder.pending or not text.isascii():
            half = self.decoder.pending
            text = self.decoder.decode(text)
            if half or self.decoder.pending:
                return self._settled(delta, text)
        return delta if text is delta.text else replace(delta, text=text)

    def reasoning(
        self, delta: ReasoningDelta | RefusalDelta
    ) -> ReasoningDelta | RefusalDelta:
        """Reasoning's or a refusal's whole characters; raises as `text` does."""
        integers(delta.choice, delta.tokens or 0)
        whole = self._decoded(delta.text, delta.choice, type(delta).__name__)
        return delta if whole is delta.text else replace(delta, text=whole)

    def tool(self, delta: ToolCallDelta) -> ToolCallDelta:
        """A fragment of a call in whole characters; raises as `text` does."""
        integers(delta.index, delta.choice, delta.tokens or 0)
        whole = self._decoded(delta.arguments, delta.choice, f"tool {delta.index}")
        id_, name = word(delta.id), word(delta.name)
        return replace(delta, id=id_, name=name, arguments=whole)

    def flush_others(self) -> list[TextDelta]:
        """Half a character with which another of n answers ended."""
        rests = [
            TextDelta(decoder.flush(), choice, 0)
            for (choice, channel), decoder in self._others.items()
            if channel == "text"
        ]
        return [delta for delta in rests if delta.text]

    def _settled(self, delta: TextDelta, text: str) -> TextDelta:
        """The delta with what waited before it, without what is open behind it.

        Of several tokens without ids the last one is open; ids stay together.
        """
        tokens = 1 if delta.tokens is None else delta.tokens
        waited, ids = self._tokens, self._ids
        if not self.decoder.pending:
            self._tokens, self._ids = 0, ()
            tokens, ids = waited + tokens, ids + delta.token_ids
        elif text:
            self._ids = delta.token_ids
            self._tokens = tokens if self._ids else min(tokens, 1)
            tokens += waited - self._tokens
        else:
            self._tokens, self._ids = waited + tokens, ids + delta.token_ids
            tokens, ids = 0, ()
        return replace(delta, text=text, tokens=tokens, token_ids=ids)

    def _decoded(self, text: str, choice: int, channel: str) -> str:
        decoder = self._others.get((choice, channel))
        if decoder is None:
            if text.isascii():
                return text
            decoder = self._others[choice, channel] = Utf8Decoder(self._endpoint.errors)
        return decoder.decode(text)
