"""What the chunks of OpenAI's chat and completions routes have in common.

Source: openai/openai-openapi ``openapi.yaml``. Where each server has its own place for
the same thing, all places are read, since a chunk tells which it is; what is written
differs by an `Accent`, which is data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from midstream._dialects.documents import dumps, load_object
from midstream._dialects.faults import error_of
from midstream._dialects.finish import BROKEN, finish
from midstream._values.events import (
    End,
    Failure,
    Finish,
    Started,
    TextDelta,
    UsageReport,
)
from midstream._values.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from midstream._values.errors import ServerError
    from midstream._values.events import Event, Signal


def counted(chunk: Mapping[str, Any]) -> int | None:
    """The running token count of a chunk, with ``continuous_usage_stats``."""
    usage = chunk.get("usage")
    return usage.get("completion_tokens") if usage else None


class ChunkReader(ABC):
    """Reads chunks, up to what a choice holds.

    Args:
        total: Reads the running count of answer tokens from a chunk, where told.
    """

    __slots__ = ("_counted", "_started", "_total", "cursor")

    def __init__(
        self, total: Callable[[Mapping[str, Any]], int | None] | None = None
    ) -> None:
        self.cursor = None
        self._total = total
        self._counted = 0
        self._started = False

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """One chunk, ``[DONE]``, or an error in a chunk's place."""
        if data == b"[DONE]":
            return [End()]
        chunk = load_object(data)
        groq = chunk.get("x_groq")
        error = chunk.get("error")
        if groq:  # Groq tells inside an ordinary chunk that it stops early
            error = error or groq.get("error")
        if error or name == "error":
            return [Failure(error_of({"error": error} if error else chunk))]
        choices = chunk.get("choices") or ()
        events: list[Event | Signal] = []
        if not self._started:
            self._started = True
            events.append(_started(chunk, choices))
        for choice in choices:
            self._choice(choice, self._new_tokens(chunk, choice), events)
            self._ending(choice, events)
        usage = chunk.get("usage") or (groq and groq.get("usage"))
        if usage:
            events.append(UsageReport(usage_of(usage)))
        return events

    def eof(self) -> list[Event | Signal]:
        """The end of the body says nothing."""
        return []

    @abstractmethod
    def _choice(
        self,
        choice: Mapping[str, Any],
        tokens: int | None,
        events: list[Event | Signal],
    ) -> None:
        """What one choice of a chunk says.

        Args:
            choice: It.
            tokens: How many tokens it stands for, where the server tells.
            events: Takes what it says.
        """

    def _new_tokens(
        self, chunk: Mapping[str, Any], choice: Mapping[str, Any]
    ) -> int | None:
        ids = choice.get("token_ids")
        if ids is not None:
            return len(ids)
        total = self._total(chunk) if self._total is not None else None
        if total is None:
            return None
        new, self._counted = total - self._counted, total
        return max(new, 0)

    def _ending(self, choice: Mapping[str, Any], events: list[Event | Signal]) -> None:
        """The choice's end; a provider behind OpenRouter may fail under a ``stop``."""
        reason, error = choice.get("finish_reason"), choice.get("error")
        if error:
            events.append(Failure(error_of({"error": error})))
        elif reason:
            native = choice.get("native_finish_reason")
            told = native if native in BROKEN else reason
            events.append(finish(told, choice.get("index") or 0))


