"""The toy model: it knows one answer, and says it from any place, token by token.

Its answer is a list of steps: a token with its bytes, or an event that is no text. Its
tokenizer agrees with itself: a text that is a run of the answer's tokens has these
tokens, every other text has one token a byte. Ids: 1 begin of sequence, 2 end, 3 to 258
the bytes, from 1000 the pieces of the answer in order of appearance.
"""

from __future__ import annotations

import codecs
import random
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, TypeAlias

from midstream._values.events import ReasoningDelta, TextDelta, ToolCallDelta

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from midstream._values.events import Event

BOS, EOS = 1, 2
_BYTE = 3
_PIECE = 1000
_LONGEST = 4  # characters of a piece, so that pieces cross words and clusters

Split: TypeAlias = Literal["text", "bytes"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that the model says.

    Attributes:
        event: The event it becomes; for text a template whose text is filled in.
        data: The bytes of its text or reasoning; ``b""`` for other events.
        id: The token's id.
    """

    event: Event
    data: bytes = b""
    id: int = 0

    @property
    def channel(self) -> str:
        """``"text"`` (of the first choice), ``"reasoning"`` or ``"other"``."""
        match self.event:
            case TextDelta(choice=0):
                return "text"
            case ReasoningDelta(choice=0):
                return "reasoning"
            case _:
                return "other"


class ToyModel:
    """A model whose answer is known.

    Args:
        pieces: The answer's tokens, in order; bytes or text.
        events: A script in place of the tokens.
        choices: What the further answers say when more than one is asked for.
        split: How these are split.
        seed: Of the splitting.
    """

    def __init__(
        self,
        pieces: Sequence[bytes],
        *,
        events: Sequence[Event] | None = None,
        choices: Sequence[str] = (),
        split: Split = "text",
        seed: int = 0,
    ) -> None:
        self._ids = {bytes([byte]): _BYTE + byte for byte in range(256)}
        self._pieces = {id_: piece for piece, id_ in self._ids.items()}
        template = TextDelta("")
        self.steps = (
            [Step(template, piece, self.id_of(piece)) for piece in pieces]
            if events is None
            else [self._step(event) for event in events]
        )
        self._choices = [pieces_of(text, split, seed) for text in choices]
        self._spoken = [step for step in self.steps if step.channel == "text"]
        self.answer = b"".join(step.data for step in self._spoken)
        ends = accumulate((len(step.data) for step in self._spoken), initial=0)
        self._edges = {offset: index for index, offset in enumerate(ends)}

    @property
    def calls_tools(self) -> bool:
        """Whether the answer holds a tool call."""
        return any(isinstance(step.event, ToolCallDelta) for step in self.steps)

    @property
    def thought(self) -> bytes:
        """All reasoning of the answer."""
        return b"".join(s.data for s in self.steps if s.channel == "reasoning")

    def id_of(self, piece: bytes) -> int:
        """The id of a piece, a new one if need be."""
        known = self._ids.get(piece)
        if known is None:
            known = self._ids[piece] = _PIECE + len(self._ids) - 256
            self._pieces[known] = piece
        return known

    def tokenize(self, text: bytes) -> list[int]:
        """The ids of a text."""
        return self._run_of(text) or [_BYTE + byte for byte in text]

    def detokenize(self, ids: Iterable[int]) -> bytes:
        """The bytes of ids; control tokens have none.

        Raises:
            KeyError: An id that the vocabulary does not hold.
        """
        return b"".join(self._pieces[i] for i in ids if i not in (BOS, EOS))

    def vocabulary(self) -> dict[bytes, int]:
        """The id of every token that the model may ever say, but for control tokens.

        A continuation that begins inside a token says the token's end.
        """
        answers = [self.steps, *(self.choice(n + 1) for n in range(len(self._choices)))]
        for step in (step for steps in answers for step in steps):
            for at in range(len(step.data)):
                self.id_of(step.data[at:])
        return dict(self._ids)

    def rest(self, prefix: bytes, reasoning: bytes = b"") -> list[Step] | None:
        """What is still to say after a prefix; None when that is not the answer's.

        Args:
            prefix: Text that the model has said, to the byte.
            reasoning: Reasoning that it has said; where only text is given, it has
                finished to reason.
        """
        left = {"reasoning": reasoning, "text": prefix}
        for index, step in enumerate(self.steps):
            if not any(left.values()):
                return self.steps[index:]
            channel = step.channel
            if channel == "text" and left["reasoning"]:
                return None
            if channel == "other" or not left[channel]:
                continue
            want, data = left[channel], step.data
            common = min(len(want), len(data))
            if want[:common] != data[:common]:
                return None
            left[channel] = want[common:]
            if common < len(data):
                rest = replace(step, data=data[common:], id=self.id_of(data[common:]))
                return [rest, *self.steps[index + 1 :]]
        return None if any(left.values()) else []

    def choice(self, index: int) -> list[Step]:
        """Another answer, for n > 1; the first one again when none was given."""
        template = TextDelta("", index)
        pieces = self._choices[index - 1] if index <= len(self._choices) else None
        if pieces is None:
            pieces = [step.data for step in self._spoken]
        return [Step(template, piece, self.id_of(piece)) for piece in pieces]

    def is_edge(self, size: int) -> bool:
        """Whether a token of the answer ends after so many bytes."""
        return size in self._edges

    def _step(self, event: Event) -> Step:
        if isinstance(event, TextDelta | ReasoningDelta):
            data = event.text.encode("utf-8", "surrogateescape")
            return Step(event, data, self.id_of(data) if data else 0)
        return Step(event)

    def _run_of(self, text: bytes) -> list[int]:
        """The ids of the first run of the answer's tokens that spells the text."""
        found = self.answer.find(text)
        while found >= 0 and text:
            first, last = self._edges.get(found), self._edges.get(found + len(text))
            if first is not None and last is not None:
                return [step.id for step in self._spoken[first:last]]
            found = self.answer.find(text, found + 1)
        return []


def pieces_of(text: str, split: Split, seed: int) -> list[bytes]:
    """Split a text into tokens, the same way for the same seed.

    Args:
        text: It.
        split: ``"text"``: one to four characters a token; ``"bytes"``: each character
            that is no ASCII falls into tokens of one or two bytes, always the same.
        seed: Of the choices.
    """
    source = random.Random(seed)  # noqa: S311 - repeatable, not secret
    if split == "bytes":
        return [piece for char in text for piece in _shards(char, seed)]
    pieces: list[bytes] = []
    while text:
        size = source.randint(1, _LONGEST)
        pieces.append(text[:size].encode())
        text = text[size:]
    return pieces


def _shards(char: str, seed: int) -> list[bytes]:
    data = char.encode()
    source = random.Random(f"{seed} {char}")  # noqa: S311 - repeatable, not secret
    shards: list[bytes] = []
    while data:
        size = source.randint(1, 2)
        shards.append(data[:size])
        data = data[size:]
    return shards


def whole_characters(data: bytes) -> int:
    """How many of the bytes are whole characters."""
    return codecs.utf_8_decode(data, "replace", False)[1]  # noqa: FBT003 - its only form
