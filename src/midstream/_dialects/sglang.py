"""SGLang's own route, ``/generate``.

Source: SGLang 0.5.23 ``srt/entrypoints/http_server.py``,
``srt/managers/{tokenizer_manager,detokenizer_manager}.py``. Text and ``output_ids`` are
all so far, and records are left out when the client is slow; a server that was started
with ``--incremental-streaming-output`` sends what is new. ``completion_tokens`` counts
all in both cases and so tells which it is. ``finish_reason`` is an object; ``[DONE]``
comes after an error, too.

While a character is not whole, only the text before it is sent, with all ids. So before
a continuation the ids are cut back until the server's tokenizer spells a begin of the
text of them. Prompt ids are not asked for with each record, but once, when needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midstream._dialects.asking import merge, parameters, post, raw_prompt, rooted
from midstream._dialects.base import Continuation, Dialect
from midstream._dialects.cumulative import Cumulative
from midstream._dialects.documents import dumps, load_object
from midstream._dialects.faults import error_of
from midstream._dialects.finish import finish
from midstream._values.api_names import ApiNames, places
from midstream._values.errors import UsageError
from midstream._values.events import (
    End,
    Failure,
    Finish,
    Started,
    TextDelta,
    UsageReport,
)
from midstream._values.interruptions import ResumeUnsupported
from midstream._values.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal

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
    from midstream._values.request import Request

ROUTE = "/generate"
_NAMES = {
    "max_tokens": "max_new_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
    "seed": "sampling_seed",
}
_PLACES = places(_NAMES, "sampling_params")
_PROMPT = frozenset({"input_embeds", "input_ids", "stream", "text"})
_GRAMMARS = ("ebnf", "json_schema", "regex", "structural_tag")
_HALF = 4  # tokens: no character is of more
_OK = 200


@dataclass(frozen=True, kw_only=True)
class SGLang(Dialect):
    """``/generate``."""

    name: str = "sglang"
    default_url: str | None = "http://localhost:30000"
    key_variables: tuple[str, ...] = ("SGLANG_API_KEY",)
    strategies: tuple[str, ...] = ("tokens", "text")
    route: str = ROUTE

    def begin(self, generation: Generation) -> Flow[Call]:
        """One POST."""
        yield from ()
        return self._post(generation, {"text": raw_prompt(generation)}, None)

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """Ids after ids, or text after text."""
        if strategy == "tokens":
            return (yield from self._by_ids(generation, received))
        prompt = raw_prompt(generation) + received.text
        call = self._post(generation, {"text": prompt}, received.left)
        return Continuation(call=call, sent=received.text)

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """Parameters have a place of their own."""
        del endpoint
        return ApiNames(_PLACES, _PROMPT)

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads the records."""
        return RecordReader(generation.endpoint.text if generation else "auto")

    def writer(self) -> Writer:
        """Writes them, cumulative."""
        return RecordWriter()

    def no_prefix(self, request: Request) -> str | None:
        """Grammars are sampling parameters."""
        sampling = request.extra.get("sampling_params") or {}
        names = sorted(name for name in _GRAMMARS if sampling.get(name))
        if names:
            return f"a grammar restarts at the prefix ({', '.join(names)})"
        return super().no_prefix(request)

    def _by_ids(self, generation: Generation, received: Received) -> Flow[Continuation]:
        ids = list(received.token_ids)
        if len(ids) != received.tokens or -1 in ids:
            raise ResumeUnsupported("not all ids of what came are known")
        prompt = list(received.prompt_ids)
        if not prompt:
            given = {"prompt": raw_prompt(generation)}
            prompt = list(
                (yield from self._ask(generation, "/v1/tokenize", given))["tokens"]
            )
        kept, spelled = yield from self._spelling(generation, ids, received.text)
        again = len(ids) - len(kept)
        left = None if received.left is None else received.left + again
        call = self._post(generation, {"input_ids": [*prompt, *kept]}, left)
        return Continuation(
            call=call,
            sent=spelled,
            expect=received.text[len(spelled) :],
            again=again,
        )

    def _spelling(
        self, generation: Generation, ids: list[int], text: str
    ) -> Flow[tuple[list[int], str]]:
        """The most of ``ids`` that spell a begin of ``text``, and what they spell."""
        for size in range(len(ids), max(len(ids) - _HALF, 0), -1):
            asked = {"tokens": ids[:size]}
            reply = yield from self._ask(generation, "/v1/detokenize", asked)
            spelled = str(reply["text"])
            if text.startswith(spelled):
                return ids[:size], spelled
        raise ResumeUnsupported("the ids that came do not spell the text that came")

    def _ask(
        self, generation: Generation, route: str, body: dict[str, Any]
    ) -> Flow[dict[str, Any]]:
        """One of the tokenizer's routes; servers before 2025-10 have none."""
        named = {"model": generation.endpoint.model or "default", **body}
        reply = yield post(generation, route, named)
        if reply.status == _OK:
            return load_object(reply.content)
        error = self.error(reply)
        if error.retryable:
            raise error
        raise ResumeUnsupported(f"{route}: {error}")

    def _post(
        self, generation: Generation, prompt: dict[str, Any], left: int | None
    ) -> Call:
        request = generation.request
        if request.tools is not None:
            raise UsageError("sglang takes a raw prompt and no tools; use sglang-chat")
        body = {
            **prompt,
            "sampling_params": parameters(request, _NAMES, left=left),
            "stream": True,
        }
        extra = dict(request.extra)
        return post(rooted(generation), self.route, merge(body, extra))


