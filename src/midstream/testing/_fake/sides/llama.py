"""llama.cpp: chat and native route, its tokenizer's routes and its kept streams.

Measured on the real server. Ids of held back tokens are lost; the prefix may be text,
ids or both mixed; a request with ``X-Conversation-Id`` is kept and can be fetched again
from any byte, which closing the connection does not stop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from midstream._dialects.documents import dumps, loads
from midstream._values.events import Finish, TextDelta, UsageReport
from midstream.testing._fake import asked as ask
from midstream.testing._fake.model import BOS
from midstream.testing._fake.sides.base import Answer, Side, World, document
from midstream.testing._fake.sides.chat import ChatSide, joined

if TYPE_CHECKING:
    from midstream._values.events import Event, Signal
    from midstream.testing._fake.kept import KeptStream
    from midstream.testing._fake.script import Pen
    from midstream.testing._fake.voice import Why
    from midstream.testing._fake.wire import HttpRequest

KEPT_ROUTE = "/v1/stream"
_BOTH = "Cannot set both add_generation_prompt and continue_final_message to true."
_TWO = "Cannot have 2 or more assistant messages at the end of the list."
_HEADERS = {"Server": "llama.cpp", "Access-Control-Allow-Origin": ""}


class LlamaSide(Side):
    """What both routes share."""

    headers: ClassVar[Mapping[str, str]] = _HEADERS

    def error(self, status: int, message: str, type: str | None) -> Any:  # noqa: A002 - as all APIs call it
        """llama.cpp's error document."""
        kind = type or _TYPES.get(status) or _TYPES[400 if status < 500 else 500]  # noqa: PLR2004 - HTTP
        return {"error": {"code": status, "message": message, "type": kind}}

    def keeps(self, request: HttpRequest) -> str | None:
        """The conversation id."""
        return request.headers.get("x-conversation-id") or None

    def replayed(
        self, request: HttpRequest, world: World
    ) -> tuple[KeptStream, int] | None:
        """By its name, from a byte of the body on."""
        if world.kept is None or request.method != "GET" or request.path != KEPT_ROUTE:
            return None
        name = request.query.get("conv_id")
        offset = request.query.get("from", "0")
        if not name or not offset.isdigit():
            raise ask.Refusal(400, "conv_id is missing")
        stream = world.kept.find(name)
        if stream is None:
            raise ask.Refusal(404, "File Not Found")
        if int(offset) < stream.size - world.kept.window:
            raise ask.Refusal(400, "Stream offset lost, please restart")
        return stream, int(offset)

    def other(self, request: HttpRequest, world: World) -> Answer | None:
        """The tokenizer, the template, and what is known of kept streams."""
        match request.method, request.path:
            case "GET", "/health" | "/v1/health":
                return document({"status": "ok"})
            case "GET", "/v1/models" | "/models":
                return document({"object": "list", "data": [{"id": "fake"}]})
            case "POST", "/tokenize":
                return document(_tokenized(_object(request), world))
            case "POST", "/detokenize":
                text = _decoded(_object(request).get("tokens") or [], world)
                return document({"content": text.decode("utf-8", "replace")})
            case "POST", "/apply-template":
                messages = _object(request).get("messages") or []
                text = ask.template(messages)
                return document({"prompt": text.decode("utf-8", "replace")})
        return _kept(request, world)


_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    500: "server_error",
    503: "unavailable_error",
}


def _object(request: HttpRequest) -> Mapping[str, Any]:
    try:
        body = request.json()
    except ValueError as error:
        raise ask.Refusal(400, f"[json.exception.parse_error.101] {error}") from None
    if not isinstance(body, Mapping):
        raise ask.Refusal(400, "the body is no JSON object")
    return body


def _tokenized(body: Mapping[str, Any], world: World) -> dict[str, Any]:
    ids = world.model.tokenize(ask.words(body.get("content")))
    if body.get("add_special"):
        ids = [BOS, *ids]
    if not body.get("with_pieces"):
        return {"tokens": ids}
    return {"tokens": [{"id": id_, "piece": _piece(id_, world)} for id_ in ids]}


def _piece(id_: int, world: World) -> str | list[int]:
    """A token's text, or its bytes where they are no UTF-8."""
    data = world.model.detokenize([id_])
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


