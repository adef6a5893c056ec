"""Anthropic messages, which many other servers speak as well.

Source: anthropics/anthropic-sdk-python ``src/anthropic/{_streaming.py,types/raw_*.py}``
and the streaming and migration guides; llama.cpp and vLLM run for real. Every event is
named and repeats its name as ``type``; unknown events and deltas are to be ignored.
Complete iff ``message_stop`` came; with a ``stop_reason`` before it the text is whole.

What the API asks of a request beyond the standard names: ``max_tokens`` must be given
(4096 where the caller gave none), system messages travel in ``system``, ``seed`` goes
only to servers other than Anthropic's own, which has none. Tools that the server runs
itself are no tool calls of the answer.

Claude up to 4.5 continues a trailing assistant turn, unless it thinks; later ones
refuse that in words, so all but the known early ones are not asked. Other models are
taken to continue it; vLLM does not, which is its row's business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from midstream._dialects.asking import (
    LIMITS,
    keyed,
    merge,
    parameters,
    post,
    refuses_prefill,
)
from midstream._dialects.base import Continuation, Dialect
from midstream._dialects.calls import Calls
from midstream._dialects.documents import dumps, load_object, named_event
from midstream._dialects.faults import error_of
from midstream._dialects.finish import finish
from midstream._values.api_names import ApiNames, places
from midstream._values.errors import BadRequest, UsageError
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
    from collections.abc import Mapping, Sequence

    from midstream._dialects.base import (
        Call,
        Flow,
        Generation,
        Reader,
        Received,
        Writer,
    )
    from midstream._dialects.openai_chat import Replay
    from midstream._values.endpoint import Endpoint
    from midstream._values.errors import ServerError
    from midstream._values.events import Event, Signal
    from midstream._values.message import Message
    from midstream._values.request import Request

HOSTED = "https://api.anthropic.com"
ROUTE = "/v1/messages"
VERSION = "2023-06-01"
MAX_TOKENS = 4096  # the API wants a limit; this one every model allows

INTERRUPTED = "Your previous response was interrupted and ended with:\n\n"
CONTINUE = "\n\nContinue from where you left off; do not repeat anything."

_NAMES = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop_sequences",
    "tools": "tools",
}
_SYSTEM = ("system", "developer")
_CLAUDE = re.compile(
    r"claude-(?:(?:opus|sonnet|haiku|instant)-)?v?(\d+)(?:[.-](\d{1,2}))?(?!\d)"
)
_LAST_PREFILL = (4, 5)
_THINKS_FIRST = re.compile(r"must start with a thinking block", re.IGNORECASE)


def continues_turns(model: str | None) -> bool:
    """Whether a model continues a trailing assistant turn, as far as is known.

    Args:
        model: Its name at Anthropic, Bedrock, Vertex or a router; None: the server's
            only one.
    """
    if model is None or "claude" not in model.lower():
        return True
    version = _CLAUDE.search(model.lower())
    if version is None:
        return False
    major, minor = version.groups(default="0")
    return (int(major), int(minor)) <= _LAST_PREFILL


@dataclass(frozen=True, kw_only=True)
class Anthropic(Dialect):
    """One server that speaks ``/v1/messages``.

    Attributes:
        strip: Whether whitespace at the end of a prefix is refused or trimmed.
        bearer: Whether the key goes into ``Authorization`` in place of ``x-api-key``.
        replay: How a kept stream is fetched again, where the server keeps it.
    """

    name: str = "anthropic"
    default_url: str | None = HOSTED
    key_variables: tuple[str, ...] = ("ANTHROPIC_API_KEY",)
    strategies: tuple[str, ...] = ("text", "ask")
    route: str = ROUTE
    strip: bool = True
    bearer: bool = False
    replay: Replay | None = None

    def begin(self, generation: Generation) -> Flow[Call]:
        """One POST."""
        yield from ()
        return self._post(generation, _turns(generation.request), None)

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """Replay, an open assistant turn, or the user turn of the streaming guide."""
        yield from ()
        if strategy == "replay" and self.replay is not None:
            return self.replay.continuation(generation, received)
        turns, sent = _turns(generation.request), received.text
        if strategy == "ask":
            if sent:
                plea = f"{INTERRUPTED}{sent}{CONTINUE}"
                turns = [*turns, {"role": "user", "content": plea}]
            call = self._post(generation, turns, received)
            return Continuation(call=call, sent=sent, echo="tail")
        why = _no_prefill(generation, received)
        if why is not None:
            raise ResumeUnsupported(why)
        if self.strip or generation.request.stop:
            # A server that waits for the rest of a stop string splits a token there,
            # mostly behind its leading space.
            sent = sent.rstrip()
        if sent:  # an empty turn is refused, and nothing is lost by asking anew
            turns = _opened(turns, sent)
        return Continuation(call=self._post(generation, turns, received), sent=sent)

    def leave(self, generation: Generation, received: Received) -> Flow[None]:
        """Stop what a replay would have kept alive."""
        del received
        if self.replay is not None and "replay" in generation.strategies:
            yield from self.replay.leave(generation)

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """All is at the top."""
        return ApiNames(
            places(_names(endpoint)) | dict.fromkeys(LIMITS, "max_tokens"),
            frozenset({"messages", "stream"}),
        )

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads the events."""
        return MessageReader()

    def writer(self) -> Writer:
        """Writes them."""
        return MessageWriter()

    def refuses(self, strategy: str, error: ServerError) -> bool:
        """Prefill is refused in words, or for want of the thinking before it."""
        if strategy != "text":
            return False
        thinks = isinstance(error, BadRequest) and _THINKS_FIRST.search(error.message)
        return bool(thinks) or refuses_prefill(error)

    def no_prefix(self, request: Request) -> str | None:
        """Structured outputs restart at the prefix."""
        for name in "output_config", "output_format":
            value = request.extra.get(name)
            if value is not None and (name == "output_format" or "format" in value):
                return f"a grammar restarts at the prefix ({name})"
        return super().no_prefix(request)

    def _post(
        self,
        generation: Generation,
        turns: Sequence[dict[str, Any]],
        received: Received | None,
    ) -> Call:
        request, endpoint = generation.request, generation.endpoint
        if endpoint.model is None and _hosted(endpoint):
            raise UsageError('Anthropic needs a model, as in "anthropic:claude-…"')
        system = _system(request.messages)
        body: dict[str, Any] = {
            "messages": turns,
            "max_tokens": MAX_TOKENS,
            "stream": True,
            **({"system": system} if system else {}),
            **parameters(
                request, _names(endpoint), left=received.left if received else None
            ),
        }
        if endpoint.model is not None:
            body["model"] = endpoint.model
        headers = {"anthropic-version": VERSION}
        call = post(generation, self.route, merge(body, request.extra), **headers)
        if not self.bearer:
            call = replace(call, secrets=keyed(generation, "x-api-key"))
        return self.replay.tag(call, generation) if self.replay is not None else call


