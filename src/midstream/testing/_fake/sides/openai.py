"""The servers of OpenAI's chat and completions routes that `_dialects` has rows for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from midstream._dialects import find
from midstream._dialects.completion_chunks import CompletionWriter
from midstream._dialects.documents import dumps, loads
from midstream._dialects.faults import error_of
from midstream._dialects.openai_chunks import Accent, usage_document
from midstream._values.events import Finish, TextDelta, UsageReport
from midstream.testing._fake import asked as ask
from midstream.testing._fake.sides.base import Answer, Side, World, document
from midstream.testing._fake.sides.chat import ChatSide, ends_with_usage, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from midstream._values.events import Event, Signal
    from midstream.testing._fake.script import Pen
    from midstream.testing._fake.voice import Manner
    from midstream.testing._fake.wire import HttpRequest

_COMPLETIONS = "/v1/completions"
_ROOM = 1 << 20  # tokens, what the toy model can take
_BOTH = (
    "continue_final_message and add_generation_prompt are not compatible. Use "
    "continue_final_message when you want the model to continue the final message."
)


def always(body: Mapping[str, Any]) -> bool:
    """A trailing assistant message is continued, without being asked to."""
    del body
    return True


def flagged(body: Mapping[str, Any]) -> bool:
    """It is continued when two flags say so.

    Raises:
        Refusal: The first without the second, which is the other way by default.
    """
    continues = bool(body.get("continue_final_message"))
    if continues and body.get("add_generation_prompt", True):
        raise ask.Refusal(400, _BOTH, type="BadRequestError")
    return continues


def marked(body: Mapping[str, Any]) -> bool:
    """It is continued when it says ``prefix`` itself."""
    return bool(body["messages"][-1].get("prefix"))


def _accent(name: str) -> Accent:
    accent: Accent = find(name).accent  # type: ignore[attr-defined]  # of this family
    return accent


def _refused(name: str, status: int, message: str, kind: str | None) -> Any:
    """An error as the dialect writes it."""
    fallback = "invalid_request_error" if status < 500 else None  # noqa: PLR2004 - HTTP
    error = error_of(
        {"message": message, "type": kind or fallback, "code": status}, status=status
    )
    return {"error": _accent(name).error(error)}


@dataclass(frozen=True, kw_only=True)
class AccentedSide(ChatSide):
    """A chat server with error documents and a place for usage of its own."""

    def tells_usage(self, body: Mapping[str, Any]) -> bool:
        """Those that have it in the last chunk need not be asked."""
        return super().tells_usage(body) or _accent(self.name).usage != "own"

    def error(self, status: int, message: str, type: str | None) -> Any:  # noqa: A002 - as all APIs call it
        """The dialect's error document."""
        return _refused(self.name, status, message, type)


@dataclass(frozen=True, kw_only=True)
class CountingSide(AccentedSide):
    """A server that can put the usage so far into each chunk."""

    def pen(self, body: Mapping[str, Any]) -> Pen:
        """With ``continuous_usage_stats`` each chunk tells the count so far."""
        pen = super().pen(body)
        wanted = (body.get("stream_options") or {}).get("continuous_usage_stats")
        return replace(pen, dress=_counted) if wanted else pen


def _counted(record: bytes, event: Event | Signal, tokens: int) -> bytes:
    if not isinstance(event, TextDelta | Finish):
        return record
    chunk = loads(record.removeprefix(b"data: ").strip())
    chunk["usage"] = {"prompt_tokens": 1, "completion_tokens": tokens}
    return b"data: " + dumps(chunk) + b"\n\n"


@dataclass(frozen=True, kw_only=True)
class CompletionsSide(Side):
    """``/v1/completions``: a raw prompt, as text or as ids."""

    name: str
    route: str = _COMPLETIONS

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """The prompt, in which nothing marks what is the answer's."""
        prompt = body.get("prompt")
        if not prompt:
            raise ask.Refusal(400, "You must pass at least one prompt")
        ids = isinstance(prompt, list) and all(isinstance(id_, int) for id_ in prompt)
        return ask.Asked(
            opening=_spelled(prompt, world) if ids else ask.words(prompt),
            raw=True,
            how="tokens" if ids else "text",
            max_tokens=ask.limit(body.get("max_tokens")),
            stop=ask.stops(body.get("stop")),
            n=body.get("n") or 1,
            streams=bool(body.get("stream")),
            usage=ends_with_usage(body),
            prompt_tokens=len(prompt),
        )

    def error(self, status: int, message: str, type: str | None) -> Any:  # noqa: A002 - as all APIs call it
        """The dialect's error document."""
        return _refused(self.name, status, message, type)

    def complete(self, events: Sequence[Event | Signal]) -> Any:
        """A ``text_completion``."""
        finish = next((e.raw for e in events if isinstance(e, Finish)), None)
        reply: dict[str, Any] = {
            "id": "cmpl-midstream",
            "object": "text_completion",
            "created": 0,
            "model": "midstream",
            "choices": [
                {
                    "index": 0,
                    "text": joined(events, TextDelta),
                    "logprobs": None,
                    "finish_reason": finish,
                }
            ],
        }
        usage = next((e.usage for e in events if isinstance(e, UsageReport)), None)
        if usage is not None:
            reply["usage"] = usage_document(usage)
        return reply


