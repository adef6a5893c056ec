"""OpenAI responses: items with begin and end, and the one hosted API that replays.

Source: openai/openai-python ``src/openai/types/responses/*`` and the background guide;
llama.cpp and vLLM run for real. Every event is named and repeats its name as ``type``.
Complete iff one of ``response.completed``, ``incomplete`` and ``failed`` came; there is
no ``[DONE]``.

While replay is allowed, a response is asked for as ``background``, which OpenAI stores
for some minutes: after a drop it is read on from the last ``sequence_number``, exactly,
under any sampling. The price is a later first token, and that leaving takes a call of
its own. Whoever wants neither says ``Resume(strategies=…)`` without ``"replay"``, or
``extra={"store": False}``. A server that refuses is asked again without it, and
remembered.

What the API has no word for: stop strings, which OpenAI's own server is not asked for
(a `UsageError` says so), and seeds, which it does not get. Tools that the server runs
itself are no tool calls of the answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from midstream._dialects.asking import (
    GO_ON,
    LIMITS,
    bearer,
    merge,
    parameters,
    post,
    refuses_prefill,
)
from midstream._dialects.base import Call, Continuation, Dialect, join_url
from midstream._dialects.calls import Calls
from midstream._dialects.documents import load_object, named_event
from midstream._dialects.faults import error_of
from midstream._dialects.finish import finish
from midstream._values.api_names import ApiNames, places
from midstream._values.errors import BadRequest, ServerFailed, UsageError
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
    from collections.abc import Hashable, Mapping, Sequence

    from midstream._dialects.base import Flow, Generation, Reader, Received, Writer
    from midstream._dialects.openai_chat import Replay
    from midstream._values.endpoint import Endpoint
    from midstream._values.errors import ServerError
    from midstream._values.events import Event, Signal
    from midstream._values.message import Message
    from midstream._values.request import Request

HOSTED = "https://api.openai.com"
ROUTE = "/v1/responses"

_NAMES = {
    "max_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "tools": "tools",
}
_FURTHER_NAMES = {"seed": "seed", "stop": "stop"}  # llama.cpp and vLLM know them
_PATIENCE = 0.4  # seconds to hear that the generation was stopped
_SYSTEM = ("system", "developer")
_NOT_KEPT = re.compile(r"\b(background|store)\b", re.IGNORECASE)
_KEEPS, _OPEN = "responses: keeps", "responses: continues"  # in a generation's memory


@dataclass(frozen=True, kw_only=True)
class OpenAIResponses(Dialect):
    """One server that speaks ``/v1/responses``.

    Attributes:
        open_turn: Whether the last input item is continued where its status is
            ``in_progress``; None: as the server's answers tell.
        strip: Whether whitespace at the end of such an item may be trimmed.
        replay: How a kept stream is fetched again; None: as a background response.
    """

    name: str = "openai-responses"
    default_url: str | None = HOSTED
    key_variables: tuple[str, ...] = ("OPENAI_API_KEY",)
    strategies: tuple[str, ...] = ("replay", "text", "ask")
    route: str = ROUTE
    open_turn: bool | None = None
    strip: bool = True
    replay: Replay | None = None

    def begin(self, generation: Generation) -> Flow[Call]:
        """One POST."""
        yield from ()
        return self._post(generation, _items(generation.request.messages), None)

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """The events after the last one, an open item, or the plea to go on."""
        yield from ()
        if strategy == "replay":
            return self._again(generation, received)
        items, sent = _items(generation.request.messages), received.text
        if strategy == "ask":
            if sent:
                items = [*items, _turn(sent), {"role": "user", "content": GO_ON}]
            call = self._post(generation, items, received)
            return Continuation(call=call, sent=sent, echo="tail")
        continues = generation.memory.get(_OPEN) if self.open_turn is None else True
        if not continues:
            raise ResumeUnsupported(
                f"{generation.endpoint} is not known to continue an open item; "
                "vllm-responses and llama.cpp-responses are"
            )
        if received.reasoning:
            raise ResumeUnsupported("an answer that began with reasoning goes on in it")
        if self.strip or generation.request.stop:
            # A server that waits for the rest of a stop string splits a token there,
            # mostly behind its leading space.
            sent = sent.rstrip()
        if sent:  # nothing is lost by asking anew
            items = _opened(items, sent)
        return Continuation(call=self._post(generation, items, received), sent=sent)

    def leave(self, generation: Generation, received: Received) -> Flow[None]:
        """Cancel what goes on in the background."""
        if self.replay is not None:
            if "replay" in generation.strategies:
                yield from self.replay.leave(generation)
        elif self._kept(generation) and received.response_id is not None:
            url = self._url(generation, received.response_id)
            secrets = bearer(generation)
            yield Call(url=f"{url}/cancel", secrets=secrets, patience=_PATIENCE)

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """All is at the top."""
        return ApiNames(
            places(_names(endpoint)) | dict.fromkeys(LIMITS, "max_tokens"),
            frozenset({"input", "stream"}),
        )

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads the events, and what they tell of the server."""
        if generation is None:
            return ResponseReader()
        return ResponseReader(generation.memory, kept=self._kept(generation))

    def writer(self) -> Writer:
        """Writes them."""
        return ResponseWriter()

    def refuses(self, strategy: str, error: ServerError) -> bool:
        """Background responses and open items are refused in words."""
        if strategy == "text":
            return refuses_prefill(error)
        refused = strategy == "replay" and isinstance(error, BadRequest)
        return refused and bool(_NOT_KEPT.search(error.message))

    def no_prefix(self, request: Request) -> str | None:
        """Structured outputs restart at the prefix."""
        form = (request.extra.get("text") or {}).get("format") or {}
        if form.get("type", "text") != "text":
            return "a grammar restarts at the prefix (text.format)"
        return super().no_prefix(request)

    def _kept(self, generation: Generation) -> bool:
        """Whether the response is asked for in a way that outlives its connection."""
        extra = generation.request.extra
        return (
            self.replay is None
            and "replay" in generation.strategies
            and generation.memory.get(_KEEPS, True)
            and extra.get("background", True)
            and extra.get("store", True)
        )

    def _again(self, generation: Generation, received: Received) -> Continuation:
        """The events after the last one that was read.

        A fresh reader may be given all of them, if nothing had been delivered: that is
        how another process goes on with a stream.
        """
        if self.replay is not None:
            return self.replay.continuation(generation, received)
        if not self._kept(generation):
            raise ResumeUnsupported(f"{generation.endpoint} keeps no responses")
        place = received.cursor
        if received.response_id is None or (place is None and received.text):
            raise ResumeUnsupported("the connection broke before the response's id")
        after = "" if place is None else f"&starting_after={place}"
        call = Call(
            url=f"{self._url(generation, received.response_id)}?stream=true{after}",
            method="GET",
            secrets=bearer(generation),
        )
        return Continuation(call=call, keeps="reader")

    def _url(self, generation: Generation, response_id: str) -> str:
        base = join_url(generation.endpoint.base_url or "", self.route)
        return f"{base}/{quote(response_id, safe='')}"

    def _post(
        self,
        generation: Generation,
        items: Sequence[Mapping[str, Any]],
        received: Received | None,
    ) -> Call:
        request, endpoint = generation.request, generation.endpoint
        names = _names(endpoint)
        if request.stop and "stop" not in names:
            raise UsageError("the OpenAI Responses API has no stop strings")
        instructions = _instructions(request.messages)
        body: dict[str, Any] = {
            "input": items,
            "stream": True,
            **({"instructions": instructions} if instructions else {}),
            **({"background": True, "store": True} if self._kept(generation) else {}),
            **parameters(request, names, left=received.left if received else None),
        }
        if endpoint.model is not None:
            body["model"] = endpoint.model
        call = post(generation, self.route, merge(body, request.extra))
        return self.replay.tag(call, generation) if self.replay is not None else call


