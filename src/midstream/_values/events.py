"""What a stream says: values, no logic.

`Event` is the closed union that ``stream.events()`` yields. `Signal` is what only the
session sees: dialects read both from the wire, and write both for the fake server.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

from midstream._values.event import event

if TYPE_CHECKING:
    from midstream._values.errors import ServerError
    from midstream._values.resumption import Resumption
    from midstream._values.usage import Usage


@event
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


@event
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


@event
class RefusalDelta:
    """Text with which the model refuses."""

    text: str
    choice: int = 0
    tokens: int | None = None


@event
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


@event
class UsageReport:
    """The server reported tokens used so far."""

    usage: Usage


@event
class Resumed:
    """The connection had dropped and the stream goes on."""

    resumption: Resumption


@event
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


@event
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


@event
class Failure:
    """The server reported an error in mid-stream."""

    error: ServerError


@event
class End:
    """The dialect's own end marker."""


Signal: TypeAlias = Started | Failure | End
