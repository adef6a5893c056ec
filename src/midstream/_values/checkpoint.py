"""What must be known to continue a stream later, in another process if need be.

Stored is a whole `Checkpoint` first, and then what grew since: a `Growth` a few times a
second, so that keeping costs what is new, however long the text is. What a growth adds
(`_ADDED`) is appended; of the rest it names only what changed.

No secret is in it: the endpoint is named without its key, which the continuing client
brings along.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from midstream._values.exactness import Exactness
from midstream._values.tool_call import ToolCall  # noqa: TC001 - pydantic reads it


def _exactness(name: object) -> object:
    """Only names that this version knows."""
    if name not in Exactness.__members__:
        raise ValueError(f"one of {', '.join(Exactness.__members__)}")
    return name


ExactnessName = Annotated[str, BeforeValidator(_exactness)]


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


class Survived(BaseModel):
    """A drop that was survived, as it is stored.

    Attributes:
        at: Where in the text, in characters.
        reason: What had happened, in words.
        strategy: How it was continued.
        exactness: The name of an `Exactness`.
        endpoint: Who continued, without its key.
        gap: Seconds from the drop to the first new byte.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    at: int
    reason: str
    strategy: str
    exactness: ExactnessName
    endpoint: str
    gap: float


class Growth(Answer):
    """What came since the last one; of what is not appended, only what changed is set.

    Attributes:
        endpoint: ``DIALECT[:MODEL][@URL]`` of the server that was answering.
        others: The other answers by index, where more than one was asked for.
        tokens: How many tokens these are.
        token_ids: Their ids; -1 for those the server kept to itself.
        gaps: Where ids are missing: (first, count, text).
        response_id: The server's id of the response.
        handle: Our name for the generation, for servers that keep it for replay.
        offset: Bytes of body that were read in whole records.
        cursor: The dialect's own place to replay from.
        usage: Tokens used so far, as `midstream.Usage` has them.
        complete: Whether the whole stream came.
        spent: Those of them that generations before the present one used.
        exactness: How surely the text equals the unbroken one: the name of an
            `Exactness`.
        resumptions: The drops that were survived.
    """

    endpoint: str = ""
    others: dict[int, Answer] = {}
    tokens: int = 0
    token_ids: list[int] = []
    gaps: list[tuple[int, int, str]] = []
    response_id: str | None = None
    handle: str = ""
    offset: int = 0
    cursor: Any = None
    usage: dict[str, Any] | None = None
    spent: dict[str, Any] | None = None
    complete: bool = False
    exactness: ExactnessName = "UNBROKEN"
    resumptions: list[Survived] = []


class Checkpoint(Growth):
    """The state of a stream at one moment: its own answer, and what is around it.

    Attributes:
        version: The format's version. The first knew no ``exactness``, no
            ``resumptions`` and no ``writer``.
        request: What was asked, as `midstream._values.request.Request` dumps it.
        prompt_ids: The prompt's ids, where told.
        writer: Who keeps the stream: the owner of its lease; ``""`` for nobody.
    """

    version: Literal[1, 2] = 2
    endpoint: str  # pyright: ignore[reportGeneralTypeIssues]  # never left out here
    request: dict[str, Any]
    prompt_ids: list[int] = []
    writer: str = ""

    def grown(self, *growths: Growth) -> Checkpoint:
        """All of it: this, and what came since.

        Args:
            growths: In the order in which they came; many cost one join.
        """
        if not growths:
            return self
        news = _grown(self, growths)
        others = dict(self.others)
        for index in {index: None for growth in growths for index in growth.others}:
            parts = [g.others[index] for g in growths if index in g.others]
            known = others.get(index, Answer())
            others[index] = known.model_copy(update=_grown(known, parts))
        news["others"] = others
        return self.model_copy(update=news)


_TEXTS = ("text", "reasoning", "refusal")
_LISTS = ("token_ids", "gaps", "resumptions")
_ADDED = {*_TEXTS, *_LISTS, "tool_calls", "others"}


def _grown(known: Answer, news: tuple[Growth, ...] | list[Answer]) -> dict[str, Any]:
    """The fields of ``known`` after ``news``."""
    told: dict[str, Any] = {}
    for part in news:
        for name in part.model_fields_set - _ADDED:
            told[name] = getattr(part, name)
    for name in _TEXTS:
        told[name] = "".join([getattr(part, name) for part in (known, *news)])
    for name in _LISTS if isinstance(known, Checkpoint) else ():
        told[name] = [item for part in (known, *news) for item in getattr(part, name)]
    told["tool_calls"] = _calls(part.tool_calls for part in (known, *news))
    return told


def _calls(parts: Any) -> list[ToolCall]:
    """The calls by index: what is known of each, its arguments joined."""
    last: dict[int, ToolCall] = {}
    arguments: dict[int, list[str]] = {}
    for calls in parts:
        for call in calls:
            last[call.index] = call
            arguments.setdefault(call.index, []).append(call.arguments)
    return [
        replace(last[index], arguments="".join(arguments[index]))
        for index in sorted(last)
    ]
