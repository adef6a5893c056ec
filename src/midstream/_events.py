"""What a stream says: values, no logic.

`Event` is the closed union that ``stream.events()`` yields. `Signal` is what only the
session sees: dialects read both from the wire, and write both for the fake server.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from midstream._errors import ServerError
    from midstream._request import Endpoint

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def _event(cls: type[T]) -> type[T]:
    """A slotted dataclass, frozen to type checkers only.

    One is made per token, and a frozen ``__init__`` costs four times as much.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


class Exactness(enum.IntEnum):
    """How surely a resumed answer equals the unbroken one; larger is weaker."""

    UNBROKEN = 0
    """Nothing dropped."""
    REPLAYED = 1
    """The server had kept the stream: identical under any sampling."""
    TOKENS = 2
    """Continued from token ids: identical for greedy decoding."""
    TEXT = 3
    """Continued from the text: identical at token edges for greedy decoding."""
    RERUN = 4
    """Asked again from the start; what had been received was checked and skipped."""
    APPROXIMATE = 5
    """The model was asked to go on: plausible, not the same."""

    def __str__(self) -> str:
        """Its name: ``print(stream.exactness)`` is for people."""
        return self.name

    def __format__(self, spec: str) -> str:
        """As `str`, in f-strings too."""
        return format(self.name, spec)


@_event
class TextDelta:
    """Text of the answer.

    Attributes:
        text: The new text; never empty when handed to you.
        choice: Which of n answers it belongs to.
        tokens: How many tokens it stands for, where the server tells.
        token_ids: The server's ids for it, where it sends them.
        logprobs: The server's log probabilities for it, as sent.
    """

    text: str
    choice: int = 0
    tokens: int | None = None
    token_ids: tuple[int, ...] = ()
    logprobs: Any = field(default=None, hash=False)


@_event
class ReasoningDelta:
    """Text of the model's reasoning.

    Attributes:
        text: The new text.
        choice: Which of n answers it belongs to.
        tokens: How many tokens it stands for.
        token_ids: The server's ids for it, where it sends them.
        signature: A signature over the reasoning, opaque, where the API has one.
    """

    text: str
    choice: int = 0
    tokens: int | None = None
    token_ids: tuple[int, ...] = ()
    signature: str | None = None


@_event
class RefusalDelta:
    """Text with which the model refuses."""

    text: str
    choice: int = 0
    tokens: int | None = None


@_event
class ToolCallDelta:
    """A fragment of a tool call.

    Attributes:
        index: Which call of the answer, from 0.
        id: The server's id of the call; in its first fragment at least.
        name: The tool's name; in its first fragment at least.
        arguments: The next piece of the arguments' JSON text.
        choice: Which of n answers it belongs to.
        tokens: How many tokens it stands for.
        closed: Whether the server said that this call is whole.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    choice: int = 0
    tokens: int | None = None
    closed: bool = False


@_event
class Usage:
    """Tokens used, summed over all connections of the stream.

    Attributes:
        input_tokens: Tokens of the prompts; None when no server said.
        output_tokens: Tokens of the answer, reasoning included.
        reasoning_tokens: Those of them that were reasoning, where told.
        cached_tokens: Prompt tokens that came from a cache, where told.
        estimated: Whether a part was counted by midstream, not told by a server.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        """Sum field by field; what neither side knows stays unknown."""
        return Usage(
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
            _sum(self.reasoning_tokens, other.reasoning_tokens),
            _sum(self.cached_tokens, other.cached_tokens),
            self.estimated or other.estimated,
        )


def _sum(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


@_event
class UsageReport:
    """The server reported tokens used so far."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Resumption:
    """A drop that a later connection continued.

    Attributes:
        at: Where in the text, in characters.
        reason: What had happened, in words.
        strategy: How it was continued: ``"replay"``, ``"tokens"``, ``"text"``, ….
        exactness: How sure the joined text equals the unbroken one.
        endpoint: Who continued.
        gap: Seconds from the drop to the first new byte.
    """

    at: int
    reason: str
    strategy: str
    exactness: Exactness
    endpoint: Endpoint
    gap: float


@_event
class Resumed:
    """The connection had dropped and the stream goes on."""

    resumption: Resumption


@_event
class Finish:
    """The end of one answer.

    Attributes:
        reason: ``"stop"``, ``"length"``, ``"tool_calls"``, ``"content_filter"``,
            ``"refusal"``, or the server's own word; None where it never said.
        raw: The server's own word.
        choice: Which of n answers ended.
    """

    reason: str | None
    raw: str | None = None
    choice: int = 0


Event: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallDelta
    | UsageReport
    | Resumed
    | Finish
)


@_event
class Started:
    """The server named the generation.

    Attributes:
        id: Its id of the response.
        model: The model that answers.
        prompt_ids: The prompt as token ids, where told.
    """

    id: str | None = None
    model: str | None = None
    prompt_ids: tuple[int, ...] = ()


@_event
class Failure:
    """The server reported an error in mid-stream."""

    error: ServerError


@_event
class End:
    """The dialect's own end marker."""


Signal: TypeAlias = Started | Failure | End


@dataclass(slots=True)
class ToolCall:
    """A tool call, assembled from its fragments.

    Attributes:
        index: Its place among the calls, from 0.
        id: The server's id.
        name: The tool's name.
        arguments: The JSON text of the arguments as it came, whole or cut.
        complete: Whether all of it came; never act on a call that is not.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    complete: bool = False

    def parsed(self) -> Any:
        """The arguments as Python values.

        Raises:
            ValueError: The arguments are not whole or no JSON.
        """
        return json.loads(self.arguments or "{}")
