"""What a caller asks for: pydantic at the edge, plain values inside."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
)

from midstream._values.errors import UsageError
from midstream._values.findings import findings
from midstream._values.message import Message

_COUNTS = ("n", "candidateCount")
"""How APIs say how many answers they are asked for, at the top or one level deeper."""


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Request(BaseModel):
    """One generation, in the words every API shares.

    Args:
        prompt: Text, or a conversation.
        max_tokens: The most tokens of answer, over all connections.
        temperature: Sampling temperature; 0 is greedy.
        top_p: Nucleus sampling.
        stop: Strings that end the answer.
        seed: Seed of the sampling.
        tools: Tools in the API's own form.
        extra: Merged into the request body.
        choice: Which of n answers the stream's text is.
    """

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)

    prompt: str | list[Message]
    max_tokens: PositiveInt | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    stop: Annotated[list[str], BeforeValidator(_one_or_many)] | None = None
    seed: int | None = None
    tools: list[dict[str, Any]] | None = None
    extra: dict[str, Any] = {}
    choice: NonNegativeInt = 0

    @property
    def choices(self) -> int:
        """How many answers are asked for."""
        inner = [part for part in self.extra.values() if isinstance(part, dict)]
        told = [part.get(name) for part in (self.extra, *inner) for name in _COUNTS]
        return max((n for n in told if isinstance(n, int)), default=1)

    @classmethod
    def of(cls, **fields: Any) -> Request:
        """Check a caller's arguments.

        Raises:
            UsageError: One of them cannot be; the message names it.
        """
        try:
            request = cls(**fields)
            json.dumps(request.model_dump(), ensure_ascii=False).encode()
        except ValidationError as error:
            raise UsageError(f"stream(): {findings(error)}") from error
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"stream(): not to be said in JSON: {error}") from error
        if request.choice >= max(request.choices, 1):
            raise UsageError(
                f"stream(): choice: there is no answer {request.choice}, as "
                f"{max(request.choices, 1)} is asked for; they count from 0, and "
                'extra={"n": …} asks for more'
            )
        return request

    @property
    def messages(self) -> list[Message]:
        """The prompt as a conversation."""
        if isinstance(self.prompt, str):
            return [Message(role="user", content=self.prompt)]
        return self.prompt
