"""Ollama's two routes: a line a token, prefill or raw prompts, the repeat guard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midstream._dialects.documents import dumps, loads
from midstream._values.events import (
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

    from midstream._values.events import Event, Signal
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

    def said(self, text: str, **more: Any) -> dict[str, Any]:
        """What an answer says, where this route has it."""
        return {"message": {"role": "assistant", "content": text, **more}}

    def complete(self, events: Sequence[Event | Signal]) -> Any:
        """One line with everything."""
        more: dict[str, Any] = {}
        thought = joined(events, ReasoningDelta)
        if thought:
            more["thinking"] = thought
        calls = [
            {"function": {"name": e.name, "arguments": loads(e.arguments.encode())}}
            for e in events
            if isinstance(e, ToolCallDelta)
        ]
        if calls:
            more["tool_calls"] = calls
        reply: dict[str, Any] = {
            "model": "fake",
            "created_at": "2026-01-01T00:00:00Z",
            **self.said(joined(events, TextDelta), **more),
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


@dataclass(frozen=True, kw_only=True)
class OllamaGenerateSide(OllamaSide):
    """``/api/generate``: a prompt for the template, or a raw one."""

    name: str = "ollama-generate"
    route: str = "/api/generate"

    def ungenerated(self, body: Mapping[str, Any], world: World) -> Answer | None:
        """What the template makes of the prompt."""
        del world
        if not body.get("_debug_render_only"):
            return None
        rendered = _rendered(body).decode("utf-8", "replace")
        info = {"rendered_template": rendered, "image_count": 0}
        return document({"model": body.get("model"), "_debug_info": info})

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """A raw prompt may hold the begin of the answer; streaming is the default."""
        if not body.get("model"):
            raise ask.Refusal(400, "model is required")
        raw, options = bool(body.get("raw")), body.get("options") or {}
        if raw and (body.get("system") or body.get("template") or body.get("context")):
            refused = "raw mode does not support template, system, or context"
            raise ask.Refusal(400, refused)
        opening = ask.words(body.get("prompt")) if raw else _rendered(body)
        return ask.Asked(
            opening=opening,
            raw=True,
            max_tokens=ask.limit(options.get("num_predict")),
            stop=ask.stops(options.get("stop")),
            streams=body.get("stream", True),
            prompt_tokens=len(world.model.tokenize(opening)),
        )

    def said(self, text: str, **more: Any) -> dict[str, Any]:
        """The text, without a message around it."""
        return {"response": text, **more}


def _rendered(body: Mapping[str, Any]) -> bytes:
    turns = [{"role": "user", "content": body.get("prompt")}]
    if body.get("system"):
        turns.insert(0, {"role": "system", "content": body["system"]})
    return ask.template(turns)
