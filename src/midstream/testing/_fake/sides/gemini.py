"""Google's Gemini: events or one growing array, and who continues a model turn."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from midstream._dialects.documents import dumps, loads
from midstream._dialects.gemini import continues_turns
from midstream._values.events import End
from midstream.testing._fake import asked as ask
from midstream.testing._fake.script import Pen
from midstream.testing._fake.sides.base import Answer, Side, World, document
from midstream.testing._fake.sides.chat import asked_to_go_on

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midstream._values.events import Event, Signal
    from midstream.testing._fake.voice import Why
    from midstream.testing._fake.wire import HttpRequest

_ROUTE = re.compile(r"/v1(?:beta)?/models/([^/:]+):(streamG|g)enerateContent")
_DATA = b"data: "
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_CLOSED = "Requests ending with a model turn are not supported."


@dataclass(frozen=True, kw_only=True)
class GeminiSide(Side):
    """``streamGenerateContent``, and the same without a stream."""

    name: str = "gemini"
    route: str = "/v1beta/models/{model}:streamGenerateContent"
    words: ClassVar[Mapping[Why, str]] = {
        "eos": "STOP",
        "word": "STOP",
        "length": "MAX_TOKENS",
        "tools": "STOP",
    }

    def serves(self, path: str) -> bool:
        """Any model has its own route."""
        return _ROUTE.fullmatch(path) is not None

    def addressed(
        self, body: Mapping[str, Any], request: HttpRequest
    ) -> Mapping[str, Any]:
        """The model, whether it streams, and as what."""
        found = _ROUTE.fullmatch(request.path)
        model, method = found.groups() if found else ("", "")
        events = request.query.get("alt") == "sse"
        return {**body, "model": model, "stream": method == "streamG", "sse": events}

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """The conversation; a model turn at its end is open, or refused."""
        contents = body.get("contents")
        if not isinstance(contents, list) or not contents:
            raise ask.Refusal(
                400, "* GenerateContentRequest.contents: is not specified"
            )
        system = {"role": "system", "content": _text(body.get("systemInstruction"))}
        messages = [system, *map(_message, contents)]
        config = body.get("generationConfig") or {}
        found = ask.chat(
            messages,
            max_tokens=ask.limit(config.get("maxOutputTokens")),
            stop=ask.stops(config.get("stopSequences")),
            n=config.get("candidateCount") or 1,
            streams=bool(body.get("stream")),
            prompt_tokens=len(world.model.tokenize(ask.template(messages))),
        )
        if found.turn and not continues_turns(body.get("model")):
            raise ask.Refusal(400, _CLOSED)
        return asked_to_go_on(found, messages)

    def error(self, status: int, message: str, type: str | None) -> Any:  # noqa: A002 - as all APIs call it
        """Google's error document."""
        word = type or _STATUS.get(status, "INTERNAL")
        return {"error": {"code": status, "message": message, "status": word}}

    def pen(self, body: Mapping[str, Any]) -> Pen:
        """Events, or the objects of an array."""
        if body.get("sse"):
            return super().pen(body)
        return Pen(
            writer=self.dialect.writer(),
            dress=_Array(),
            ping=b"\n",
            type="application/json",
        )

    def unmarked(self, record: bytes) -> bytes | None:
        """The end record without its reason."""
        response = loads(record.removeprefix(_DATA).strip())
        return _DATA + dumps(response | {"candidates": []}) + b"\r\n\r\n"

    def complete(self, events: Sequence[Event | Signal]) -> Any:
        """One response whose candidates hold all parts."""
        writer = self.dialect.writer()
        responses = [
            loads(record.removeprefix(_DATA).strip())
            for event in events
            for record in writer.write(event)
        ]
        parts = [
            part
            for response in responses
            for candidate in response["candidates"]
            for part in candidate["content"]["parts"]
        ]
        whole = responses[-1]
        for candidate in whole["candidates"]:
            candidate["content"]["parts"] = parts
        return whole

    def other(self, request: HttpRequest, world: World) -> Answer | None:
        """The list of models."""
        del world
        if request.method == "GET" and request.path == "/v1beta/models":
            return document({"models": [{"name": "models/fake"}]})
        return None


@dataclass
class _Array:
    """Puts records into one array, as Google's server does."""

    begun: bool = field(default=False)

    def __call__(self, record: bytes, event: Event | Signal, tokens: int) -> bytes:
        del tokens
        before, self.begun = b",\r\n" if self.begun else b"[", True
        after = b"\n]\n" if isinstance(event, End) else b"\n"
        return before + record.removeprefix(_DATA).strip() + after


def _message(content: Mapping[str, Any]) -> dict[str, Any]:
    role = "assistant" if content.get("role") == "model" else content.get("role")
    return {"role": role or "user", "content": _text(content)}


def _text(content: Mapping[str, Any] | None) -> str:
    """The text of all parts that are no thoughts."""
    parts = (content or {}).get("parts") or ()
    return "".join(str(p.get("text") or "") for p in parts if not p.get("thought"))
