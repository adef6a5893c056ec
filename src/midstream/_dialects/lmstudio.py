"""LM Studio's own API, version 1, which keeps the conversation itself.

Source: lmstudio-ai/docs ``1_developer/2_rest/{chat,streaming-events}.md``. Every event
is named and repeats its name as ``type``. ``chat.end`` is the end marker, and comes
after an ``error`` too: what counts is the error before it. It names no finish reason.

It takes new input only: one user's turn, with ``extra={"previous_response_id": …}`` for
what went before; conversations, tools of the caller, stop strings and prefixes are what
the ``lmstudio`` dialect (chat completions) is for. Tools that LM Studio runs itself are
no tool calls of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midstream._dialects.asking import merge, parameters, post
from midstream._dialects.base import Continuation, Dialect
from midstream._dialects.documents import load_object, named_event
from midstream._dialects.faults import error_of
from midstream._values.api_names import ApiNames, places
from midstream._values.errors import UsageError
from midstream._values.events import (
    End,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    UsageReport,
)
from midstream._values.interruptions import ResumeUnsupported
from midstream._values.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midstream._dialects.base import (
        Call,
        Flow,
        Generation,
        Reader,
        Received,
        Writer,
    )
    from midstream._values.endpoint import Endpoint
    from midstream._values.events import Event, Signal
    from midstream._values.message import Message
    from midstream._values.request import Request

ROUTE = "/api/v1/chat"

INTERRUPTED = "\n\nYour previous reply to this was cut off and ended with:\n\n"
CONTINUE = "\n\nContinue exactly from there; do not repeat anything."

_NAMES = {
    "max_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
}
_PLACES = places(_NAMES)
_SYSTEM = ("system", "developer")


@dataclass(frozen=True, kw_only=True)
class LMStudio(Dialect):
    """``/api/v1/chat``."""

    name: str = "lmstudio-native"
    default_url: str | None = "http://localhost:1234"
    key_variables: tuple[str, ...] = ("LM_API_TOKEN",)
    strategies: tuple[str, ...] = ("ask",)
    route: str = ROUTE

    def begin(self, generation: Generation) -> Flow[Call]:
        """One POST."""
        yield from ()
        return self._post(generation, None)

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """The plea to go on, in the same turn: a cut answer has no id to refer to."""
        yield from ()
        if strategy != "ask":
            raise ResumeUnsupported(f"{self.name} continues no prefix")
        call = self._post(generation, received)
        return Continuation(call=call, sent=received.text, echo="tail")

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """All is at the top."""
        del endpoint
        return ApiNames(_PLACES, frozenset({"input", "stream"}))

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads the events."""
        return ChatReader()

    def writer(self) -> Writer:
        """Writes them."""
        return ChatWriter()

    def _post(self, generation: Generation, received: Received | None) -> Call:
        request, endpoint = generation.request, generation.endpoint
        if endpoint.model is None:
            raise UsageError('LM Studio needs a model, as in "lmstudio-native:gemma-3"')
        system, said = _conversation(request)
        plea = received.text if received else ""
        body: dict[str, Any] = {
            "model": endpoint.model,
            "input": _pleading(said, plea) if plea else said,
            "stream": True,
            **({"system_prompt": system} if system else {}),
            **parameters(request, _NAMES, left=received.left if received else None),
        }
        return post(generation, self.route, merge(body, request.extra))


def _conversation(request: Request) -> tuple[str, str | list[dict[str, Any]]]:
    """The system prompt and the one turn of the user.

    Raises:
        UsageError: The API has no word for something of the request.
    """
    for name in "stop", "tools":
        if getattr(request, name):
            raise UsageError(f"LM Studio's own API has no {name}; use lmstudio")
    messages: Sequence[Message] = request.messages
    system = [m.content for m in messages if m.role in _SYSTEM]
    turns = [m for m in messages if m.role not in _SYSTEM]
    if [m.role for m in turns] != ["user"] or not all(
        isinstance(content, str) for content in system
    ):
        raise UsageError(
            "LM Studio's own API takes one user's turn and keeps the conversation "
            "itself; use lmstudio for messages"
        )
    return "\n\n".join(map(str, system)), turns[0].content or ""


