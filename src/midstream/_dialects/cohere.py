"""Cohere chat, version 2.

Source: cohere-ai/cohere-python ``src/cohere/types/*chat*event*.py``. Events repeat
their name as ``type``; the text is whole once ``message-end`` named a reason for which
answers end. Its ``ERROR`` and ``TIMEOUT`` are failures that come in an end's place.

There is no prefix: a trailing assistant message is a turn that is over. The plan that
comes before tool calls is the model's reasoning about them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midstream._dialects.asking import GO_ON, merge, parameters, post
from midstream._dialects.base import Continuation, Dialect
from midstream._dialects.calls import Calls
from midstream._dialects.documents import load_object, named_event
from midstream._dialects.faults import error_of
from midstream._dialects.finish import finish
from midstream._values.api_names import ApiNames, places
from midstream._values.errors import ServerFailed, UsageError
from midstream._values.events import (
    End,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolCallDelta,
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

ROUTE = "/v2/chat"

_NAMES = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "p",
    "stop": "stop_sequences",
    "seed": "seed",
    "tools": "tools",
}
_PLACES = places(_NAMES)
_BROKEN = frozenset({"ERROR", "TIMEOUT"})


@dataclass(frozen=True, kw_only=True)
class Cohere(Dialect):
    """``/v2/chat``."""

    name: str = "cohere"
    default_url: str | None = "https://api.cohere.com"
    key_variables: tuple[str, ...] = ("COHERE_API_KEY", "CO_API_KEY")
    strategies: tuple[str, ...] = ("ask",)
    route: str = ROUTE

    def begin(self, generation: Generation) -> Flow[Call]:
        """One POST."""
        yield from ()
        turns = [message.body() for message in generation.request.messages]
        return self._post(generation, turns, None)

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """The plea to go on."""
        yield from ()
        if strategy != "ask":
            raise ResumeUnsupported(f"{self.name} continues no prefix")
        turns = [message.body() for message in generation.request.messages]
        if received.text:
            turns += [
                {"role": "assistant", "content": received.text},
                {"role": "user", "content": GO_ON},
            ]
        call = self._post(generation, turns, received)
        return Continuation(call=call, sent=received.text, echo="tail")

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """All is at the top."""
        del endpoint
        return ApiNames(_PLACES, frozenset({"messages", "stream"}))

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads the events."""
        return ChatReader()

    def writer(self) -> Writer:
        """Writes them."""
        return ChatWriter()

    def _post(
        self,
        generation: Generation,
        turns: Sequence[dict[str, Any]],
        received: Received | None,
    ) -> Call:
        request, endpoint = generation.request, generation.endpoint
        if endpoint.model is None:
            raise UsageError('Cohere needs a model, as in "cohere:command-a-03-2025"')
        left = received.left if received else None
        body = {
            "model": endpoint.model,
            "messages": turns,
            "stream": True,
            **parameters(request, _NAMES, left=left),
        }
        return post(generation, self.route, merge(body, request.extra))


class ChatReader:
    """Reads the events of ``/v2/chat``."""

    __slots__ = ("_calls", "cursor")

    def __init__(self) -> None:
        self.cursor = None
        self._calls = Calls()

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """One event; unknown ones say nothing."""
        if data == b"[DONE]":
            return [End()]
        event = load_object(data)
        kind = event.get("type") or name
        if kind == "error" or event.get("error"):
            return [Failure(error_of(event))]
        delta = event.get("delta") or {}
        message = delta.get("message") or {}
        match kind:
            case "content-delta" | "content-start":
                return _content(message.get("content") or {}, event)
            case "message-start":
                return [Started(event.get("id"))]
            case "tool-plan-delta":
                plan = message.get("tool_plan")
                return [ReasoningDelta(plan)] if plan else []
            case "tool-call-start" | "tool-call-delta":
                return self._call(kind, message.get("tool_calls") or {}, event)
            case "tool-call-end":
                self._calls.end(event.get("index"))
                return []
            case "message-end":
                return self._end(delta)
            case _:
                return []

    def eof(self) -> list[Event | Signal]:
        """The end of the body says nothing."""
        return []

    def _call(
        self, kind: str, call: dict[str, Any], event: dict[str, Any]
    ) -> list[Event | Signal]:
        function, index = call.get("function") or {}, event.get("index")
        arguments = function.get("arguments") or ""
        if kind == "tool-call-delta":
            return [*self._calls.more(index, arguments)]
        name = function.get("name")
        return [*self._calls.begin(index, call.get("id"), name, arguments)]

    def _end(self, delta: dict[str, Any]) -> list[Event | Signal]:
        raw = delta.get("finish_reason")
        if raw in _BROKEN:
            message = delta.get("error") or f"the server ended the answer with {raw!r}"
            return [Failure(ServerFailed(message, type=raw, retryable=True))]
        events = self._calls.finish(finish(raw) if raw else Finish(None))
        usage = _usage(delta.get("usage") or {})
        if usage != Usage():
            events.append(UsageReport(usage))
        return [*events, End()]