class VllmSide(Side):
    """What vLLM's routes share: ids of all tokens, and the tokenizer's routes."""

    ids: ClassVar[bool] = True

    @property
    def manner(self) -> Manner:
        """Tokens whose text is held back are sent without it."""
        return replace(super().manner, held=True)

    def pen(self, body: Mapping[str, Any]) -> Pen:
        """Ids where they are asked for."""
        pen = super().pen(body)
        if "prompt" in body:
            pen = replace(pen, writer=CompletionWriter(Accent(id="cmpl-midstream")))
        return pen if body.get("return_token_ids") else replace(pen, dress=_without_ids)

    def other(self, request: HttpRequest, world: World) -> Answer | None:
        """The tokenizer, and how much room there is."""
        match request.method, request.path:
            case "POST", "/tokenize":
                ids = _tokenized(request.json(), world)
                room = {"count": len(ids), "max_model_len": _ROOM}
                return document({"tokens": ids, **room})
            case "POST", "/detokenize":
                text = _spelled(request.json().get("tokens") or [], world)
                return document({"prompt": text.decode("utf-8", "replace")})
            case "GET", "/v1/models":
                model = {"id": "fake", "object": "model", "max_model_len": _ROOM}
                return document({"object": "list", "data": [model]})
        return None


def _without_ids(record: bytes, event: Event | Signal, tokens: int) -> bytes:
    del tokens
    if not isinstance(event, TextDelta):
        return record
    chunk = loads(record.removeprefix(b"data: ").strip())
    chunk["choices"][0]["token_ids"] = None
    return b"data: " + dumps(chunk) + b"\n\n"


def _tokenized(body: Mapping[str, Any], world: World) -> list[int]:
    messages = body.get("messages")
    text = ask.template(messages) if messages else ask.words(body.get("prompt"))
    return world.model.tokenize(text)


def _spelled(ids: Sequence[int], world: World) -> bytes:
    try:
        return world.model.detokenize(ids)
    except KeyError as error:
        words = f"Token id {error.args[0]} is out of vocabulary"
        raise ask.Refusal(400, words, type="BadRequestError") from None


@dataclass(frozen=True, kw_only=True)
class VllmCompletionsSide(VllmSide, CompletionsSide):
    """vLLM's ``/v1/completions``."""

    name: str = "vllm-completions"


_VLLM_COMPLETIONS = VllmCompletionsSide()


@dataclass(frozen=True, kw_only=True)
class VllmChatSide(VllmSide, AccentedSide):
    """vLLM's chat, and the completions through which it is continued."""

    name: str = "vllm"
    aliases: Sequence[str] = (_COMPLETIONS,)
    prefills: Callable[[Mapping[str, Any]], bool] = flagged

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """A conversation, or a prompt."""
        if "prompt" in body:
            return _VLLM_COMPLETIONS.asked(body, world)
        return super().asked(body, world)


@dataclass(frozen=True, kw_only=True)
class TgiChatSide(AccentedSide):
    """TGI's chat: a chunk a token, those inside a character empty."""

    name: str = "tgi-chat"
    prefills: Callable[[Mapping[str, Any]], bool] = always

    @property
    def manner(self) -> Manner:
        """Tokens whose text is held back are sent without it."""
        return replace(super().manner, held=True)


OPENAI_SIDES: Sequence[Side] = (
    CompletionsSide(name="openai-completions"),
    VllmChatSide(),
    _VLLM_COMPLETIONS,
    CountingSide(name="sglang-chat", prefills=flagged),
    TgiChatSide(),
    AccentedSide(name="lmstudio", prefills=always),
    AccentedSide(
        name="deepseek",
        route="/chat/completions",
        aliases=("/beta/chat/completions", "/v1/chat/completions"),
        prefills=marked,
    ),
    AccentedSide(name="mistral", prefills=marked),
    AccentedSide(name="openrouter", prefills=always),
    AccentedSide(
        name="groq", aliases=("/openai/v1/chat/completions",), prefills=always
    ),
)