def _pleading(said: str | list[dict[str, Any]], text: str) -> Any:
    plea = f"{INTERRUPTED}{text}{CONTINUE}"
    if isinstance(said, str):
        return said + plea
    return [*said, {"type": "message", "content": plea}]


class ChatReader:
    """Reads the events of ``/api/v1/chat``."""

    __slots__ = ("cursor",)

    def __init__(self) -> None:
        self.cursor = None

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """One event; those of loading, of prompts and of tools say nothing."""
        event = load_object(data)
        kind = event.get("type") or name
        if kind == "error" or event.get("error"):
            return [Failure(error_of(event))]
        match kind:
            case "message.delta":
                text = event.get("content")
                return [TextDelta(text)] if text else []
            case "reasoning.delta":
                text = event.get("content")
                return [ReasoningDelta(text)] if text else []
            case "chat.start":
                return [Started(None, event.get("model_instance_id"))]
            case "chat.end":
                return _end(event.get("result") or {})
            case _:
                return []

    def eof(self) -> list[Event | Signal]:
        """The end of the body says nothing."""
        return []


def _end(result: dict[str, Any]) -> list[Event | Signal]:
    events: list[Event | Signal] = []
    if result.get("response_id"):
        model = result.get("model_instance_id")
        events.append(Started(result["response_id"], model))
    events.append(Finish(None))
    stats = result.get("stats")
    if stats:
        events.append(
            UsageReport(
                Usage(
                    stats.get("input_tokens"),
                    stats.get("total_output_tokens"),
                    stats.get("reasoning_output_tokens"),
                )
            )
        )
    return [*events, End()]


class ChatWriter:
    """Writes the events as LM Studio does; usage goes out with the end."""

    __slots__ = ("_kind", "_model", "_output", "_response_id", "_started", "_usage")

    def __init__(self) -> None:
        self._kind = ""  # of the open part
        self._started = False
        self._model = "midstream"
        self._response_id: str | None = None
        self._output: list[dict[str, str]] = []
        self._usage: Usage | None = None

    def write(self, event: Event | Signal) -> list[bytes]:
        """One SSE event for a delta, and those that its part needs."""
        match event:
            case Started():
                return self._start(event)
            case TextDelta() | RefusalDelta():
                return self._say("message", event.text)
            case ReasoningDelta():
                return self._say("reasoning", event.text) if event.text else []
            case UsageReport():
                self._usage = event.usage
                return []
            case Failure():
                kind = event.error.type or "internal_error"
                error = {"type": kind, "message": event.error.message}
                return [named_event("error", error=error)]
            case End():
                return self._end()
            case _:
                return []

    def _start(self, event: Started) -> list[bytes]:
        """The response's id, which a reader learns at the end, begins nothing."""
        again, self._started = self._started, True
        self._response_id = event.id or self._response_id
        self._model = event.model or self._model
        return (
            [] if again else [named_event("chat.start", model_instance_id=self._model)]
        )

    def _say(self, kind: str, text: str) -> list[bytes]:
        records: list[bytes] = []
        if self._kind != kind:
            records = [*self._close(), named_event(f"{kind}.start")]
            self._kind = kind
            self._output.append({"type": kind, "content": ""})
        self._output[-1]["content"] += text
        return [*records, named_event(f"{kind}.delta", content=text)]

    def _close(self) -> list[bytes]:
        kind, self._kind = self._kind, ""
        return [named_event(f"{kind}.end")] if kind else []

    def _end(self) -> list[bytes]:
        result: dict[str, Any] = {
            "model_instance_id": self._model,
            "output": self._output,
            "response_id": self._response_id,
        }
        if self._usage is not None:
            result["stats"] = {
                "input_tokens": self._usage.input_tokens,
                "total_output_tokens": self._usage.output_tokens,
                "reasoning_output_tokens": self._usage.reasoning_tokens,
            }
        return [*self._close(), named_event("chat.end", result=result)]