class RecordReader:
    """Reads ``{text, output_ids, meta_info}`` records.

    Args:
        mode: Whether texts are all so far, or what is new; ``"auto"``: the count of
            tokens tells.
    """

    __slots__ = (
        "_counted",
        "_cumulative",
        "_ids",
        "_known",
        "_started",
        "_text",
        "cursor",
    )

    def __init__(self, mode: Literal["delta", "cumulative", "auto"] = "auto") -> None:
        self.cursor = None
        self._cumulative = mode != "delta"
        self._known = mode != "auto"
        self._text = Cumulative()
        self._ids = 0  # how many have come
        self._counted = 0
        self._started = False

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """One record."""
        del name
        if data == b"[DONE]":
            return [End()]
        record = load_object(data)
        if record.get("error"):
            return [Failure(error_of(record))]
        meta = record.get("meta_info") or {}
        events: list[Event | Signal] = []
        if not self._started:
            self._started = True
            prompt_ids = tuple(record.get("prompt_token_ids") or ())
            events.append(Started(meta.get("id"), None, prompt_ids))
        events += self._new(record, meta)
        if meta.get("finish_reason"):
            events += self._end(meta)
        return events

    def eof(self) -> list[Event | Signal]:
        """The end of the body says nothing."""
        return []

    def _new(
        self, record: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> list[TextDelta]:
        """What the record has beyond those before it."""
        ids, total = record.get("output_ids") or [], meta.get("completion_tokens")
        self._tell(ids, total)
        text = record.get("text") or ""
        if self._cumulative:
            ids, text = ids[self._ids :], self._text.feed(text)
        self._ids += len(ids)
        tokens = len(ids)
        if total is not None:
            tokens, self._counted = max(total - self._counted, 0), total
        if not text and not tokens:
            return []
        logprobs = meta.get("output_token_logprobs")
        return [TextDelta(text, 0, tokens, tuple(ids), logprobs)]

    def _tell(self, ids: Sequence[int], total: int | None) -> None:
        """All so far or what is new? The second record with ids shows it."""
        if not self._known and self._ids and ids and total is not None:
            self._known = True
            self._cumulative = len(ids) == total

    def _end(self, meta: Mapping[str, Any]) -> list[Event | Signal]:
        """The reason is an object; SGLang says ``abort`` where it failed."""
        rest = self._text.flush()
        events: list[Event | Signal] = [TextDelta(rest, tokens=0)] if rest else []
        reason = meta["finish_reason"]
        kind = str(reason.get("type") if isinstance(reason, dict) else reason)
        if kind == "abort" and reason.get("status_code"):
            told = {"code": reason["status_code"], "message": reason.get("message")}
            return [*events, Failure(error_of(told))]
        events.append(finish(kind))
        usage = Usage(
            meta.get("prompt_tokens"),
            meta.get("completion_tokens"),
            meta.get("reasoning_tokens"),
            meta.get("cached_tokens"),
        )
        return [*events, UsageReport(usage)] if usage != Usage() else events


class RecordWriter:
    """Writes records with all text and ids so far; reason and usage with the end."""

    __slots__ = ("_count", "_finish", "_id", "_ids", "_prompt_ids", "_text", "_usage")

    def __init__(self) -> None:
        self._id: str | None = "midstream"
        self._prompt_ids: tuple[int, ...] = ()
        self._text: list[str] = []
        self._ids: list[int] = []
        self._count = 0
        self._finish: Finish | None = None
        self._usage: Usage | None = None

    def write(self, event: Event | Signal) -> list[bytes]:
        """One SSE event for a delta, two for the end."""
        match event:
            case Started():
                self._id = event.id or self._id
                self._prompt_ids = event.prompt_ids
            case TextDelta():
                self._text.append(event.text)
                self._ids += event.token_ids
                self._count += 1 if event.tokens is None else event.tokens
                return [self._record(event.logprobs)]
            case Finish():
                self._finish = event
            case UsageReport():
                self._usage = event.usage
            case Failure():
                return [_event({"error": _error(event)})]
            case End():
                last = [] if self._finish is None else [self._record(None)]
                return [*last, b"data: [DONE]\n\n"]
            case _:
                pass
        return []

    def _record(self, logprobs: Any) -> bytes:
        usage, ended = self._usage or Usage(), self._finish
        word = None if ended is None else ended.raw or ended.reason
        output = usage.output_tokens
        meta = {
            "id": self._id,
            "finish_reason": None if word is None else {"type": word},
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": self._count if output is None else output,
            "cached_tokens": usage.cached_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            **({"output_token_logprobs": logprobs} if logprobs else {}),
        }
        record = {
            "text": "".join(self._text),
            "output_ids": self._ids,
            "meta_info": {k: v for k, v in meta.items() if v is not None},
        }
        if self._prompt_ids:
            record["prompt_token_ids"] = self._prompt_ids
        return _event(record)


def _error(failure: Failure) -> dict[str, Any]:
    error = failure.error
    return {
        "message": error.message,
        "type": error.type or "server_error",
        "code": error.status or 500,
        "retryable": error.retryable,
    }


def _event(record: dict[str, Any]) -> bytes:
    return b"data: " + dumps(record) + b"\n\n"