def _hosted(endpoint: Endpoint) -> bool:
    return (endpoint.base_url or "").startswith(HOSTED)


def _names(endpoint: Endpoint) -> Mapping[str, str]:
    """The API's own; other servers know a seed."""
    return _NAMES if _hosted(endpoint) else {**_NAMES, "seed": "seed"}


def _no_prefill(generation: Generation, received: Received) -> str | None:
    """Why no assistant turn may be left open, or None when one may."""
    model = generation.endpoint.model
    if not continues_turns(model):
        return f"{model} does not continue an assistant turn; Claude up to 4.5 does"
    if received.reasoning:
        return "thinking was received, and its signature cannot be sent in part"
    thinking = generation.request.extra.get("thinking") or {}
    if thinking.get("type", "disabled") != "disabled":
        return "no assistant turn is continued while thinking is enabled"
    return None


def _turns(request: Request) -> list[dict[str, Any]]:
    return [m.body() for m in request.messages if m.role not in _SYSTEM]


def _system(messages: Sequence[Message]) -> str | list[dict[str, Any]]:
    """The system messages: one text, or blocks where one of them is made of blocks."""
    contents = [m.content or "" for m in messages if m.role in _SYSTEM]
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(map(str, contents))
    return [block for content in contents for block in _blocks(content)]


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content or ())


