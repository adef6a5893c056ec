"""Ollama's own API: one JSON document a line.

Source: ollama/ollama ``server/routes.go``, ``api/types.go``. Complete iff a line says
``done``. A body that ends cleanly without it after thirty equal tokens is the runner's
repeat guard: asking it to go on would only repeat more.

``/api/generate`` puts its prompt into the model's template, which leaves no place for
the begin of an answer. So a continuation is a raw prompt: what the template made of the
prompt, which the server tells without generating (since September 2025), and the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from midstream._dialects.asking import (
    GO_ON,
    merge,
    parameters,
    post,
    raw_prompt,
    refuses_prefill,
    rooted,
    with_prefix,
)
from midstream._dialects.base import Continuation, Dialect
from midstream._dialects.documents import dumps, load_object
from midstream._dialects.faults import error_of
from midstream._dialects.finish import finish
from midstream._dialects.whole_calls import (
    WholeCalls,
    arguments_object,
    arguments_text,
)
from midstream._frames.ndjson import NDJSONFramer
from midstream._values.api_names import ApiNames, places
from midstream._values.errors import ServerFailed, UsageError
from midstream._values.events import (
    End,
    Failure,
    Finish,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream._values.interruptions import ResumeUnsupported
from midstream._values.usage import Usage

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
    from midstream._frames import Framer
    from midstream._values.endpoint import Endpoint
    from midstream._values.errors import ServerError
    from midstream._values.events import Event, Signal

_OPTIONS = {
    "max_tokens": "num_predict",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
    "seed": "seed",
}
_PLACES = places(_OPTIONS, "options")
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

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """Options have a place of their own."""
        del endpoint
        return ApiNames(
            {**_PLACES, "tools": "tools"}, frozenset({"messages", "stream"})
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
        said: dict[str, Any] = {"messages": messages}
        if generation.request.tools is not None:
            said["tools"] = generation.request.tools
        return _post(generation, self.route, said, received)


@dataclass(frozen=True, kw_only=True)
class OllamaGenerate(Dialect):
    """``/api/generate``."""

    name: str = "ollama-generate"
    default_url: str | None = "http://localhost:11434"
    key_variables: tuple[str, ...] = ("OLLAMA_API_KEY",)
    strategies: tuple[str, ...] = ("text",)
    route: str = "/api/generate"
    framer: ClassVar[type[Framer]] = NDJSONFramer
    content_type: ClassVar[str] = "application/x-ndjson"

    def begin(self, generation: Generation) -> Flow[Call]:
        """One POST; rendered messages are raw, a plain text is not."""
        yield from ()
        request = generation.request
        if request.tools is not None:
            raise UsageError(f"{self.name} has no tools; use ollama")
        said: dict[str, Any] = {"prompt": raw_prompt(generation)}
        if not isinstance(request.prompt, str):
            said["raw"] = True
        return _post(generation, self.route, said, None)

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """A raw prompt: the rendered one with the received text at its end."""
        if received.reasoning:
            raise ResumeUnsupported("a raw prompt has no place for thinking")
        prompt = yield from self._rendered(generation)
        said = {"prompt": prompt + received.text, "raw": True}
        call = _post(generation, self.route, said, received)
        return Continuation(call=call, sent=received.text)

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """Options have a place of their own."""
        del endpoint
        return ApiNames(_PLACES, frozenset({"prompt", "stream"}))

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads the lines."""
        return LineReader()

    def writer(self) -> Writer:
        """Writes them."""
        return LineWriter(generate=True)

    def _rendered(self, generation: Generation) -> Flow[str]:
        """What the model was given for a prompt."""
        request, endpoint = generation.request, generation.endpoint
        if not isinstance(request.prompt, str) or request.extra.get("raw"):
            return raw_prompt(generation)
        if endpoint.template is not None:
            return endpoint.template(request.messages)
        said = {"prompt": request.prompt}
        reply = yield _post(generation, self.route, said, None, **_RENDER_ONLY)
        if reply.status != _OK:
            raise self.error(reply)
        told = load_object(reply.content).get("_debug_info") or {}
        if "rendered_template" not in told:
            raise ResumeUnsupported(
                "this Ollama does not tell what its template makes of a prompt: give "
                'Endpoint(template=…), or extra={"raw": True} with a rendered prompt'
            )
        return str(told["rendered_template"])


