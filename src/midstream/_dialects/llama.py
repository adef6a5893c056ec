"""llama.cpp: the native ``/completion`` route, and what all its routes share.

Source: ggml-org/llama.cpp ``tools/server/{server-context,server-stream}.cpp``, run for
real. Its streams never end inside a character. Ids of tokens that were held back until
a character was whole are never sent: the jump of ``tokens_predicted`` tells how many,
and ``/tokenize`` of the character gives them again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from midstream._dialects.asking import bearer, merge, parameters, post, raw_prompt
from midstream._dialects.base import Call, Continuation, Dialect, join_url
from midstream._dialects.documents import dumps, load_object
from midstream._dialects.faults import error_of
from midstream._dialects.finish import finish
from midstream._values.api_names import ApiNames, places
from midstream._values.errors import ServerError, UsageError, WireError
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
    from collections.abc import Mapping

    from midstream._dialects.base import Flow, Generation, Reader, Received, Writer
    from midstream._dialects.openai_chat import Replay
    from midstream._values.endpoint import Endpoint
    from midstream._values.events import Event, Signal

_NAMES = {
    "max_tokens": "n_predict",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
    "seed": "seed",
}
_PLACES = {**places(_NAMES), "max_tokens": "max_tokens"}
_HEADER = "x-conversation-id"
_PATIENCE = 0.4  # seconds to hear that the generation was stopped


class LlamaReplay:
    """The server's own buffer of the body (since May 2026).

    With the header, generation goes on when the client is gone; the bytes of the body
    are kept for 300 s after the end, 4 MiB at most, and can be fetched from any offset.
    """

    def tag(self, call: Call, generation: Generation) -> Call:
        """Name the stream, unless replay is not wanted: a close then stops it."""
        if "replay" not in generation.strategies:
            return call
        return replace(call, headers={**call.headers, _HEADER: generation.handle})

    def continuation(self, generation: Generation, received: Received) -> Continuation:
        """The body from the first byte that did not come."""
        query = f"?conv_id={quote(generation.handle)}&from={received.offset}"
        call = self._call(generation, "GET", query)
        return Continuation(call=call, keeps="body")

    def leave(self, generation: Generation) -> Flow[None]:
        """With the header only this stops the generation."""
        call = self._call(generation, "DELETE", f"?conv_id={quote(generation.handle)}")
        yield replace(call, patience=_PATIENCE)

    def _call(self, generation: Generation, method: str, query: str) -> Call:
        base = generation.endpoint.base_url or ""
        return Call(
            url=join_url(base, "/v1/stream") + query,
            method=method,
            secrets=bearer(generation),
        )


_REPLAY = LlamaReplay()


def predicted(chunk: Mapping[str, Any]) -> int | None:
    """The running token count of a chunk, with ``timings_per_token``."""
    timings = chunk.get("timings")
    return timings.get("predicted_n") if timings else None


@dataclass(frozen=True, kw_only=True)
class LlamaCompletion(Dialect):
    """The native ``/completion`` route."""

    name: str = "llama.cpp-completion"
    default_url: str | None = "http://localhost:8080"
    key_variables: tuple[str, ...] = ("LLAMA_API_KEY",)
    strategies: tuple[str, ...] = ("replay", "tokens", "text")
    route: str = "/completion"
    replay: Replay = _REPLAY

    def begin(self, generation: Generation) -> Flow[Call]:
        """One POST; messages are rendered by the server's own template first."""
        prompt = yield from self._prompt(generation)
        return self._post(generation, prompt, None)

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """Replay, ids after ids, or text after text."""
        if strategy == "replay":
            return self.replay.continuation(generation, received)
        prompt = yield from self._prompt(generation)
        again: Any = prompt + received.text
        if strategy == "tokens":
            try:
                again = yield from self._ids(generation, prompt, received)
            except (ServerError, WireError) as error:
                if isinstance(error, ServerError) and error.retryable:
                    raise
                raise ResumeUnsupported(f"no ids to be had: {error}") from error
        call = self._post(generation, again, received)
        return Continuation(call=call, sent=received.text)

    def leave(self, generation: Generation, received: Received) -> Flow[None]:
        """Stop what a replay would have kept alive."""
        del received
        if "replay" in generation.strategies:
            yield from self.replay.leave(generation)

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """All is at the top; OpenAI's name of the limit is known, too."""
        del endpoint
        return ApiNames(_PLACES, frozenset({"prompt", "stream"}))

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads the native records."""
        return CompletionReader()

    def writer(self) -> Writer:
        """Writes them."""
        return CompletionWriter()

    def _post(
        self, generation: Generation, prompt: Any, received: Received | None
    ) -> Call:
        request = generation.request
        if request.tools:
            raise UsageError(f"{self.name} has no tools; use the llama.cpp dialect")
        left = received.left if received else None
        body = {
            "prompt": prompt,
            "stream": True,
            "return_tokens": True,
            **parameters(request, _NAMES, left=left),
        }
        call = post(generation, self.route, merge(body, request.extra))
        return self.replay.tag(call, generation)

    def _prompt(self, generation: Generation) -> Flow[str]:
        request = generation.request
        if isinstance(request.prompt, str) or generation.endpoint.template is not None:
            return raw_prompt(generation)
        messages = [message.body() for message in request.messages]
        document = yield from self._ask(
            generation, "/apply-template", {"messages": messages}
        )
        return str(document["prompt"])

    def _ids(
        self, generation: Generation, prompt: str, received: Received
    ) -> Flow[list[Any]]:
        """Prompt ids and received ids; where one is not to be known, the text.

        The border between prompt and answer stays a token border either way: as one
        string, "grate" + "ful" would become another token than the two that were.
        """
        prompt_ids = yield from self._tokenize(generation, prompt, special=True)
        ids: list[int] = []
        done = 0
        for start, count, text in received.gaps:
            ids += received.token_ids[done:start]
            known = yield from self._tokenize(generation, text, special=False)
            last = received.token_ids[start + count - 1]
            if len(known) != count or known[-1] != last:
                return [*prompt_ids, received.text]
            ids += known
            done = start + count
        ids += received.token_ids[done:]
        if len(ids) != received.tokens:
            return [*prompt_ids, received.text]
        return [*prompt_ids, *ids]

    def _tokenize(
        self, generation: Generation, text: str, *, special: bool
    ) -> Flow[list[int]]:
        body = {"content": text, "add_special": special, "parse_special": special}
        document = yield from self._ask(generation, "/tokenize", body)
        tokens = document.get("tokens")
        if not isinstance(tokens, list):
            raise WireError("/tokenize answered without tokens")
        return tokens

    def _ask(
        self, generation: Generation, route: str, body: dict[str, Any]
    ) -> Flow[dict[str, Any]]:
        reply = yield post(generation, route, body)
        if reply.status != 200:  # noqa: PLR2004 - HTTP OK
            raise self.error(reply)
        return load_object(reply.content)


class CompletionReader:
    """Reads ``{content, tokens, stop, tokens_predicted, …}`` records."""

    __slots__ = ("_counted", "_started", "cursor")

    def __init__(self) -> None:
        self.cursor = None
        self._counted = 0
        self._started = False

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """One record; ``stop: true`` is the end marker, there is no ``[DONE]``."""
        record = load_object(data)
        if name == "error" or record.get("error"):
            return [Failure(error_of(record))]
        events: list[Event | Signal] = []
        if not self._started:
            self._started = True
            events.append(Started(None, record.get("model")))
        total = record.get("tokens_predicted")
        new, ids = None, tuple(record.get("tokens") or ())
        if total is not None:
            new = max(total - self._counted, 0)
        text = record.get("content") or ""
        if text or ids:
            self._counted = self._counted if total is None else total
            logprobs = record.get("completion_probabilities")
            index = record.get("index") or 0
            events.append(TextDelta(text, index, new, ids, logprobs))
        if record.get("stop"):
            reason = record.get("stop_type") or "none"
            events.append(Finish(None) if reason == "none" else finish(reason))
            evaluated = record.get("tokens_evaluated")
            if evaluated is not None:
                events.append(UsageReport(Usage(evaluated, total)))
            events.append(End())
        return events

    def eof(self) -> list[Event | Signal]:
        """The end of the body says nothing."""
        return []


class CompletionWriter:
    """Writes native records; finish and usage go out with the end."""

    __slots__ = ("_finish", "_predicted", "_usage")

    def __init__(self) -> None:
        self._predicted = 0
        self._finish: str | None = None
        self._usage = Usage()

    def write(self, event: Event | Signal) -> list[bytes]:
        """One SSE event for a delta, one for the end."""
        match event:
            case TextDelta():
                self._predicted += 1 if event.tokens is None else event.tokens
                record: dict[str, Any] = {
                    "index": event.choice,
                    "content": event.text,
                    "tokens": list(event.token_ids),
                    "stop": False,
                    "tokens_predicted": self._predicted,
                }
            case Finish():
                words = {"length": "limit", "stop": "eos"}
                self._finish = words.get(event.reason or "", event.raw)
                return []
            case UsageReport():
                self._usage = event.usage
                return []
            case End():
                predicted = self._usage.output_tokens
                record = {
                    "index": 0,
                    "content": "",
                    "tokens": [],
                    "stop": True,
                    "stop_type": self._finish or "none",
                    "tokens_predicted": predicted or self._predicted,
                    "tokens_evaluated": self._usage.input_tokens,
                    "truncated": False,
                }
            case Failure():
                record = {
                    "error": {
                        "code": event.error.status or 500,
                        "message": event.error.message,
                        "type": event.error.type or "server_error",
                    }
                }
            case _:
                return []
        return [b"data: " + dumps(record) + b"\n\n"]
