"""SGLang's own route: all text and all ids so far, and the tokenizer's routes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from midstream._dialects.documents import loads
from midstream.testing._fake import asked as ask
from midstream.testing._fake.model import BOS
from midstream.testing._fake.sides.base import Answer, Side, World, document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midstream._values.events import Event, Signal
    from midstream.testing._fake.voice import Manner
    from midstream.testing._fake.wire import HttpRequest

_DATA = b"data: "


@dataclass(frozen=True, kw_only=True)
class SGLangSide(Side):
    """``/generate``."""

    name: str = "sglang"
    route: str = "/generate"
    ids: ClassVar[bool] = True

    @property
    def manner(self) -> Manner:
        """Ids of tokens whose text is held back are sent."""
        return replace(super().manner, held=True)

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """A raw prompt: text, or ids."""
        text, ids = body.get("text"), body.get("input_ids")
        if (text is None) == (ids is None):
            raise ask.Refusal(400, "Either text, input_ids or input_embeds is needed.")
        prompt = ask.words(text) if ids is None else _spelled(ids, world)
        given = body.get("sampling_params") or {}
        return ask.Asked(
            opening=prompt,
            raw=True,
            how="text" if ids is None else "tokens",
            max_tokens=ask.limit(given.get("max_new_tokens")),
            stop=ask.stops(given.get("stop")),
            streams=bool(body.get("stream")),
            prompt_tokens=len(ids or world.model.tokenize(prompt)),
        )

    def error(self, status: int, message: str, type: str | None) -> Any:  # noqa: A002 - as all APIs call it
        """The error document of its OpenAI-like helpers."""
        kind = type or ("BadRequest" if status < 500 else "InternalServerError")  # noqa: PLR2004 - HTTP
        error = {"object": "error", "message": message, "type": kind, "code": status}
        return {"error": error}

    def complete(self, events: Sequence[Event | Signal]) -> Any:
        """The last record, which holds everything."""
        writer = self.dialect.writer()
        written = [record for event in events for record in writer.write(event)]
        return loads(written[-2].removeprefix(_DATA).strip())

    def other(self, request: HttpRequest, world: World) -> Answer | None:
        """The tokenizer."""
        match request.method, request.path:
            case "POST", "/v1/tokenize":
                ids = world.model.tokenize(ask.words(request.json().get("prompt")))
                return document({"tokens": [BOS, *ids], "count": len(ids) + 1})
            case "POST", "/v1/detokenize":
                text = _spelled(request.json().get("tokens") or (), world)
                return document({"text": text.decode("utf-8", "replace")})
        return None


def _spelled(ids: Sequence[int], world: World) -> bytes:
    try:
        return world.model.detokenize(ids)
    except KeyError as error:
        raise ask.Refusal(400, f"unknown token id {error.args[0]}") from None
