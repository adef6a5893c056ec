"""Servers with ``/v1/messages``: Anthropic's, and those of llama.cpp and vLLM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from midstream._dialects.anthropic import CONTINUE, INTERRUPTED, continues_turns
from midstream._dialects.documents import loads, named_event
from midstream._values.events import (
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    UsageReport,
)
from midstream.testing._fake import asked as ask
from midstream.testing._fake.sides.base import Side, World
from midstream.testing._fake.sides.chat import joined, never, tool_calls
from midstream.testing._fake.sides.llama import LlamaSide

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from midstream._values.events import Event, Signal
    from midstream.testing._fake.script import Pen
    from midstream.testing._fake.voice import Why

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_NO_PREFILL = (
    "This model does not support assistant message prefill. "
    "The conversation must end with a user message."
)


def always(body: Mapping[str, Any]) -> bool:
    """A trailing assistant message is gone on with."""
    del body
    return True


def by_model(body: Mapping[str, Any]) -> bool:
    """Claude up to 4.5 goes on, later ones refuse.

    Raises:
        Refusal: A later one.
    """
    if not continues_turns(body.get("model")):
        raise ask.Refusal(400, _NO_PREFILL)
    return True


@dataclass(frozen=True, kw_only=True)
class MessagesSide(Side):
    """One such server.

    Attributes:
        prefills: Whether the request continues its trailing assistant message.
    """

    name: str = "anthropic"
    route: str = "/v1/messages"
    prefills: Callable[[Mapping[str, Any]], bool] = by_model
    words: ClassVar[Mapping[Why, str]] = {
        "eos": "end_turn",
        "word": "stop_sequence",
        "length": "max_tokens",
        "tools": "tool_use",
    }

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """The conversation, and whether its last turn is open."""
        turns = body.get("messages")
        if not isinstance(turns, list) or not turns:
            raise ask.Refusal(400, "messages: Field required")
        if not isinstance(body.get("max_tokens"), int):
            raise ask.Refusal(400, "max_tokens: Field required")
        system = {"role": "system", "content": body.get("system") or ""}
        messages = [system, *turns]
        found = ask.chat(
            messages,
            max_tokens=ask.limit(body["max_tokens"]),
            stop=ask.stops(body.get("stop_sequences")),
            streams=bool(body.get("stream")),
            prompt_tokens=len(world.model.tokenize(ask.template(messages))),
        )
        if found.turn and not self.prefills(body):
            closed = [*messages, {"role": "user", "content": ""}]
            return replace(found, context=repr(closed), opening=b"")
        said = interrupted(turns[-1].get("content"), INTERRUPTED, CONTINUE)
        if said is None:
            return found
        context = ask.chat(messages[:-1]).context
        return replace(found, context=context, opening=said, how="ask")

    def error(self, status: int, message: str, type: str | None) -> Any:  # noqa: A002 - as all APIs call it
        """Anthropic's error document."""
        kind = type or _TYPES.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}

    def pen(self, body: Mapping[str, Any]) -> Pen:
        """Keep-alives are events."""
        return replace(super().pen(body), ping=named_event("ping"))

    def complete(self, events: Sequence[Event | Signal]) -> Any:
        """A ``message``."""
        finish = next((e for e in events if isinstance(e, Finish)), None)
        usage = next(e.usage for e in events if isinstance(e, UsageReport))
        thought = joined(events, ReasoningDelta)
        text = joined(events, TextDelta) + joined(events, RefusalDelta)
        blocks: list[dict[str, Any]] = []
        if thought:
            sealed = {"thinking": thought, "signature": ""}
            blocks.append({"type": "thinking", **sealed})
        if text:
            blocks.append({"type": "text", "text": text})
        blocks += [
            {
                "type": "tool_use",
                "id": call["id"],
                "name": call["function"]["name"],
                "input": loads(call["function"]["arguments"].encode() or b"{}"),
            }
            for call in tool_calls(events)
        ]
        return {
            "id": "msg_midstream",
            "type": "message",
            "role": "assistant",
            "model": "midstream",
            "content": blocks,
            "stop_reason": finish.raw if finish is not None else None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
            },
        }


def interrupted(content: Any, before: str, after: str) -> bytes | None:
    """The text of an answer that a user's turn asks to go on with, if it does.

    Args:
        content: The turn.
        before: What stands before that text.
        after: What stands behind it.
    """
    _, mark, rest = ask.words(content).partition(before.encode())
    ends = rest.endswith(after.encode())
    return rest.removesuffix(after.encode()) if mark and ends else None


@dataclass(frozen=True, kw_only=True)
class LlamaMessagesSide(LlamaSide, MessagesSide):
    """llama.cpp's: errors as it has them, kept streams, no named keep-alive."""

    name: str = "llama.cpp-messages"
    prefills: Callable[[Mapping[str, Any]], bool] = always

    def pen(self, body: Mapping[str, Any]) -> Pen:
        """A bare comment keeps the connection alive."""
        return replace(super().pen(body), ping=b":\n\n")


MESSAGES_SIDES = (
    MessagesSide(),
    LlamaMessagesSide(),
    MessagesSide(name="vllm-messages", prefills=never),
)