def _content(content: dict[str, Any], event: dict[str, Any]) -> list[Event | Signal]:
    """Text or thinking, with the ids and probabilities of its tokens where asked."""
    events: list[Event | Signal] = []
    if content.get("thinking"):
        events.append(ReasoningDelta(content["thinking"]))
    if content.get("text"):
        logprobs = event.get("logprobs")
        ids = tuple((logprobs or {}).get("token_ids") or ())
        tokens = len(ids) or None
        events.append(TextDelta(content["text"], 0, tokens, ids, logprobs))
    return events


def _usage(usage: dict[str, Any]) -> Usage:
    """Cohere counts in floats; what it bills leaves out its own additions."""
    counted = usage.get("tokens") or usage.get("billed_units") or {}
    values = (
        counted.get("input_tokens"),
        counted.get("output_tokens"),
        usage.get("cached_tokens"),
    )
    spent, said, cached = (None if v is None else int(v) for v in values)
    return Usage(spent, said, None, cached)


_WORDS = {"length": "MAX_TOKENS", "stop": "COMPLETE", "tool_calls": "TOOL_CALL"}
_OWN_WORDS = frozenset({*_WORDS.values(), "STOP_SEQUENCE"})


class ChatWriter:
    """Writes the events as Cohere does; finish and usage go out with the end."""

    __slots__ = ("_calls", "_finish", "_index", "_kind", "_usage")

    def __init__(self) -> None:
        self._index = -1  # of the block that began last
        self._kind = ""  # of that block, while it is open
        self._calls: dict[int, int] = {}  # open tool calls → their blocks
        self._finish: Finish | None = None
        self._usage: Usage | None = None

    def write(self, event: Event | Signal) -> list[bytes]:
        """One SSE event for a delta, and those that its block needs."""
        match event:
            case Started():
                delta = {"message": {"role": "assistant"}}
                id_ = event.id or "midstream"
                return [named_event("message-start", id=id_, delta=delta)]
            case TextDelta():
                return self._in_block("text", event.text, event.logprobs)
            case RefusalDelta():
                return self._in_block("text", event.text)
            case ReasoningDelta():
                return self._in_block("thinking", event.text) if event.text else []
            case ToolCallDelta():
                return self._call(event)
            case Finish():
                self._finish = event
                return []
            case UsageReport():
                self._usage = event.usage
                return []
            case Failure():
                broken = event.error.type if event.error.type in _BROKEN else "ERROR"
                failed = {"finish_reason": broken, "error": event.error.message}
                return [named_event("message-end", delta=failed)]
            case End():
                return self._end()
            case _:
                return []

    def _in_block(self, kind: str, text: str, logprobs: Any = None) -> list[bytes]:
        """A delta in a block of that kind, which is begun where none is open."""
        records: list[bytes] = []
        if self._kind != kind:
            records = [*self._close(), self._begin(kind)]
        more = {} if logprobs is None else {"logprobs": logprobs}
        delta = {"message": {"content": {kind: text}}}
        record = named_event("content-delta", index=self._index, delta=delta, **more)
        return [*records, record]

    def _begin(self, kind: str) -> bytes:
        self._index += 1
        self._kind = kind
        delta = {"message": {"content": {"type": kind, kind: ""}}}
        return named_event("content-start", index=self._index, delta=delta)

    def _close(self) -> list[bytes]:
        """End the open block of text or thinking; tool calls end by themselves."""
        kind, self._kind = self._kind, ""
        return [named_event("content-end", index=self._index)] if kind else []

    def _call(self, event: ToolCallDelta) -> list[bytes]:
        records: list[bytes] = []
        function: dict[str, Any] = {"arguments": event.arguments}
        if event.index not in self._calls:
            records = self._close()
            self._index += 1
            self._calls[event.index] = self._index
            call: dict[str, Any] = {"id": event.id, "type": "function"}
            function["name"] = event.name
            delta = {"message": {"tool_calls": call | {"function": function}}}
            record = named_event("tool-call-start", index=self._index, delta=delta)
            records.append(record)
        elif event.arguments:
            index = self._calls[event.index]
            delta = {"message": {"tool_calls": {"function": function}}}
            records.append(named_event("tool-call-delta", index=index, delta=delta))
        if event.closed:
            index = self._calls.pop(event.index)
            records.append(named_event("tool-call-end", index=index))
        return records

    def _end(self) -> list[bytes]:
        records = self._close()
        records += [named_event("tool-call-end", index=i) for i in self._calls.values()]
        self._calls.clear()
        raw = self._finish.raw if self._finish else None
        if self._finish is not None and raw not in _OWN_WORDS:
            raw = _WORDS.get(self._finish.reason or "", raw)
        delta: dict[str, Any] = {"finish_reason": raw}
        if self._usage is not None:
            delta["usage"] = _usage_document(self._usage)
        return [*records, named_event("message-end", delta=delta)]


def _usage_document(usage: Usage) -> dict[str, Any]:
    """Cohere's usage object."""
    counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    document: dict[str, Any] = {"billed_units": counts, "tokens": counts}
    if usage.cached_tokens is not None:
        document["cached_tokens"] = usage.cached_tokens
    return document
