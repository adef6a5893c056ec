"""Google's Gemini, ``streamGenerateContent``.

Source: googleapis/python-genai ``google/genai/{_api_client,types,models,errors}.py``.
There is no end marker: the answer is whole iff a candidate gave its ``finishReason``
(or the prompt was blocked), and the body ended. With ``alt=sse`` records are events,
without it the objects of one JSON array; errors come as a record, or as a JSON document
without ``data:`` behind the events.

A part with ``thought`` is reasoning. A ``thoughtSignature`` seals what came before it;
it is handed out, and never sent back in part. Function calls come whole.

Models up to 3.1 continue a trailing model turn, later ones refuse that in words, so
only the known ones are asked. Thoughts are no text and are never replayed as such.
Closing the connection does not stop the service, and there is no call that does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from midstream._dialects.asking import (
    GO_ON,
    keyed,
    merge,
    parameters,
    post,
    refuses_prefill,
)
from midstream._dialects.base import Continuation, Dialect, segments
from midstream._dialects.documents import dumps, loads
from midstream._dialects.faults import error_of
from midstream._dialects.finish import finish
from midstream._dialects.whole_calls import (
    WholeCalls,
    arguments_object,
    arguments_text,
)
from midstream._frames.sse_or_array import SSEOrArrayFramer
from midstream._values.api_names import ApiNames, places
from midstream._values.errors import UsageError, WireError
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
    from midstream._frames import Framer
    from midstream._values.endpoint import Endpoint
    from midstream._values.errors import ServerError
    from midstream._values.events import Event, Signal
    from midstream._values.message import Message
    from midstream._values.request import Request

_CONTINUES = re.compile(r"gemini-(?:2\.|3-|3\.1-|pro-latest)")
_VERSION = re.compile(r"v\d+(?:alpha|beta)?\d*")
_CONFIG = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "stop": "stopSequences",
    "seed": "seed",
}
_SNAKE_CONFIG = {  # protobuf's JSON takes both
    "max_tokens": "max_output_tokens",
    "top_p": "top_p",
    "stop": "stop_sequences",
}
_PLACES = {
    "tools": "tools",
    **places(_CONFIG, "generationConfig", "generation_config"),
    **places(_SNAKE_CONFIG, "generationConfig", "generation_config"),
}
_SYSTEM = ("system", "developer")
_WORDS = {
    "content_filter": "SAFETY",
    "length": "MAX_TOKENS",
    "stop": "STOP",
    "tool_calls": "STOP",
}
_STRUCTURED = ("responseSchema", "responseJsonSchema", "response_schema")


def continues_turns(model: str | None) -> bool:
    """Whether a model continues a trailing model turn, as far as is known."""
    return model is not None and bool(_CONTINUES.match(model.rpartition("/")[2]))


@dataclass(frozen=True, kw_only=True)
class Gemini(Dialect):
    """The Gemini API, and servers that have its routes."""

    name: str = "gemini"
    default_url: str | None = "https://generativelanguage.googleapis.com"
    key_variables: tuple[str, ...] = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    strategies: tuple[str, ...] = ("text", "ask")
    route: str = "/v1beta/{model}:streamGenerateContent"
    framer: ClassVar[type[Framer]] = SSEOrArrayFramer

    def begin(self, generation: Generation) -> Flow[Call]:
        """One POST."""
        yield from ()
        return self._post(generation, _contents(generation.request), None)

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """An open model turn, or the plea to go on."""
        yield from ()
        contents, sent = _contents(generation.request), received.text
        if strategy == "text":
            self._check(generation, received)
            sent = sent.rstrip()
        if sent:  # a turn must not be empty, and nothing is lost by asking anew
            contents = _opened(contents, sent)
            if strategy == "ask":
                contents = [*contents, _turn("user", [{"text": GO_ON}])]
        call = self._post(generation, contents, received)
        echo: Any = "tail" if strategy == "ask" else "none"
        return Continuation(call=call, sent=sent, echo=echo)

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """Parameters are in ``generationConfig``."""
        del endpoint
        return ApiNames(_PLACES, frozenset({"contents"}))

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads the responses."""
        return ResponseReader()

    def writer(self) -> Writer:
        """Writes them, as events."""
        return ResponseWriter()

    def refuses(self, strategy: str, error: ServerError) -> bool:
        """A model turn at the end is refused in words."""
        return strategy == "text" and refuses_prefill(error)

    def no_prefix(self, request: Request) -> str | None:
        """Schemas and the number of candidates are in ``generationConfig``."""
        config = request.extra.get("generationConfig") or {}
        for name in _STRUCTURED:
            if name in config:
                return f"a grammar restarts at the prefix ({name})"
        if config.get("candidateCount", 1) > 1:
            return "more than one candidate cannot be continued from a prefix"
        return super().no_prefix(request)

    def _check(self, generation: Generation, received: Received) -> None:
        """Raise where no model turn may be left open."""
        model = generation.endpoint.model
        if not continues_turns(model):
            raise ResumeUnsupported(
                f"{model} is not known to continue a model turn; "
                "Gemini 2, 3 and 3.1 are"
            )
        if received.reasoning and not received.text:
            raise ResumeUnsupported("a thought cannot be continued")

    def _post(
        self,
        generation: Generation,
        contents: Sequence[dict[str, Any]],
        received: Received | None,
    ) -> Call:
        request = generation.request
        left = received.left if received else None
        body: dict[str, Any] = {"contents": contents}
        system = [
            part
            for message in request.messages
            if message.role in _SYSTEM
            for part in _parts(message)
        ]
        if system:
            body["systemInstruction"] = {"parts": system}
        config = parameters(request, _CONFIG, left=left)
        if config:
            body["generationConfig"] = config
        if request.tools is not None:
            body["tools"] = request.tools
        call = post(generation, self._route(generation), merge(body, request.extra))
        secrets = keyed(generation, "x-goog-api-key")
        return replace(call, url=f"{call.url}?alt=sse", secrets=secrets)

    def _route(self, generation: Generation) -> str:
        """The model's route; a base URL may name another version of the API."""
        model, base = generation.endpoint.model, generation.endpoint.base_url or ""
        if model is None:
            raise UsageError('Gemini needs a model, as in "gemini:gemini-2.5-flash"')
        route = self.route.format(
            model=quote(model if "/" in model else f"models/{model}")
        )
        versioned = map(_VERSION.fullmatch, segments(base.partition("://")[2])[1:])
        return route.removeprefix("/v1beta") if any(versioned) else route