def _names(endpoint: Endpoint) -> Mapping[str, str]:
    """The API's own; other servers know more."""
    hosted = (endpoint.base_url or "").startswith(HOSTED)
    return _NAMES if hosted else {**_NAMES, **_FURTHER_NAMES}


def _leading(messages: Sequence[Message]) -> int:
    """How many messages at the begin are instructions in plain text."""
    for count, message in enumerate(messages):
        if message.role not in _SYSTEM or not isinstance(message.content, str):
            return count
    return len(messages)


def _instructions(messages: Sequence[Message]) -> str:
    return "\n\n".join(str(m.content) for m in messages[: _leading(messages)])


def _items(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The conversation as input items; llama.cpp wants to be told what an item is."""
    bodies = [message.body() for message in messages[_leading(messages) :]]
    return [
        {"type": "message", **body} if body.get("role") == "assistant" else body
        for body in bodies
    ]


def _turn(text: str, **more: Any) -> dict[str, Any]:
    """An assistant's item."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part], **more}


def _opened(items: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """The conversation with ``text`` as its open item, that of the caller included."""
    last = items[-1] if items else {}
    if last.get("role") == "assistant" and isinstance(last.get("content"), str):
        items, text = items[:-1], last["content"] + text
    return [*items, _turn(text, status="in_progress")]


class ResponseReader:
    """Reads the events of ``/v1/responses``.

    Args:
        memory: Where what the answers tell of the server is noted.
        kept: Whether the response was asked for in the background.

    Attributes:
        cursor: The last sequence number.
    """

    __slots__ = ("_calls", "_kept", "_memory", "_model", "_started", "cursor")

    def __init__(
        self, memory: dict[str, Any] | None = None, *, kept: bool = False
    ) -> None:
        self.cursor: int | None = None
        self._memory = {} if memory is None else memory
        self._kept = kept
        self._calls = Calls()
        self._started = False
        self._model: str | None = None

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """One event; unknown ones say nothing."""
        if data == b"[DONE]":  # some proxies add it; it marks no end here
            return []
        event = load_object(data)
        number = event.get("sequence_number")
        if isinstance(number, int):
            if self.cursor and number <= self.cursor:
                return []  # a replay that begins too early; numbers count from 0
            self.cursor = number
        kind = event.get("type") or name
        if kind == "response.output_text.delta":
            text, logprobs = event.get("delta") or "", event.get("logprobs") or None
            return [TextDelta(text, logprobs=logprobs)] if text or logprobs else []
        if kind == "error" or event.get("error"):
            return [Failure(_fault(event))]
        return self._other(kind, event)

    def eof(self) -> list[Event | Signal]:
        """The end of the body says nothing."""
        return []

    def _other(self, kind: str, event: dict[str, Any]) -> list[Event | Signal]:
        match kind.removeprefix("response."):
            case "created" | "queued" | "in_progress":
                return self._start(event)
            case "reasoning_text.delta" | "reasoning_summary_text.delta":
                text = event.get("delta")
                return [ReasoningDelta(text)] if text else []
            case "refusal.delta":
                text = event.get("delta")
                return [RefusalDelta(text)] if text else []
            case "output_item.added":
                return self._item(event)
            case "function_call_arguments.delta" | "custom_tool_call_input.delta":
                return [*self._calls.more(self._key(event), event.get("delta") or "")]
            case "function_call_arguments.done" | "custom_tool_call_input.done":
                return self._whole(event, event)
            case "output_item.done":
                return self._item_done(event)
            case "completed" | "incomplete" | "failed" | "cancelled":
                return self._end(kind, event.get("response") or {})
            case _:
                return []

    def _start(self, event: dict[str, Any]) -> list[Event | Signal]:
        if self._started:
            return []
        self._started = True
        response = event.get("response") or {}
        self._observe(event, response)
        self._model = response.get("model")
        return [Started(response.get("id"), self._model)]

    def _observe(self, event: dict[str, Any], response: dict[str, Any]) -> None:
        """Servers are told by what only they say.

        vLLM adds fields of its own; llama.cpp knows no background, numbers no events
        and says hardly anything. Both continue an open item.
        """
        numbered = "sequence_number" in event
        bare = not numbered and response.keys() == {"id", "object", "status"}
        if bare or "kv_transfer_params" in response:
            self._memory[_OPEN] = True
        if self._kept and (not numbered or response.get("background") is False):
            self._memory[_KEEPS] = False

    def _item(self, event: dict[str, Any]) -> list[Event | Signal]:
        item = event.get("item") or {}
        if item.get("type") not in ("function_call", "custom_tool_call"):
            return [*self._calls.settle()]
        given = item.get("arguments") or item.get("input") or ""
        id_ = item.get("call_id") or item.get("id")
        return [*self._calls.begin(_place(event), id_, item.get("name"), given)]

    def _item_done(self, event: dict[str, Any]) -> list[Event | Signal]:
        """An item is over: a call is whole, reasoning is sealed."""
        item = event.get("item") or {}
        match item.get("type"):
            case "reasoning" if item.get("encrypted_content"):
                sealed = item["encrypted_content"]
                return [ReasoningDelta("", tokens=0, signature=sealed)]
            case "function_call" | "custom_tool_call":
                if _place(event) in self._calls:
                    return self._whole(event, item)
                begun = self._item(event)
                self._calls.end(_place(event))
                return begun
            case _:
                return []

    def _whole(
        self, event: dict[str, Any], said: Mapping[str, Any]
    ) -> list[Event | Signal]:
        """A call's item ends; some servers send its arguments only now."""
        key = self._key(event)
        arguments = said.get("arguments") or said.get("input") or ""
        events = self._calls.whole(key, arguments)
        self._calls.end(key)
        return [*events]

    def _key(self, event: Mapping[str, Any]) -> Hashable:
        """The call that an event means: the last one, where its key is unknown."""
        place = _place(event)
        return place if place in self._calls else self._calls.last

    def _end(self, kind: str, response: dict[str, Any]) -> list[Event | Signal]:
        status = response.get("status") or kind.removeprefix("response.")
        if status == "failed" or kind == "response.failed":
            return [Failure(error_of(response.get("error") or "the response failed"))]
        if status == "cancelled":
            return [Failure(ServerFailed("the response was cancelled", type=status))]
        events: list[Event | Signal] = []
        if response.get("model") and self._model is None:
            events.append(Started(response.get("id"), response["model"]))
        raw = (response.get("incomplete_details") or {}).get("reason") or status
        done = finish(raw)
        if isinstance(done, Finish) and done.reason == "stop" and len(self._calls):
            done = Finish("tool_calls", raw)
        events += self._calls.finish(done)
        if response.get("usage"):
            events.append(UsageReport(_usage(response["usage"])))
        return [*events, End()]


def _place(event: Mapping[str, Any]) -> Hashable:
    """What an event's item is known by; llama.cpp does not number its items."""
    index = event.get("output_index")
    if index is not None:
        return int(index)
    return event.get("item_id") or (event.get("item") or {}).get("id")


def _fault(event: dict[str, Any]) -> ServerError:
    """OpenAI's error event is flat; others put an object into it."""
    if event.get("error"):
        return error_of(event)
    return error_of({k: v for k, v in event.items() if k != "type"})


def _usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        (usage.get("output_tokens_details") or {}).get("reasoning_tokens"),
        (usage.get("input_tokens_details") or {}).get("cached_tokens"),
    )


@dataclass(slots=True)
class _Item:
    """An output item that is being written.

    Attributes:
        place: Its place among the items.
        kind: ``"output_text"``, ``"refusal"``, ``"reasoning"`` or ``"call"``.
        document: Its own fields.
        text: What it says so far.
        open: Whether more may come.
    """

    place: int
    kind: str
    document: dict[str, Any]
    text: str = ""
    open: bool = True

    def shown(self) -> dict[str, Any]:
        """The item as the API has it."""
        status = "in_progress" if self.open else "completed"
        match self.kind:
            case "call":
                filled: dict[str, Any] = {"arguments": self.text}
            case "reasoning":
                part = {"type": "reasoning_text", "text": self.text}
                filled = {"summary": [], "content": [part] if self.text else []}
            case _:
                filled = {"content": [] if self.open else [self.part()]}
        return {**self.document, **filled, "status": status}

    def part(self) -> dict[str, Any]:
        """The one part of a message."""
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": self.text}
        return {
            "type": "output_text",
            "text": self.text,
            "annotations": [],
            "logprobs": [],
        }


class ResponseWriter:
    """Writes the events as OpenAI does; finish and usage go out with the end.

    Attributes:
        response: The fields that the response's first and last events share.
    """

    __slots__ = ("_calls", "_finish", "_items", "_number", "_usage", "response")

    def __init__(self) -> None:
        self.response: dict[str, Any] = {
            "id": "resp_midstream",
            "object": "response",
            "created_at": 0,
            "model": "midstream",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
        self._number = -1
        self._items: list[_Item] = []
        self._calls: dict[int, _Item] = {}
        self._finish: Finish | None = None
        self._usage: Usage | None = None

    def write(self, event: Event | Signal) -> list[bytes]:
        """One SSE event for a delta, and those that its item needs."""
        match event:
            case Started():
                return self._start(event)
            case TextDelta():
                return self._say("output_text", event.text, event.logprobs)
            case RefusalDelta():
                return self._say("refusal", event.text)
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
                code = event.error.type or "server_error"
                message = event.error.message
                return [self._event("error", code=code, message=message, param=None)]
            case End():
                return self._end()
            case _:
                return []

    def _start(self, event: Started) -> list[bytes]:
        self.response["id"] = event.id or self.response["id"]
        self.response["model"] = event.model or self.response["model"]
        if self._number >= 0:  # llama.cpp names its model at the end
            return []
        response = {**self.response, "status": "in_progress", "output": []}
        kinds = "response.created", "response.in_progress"
        return [self._event(kind, response=response) for kind in kinds]

    def _say(self, kind: str, text: str, logprobs: Any = None) -> list[bytes]:
        """Text or refusal: the one part of a message."""
        item = self._open(kind)
        records: list[bytes] = []
        if item is None:
            item, records = self._begin(kind, "msg", type="message", role="assistant")
            records.append(self._of(item, "content_part.added", part=item.part()))
        item.text += text
        more = {"logprobs": logprobs or []} if kind == "output_text" else {}
        return [*records, self._of(item, f"{kind}.delta", delta=text, **more)]

    def _think(self, event: ReasoningDelta) -> list[bytes]:
        item = self._open("reasoning")
        records: list[bytes] = []
        if item is None:
            item, records = self._begin("reasoning", "rs", type="reasoning")
        if event.text:
            item.text += event.text
            records.append(self._of(item, "reasoning_text.delta", delta=event.text))
        if event.signature is not None:
            item.document["encrypted_content"] = event.signature
            records += self._done(item)
        return records

    def _call(self, event: ToolCallDelta) -> list[bytes]:
        records: list[bytes] = []
        if event.index not in self._calls:
            item, records = self._begin(
                "call", "fc", type="function_call", call_id=event.id, name=event.name
            )
            self._calls[event.index] = item
        item = self._calls[event.index]
        if event.arguments:
            item.text += event.arguments
            kind = "function_call_arguments.delta"
            records.append(self._of(item, kind, delta=event.arguments))
        return [*records, *self._done(item)] if event.closed else records

    def _open(self, kind: str) -> _Item | None:
        """The item that began last, while it is open and of that kind."""
        last = self._items[-1] if self._items else None
        return last if last is not None and last.open and last.kind == kind else None

    def _begin(
        self, kind: str, prefix: str, **document: Any
    ) -> tuple[_Item, list[bytes]]:
        """A new item; one of text or reasoning before it is over."""
        records = self._close()
        place = len(self._items)
        item = _Item(place, kind, {"id": f"{prefix}_{place}", **document})
        self._items.append(item)
        added = self._event(
            "response.output_item.added", output_index=place, item=item.shown()
        )
        return item, [*records, added]

    def _close(self) -> list[bytes]:
        """End the open item of text or reasoning; tool calls end by themselves."""
        last = self._items[-1] if self._items else None
        return [] if last is None or last.kind == "call" else self._done(last)

    def _done(self, item: _Item) -> list[bytes]:
        if not item.open:
            return []
        item.open = False
        records: list[bytes] = []
        match item.kind:
            case "call":
                kind = "function_call_arguments.done"
                name, arguments = item.document["name"], item.text
                records = [self._of(item, kind, name=name, arguments=arguments)]
            case "reasoning" if item.text:
                records = [self._of(item, "reasoning_text.done", text=item.text)]
            case "output_text":
                records = [
                    self._of(item, "output_text.done", text=item.text, logprobs=[]),
                    self._of(item, "content_part.done", part=item.part()),
                ]
            case "refusal":
                records = [
                    self._of(item, "refusal.done", refusal=item.text),
                    self._of(item, "content_part.done", part=item.part()),
                ]
        done = self._event(
            "response.output_item.done", output_index=item.place, item=item.shown()
        )
        return [*records, done]

    def _end(self) -> list[bytes]:
        records = [record for item in self._items for record in self._done(item)]
        reason = self._finish.reason if self._finish else None
        cut = _INCOMPLETE.get(reason or "")
        status = "completed" if cut is None else "incomplete"
        response = {
            **self.response,
            "status": status,
            "output": [item.shown() for item in self._items],
            "usage": None if self._usage is None else _usage_document(self._usage),
        }
        if cut is not None:
            response["incomplete_details"] = {"reason": cut}
        return [*records, self._event(f"response.{status}", response=response)]

    def _of(self, item: _Item, kind: str, **fields: Any) -> bytes:
        """An event that belongs to an item; messages and reasoning have one part."""
        part = {} if item.kind == "call" else {"content_index": 0}
        return self._event(
            f"response.{kind}",
            item_id=item.document["id"],
            output_index=item.place,
            **part,
            **fields,
        )

    def _event(self, kind: str, **fields: Any) -> bytes:
        """A numbered SSE event that is named as its document."""
        self._number += 1
        return named_event(kind, **fields, sequence_number=self._number)


_INCOMPLETE = {"content_filter": "content_filter", "length": "max_output_tokens"}


def _usage_document(usage: Usage) -> dict[str, Any]:
    """OpenAI's usage object; its clients want every count."""
    spent = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "input_tokens": spent[0],
        "input_tokens_details": {"cached_tokens": usage.cached_tokens or 0},
        "output_tokens": spent[1],
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": sum(spent),
    }
