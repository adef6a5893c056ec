"""What must be known to continue a stream later, in another process if need be.

No secret is in it: the endpoint is named without its key, which the continuing client
brings along.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from midstream._values.exactness import Exactness
from midstream._values.tool_call import ToolCall  # noqa: TC001 - pydantic reads it


class Answer(BaseModel):
    """One of n answers.

    Attributes:
        text: The text that was delivered.
        reasoning: The reasoning that was delivered.
        refusal: The refusal that was delivered.
        tool_calls: The tool calls as far as they came.
        finished: Whether it said that it ended.
        finish_reason: Why it ended, when it did.
        raw_finish_reason: The same in the server's words.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    tool_calls: list[ToolCall] = []
    finished: bool = False
    finish_reason: str | None = None
    raw_finish_reason: str | None = None


class StoredResumption(BaseModel):
    """A drop that was survived; see `midstream.Resumption`."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    at: int
    reason: str
    strategy: str
    exactness: Exactness
    endpoint: str
    gap: float


class Checkpoint(Answer):
    """The state of a stream at one moment: its own answer, and what is around it.

    Attributes:
        version: The format's version.
        endpoint: ``DIALECT[:MODEL][@URL]`` of the server that was answering.
        request: What was asked, as `midstream._values.request.Request` dumps it.
        others: The other answers by index, where more than one was asked for.
        tokens: How many tokens these are.
        token_ids: Their ids; -1 for those the server kept to itself.
        gaps: Where ids are missing: (first, count, text).
        prompt_ids: The prompt's ids, where told.
        response_id: The server's id of the response.
        handle: Our name for the generation, for servers that keep it for replay.
        offset: Bytes of body that were read in whole records.
        cursor: The dialect's own place to replay from.
        usage: Tokens used so far, as `midstream.Usage` has them.
        spent: Those of them that generations before the present one used.
        exactness: How surely the text is the unbroken one's.
        resumptions: The drops that were survived.
        complete: Whether the whole stream came.
    """

    version: Literal[1, 2] = 2
    endpoint: str
    request: dict[str, Any]
    others: dict[int, Answer] = {}
    tokens: int = 0
    token_ids: list[int] = []
    gaps: list[tuple[int, int, str]] = []
    prompt_ids: list[int] = []
    response_id: str | None = None
    handle: str = ""
    offset: int = 0
    cursor: Any = None
    usage: dict[str, Any] | None = None
    spent: dict[str, Any] | None = None
    exactness: Exactness = Exactness.UNBROKEN
    resumptions: list[StoredResumption] = []
    complete: bool = False
