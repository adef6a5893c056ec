"""Cohere's ``/v2/chat``: no prefix is continued, whatever the request says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from midstream._values.events import (
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    UsageReport,
)
from midstream.testing._fake import asked as ask
from midstream.testing._fake.sides.chat import ChatSide, joined, tool_calls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midstream._values.events import Event, Signal
    from midstream.testing._fake.sides.base import World
    from midstream.testing._fake.voice import Why


@dataclass(frozen=True, kw_only=True)
class CohereSide(ChatSide):
    """A conversation as OpenAI has it, with parameters and answers of its own."""

    name: str = "cohere"
    route: str = "/v2/chat"
    words: ClassVar[Mapping[Why, str]] = {
        "eos": "COMPLETE",
        "word": "STOP_SEQUENCE",
        "length": "MAX_TOKENS",
        "tools": "TOOL_CALL",
    }

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """Usage is always told, and a model must be named."""
        if not body.get("model"):
            raise ask.Refusal(400, "model is required")
        return super().asked(
            {
                **body,
                "stop": body.get("stop_sequences"),
                "stream_options": {"include_usage": True},
            },
            world,
        )

    def error(self, status: int, message: str, type: str | None) -> Any:  # noqa: A002 - as all APIs call it
        """A message and nothing else."""
        del status, type
        return {"message": message}

    def complete(self, events: Sequence[Event | Signal]) -> Any:
        """The answer of ``/v2/chat``."""
        thought, content = joined(events, ReasoningDelta), []
        text = joined(events, TextDelta) + joined(events, RefusalDelta)
        if thought:
            content.append({"type": "thinking", "thinking": thought})
        if text:
            content.append({"type": "text", "text": text})
        usage = next(e.usage for e in events if isinstance(e, UsageReport))
        counts = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
        }
        finish = next((e for e in events if isinstance(e, Finish)), None)
        return {
            "id": "midstream",
            "finish_reason": finish.raw if finish is not None else None,
            "message": {
                "role": "assistant",
                "content": content,
                "tool_calls": tool_calls(events),
            },
            "usage": {"billed_units": counts, "tokens": counts},
        }
