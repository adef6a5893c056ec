"""Ollama's ``/api/chat``: a line a token, prefill, and the repeat guard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midstream._dialects.documents import dumps, loads
from midstream._events import (
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream.testing._fake import asked as ask
from midstream.testing._fake.sides.base import Answer, Side, World, document
from midstream.testing._fake.sides.chat import asked_to_go_on, joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from midstream._events import Event, Signal
    from midstream.testing._fake.wire import HttpRequest

_REPEATS = 30  # equal tokens after which the runner gives up, without a word


@dataclass(frozen=True, kw_only=True)
class OllamaSide(Side):
    """``/api/chat``."""

    name: str = "ollama"
    route: str = "/api/chat"

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """A trailing assistant message is continued; streaming is the default."""
        if not body.get("model"):
            raise ask.Refusal(400, "model is required")
        messages = body.get("messages") or []
        options = body.get("options") or {}
        found = ask.chat(
            messages,
            max_tokens=ask.limit(options.get("num_predict")),
            stop=ask.stops(options.get("stop")),
            streams=body.get("stream", True),
            prompt_tokens=len(world.model.tokenize(ask.template(messages))),
        )
        return asked_to_go_on(found, messages)

    def error(self, status: int, message: str, type: str | None) -> Any:  # noqa: A002 - as all APIs call it
        """Ollama's error is a string."""
        del status, type
        return {"error": message}

    def unmarked(self, record: bytes) -> bytes | None:
        """The last line without ``done``."""
        return dumps({**loads(record), "done": False}) + b"\n"

    def watched(self, events: Iterator[Event | Signal]) -> Iterator[Event | Signal]:
        """After 30 equal tokens the body ends, without ``done``."""
        last, repeats = "", 0
        for event in events:
            if isinstance(event, TextDelta):
                repeats = repeats + 1 if event.text == last else 1
                last = event.text
            yield event
            if repeats >= _REPEATS:
                return

    def complete(self, events: Sequence[Event | Signal]) -> Any:
        """One line with everything."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": joined(events, TextDelta),
        }
        thought = joined(events, ReasoningDelta)
        if thought:
            message["thinking"] = thought
        calls = [
            {"function": {"name": e.name, "arguments": loads(e.arguments.encode())}}
            for e in events
            if isinstance(e, ToolCallDelta)
        ]
        if calls:
            message["tool_calls"] = calls
        reply: dict[str, Any] = {
            "model": "fake",
            "created_at": "2026-01-01T00:00:00Z",
            "message": message,
            "done": True,
        }
        for event in events:
            if isinstance(event, Finish):
                reply["done_reason"] = event.raw
            elif isinstance(event, UsageReport):
                reply["prompt_eval_count"] = event.usage.input_tokens
                reply["eval_count"] = event.usage.output_tokens
        return reply

    def other(self, request: HttpRequest, world: World) -> Answer | None:
        """Version and models."""
        del world
        match request.method, request.path:
            case "GET", "/api/version":
                return document({"version": "0.0.0"})
            case "GET", "/api/tags":
                return document({"models": [{"name": "fake:latest"}]})
        return None
