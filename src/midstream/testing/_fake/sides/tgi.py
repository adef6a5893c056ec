"""TGI's own routes: a token a record, those inside a character empty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from midstream._dialects.documents import dumps, loads
from midstream._values.events import Finish, TextDelta, UsageReport
from midstream.testing._fake import asked as ask
from midstream.testing._fake.sides.base import Side, World
from midstream.testing._fake.sides.chat import joined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midstream._values.events import Event, Signal
    from midstream.testing._fake.script import Pen
    from midstream.testing._fake.voice import Manner, Why
    from midstream.testing._fake.wire import HttpRequest

_TYPES = {
    **dict.fromkeys((400, 422), "validation"),
    **dict.fromkeys((429, 503), "overloaded"),
    **dict.fromkeys((424, 500), "generation"),
}


@dataclass(frozen=True, kw_only=True)
class TgiSide(Side):
    """``/generate_stream``, and ``/``, which streams when it is asked to."""

    name: str = "tgi"
    route: str = "/generate_stream"
    aliases: Sequence[str] = ("/",)
    ids: ClassVar[bool] = True
    words: ClassVar[Mapping[Why, str]] = {
        "eos": "eos_token",
        "word": "stop_sequence",
        "length": "length",
        "tools": "eos_token",
    }

    @property
    def manner(self) -> Manner:
        """Tokens whose text is held back are sent without it."""
        return replace(super().manner, held=True)

    def addressed(
        self, body: Mapping[str, Any], request: HttpRequest
    ) -> Mapping[str, Any]:
        """One route streams always, the other when it is asked to."""
        streams = request.path == self.route or body.get("stream")
        return {**body, "stream": bool(streams)}

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """A raw prompt."""
        if not isinstance(body.get("inputs"), str):
            raise ask.Refusal(422, "missing field `inputs`")
        given = body.get("parameters") or {}
        prompt = ask.words(body["inputs"])
        return ask.Asked(
            opening=prompt,
            raw=True,
            max_tokens=ask.limit(given.get("max_new_tokens")),
            stop=ask.stops(given.get("stop")),
            streams=bool(body.get("stream")),
            prompt_tokens=len(world.model.tokenize(prompt)),
        )

    def error(self, status: int, message: str, type: str | None) -> Any:  # noqa: A002 - as all APIs call it
        """Message and type, side by side; what is in front of it knows no type."""
        kind = type or _TYPES.get(status)
        return {"error": message} | ({"error_type": kind} if kind else {})

    def pen(self, body: Mapping[str, Any]) -> Pen:
        """A bare comment keeps the connection alive."""
        return replace(super().pen(body), ping=b":\n\n")

    def unmarked(self, record: bytes) -> bytes | None:
        """The last token without the whole text."""
        token = loads(record.removeprefix(b"data:").strip())
        ended = {"generated_text": None, "details": None}
        return b"data:" + dumps(token | ended) + b"\n\n"

    def complete(self, events: Sequence[Event | Signal]) -> Any:
        """A list of one text."""
        usage = next(e.usage for e in events if isinstance(e, UsageReport))
        finish = next(event for event in events if isinstance(event, Finish))
        details: dict[str, Any] = {
            "finish_reason": finish.raw,
            "generated_tokens": usage.output_tokens,
            "prefill": [],
            "tokens": [],
        }
        return [{"generated_text": joined(events, TextDelta), "details": details}]
