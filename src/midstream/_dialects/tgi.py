"""Hugging Face TGI's own route, ``/generate_stream``.

Source: huggingface/text-generation-inference ``router/src/{server,lib,validation}.rs``,
``server/…/models/model.py``. One token a record; complete iff a record has
``generated_text``, there is no other marker. While a character is not whole its tokens
come with empty text; what a limit cuts off there is only in ``generated_text``, which
so completes the text. Special tokens are no text, though they have one.

Errors come with status 200 once the stream has begun, validation included.

The prompt is raw and a continuation is prompt and text; the tokenizer adds the begin of
sequence itself. Zero temperature and a ``top_p`` of one, which mean "off", are refused
by the server and so not sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from midstream._dialects.asking import merge, parameters, post, raw_prompt, rooted
from midstream._dialects.base import Continuation, Dialect
from midstream._dialects.documents import dumps, load_object
from midstream._dialects.faults import error_of
from midstream._dialects.finish import finish
from midstream._values.api_names import ApiNames, places
from midstream._values.errors import UsageError
from midstream._values.events import End, Failure, Finish, TextDelta, UsageReport
from midstream._values.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

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

ROUTE = "/generate_stream"
_NAMES = {
    "max_tokens": "max_new_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
    "seed": "seed",
}
_PLACES = places(_NAMES, "parameters")
_OFF = {"temperature": 0, "top_p": 1}
_WORDS = {"stop": "eos_token"}


@dataclass(frozen=True, kw_only=True)
class Tgi(Dialect):
    """``/generate_stream``."""

    name: str = "tgi"
    default_url: str | None = "http://localhost:8080"
    key_variables: tuple[str, ...] = ("HF_TOKEN",)
    strategies: tuple[str, ...] = ("text",)
    route: str = ROUTE

    def begin(self, generation: Generation) -> Flow[Call]:
        """One POST."""
        yield from ()
        return self._post(generation, None)

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """The prompt with the received text at its end."""
        yield from ()
        call = self._post(generation, received)
        return Continuation(call=call, sent=received.text)

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """Parameters have a place of their own."""
        del endpoint
        return ApiNames(_PLACES, frozenset({"inputs", "stream"}))

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads the tokens."""
        return TokenReader()

    def writer(self) -> Writer:
        """Writes them."""
        return TokenWriter()

    def no_prefix(self, request: Request) -> str | None:
        """A grammar is one of the parameters."""
        if (request.extra.get("parameters") or {}).get("grammar"):
            return "a grammar restarts at the prefix (grammar)"
        return super().no_prefix(request)

    def _post(self, generation: Generation, received: Received | None) -> Call:
        request = generation.request
        if request.tools is not None:
            raise UsageError("tgi takes a raw prompt and no tools; use tgi-chat")
        left, text = (received.left, received.text) if received else (None, "")
        given = parameters(request, _NAMES, left=left)
        body = {
            "inputs": raw_prompt(generation) + text,
            "parameters": {
                "details": True,
                **{k: v for k, v in given.items() if v != _OFF.get(k)},
            },
        }
        return post(rooted(generation), self.route, merge(body, request.extra))


class TokenReader:
    """Reads ``{token, generated_text, details}`` records."""

    __slots__ = ("_length", "_sum", "cursor")

    def __init__(self) -> None:
        self.cursor = None
        self._length = 0
        self._sum = 0  # of the text, which need not be kept twice

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """One record."""
        del name
        if data == b"[DONE]":  # some proxies add it; it marks no end here
            return []
        record = load_object(data)
        if record.get("error"):
            return [Failure(error_of(record))]
        events: list[Event | Signal] = []
        token = record.get("token")
        if token is not None:
            events.append(self._token(token, record))
        whole = record.get("generated_text")
        if whole is not None:
            events += self._rest(whole)
            events += _end(record.get("details") or {})
        return events

    def eof(self) -> list[Event | Signal]:
        """The end of the body says nothing."""
        return []

    def _token(self, token: Mapping[str, Any], record: Mapping[str, Any]) -> TextDelta:
        text = "" if token.get("special") else token.get("text") or ""
        id_, logprob = token.get("id"), token.get("logprob")
        logprobs = None
        if logprob is not None:
            top = record.get("top_tokens")
            logprobs = {"logprob": logprob, **({"top_tokens": top} if top else {})}
        self._length += len(text)
        self._sum = _sum(text, self._sum)
        ids = () if id_ is None else (id_,)
        return TextDelta(text, 0, 1, ids, logprobs)

    def _rest(self, whole: str) -> list[TextDelta]:
        """What the whole text has beyond the tokens' texts.

        Where it differs from them (it holds the prompt, on request) it says nothing:
        what was given out stays.
        """
        rest = whole[self._length :]
        if not rest or _sum(whole[: self._length]) != self._sum:
            return []
        return [TextDelta(rest, tokens=0)]


def _sum(text: str, before: int = 0) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"), before)


def _end(details: Mapping[str, Any]) -> list[Event | Signal]:
    raw = details.get("finish_reason")
    events: list[Event | Signal] = [finish(raw) if raw else Finish(None)]
    generated, prompt = details.get("generated_tokens"), details.get("input_length")
    if generated is not None or prompt is not None:
        events.append(UsageReport(Usage(prompt, generated)))
    return [*events, End()]


class TokenWriter:
    """Writes the tokens; finish and usage go out with the last one.

    TGI writes no space after ``data:``. A token that ends the text is one of its own
    here, special as ``</s>`` is.
    """

    __slots__ = ("_finish", "_index", "_text", "_usage")

    def __init__(self) -> None:
        self._index = 0
        self._text: list[str] = []
        self._finish: Finish | None = None
        self._usage: Usage | None = None

    def write(self, event: Event | Signal) -> list[bytes]:
        """One SSE event for a delta, one for the end."""
        match event:
            case TextDelta():
                return self._tokens(event)
            case Finish():
                self._finish = event
            case UsageReport():
                self._usage = event.usage
            case Failure():
                kind = event.error.type or "generation"
                return [_event({"error": event.error.message, "error_type": kind})]
            case End():
                record = self._record("</s>", 2, 0.0, special=True)
                record["generated_text"] = "".join(self._text)
                record["details"] = self._details()
                return [_event(record)]
            case _:
                pass
        return []

    def _tokens(self, event: TextDelta) -> list[bytes]:
        """Tokens whose text was held back come before it, empty."""
        self._text.append(event.text)
        logprobs = event.logprobs or {}
        held = max((event.tokens or 1) - 1, 0)
        ids = [0] * (held + 1 - len(event.token_ids)) + list(event.token_ids)
        records = [self._record("", id_, None) for id_ in ids[:held]]
        last = self._record(event.text, ids[-1], logprobs.get("logprob"))
        if "top_tokens" in logprobs:
            last["top_tokens"] = logprobs["top_tokens"]
        return list(map(_event, [*records, last]))

    def _record(
        self, text: str, id_: int, logprob: float | None, *, special: bool = False
    ) -> dict[str, Any]:
        self._index += 1
        return {
            "index": self._index,
            "token": {"id": id_, "text": text, "logprob": logprob, "special": special},
            "generated_text": None,
            "details": None,
        }

    def _details(self) -> dict[str, Any]:
        reason, usage = self._finish, self._usage or Usage()
        word = None if reason is None else reason.raw or reason.reason
        return {
            "finish_reason": _WORDS.get(word or "", word),
            "generated_tokens": usage.output_tokens,
            "input_length": usage.input_tokens,
            "seed": None,
        }


def _event(record: dict[str, Any]) -> bytes:
    return b"data:" + dumps(record) + b"\n\n"
