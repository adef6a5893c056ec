"""The responses of vLLM's gRPC service: token ids, no text.

Source: smg-grpc-servicer 0.14 ``vllm/servicer.py``, run for real. A chunk has the ids
that are new, and counts these; ``complete`` ends one of n answers and says the last
chunk's ids again, which therefore count for nothing. The stream is whole when each
answer is. What went wrong comes as the status of the RPC, but ``abort`` and ``error``
are finish reasons.

With ``stop`` the ids of the stop text come, too, and that of a token which ends the
answer: the detokenizer keeps both out of the text. Should the server go on behind a
stop string, as it may read ids otherwise than we do, the answer ends all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midstream._dialects.finish import finish
from midstream._dialects.protobuf import parse
from midstream._dialects.vllm_messages import engine
from midstream._tokenizers.detokenizer import Detokenizer
from midstream._values.errors import WireError
from midstream._values.events import (
    End,
    Failure,
    Finish,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReport,
)
from midstream._values.usage import Usage

if TYPE_CHECKING:
    from midstream._tokenizers.detokenizer import Speech
    from midstream._values.events import Event, Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a stream was asked for, as far as its reader must know.

    Attributes:
        id: The request's id.
        speech: How the ids are spoken; None: they are not.
        model: The model.
        prompt_ids: The prompt's ids; empty where the server made them.
        answers: How many answers.
    """

    id: str
    speech: Speech | None
    model: str | None = None
    prompt_ids: tuple[int, ...] = ()
    answers: int = 1


class ChunkReader:
    """Reads GenerateResponse messages.

    Args:
        asked: What was asked; None where nobody knows.
    """

    __slots__ = (
        "_answers",
        "_asked",
        "_cached",
        "_finished",
        "_input",
        "_output",
        "_started",
        "cursor",
    )

    def __init__(self, asked: Asked | None = None) -> None:
        self.cursor = None
        self._asked = asked or Asked(id="", speech=None)
        self._started = False
        self._answers: dict[int, Detokenizer] = {}
        self._finished: set[int] = set()
        self._input: int | None = None
        self._cached: int | None = None
        self._output = 0

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """What one message says.

        Raises:
            WireError: It is no GenerateResponse, or an empty one.
        """
        response = parse(engine().GenerateResponse, data)
        events: list[Event | Signal] = []
        if not self._started:
            self._started = True
            asked = self._asked
            events.append(Started(asked.id or None, asked.model, asked.prompt_ids))
        match response.WhichOneof("response"):
            case "chunk":
                events += self._chunk(response.chunk)
            case "complete":
                events += self._complete(response.complete)
            case _:
                raise WireError("a GenerateResponse with nothing in it")
        return events

    def eof(self) -> list[Event | Signal]:
        """An RPC that ended OK before all answers did is a drop."""
        return []

    def _chunk(self, chunk: Any) -> list[Event | Signal]:
        ids, index = list(chunk.token_ids), chunk.index
        self._output += len(ids)
        self._count(chunk)
        if index in self._finished:
            return []
        answer = self._answer(index)
        if answer is None:
            return [TextDelta("", index, len(ids), tuple(ids))]
        if answer.stopped:
            return self._end(index, Finish("stop", "stop", index))
        logprobs = _logprobs(chunk.output_logprobs)
        return [*answer.feed(ids, logprobs)]

    def _complete(self, complete: Any) -> list[Event | Signal]:
        self._count(complete)
        index, answer = complete.index, self._answers.get(complete.index)
        if index in self._finished:
            return []
        reason = finish(complete.finish_reason or "error", index)
        if isinstance(reason, Failure):
            return [reason]
        rest = answer.flush() if answer is not None else []
        return [*rest, *self._end(index, reason)]

    def _count(self, part: Any) -> None:
        self._input = part.prompt_tokens or self._input
        self._cached = part.cached_tokens or self._cached

    def _answer(self, index: int) -> Detokenizer | None:
        speech = self._asked.speech
        if speech is None:
            return None
        if index not in self._answers:
            self._answers[index] = Detokenizer(speech, index)
        return self._answers[index]

    def _end(self, index: int, reason: Finish) -> list[Event | Signal]:
        """One answer ended, and with the last one the stream."""
        self._finished.add(index)
        if len(self._finished) < max(self._asked.answers, len(self._answers)):
            return [reason]
        usage = Usage(self._input, self._output, cached_tokens=self._cached)
        return [reason, UsageReport(usage), End()]


def _logprobs(told: Any) -> list[dict[str, Any]]:
    """One item a token, by the names of the messages."""
    items: list[dict[str, Any]] = [
        {"token_id": id_, "logprob": value}
        for id_, value in zip(told.token_ids, told.token_logprobs, strict=False)
    ]
    for item, top in zip(items, told.top_logprobs, strict=False):
        item["top_logprobs"] = [
            {"token_id": id_, "logprob": value}
            for id_, value in zip(top.token_ids, top.values, strict=False)
        ]
    return items


class ChunkWriter:
    """Writes GenerateResponse messages.

    Text has no place in them: what a delta says is its ids, and one without ids says
    nothing. Errors are not written either, but that the answer broke.

    Args:
        prompt_tokens: What the prompt counts.
    """

    __slots__ = ("_finishes", "_input", "_last")

    def __init__(self, prompt_tokens: int = 0) -> None:
        self._input = prompt_tokens
        self._last: dict[int, tuple[int, ...]] = {}
        self._finishes: list[Finish] = []

    def write(self, event: Event | Signal) -> list[bytes]:
        """One message for new ids, and one for each answer at the end."""
        match event:
            case TextDelta() | ReasoningDelta():
                return self._chunk(event)
            case Finish():
                self._finishes.append(event)
            case UsageReport():
                self._input = event.usage.input_tokens or self._input
            case Failure():
                return [self._complete(Finish("error", "error"))]
            case End():
                return [self._complete(finish) for finish in self._finishes]
            case _:
                pass
        return []

    def _chunk(self, event: TextDelta | ReasoningDelta) -> list[bytes]:
        if not event.token_ids or event.tokens == 0:
            return []
        self._last[event.choice] = event.token_ids
        message = engine().GenerateResponse()
        chunk = message.chunk
        chunk.token_ids.extend(event.token_ids)
        chunk.completion_tokens = len(event.token_ids)
        chunk.prompt_tokens = self._input
        chunk.index = event.choice
        if isinstance(event, TextDelta):
            _put_logprobs(chunk.output_logprobs, event.logprobs or ())
        return [_bytes(message)]

    def _complete(self, finish: Finish) -> bytes:
        message = engine().GenerateResponse()
        complete = message.complete
        last = self._last.get(finish.choice, ())
        complete.output_ids.extend(last)
        complete.completion_tokens = len(last)
        complete.prompt_tokens = self._input
        complete.finish_reason = finish.raw or finish.reason or "stop"
        complete.index = finish.choice
        return _bytes(message)


def _put_logprobs(message: Any, logprobs: Any) -> None:
    for item in logprobs:
        message.token_ids.append(item["token_id"])
        message.token_logprobs.append(item["logprob"])
        if "top_logprobs" in item:
            top = message.top_logprobs.add()
            top.token_ids.extend(one["token_id"] for one in item["top_logprobs"])
            top.values.extend(one["logprob"] for one in item["top_logprobs"])


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))