def _contents(request: Request) -> list[dict[str, Any]]:
    """The conversation in Google's form; the assistant is the model."""
    return [
        _turn("model" if m.role == "assistant" else m.role, _parts(m))
        for m in request.messages
        if m.role not in _SYSTEM
    ]


def _turn(role: str, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def _parts(message: Message) -> list[dict[str, Any]]:
    """A message's parts: its own, or its text as one."""
    given = message.body()
    if isinstance(given.get("parts"), list):
        return list(given["parts"])
    if isinstance(message.content, list):
        return message.content
    return [{"text": message.content or ""}]


def _opened(contents: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """The conversation with ``text`` at the end of its open model turn."""
    part = {"text": text}
    if contents and contents[-1]["role"] == "model":
        *before, last = contents
        return [*before, _turn("model", [*last["parts"], part])]
    return [*contents, _turn("model", [part])]


class ResponseReader:
    """Reads ``GenerateContentResponse`` objects.

    ``usageMetadata`` counts so far: what is new in it belongs to the record's parts.
    """

    __slots__ = ("_calls", "_counted", "_ended", "_started", "_usage", "cursor")

    def __init__(self) -> None:
        self.cursor = None
        self._started = False
        self._ended = False
        self._calls: dict[int, int] = {}
        self._counted = {"thoughts": 0, "candidates": 0}
        self._usage: Usage | None = None

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """One response, or an error in any of its shapes."""
        del name
        record = loads(data)
        if isinstance(record, list):  # an error behind the events, as of alt=json
            record = record[0] if record else {}
        if not isinstance(record, dict):
            raise WireError(f"a record that is no JSON object: {data[:80]!r}")
        if record.get("error"):
            return [Failure(error_of(record))]
        events: list[Event | Signal] = []
        if not self._started:
            self._started = True
            started = Started(record.get("responseId"), record.get("modelVersion"))
            events.append(started)
        counts = record.get("usageMetadata") or {}
        for candidate in record.get("candidates") or ():
            events += self._candidate(candidate, counts)
        events += self._blocked(record.get("promptFeedback") or {})
        events += self._report(counts)
        return events

    def eof(self) -> list[Event | Signal]:
        """The end of the body ends an answer that gave its reason, nothing else."""
        return []

    def _candidate(
        self, candidate: Mapping[str, Any], counts: Mapping[str, Any]
    ) -> list[Event | Signal]:
        index = candidate.get("index") or 0
        logprobs = candidate.get("logprobsResult")
        events: list[Event | Signal] = []
        for part in (candidate.get("content") or {}).get("parts") or ():
            events += self._part(part, index, counts, logprobs)
            logprobs = None  # they are the candidate's, not each part's
        raw = candidate.get("finishReason")
        if raw and raw != "FINISH_REASON_UNSPECIFIED":
            self._ended = True
            ended = finish(raw, index)
            if isinstance(ended, Finish) and raw == "STOP" and self._calls.get(index):
                ended = Finish("tool_calls", raw, index)
            events.append(ended)
        return events

    def _part(
        self,
        part: Mapping[str, Any],
        index: int,
        counts: Mapping[str, Any],
        logprobs: Any,
    ) -> list[Event]:
        events: list[Event] = []
        text = part.get("text")
        signature = part.get("thoughtSignature")
        if part.get("thought"):
            tokens = self._new("thoughts", counts) if text else 0
            return [ReasoningDelta(text or "", index, tokens, signature=signature)]
        if text:
            tokens = self._new("candidates", counts)
            events.append(TextDelta(text, index, tokens, logprobs=logprobs))
        call = part.get("functionCall")
        if call is not None:
            events.append(self._call(call, index, counts))
        if signature:
            events.append(ReasoningDelta("", index, 0, signature=signature))
        return events

    def _call(
        self, call: Mapping[str, Any], index: int, counts: Mapping[str, Any]
    ) -> ToolCallDelta:
        """Calls come whole, their arguments as an object."""
        at = self._calls.get(index, 0)
        self._calls[index] = at + 1
        return ToolCallDelta(
            at,
            call.get("id"),
            call.get("name"),
            arguments_text(call.get("args")),
            index,
            self._new("candidates", counts),
            closed=True,
        )

    def _new(self, what: str, counts: Mapping[str, Any]) -> int | None:
        """Tokens since the last part of that kind; an untold part counts as one."""
        total = counts.get(f"{what}TokenCount")
        if total is None:
            self._counted[what] += 1
            return None
        new = max(total - self._counted[what], 0)
        self._counted[what] += new
        return int(new)

    def _blocked(self, feedback: Mapping[str, Any]) -> list[Event | Signal]:
        """The prompt was refused: no candidate comes."""
        reason = feedback.get("blockReason")
        if not reason:
            return []
        self._ended = True
        words = feedback.get("blockReasonMessage")
        refusal: list[Event | Signal] = [RefusalDelta(words, tokens=0)] if words else []
        return [*refusal, Finish("content_filter", reason)]

    def _report(self, counts: Mapping[str, Any]) -> list[UsageReport]:
        """Usage: of the prompt at once, of the answer when it has ended."""
        if not counts:
            return []
        thoughts = counts.get("thoughtsTokenCount")
        output = counts.get("candidatesTokenCount")
        if self._ended and (output is not None or thoughts is not None):
            output = (output or 0) + (thoughts or 0)
        else:
            output = thoughts = None
        prompt, cached = (
            counts.get(f"{what}TokenCount") for what in ("prompt", "cachedContent")
        )
        usage = Usage(prompt, output, thoughts, cached)
        if usage in (self._usage, Usage()):
            return []
        self._usage = usage
        return [UsageReport(usage)]


class ResponseWriter:
    """Writes responses as events; reason and usage go out with the end."""

    __slots__ = ("_calls", "_finish", "_id", "_model", "_usage")

    def __init__(self) -> None:
        self._id: str | None = "midstream"
        self._model: str | None = "midstream"
        self._calls = WholeCalls()
        self._finish: list[Finish] = []
        self._usage: Usage | None = None

    def write(self, event: Event | Signal) -> list[bytes]:
        """One event for a delta, one for the end."""
        if isinstance(event, ToolCallDelta):
            return list(map(self._call, self._calls.add(event)))
        whole = list(map(self._call, self._calls.flush()))
        match event:
            case Started():
                self._id = event.id or self._id
                self._model = event.model or self._model
            case TextDelta() | RefusalDelta():
                return [*whole, self._say(event.choice, {"text": event.text})]
            case ReasoningDelta():
                return [*whole, self._say(event.choice, _thought(event))]
            case Finish():
                self._finish.append(event)
            case UsageReport():
                self._usage = event.usage
            case Failure():
                return [*whole, _event({"error": _error(event.error)})]
            case End():
                return [*whole, self._end()]
            case _:
                pass
        return whole

    def _call(self, call: ToolCallDelta) -> bytes:
        identity = {} if call.id is None else {"id": call.id}
        function = {**identity, "name": call.name, "args": arguments_object(call)}
        return self._say(call.choice, {"functionCall": function})

    def _say(self, choice: int, part: dict[str, Any]) -> bytes:
        content = {"parts": [part], "role": "model"}
        return self._response({"candidates": [{"content": content, "index": choice}]})

    def _end(self) -> bytes:
        """An end without a reason has no candidate."""
        candidates = [
            {
                "content": {"parts": [], "role": "model"},
                "finishReason": _word(ended),
                "index": ended.choice,
            }
            for ended in self._finish
            if ended.raw or ended.reason
        ]
        return self._response({"candidates": candidates} | _usage(self._usage))

    def _response(self, record: dict[str, Any]) -> bytes:
        named = {"modelVersion": self._model, "responseId": self._id}
        return _event(record | named)


def _event(record: dict[str, Any]) -> bytes:
    return b"data: " + dumps(record) + b"\r\n\r\n"


def _word(ended: Finish) -> str:
    """Google's word for an end, also where another API's word was given."""
    own = ended.raw or ""
    return own if own.isupper() else _WORDS.get(ended.reason or own, "OTHER")


def _thought(event: ReasoningDelta) -> dict[str, Any]:
    """A part of thought; a signature alone may seal any part."""
    signed = {} if event.signature is None else {"thoughtSignature": event.signature}
    return {"text": event.text, "thought": True, **signed}


def _error(error: ServerError) -> dict[str, Any]:
    return {
        "code": error.status or 500,
        "message": error.message,
        "status": error.type or "INTERNAL",
    }


def _usage(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    thoughts, answer = usage.reasoning_tokens, usage.output_tokens
    if answer is not None:
        answer -= thoughts or 0
    counts = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": answer,
        "thoughtsTokenCount": thoughts,
        "cachedContentTokenCount": usage.cached_tokens,
        "totalTokenCount": (usage.input_tokens or 0) + (usage.output_tokens or 0),
    }
    return {"usageMetadata": {k: v for k, v in counts.items() if v is not None}}
