"""OpenAI chat completions, the dialect that most servers speak, each a little its own.

Source: openai/openai-openapi ``openapi.yaml``; the differences of each server are
fields of `OpenAIChat`, and each server is a row in `midstream._dialects`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from midstream._dialects.asking import (
    GO_ON,
    OPENAI_NAMES,
    merge,
    parameters,
    post,
    refuses_prefill,
    with_prefix,
)
from midstream._dialects.base import Continuation, Dialect
from midstream._dialects.documents import dumps, load_object
from midstream._dialects.faults import error_of
from midstream._dialects.finish import finish
from midstream._errors import ResumeUnsupported
from midstream._events import (
    End,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReport,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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

ROUTE = "/v1/chat/completions"


class Replay(Protocol):
    """A server that keeps the stream and can send it again from any place."""

    def tag(self, call: Call, generation: Generation) -> Call:
        """The first request, made so that the server keeps the stream."""
        ...

    def continuation(self, generation: Generation, received: Received) -> Continuation:
        """The request for the rest."""
        ...

    def leave(self, generation: Generation) -> Flow[None]:
        """Stop the generation, which outlives its connection."""
        ...


@dataclass(frozen=True, kw_only=True)
class OpenAIChat(Dialect):
    """One server that speaks ``/v1/chat/completions``.

    Attributes:
        prefill: Body fields that make it continue a trailing assistant message; None
            when it does not.
        turn: Fields of that message.
        reasoning: The field of that message that carries reasoning, where it does.
        body: Further fields of every request.
        total: Reads the running count of answer tokens from a chunk, where told.
        replay: How a kept stream is fetched again.
    """

    name: str
    default_url: str | None = None
    key_variables: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ("ask",)
    route: str = ROUTE
    prefill: Mapping[str, Any] | None = None
    turn: Mapping[str, Any] = field(default_factory=dict)
    reasoning: str | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    total: Callable[[Mapping[str, Any]], int | None] | None = None
    replay: Replay | None = None

    def begin(self, generation: Generation) -> Flow[Call]:
        """One POST."""
        messages = [message.body() for message in generation.request.messages]
        call = self._post(generation, messages, None)
        yield from ()
        return call

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """Replay, an open assistant turn, or the plea to go on."""
        yield from ()
        if strategy == "replay" and self.replay is not None:
            return self.replay.continuation(generation, received)
        messages = generation.request.messages
        if strategy == "ask":
            turns = [m.body() for m in messages]
            turns += [
                {"role": "assistant", "content": received.text},
                {"role": "user", "content": GO_ON},
            ]
            call = self._post(generation, turns, received)
            return Continuation(call=call, sent=received.text, echo="tail")
        turn, flags = dict(self.turn), dict(self.prefill or {})
        if received.reasoning:
            if self.reasoning is None:
                raise ResumeUnsupported(
                    f"{self.name} cannot continue an answer that began with reasoning"
                )
            turn[self.reasoning] = received.reasoning
            if not received.text:
                flags |= {
                    "continue_final_message": self.reasoning,
                    "add_generation_prompt": False,
                }
        turns = with_prefix(messages, received.text, **turn)
        call = self._post(generation, turns, received, flags)
        return Continuation(call=call, sent=received.text)

    def leave(self, generation: Generation, received: Received) -> Flow[None]:
        """Stop what a replay would have kept alive."""
        del received
        if self.replay is not None and "replay" in generation.strategies:
            yield from self.replay.leave(generation)

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads ``chat.completion.chunk`` objects."""
        return ChunkReader(self.total)

    def writer(self) -> Writer:
        """Writes them."""
        return ChunkWriter()

    def refuses(self, strategy: str, error: ServerError) -> bool:
        """Prefill is refused in words."""
        return strategy == "text" and refuses_prefill(error)

    def _post(
        self,
        generation: Generation,
        messages: Sequence[Mapping[str, Any]],
        received: Received | None,
        flags: Mapping[str, Any] | None = None,
    ) -> Call:
        request, endpoint = generation.request, generation.endpoint
        names = dict(OPENAI_NAMES)
        if endpoint.base_url == self.default_url and self.name == "openai":
            # OpenAI's own newer models refuse the name that all others know.
            names["max_tokens"] = "max_completion_tokens"
        body: dict[str, Any] = {
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.body,
            **parameters(request, names, left=received.left if received else None),
        }
        if endpoint.model is not None:
            body["model"] = endpoint.model
        body = {**merge(body, request.extra), **(flags or {})}
        call = post(generation, self.route, body)
        return self.replay.tag(call, generation) if self.replay is not None else call


