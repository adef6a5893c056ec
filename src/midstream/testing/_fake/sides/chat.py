"""Servers with ``/v1/chat/completions``: one row each, apart by how they prefill."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from midstream._dialects.openai_chunks import usage_document
from midstream._values.events import (
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream.testing._fake import asked as ask
from midstream.testing._fake.sides.base import Answer, Side, World, document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from midstream._values.events import Event, Signal
    from midstream.testing._fake.wire import HttpRequest


def never(body: Mapping[str, Any]) -> bool:
    """A trailing assistant message is a turn that has ended."""
    del body
    return False


def ends_with_usage(body: Mapping[str, Any]) -> bool:
    """Whether an answer ends with its usage: a stream when it is asked to."""
    options = body.get("stream_options") or {}
    return bool(options.get("include_usage")) or not body.get("stream")


@dataclass(frozen=True, kw_only=True)
class ChatSide(Side):
    """One such server.

    Attributes:
        prefills: Whether the request continues its trailing assistant message.
    """

    name: str
    route: str = "/v1/chat/completions"
    aliases: Sequence[str] = ()
    prefills: Callable[[Mapping[str, Any]], bool] = never

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """The conversation, and whether its last turn is open."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise ask.Refusal(
                400, "'messages' is required", type="invalid_request_error"
            )
        found = ask.chat(
            messages,
            max_tokens=ask.limit(
                body.get("max_completion_tokens", body.get("max_tokens"))
            ),
            stop=ask.stops(body.get("stop")),
            n=body.get("n") or 1,
            streams=bool(body.get("stream")),
            usage=self.tells_usage(body),
            prompt_tokens=len(world.model.tokenize(ask.template(messages))),
        )
        if found.turn and not self.prefills(body):
            closed = [*messages, {"role": "user", "content": ""}]
            return replace(found, context=repr(closed), opening=b"", reasoning=b"")
        return asked_to_go_on(found, messages)

    def tells_usage(self, body: Mapping[str, Any]) -> bool:
        """Whether the answer ends with its usage."""
        return ends_with_usage(body)

    def error(self, status: int, message: str, type: str | None) -> Any:  # noqa: A002 - as all APIs call it
        """OpenAI's error document."""
        kind = type or ("invalid_request_error" if status < 500 else "server_error")  # noqa: PLR2004 - HTTP
        return {
            "error": {"message": message, "type": kind, "param": None, "code": None}
        }

    def complete(self, events: Sequence[Event | Signal]) -> Any:
        """A ``chat.completion``."""
        count = 1 + max((getattr(event, "choice", 0) for event in events), default=0)
        usage = next((e.usage for e in events if isinstance(e, UsageReport)), None)
        reply: dict[str, Any] = {
            "id": "chatcmpl-midstream",
            "object": "chat.completion",
            "created": 0,
            "model": "midstream",
            "choices": [_choice(index, events) for index in range(count)],
        }
        if usage is not None:
            reply["usage"] = usage_document(usage)
        return reply

    def other(self, request: HttpRequest, world: World) -> Answer | None:
        """The list of models."""
        del world
        if request.method == "GET" and request.path == "/v1/models":
            model = {"id": "fake", "object": "model", "created": 0, "owned_by": "you"}
            return document({"object": "list", "data": [model]})
        return None


def asked_to_go_on(
    found: ask.Asked, messages: Sequence[Mapping[str, Any]]
) -> ask.Asked:
    """A user's turn after an assistant's that broke off: models go on when asked to."""
    roles = [message.get("role") for message in messages[-2:]]
    if roles != ["assistant", "user"]:
        return found
    before = ask.chat(messages[:-1])
    return replace(found, context=before.context, opening=before.opening, how="ask")


def _choice(index: int, events: Sequence[Event | Signal]) -> dict[str, Any]:
    mine = [event for event in events if getattr(event, "choice", None) == index]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": joined(mine, TextDelta) or None,
        "refusal": joined(mine, RefusalDelta) or None,
    }
    thought = joined(mine, ReasoningDelta)
    if thought:
        message["reasoning_content"] = thought
    calls = tool_calls(mine)
    if calls:
        message["tool_calls"] = calls
    reason = next((event.raw for event in mine if isinstance(event, Finish)), None)
    return {"index": index, "message": message, "finish_reason": reason}


def joined(events: Iterable[Any], kind: type[Any]) -> str:
    """The text of all events of a kind."""
    return "".join(str(event.text) for event in events if isinstance(event, kind))


def tool_calls(events: Iterable[Any]) -> list[dict[str, Any]]:
    """Whole tool calls from their fragments."""
    calls: dict[int, dict[str, Any]] = {}
    for event in events:
        if not isinstance(event, ToolCallDelta):
            continue
        empty = {"type": "function", "function": {"name": None, "arguments": ""}}
        call = calls.setdefault(event.index, empty)
        call["id"] = event.id or call.get("id")
        function = call["function"]
        function["name"] = event.name or function["name"]
        function["arguments"] += event.arguments
    return list(calls.values())