def _started(chunk: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> Started:
    # vLLM tells the prompt's ids beside a chat's choices, but inside a completion's.
    ids = chunk.get("prompt_token_ids")
    if not ids and choices:
        ids = choices[0].get("prompt_token_ids")
    return Started(chunk.get("id"), chunk.get("model"), tuple(ids or ()))


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
    """OpenAI's error object, and vLLM's."""
    return {
        "message": error.message,
        "type": error.type or "server_error",
        "param": None,
        "code": error.status,
    }


def tgi_error(error: ServerError) -> dict[str, Any]:
    """TGI's: a message and a status."""
    return {"message": error.message, "http_status_code": error.status or 422}


def sglang_error(error: ServerError) -> dict[str, Any]:
    """SGLang's, which says whether another try may help."""
    code = error.status or 500
    kinds = {400: "BadRequestError", 503: "ServiceUnavailableError"}
    return {
        "object": "error",
        "message": error.message,
        "type": error.type or kinds.get(code, "InternalServerError"),
        "param": None,
        "code": code,
        "retryable": error.retryable,
    }


def openrouter_error(error: ServerError) -> dict[str, Any]:
    """OpenRouter's: a status and a message."""
    return {"code": error.status or 502, "message": error.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class Accent:
    """What one server writes in its own way.

    Attributes:
        thought: The field of a delta that holds reasoning; None: a part of the content.
        usage: Where usage is: in a chunk of its own, or in the last one with a choice,
            at the top or under ``x_groq``.
        error: The error object.
        failing: Whether the chunk with the error has a choice that ends as well.
        role: Whether every delta says whose it is.
        id: The id of the chunks.
    """

    thought: str | None = "reasoning_content"
    usage: Literal["own", "last", "x_groq"] = "own"
    error: Callable[[ServerError], dict[str, Any]] = error_document
    failing: bool = False
    role: bool = False
    id: str = "chatcmpl-midstream"


class ChunkWriter(ABC):
    """Writes chunks, up to what a choice holds.

    Args:
        accent: What the server writes in its own way.
    """

    __slots__ = ("_accent", "_id", "_last", "_model")

    form = "chat.completion.chunk"

    def __init__(self, accent: Accent = Accent()) -> None:
        self._accent = accent
        self._id: str | None = accent.id
        self._model: str | None = "midstream"
        self._last: dict[str, Any] | None = None

    def write(self, event: Event | Signal) -> list[bytes]:
        """One SSE event for one event, but for what shares the last chunk."""
        match event:
            case Started():
                self._id = event.id or self._id
                self._model = event.model or self._model
                return self._sent(*self._opening(event))
            case Finish():
                chunk = self._ended(event.choice, event.raw or event.reason)
                if self._accent.usage == "own":
                    return self._sent(chunk)
                written, self._last = self._rest(), chunk
                return written
            case UsageReport():
                return self._usage(usage_document(event.usage))
            case Failure():
                chunk = {"error": self._accent.error(event.error)}
                if self._accent.failing:
                    chunk = {**self._ended(0, "error"), **chunk}
                return self._rest() + self._sent(chunk)
            case End():
                return [*self._rest(), b"data: [DONE]\n\n"]
            case _:
                return self._sent(*self._delta(event))

    @abstractmethod
    def _opening(self, started: Started) -> list[dict[str, Any]]:
        """What comes before the first delta."""

    @abstractmethod
    def _delta(self, event: Event) -> list[dict[str, Any]]:
        """The chunk of a delta; none for what the route cannot say."""

    @abstractmethod
    def _ended(self, choice: int, reason: str | None) -> dict[str, Any]:
        """The chunk that ends a choice."""

    def _chunk(self, **choice: Any) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": self.form,
            "created": 0,
            "model": self._model,
            "choices": [choice],
        }

    def _usage(self, document: dict[str, Any]) -> list[bytes]:
        last = self._last
        if last is None:
            return self._sent({**self._chunk(), "choices": [], "usage": document})
        if self._accent.usage == "x_groq":
            last["x_groq"] = {"id": self._id, "usage": document}
        else:
            last["usage"] = document
        return self._rest()

    def _rest(self) -> list[bytes]:
        last, self._last = self._last, None
        return [] if last is None else self._sent(last)

    @staticmethod
    def _sent(*chunks: dict[str, Any]) -> list[bytes]:
        return [b"data: " + dumps(chunk) + b"\n\n" for chunk in chunks]


def with_ids(choice: dict[str, Any], delta: TextDelta) -> dict[str, Any]:
    """A choice with the ids and log probabilities of its text."""
    if delta.token_ids:
        choice["token_ids"] = list(delta.token_ids)
    if delta.logprobs is not None:
        choice["logprobs"] = delta.logprobs
    return choice