def _decoded(ids: Sequence[int], world: World) -> bytes:
    try:
        return world.model.detokenize(ids)
    except KeyError as error:
        raise ask.Refusal(400, f"Invalid token id {error.args[0]}") from None


def _kept(request: HttpRequest, world: World) -> Answer | None:
    if world.kept is None:
        return None
    match request.method, request.path:
        case "POST", "/v1/streams/lookup":
            names = _object(request).get("conversation_ids") or []
            states = [world.kept.state(name) for name in names]
            return document([state for state in states if state is not None])
        case "DELETE", "/v1/stream":
            world.kept.stop(request.query.get("conv_id", ""))
            return Answer(status=204)
    return None


def _continues(body: Mapping[str, Any]) -> bool:
    """Prefill is on by default, and ``continue_final_message: false`` changes nothing.

    Raises:
        Refusal: Two flags that exclude each other.
    """
    if body.get("continue_final_message") and body.get("add_generation_prompt", True):
        raise ask.Refusal(400, _BOTH)
    return True


@dataclass(frozen=True, kw_only=True)
class LlamaChatSide(LlamaSide, ChatSide):
    """``/v1/chat/completions``."""

    name: str = "llama.cpp"
    aliases: Sequence[str] = ("/chat/completions",)
    prefills: Callable[[Mapping[str, Any]], bool] = _continues

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """A trailing assistant message is continued, an empty one breaks the prompt."""
        found = super().asked(body, world)
        roles = [message.get("role") for message in body["messages"][-2:]]
        if roles == ["assistant", "assistant"]:
            raise ask.Refusal(400, _TWO)
        if found.turn and not found.opening and not found.reasoning:
            return replace(found, preface=b"assistant\n")
        return found

    def pen(self, body: Mapping[str, Any]) -> Pen:
        """With ``timings_per_token`` each chunk tells the count of tokens so far."""
        pen = super().pen(body)
        pen = replace(pen, ping=b":\n\n")
        return replace(pen, dress=_timed) if body.get("timings_per_token") else pen


def _timed(record: bytes, event: Event | Signal, tokens: int) -> bytes:
    if not isinstance(event, TextDelta | Finish):
        return record
    chunk = loads(record.removeprefix(b"data: ").strip())
    chunk["timings"] = {"predicted_n": tokens}
    return b"data: " + dumps(chunk) + b"\n\n"


@dataclass(frozen=True, kw_only=True)
class LlamaCompletionSide(LlamaSide):
    """The native ``/completion``."""

    name: str = "llama.cpp-completion"
    route: str = "/completion"
    aliases: Sequence[str] = ("/completions",)
    ids: ClassVar[bool] = True
    words: ClassVar[Mapping[Why, str]] = {
        "eos": "eos",
        "word": "word",
        "length": "limit",
        "tools": "eos",
    }

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """A raw prompt: text, ids, or both mixed."""
        prompt = body.get("prompt")
        if prompt is None:
            raise ask.Refusal(400, '"prompt" must be provided')
        parts = prompt if isinstance(prompt, list) else [prompt]
        text = b"".join(_part(part, world) for part in parts)
        return ask.Asked(
            opening=text,
            raw=True,
            how="tokens" if any(isinstance(part, int) for part in parts) else "text",
            max_tokens=ask.limit(body.get("n_predict")),
            stop=ask.stops(body.get("stop")),
            streams=bool(body.get("stream")),
            prompt_tokens=len(world.model.tokenize(text)),
        )

    def pen(self, body: Mapping[str, Any]) -> Pen:
        """A bare comment keeps the connection alive."""
        return replace(super().pen(body), ping=b":\n\n")

    def complete(self, events: Sequence[Event | Signal]) -> Any:
        """The native document."""
        usage = next(e.usage for e in events if isinstance(e, UsageReport))
        finish = next(event for event in events if isinstance(event, Finish))
        return {
            "index": 0,
            "content": joined(events, TextDelta),
            "stop": True,
            "stop_type": finish.raw,
            "tokens_predicted": usage.output_tokens,
            "tokens_evaluated": usage.input_tokens,
            "truncated": False,
        }


def _part(part: Any, world: World) -> bytes:
    return _decoded([part], world) if isinstance(part, int) else ask.words(part)