@dataclass(slots=True)
class _Call:
    """A tool call as the wire has named it so far."""

    index: int
    wire_index: Any
    id: str | None


class ChunkReader:
    """Reads chunks; holds what one chunk leaves open for the next.

    Args:
        total: Reads the running count of answer tokens from a chunk.
    """

    __slots__ = ("_calls", "_counted", "_started", "_total", "cursor")

    def __init__(
        self, total: Callable[[Mapping[str, Any]], int | None] | None = None
    ) -> None:
        self.cursor = None
        self._total = total
        self._counted = 0
        self._started = False
        self._calls: dict[int, list[_Call]] = {}

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """One chunk, ``[DONE]``, or an error in a chunk's place."""
        if data == b"[DONE]":
            return [End()]
        chunk = load_object(data)
        if name == "error" or chunk.get("error"):
            return [Failure(error_of(chunk))]
        events: list[Event | Signal] = []
        if not self._started:
            self._started = True
            events.append(
                Started(
                    chunk.get("id"),
                    chunk.get("model"),
                    tuple(chunk.get("prompt_token_ids") or ()),
                )
            )
        for choice in chunk.get("choices") or ():
            self._choice(choice, self._new_tokens(chunk), events)
        if chunk.get("usage"):
            events.append(UsageReport(usage_of(chunk["usage"])))
        return events

    def eof(self) -> list[Event | Signal]:
        """The end of the body says nothing."""
        return []

    def _new_tokens(self, chunk: Mapping[str, Any]) -> int | None:
        """How many tokens the chunk stands for, where the server tells."""
        total = self._total(chunk) if self._total is not None else None
        if total is None:
            return None
        new, self._counted = total - self._counted, total
        return max(new, 0)

    def _choice(
        self,
        choice: Mapping[str, Any],
        tokens: int | None,
        events: list[Event | Signal],
    ) -> None:
        index = choice.get("index") or 0
        delta = choice.get("delta") or {}
        content = delta.get("content")
        ids = choice.get("token_ids")
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(content, list):
            content, thought = _parts(content)
        if thought:
            events.append(ReasoningDelta(thought, index, tokens, tuple(ids or ())))
            tokens, ids = 0, None
        if content or ids:
            events.append(
                TextDelta(
                    content or "",
                    index,
                    tokens,
                    tuple(ids) if ids else (),
                    choice.get("logprobs"),
                )
            )
            tokens = 0
        if delta.get("refusal"):
            events.append(RefusalDelta(delta["refusal"], index, tokens))
        fragments = delta.get("tool_calls") or ()
        legacy = delta.get("function_call")
        for fragment in [{"index": 0, "function": legacy}] if legacy else fragments:
            events.append(self._tool(fragment, index, tokens))
            tokens = 0
        if choice.get("finish_reason"):
            events.append(finish(choice["finish_reason"], index))

    def _tool(
        self, fragment: Mapping[str, Any], choice: int, tokens: int | None
    ) -> ToolCallDelta:
        """Servers leave out the index, give 0 to all, or change it on the way."""
        function = fragment.get("function") or {}
        call = self._slot(fragment, function.get("name"), choice)
        arguments = function.get("arguments") or ""
        whole = isinstance(arguments, dict)
        return ToolCallDelta(
            call.index,
            fragment.get("id"),
            function.get("name"),
            dumps(arguments).decode() if whole else arguments,
            choice,
            tokens,
            closed=whole,
        )

    def _slot(
        self, fragment: Mapping[str, Any], name: str | None, choice: int
    ) -> _Call:
        calls = self._calls.setdefault(choice, [])
        id_, index = fragment.get("id"), fragment.get("index")
        same_id = [call for call in calls if id_ and call.id == id_]
        same_index = [c for c in calls if index is not None and c.wire_index == index]
        if same_id:
            return same_id[-1]
        if not (id_ and name) and same_index:
            return same_index[-1]
        if id_ or name or not calls:
            calls.append(_Call(len(calls), index, id_))
        return calls[-1]