def _opened(turns: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """The conversation with ``text`` as the one text block of its open turn.

    A turn that the caller had left open is gone on with.
    """
    if not turns or turns[-1].get("role") != "assistant":
        return [*turns, {"role": "assistant", "content": _blocks(text)}]
    blocks = _blocks(turns[-1].get("content"))
    if blocks and blocks[-1].get("type") == "text":
        text = blocks.pop()["text"] + text
    return [*turns[:-1], {**turns[-1], "content": [*blocks, *_blocks(text)]}]


class MessageReader:
    """Reads the events of ``/v1/messages``."""

    __slots__ = ("_calls", "_usage", "cursor")

    def __init__(self) -> None:
        self.cursor = None
        self._calls = Calls()
        self._usage: dict[str, Any] = {}

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """One event; unknown ones say nothing."""
        if data == b"[DONE]":  # some proxies add it; it marks no end here
            return []
        event = load_object(data)
        kind = event.get("type") or name
        if kind == "content_block_delta":
            return self._delta(event)
        if kind == "error" or event.get("error"):
            return [Failure(error_of(event))]
        match kind:
            case "message_start":
                return self._start(event.get("message") or {})
            case "content_block_start":
                return self._block(event)
            case "content_block_stop":
                self._calls.end(event.get("index"))
                return []
            case "message_delta":
                return self._end(event)
            case "message_stop":
                return [End()]
            case _:
                return []

    def eof(self) -> list[Event | Signal]:
        """The end of the body says nothing."""
        return []

    def _start(self, message: dict[str, Any]) -> list[Event | Signal]:
        """The output count of this event is that of the first tokens: no count yet."""
        self._count(message.get("usage"))
        events: list[Event | Signal] = [
            Started(message.get("id"), message.get("model")),
        ]
        usage = replace(self._report(), output_tokens=None)
        if usage.input_tokens:
            events.append(UsageReport(usage))
        return events

    def _block(self, event: dict[str, Any]) -> list[Event | Signal]:
        """A block begins; what it holds already is new."""
        block = event.get("content_block") or {}
        events: list[Event | Signal] = []
        match block.get("type"):
            case "tool_use":
                given = block.get("input")
                events += self._calls.begin(
                    event.get("index"),
                    block.get("id"),
                    block.get("name"),
                    dumps(given).decode() if given else "",
                )
            case "redacted_thinking":
                events = [*self._calls.settle(), _sealed(block.get("data"))]
            case _:
                events += self._calls.settle()
                if block.get("thinking"):
                    events.append(ReasoningDelta(block["thinking"]))
                if block.get("text"):
                    events.append(TextDelta(block["text"]))
        return events

    def _delta(self, event: dict[str, Any]) -> list[Event | Signal]:
        delta = event.get("delta") or {}
        match delta.get("type"):
            case "text_delta":
                text = delta.get("text")
                return [TextDelta(text)] if text else []
            case "thinking_delta":
                text = delta.get("thinking")
                return [ReasoningDelta(text)] if text else []
            case "signature_delta":
                return [_sealed(delta.get("signature"))]
            case "input_json_delta":
                piece = delta.get("partial_json") or ""
                return [*self._calls.more(event.get("index"), piece)]
            case _:
                return []

    def _end(self, event: dict[str, Any]) -> list[Event | Signal]:
        """Why it ends, and the tokens of all of it: the count is cumulative."""
        events: list[Event | Signal] = []
        raw = (event.get("delta") or {}).get("stop_reason")
        if raw:
            events += self._calls.finish(finish(raw))
        if event.get("usage"):
            self._count(event["usage"])
            events.append(UsageReport(self._report()))
        return events

    def _count(self, usage: dict[str, Any] | None) -> None:
        known = {k: v for k, v in (usage or {}).items() if v is not None}
        self._usage.update(known)

    def _report(self) -> Usage:
        """Cached prompt tokens, which Anthropic counts apart, are input here."""
        usage = self._usage
        cached = usage.get("cache_read_input_tokens")
        parts = [usage.get("input_tokens"), usage.get("cache_creation_input_tokens")]
        told = [part for part in (*parts, cached) if part is not None]
        return Usage(
            sum(told) if told else None,
            usage.get("output_tokens"),
            (usage.get("output_tokens_details") or {}).get("thinking_tokens"),
            cached,
        )


def _sealed(signature: str | None) -> ReasoningDelta:
    """A signature, or thinking that only Anthropic can read: no text, no token."""
    return ReasoningDelta("", tokens=0, signature=signature or "")


_WORDS = {
    "content_filter": "refusal",
    "length": "max_tokens",
    "stop": "end_turn",
    "tool_calls": "tool_use",
}
_OWN_WORDS = frozenset(
    {
        *_WORDS.values(),
        "model_context_window_exceeded",
        "pause_turn",
        "stop_sequence",
    }
)


class MessageWriter:
    """Writes the events as Anthropic does; finish and usage go out with the end."""

    __slots__ = ("_calls", "_finish", "_index", "_kind", "_usage")

    def __init__(self) -> None:
        self._index = -1  # of the block that began last
        self._kind = ""  # of that block, while it is open
        self._calls: dict[int, int] = {}  # open tool calls → their blocks
        self._finish: Finish | None = None
        self._usage = Usage()

    def write(self, event: Event | Signal) -> list[bytes]:
        """One SSE event for a delta, and those that its block needs."""
        match event:
            case Started():
                return [named_event("message_start", message=_message(event))]
            case TextDelta() | RefusalDelta():  # Claude refuses in plain text
                block = {"type": "text", "text": ""}
                return self._in_block(block, "text_delta", text=event.text)
            case ReasoningDelta():
                return self._think(event)
            case ToolCallDelta():
                return self._call(event)
            case Finish():
                self._finish = event
                return []
            case UsageReport():
                self._usage = event.usage
                return []
            case Failure():
                kind = event.error.type or "api_error"
                error = {"type": kind, "message": event.error.message}
                return [named_event("error", error=error)]
            case End():
                return self._end()
            case _:
                return []

    def _in_block(self, block: dict[str, Any], kind: str, **delta: Any) -> list[bytes]:
        """A delta in a block of that type, which is begun where none is open."""
        records: list[bytes] = []
        if self._kind != block["type"]:
            records = [*self._close(), self._begin(block)]
            self._kind = block["type"]
        delta = {"type": kind, **delta}
        records.append(
            named_event("content_block_delta", index=self._index, delta=delta)
        )
        return records

    def _think(self, event: ReasoningDelta) -> list[bytes]:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        records: list[bytes] = []
        if event.text:
            records += self._in_block(block, "thinking_delta", thinking=event.text)
        if event.signature is None:
            return records
        if self._kind == "thinking":  # its signature is the last of a block
            seal = {"signature": event.signature}
            records += self._in_block(block, "signature_delta", **seal)
            return records + self._close()
        sealed = {"type": "redacted_thinking", "data": event.signature}
        return [*self._close(), self._begin(sealed), self._stop(self._index)]

    def _call(self, event: ToolCallDelta) -> list[bytes]:
        records: list[bytes] = []
        if event.index not in self._calls:
            block = {"type": "tool_use", "id": event.id, "name": event.name}
            records = [*self._close(), self._begin({**block, "input": {}})]
            self._calls[event.index] = self._index
        index = self._calls[event.index]
        if event.arguments:
            delta = {"type": "input_json_delta", "partial_json": event.arguments}
            records.append(named_event("content_block_delta", index=index, delta=delta))
        if event.closed:
            del self._calls[event.index]
            records.append(self._stop(index))
        return records

    def _begin(self, block: dict[str, Any]) -> bytes:
        self._index += 1
        return named_event(
            "content_block_start", index=self._index, content_block=block
        )

    def _close(self) -> list[bytes]:
        """End the open block of text or thinking; tool calls end by themselves."""
        kind, self._kind = self._kind, ""
        return [self._stop(self._index)] if kind else []

    def _stop(self, index: int) -> bytes:
        return named_event("content_block_stop", index=index)

    def _end(self) -> list[bytes]:
        records = [*self._close(), *map(self._stop, self._calls.values())]
        self._calls.clear()
        raw = self._finish.raw if self._finish else None
        if self._finish is not None and raw not in _OWN_WORDS:
            raw = _WORDS.get(self._finish.reason or "", raw or self._finish.reason)
        delta = {"stop_reason": raw, "stop_sequence": None}
        usage = _usage_document(self._usage)
        records.append(named_event("message_delta", delta=delta, usage=usage))
        return [*records, named_event("message_stop")]


def _message(event: Started) -> dict[str, Any]:
    return {
        "id": event.id or "msg_midstream",
        "type": "message",
        "role": "assistant",
        "model": event.model or "midstream",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def _usage_document(usage: Usage) -> dict[str, Any]:
    """Anthropic's usage object, in which cached tokens are no input tokens."""
    document: dict[str, Any] = {"output_tokens": usage.output_tokens or 0}
    if usage.input_tokens is not None:
        document["input_tokens"] = usage.input_tokens - (usage.cached_tokens or 0)
    if usage.cached_tokens is not None:
        document["cache_read_input_tokens"] = usage.cached_tokens
    if usage.reasoning_tokens is not None:
        document["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return document
