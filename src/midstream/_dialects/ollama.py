"""Ollama's own API: one JSON document a line.

Source: ollama/ollama ``server/routes.go``, ``api/types.go``. Complete iff a line says
``done``. A body that ends cleanly without it after thirty equal tokens is the runner's
repeat guard: asking it to go on would only repeat more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from midstream._dialects.asking import (
    GO_ON,
    merge,
    parameters,
    post,
    refuses_prefill,
    with_prefix,
)
from midstream._dialects.base import Continuation, Dialect
from midstream._dialects.documents import dumps, load_object, loads
from midstream._dialects.faults import error_of
from midstream._dialects.finish import finish
from midstream._errors import ServerFailed, UsageError
from midstream._events import (
    End,
    Failure,
    Finish,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReport,
)
from midstream._frames.ndjson import NDJSONFramer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midstream._dialects.base import (
        Call,
        Flow,
        Generation,
        Reader,
        Received,
        Writer,
    )
    from midstream._errors import ServerError
    from midstream._events import Event, Signal
    from midstream._frames import Framer

_OPTIONS = {
    "max_tokens": "num_predict",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
    "seed": "seed",
}
_REPEATS = 30  # llama-server's runner gives up after as many equal tokens


@dataclass(frozen=True, kw_only=True)
class OllamaChat(Dialect):
    """``/api/chat``."""

    name: str = "ollama"
    default_url: str | None = "http://localhost:11434"
    key_variables: tuple[str, ...] = ("OLLAMA_API_KEY",)
    strategies: tuple[str, ...] = ("text", "ask")
    route: str = "/api/chat"
    framer: ClassVar[type[Framer]] = NDJSONFramer
    content_type: ClassVar[str] = "application/x-ndjson"

    def begin(self, generation: Generation) -> Flow[Call]:
        """One POST."""
        yield from ()
        messages = [message.body() for message in generation.request.messages]
        return self._post(generation, messages, None)

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """A trailing assistant message, or the plea to go on."""
        yield from ()
        messages = generation.request.messages
        thinking = {"thinking": received.reasoning} if received.reasoning else {}
        turns = with_prefix(messages, received.text, **thinking)
        if strategy == "ask":
            turns = [m.body() for m in messages]
            turns += [
                {"role": "assistant", "content": received.text},
                {"role": "user", "content": GO_ON},
            ]
        return Continuation(
            call=self._post(generation, turns, received),
            sent=received.text,
            echo="tail" if strategy == "ask" else "none",
        )

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads the lines."""
        return LineReader()

    def writer(self) -> Writer:
        """Writes them."""
        return LineWriter()

    def refuses(self, strategy: str, error: ServerError) -> bool:
        """Prefill is refused in words."""
        return strategy == "text" and refuses_prefill(error)

    def _post(
        self,
        generation: Generation,
        messages: Sequence[Mapping[str, Any]],
        received: Received | None,
    ) -> Call:
        request, endpoint = generation.request, generation.endpoint
        if endpoint.model is None:
            raise UsageError('Ollama needs a model, as in "ollama:gemma3"')
        left = received.left if received else None
        body: dict[str, Any] = {
            "model": endpoint.model,
            "messages": messages,
            "stream": True,
            "options": parameters(request, _OPTIONS, left=left),
        }
        if request.tools is not None:
            body["tools"] = request.tools
        return post(generation, self.route, merge(body, request.extra))


class LineReader:
    """Reads the lines of ``/api/chat``."""

    __slots__ = ("_calls", "_last", "_repeats", "_started", "cursor")

    def __init__(self) -> None:
        self.cursor = None
        self._started = False
        self._calls = 0
        self._last = ""
        self._repeats = 0

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """One line."""
        del name
        line = load_object(data)
        if line.get("error"):
            return [Failure(error_of(line))]
        events: list[Event | Signal] = []
        if not self._started:
            self._started = True
            events.append(Started(None, line.get("model")))
        message = line.get("message") or {}
        if message.get("thinking"):
            events.append(ReasoningDelta(message["thinking"]))
        if message.get("content"):
            events.append(self._text(message["content"], line))
        events += [self._tool(call) for call in message.get("tool_calls") or ()]
        if line.get("done") or line.get("done_reason"):
            raw = line.get("done_reason")
            events.append(finish(raw) if raw else Finish(None))
        if line.get("done"):
            if "eval_count" in line or "prompt_eval_count" in line:
                usage = Usage(line.get("prompt_eval_count"), line.get("eval_count"))
                events.append(UsageReport(usage))
            events.append(End())
        return events

    def eof(self) -> list[Event | Signal]:
        """Mostly a drop; after many equal tokens the repeat guard."""
        if self._repeats < _REPEATS:
            return []
        return [
            Failure(
                ServerFailed(
                    f"Ollama stopped after {self._repeats} equal tokens "
                    f"({self._last!r}): its repeat guard, no drop",
                    type="repeat_guard",
                )
            )
        ]

    def _text(self, text: str, line: Mapping[str, Any]) -> TextDelta:
        self._repeats = self._repeats + 1 if text == self._last else 1
        self._last = text
        return TextDelta(text, logprobs=line.get("logprobs"))

    def _tool(self, call: Mapping[str, Any]) -> ToolCallDelta:
        """Calls come whole, their arguments as an object."""
        function = call.get("function") or {}
        index, self._calls = self._calls, self._calls + 1
        return ToolCallDelta(
            index,
            call.get("id"),
            function.get("name"),
            dumps(function.get("arguments") or {}).decode(),
            closed=True,
        )


class LineWriter:
    """Writes the lines of ``/api/chat``; finish and usage go out with the end."""

    __slots__ = ("_finish", "_model", "_usage")

    def __init__(self) -> None:
        self._model: str | None = "midstream"
        self._finish: Finish | None = None
        self._usage: Usage | None = None

    def write(self, event: Event | Signal) -> list[bytes]:
        """One line for a delta, one for the end."""
        match event:
            case Started():
                self._model = event.model or self._model
                return []
            case TextDelta():
                line = self._line({"content": event.text})
            case ReasoningDelta():
                line = self._line({"content": "", "thinking": event.text})
            case ToolCallDelta():
                function = {
                    "name": event.name,
                    "arguments": loads(event.arguments.encode() or b"{}"),
                }
                call = {"function": function}
                line = self._line({"content": "", "tool_calls": [call]})
            case Finish():
                self._finish = event
                return []
            case UsageReport():
                self._usage = event.usage
                return []
            case Failure():
                line = {"error": event.error.message}
            case End():
                line = self._line({"content": ""}) | {"done": True}
                if self._finish is not None and self._finish.reason is not None:
                    line["done_reason"] = self._finish.raw or self._finish.reason
                if self._usage is not None:
                    line["prompt_eval_count"] = self._usage.input_tokens
                    line["eval_count"] = self._usage.output_tokens
            case _:
                return []
        return [dumps(line) + b"\n"]

    def _line(self, message: dict[str, Any]) -> dict[str, Any]:
        return {
            "model": self._model,
            "created_at": "2026-01-01T00:00:00Z",
            "message": {"role": "assistant", **message},
            "done": False,
        }