def _parts(content: list[Any]) -> tuple[str, str]:
    """Text and reasoning of a delta that is a list of parts (Mistral)."""
    text, thought = "", ""
    for part in content:
        if part.get("type") == "thinking":
            thought += "".join(inner.get("text", "") for inner in part["thinking"])
        else:
            text += part.get("text") or ""
    return text, thought


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """OpenAI's usage object."""
    prompt = usage.get("prompt_tokens_details") or {}
    completion = usage.get("completion_tokens_details") or {}
    return Usage(
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        completion.get("reasoning_tokens"),
        prompt.get("cached_tokens"),
    )


class ChunkWriter:
    """Writes chunks as OpenAI does."""

    __slots__ = ("_id", "_model")

    def __init__(self) -> None:
        self._id: str | None = "chatcmpl-midstream"
        self._model: str | None = "midstream"

    def write(self, event: Event | Signal) -> list[bytes]:
        """One SSE event for one event."""
        match event:
            case Started():
                self._id = event.id or self._id
                self._model = event.model or self._model
                chunk = self._chunk({"role": "assistant", "content": ""})
                if event.prompt_ids:
                    chunk["prompt_token_ids"] = list(event.prompt_ids)
            case TextDelta():
                chunk = self._chunk({"content": event.text}, event.choice)
                if event.token_ids:
                    chunk["choices"][0]["token_ids"] = list(event.token_ids)
                if event.logprobs is not None:
                    chunk["choices"][0]["logprobs"] = event.logprobs
            case ReasoningDelta():
                chunk = self._chunk({"reasoning_content": event.text}, event.choice)
            case RefusalDelta():
                chunk = self._chunk({"refusal": event.text}, event.choice)
            case ToolCallDelta():
                chunk = self._chunk({"tool_calls": [_fragment(event)]}, event.choice)
            case Finish():
                chunk = self._chunk({}, event.choice, event.raw or event.reason)
            case UsageReport():
                chunk = {**self._chunk({}), "choices": []}
                chunk["usage"] = usage_document(event.usage)
            case Failure():
                chunk = {"error": error_document(event.error)}
            case End():
                return [b"data: [DONE]\n\n"]
            case _:
                return []
        return [b"data: " + dumps(chunk) + b"\n\n"]

    def _chunk(
        self, delta: dict[str, Any], choice: int = 0, reason: str | None = None
    ) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": 0,
            "model": self._model,
            "choices": [{"index": choice, "delta": delta, "finish_reason": reason}],
        }


def _fragment(event: ToolCallDelta) -> dict[str, Any]:
    fragment: dict[str, Any] = {"index": event.index, "function": {}}
    if event.id is not None:
        fragment |= {"id": event.id, "type": "function"}
    if event.name is not None:
        fragment["function"]["name"] = event.name
    fragment["function"]["arguments"] = event.arguments
    return fragment


def usage_document(usage: Usage) -> dict[str, Any]:
    """OpenAI's usage object."""
    document: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": (usage.input_tokens or 0) + (usage.output_tokens or 0),
    }
    if usage.cached_tokens is not None:
        document["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        reasoning = {"reasoning_tokens": usage.reasoning_tokens}
        document["completion_tokens_details"] = reasoning
    return document


def error_document(error: ServerError) -> dict[str, Any]:
    """OpenAI's error object."""
    return {
        "message": error.message,
        "type": error.type or "server_error",
        "param": None,
        "code": error.status,
    }