_OK = 200
_RENDER_ONLY = {
    "_debug_render_only": True,
    "stream": False,
    "options": {"num_predict": 1},  # for a server that does not know the first one
}
_TEMPLATED = frozenset({"context", "suffix", "system", "template", "think"})
"""Fields that a raw prompt leaves no place for: the server refuses most of them."""


def _post(
    generation: Generation,
    route: str,
    said: dict[str, Any],
    received: Received | None,
    **more: Any,
) -> Call:
    """A request to one of the two routes.

    Args:
        generation: Whose.
        route: The route.
        said: What is said to the model.
        received: What came before, for a continuation.
        more: Fields that win over the caller's own.
    """
    request, endpoint = generation.request, generation.endpoint
    if endpoint.model is None:
        raise UsageError('Ollama needs a model, as in "ollama:gemma3"')
    left = received.left if received else None
    body: dict[str, Any] = {
        "model": endpoint.model,
        **said,
        "stream": True,
        "options": parameters(request, _OPTIONS, left=left),
    }
    raw = said.get("raw")
    extra = {
        key: value
        for key, value in request.extra.items()
        if not (raw and key in _TEMPLATED)
    }
    return post(rooted(generation), route, merge(merge(body, extra), more))


class LineReader:
    """Reads the lines of both routes."""

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
        message = line.get("message") or line
        if message.get("thinking"):
            events.append(ReasoningDelta(message["thinking"]))
        text = message.get("content") or line.get("response")
        if text:
            events.append(self._text(text, line))
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
            arguments_text(function.get("arguments")),
            closed=True,
        )


class LineWriter:
    """Writes the lines of both routes; finish and usage go out with the end.

    Args:
        generate: Whether of ``/api/generate``.
    """

    __slots__ = ("_calls", "_finish", "_generate", "_model", "_usage")

    def __init__(self, *, generate: bool = False) -> None:
        self._generate = generate
        self._model: str | None = "midstream"
        self._calls = WholeCalls()
        self._finish: Finish | None = None
        self._usage: Usage | None = None

    def write(self, event: Event | Signal) -> list[bytes]:
        """One line for a delta, one for the end."""
        if isinstance(event, ToolCallDelta):
            return list(map(self._call, self._calls.add(event)))
        whole = list(map(self._call, self._calls.flush()))
        match event:
            case Started():
                self._model = event.model or self._model
            case TextDelta():
                return [*whole, self._line(event.text)]
            case ReasoningDelta():
                return [*whole, self._line("", thinking=event.text)]
            case Finish():
                self._finish = event
            case UsageReport():
                self._usage = event.usage
            case Failure():
                return [*whole, _line({"error": event.error.message})]
            case End():
                return [*whole, self._end()]
            case _:
                pass
        return whole

    def _call(self, call: ToolCallDelta) -> bytes:
        identity = {} if call.id is None else {"id": call.id}
        function = {"name": call.name, "arguments": arguments_object(call)}
        return self._line("", tool_calls=[{**identity, "function": function}])

    def _line(self, text: str, **more: Any) -> bytes:
        return _line(self._said(text, **more))

    def _said(self, text: str, **more: Any) -> dict[str, Any]:
        said: dict[str, Any] = {
            "message": {"role": "assistant", "content": text, **more}
        }
        if self._generate:
            said = {"response": text, **more}
        return {
            "model": self._model,
            "created_at": "2026-01-01T00:00:00Z",
            **said,
            "done": False,
        }

    def _end(self) -> bytes:
        line = self._said("") | {"done": True}
        if self._finish is not None and self._finish.reason is not None:
            line["done_reason"] = self._finish.raw or self._finish.reason
        if self._usage is not None:
            line["prompt_eval_count"] = self._usage.input_tokens
            line["eval_count"] = self._usage.output_tokens
        return _line(line)


def _line(document: dict[str, Any]) -> bytes:
    return dumps(document) + b"\n"
