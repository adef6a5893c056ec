"""LM Studio's ``/api/v1/chat``, which takes one user's turn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from midstream._dialects.documents import loads
from midstream._dialects.lmstudio import CONTINUE, INTERRUPTED
from midstream.testing._fake import asked as ask
from midstream.testing._fake.sides.base import Side, World
from midstream.testing._fake.sides.messages import interrupted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midstream._values.events import Event, Signal

_TYPES = {
    **dict.fromkeys((400, 401, 403, 422), "invalid_request"),
    404: "model_not_found",
}


@dataclass(frozen=True, kw_only=True)
class LMStudioSide(Side):
    """It names no finish reason, and ends after an error as after an answer."""

    name: str = "lmstudio-native"
    route: str = "/api/v1/chat"

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """The turn, and whether it asks to go on with an answer."""
        said = body.get("input")
        if not body.get("model") or not said:
            raise ask.Refusal(400, '"model" and "input" are required')
        turn = {"role": "user", "content": said}
        system = {"role": "system", "content": body.get("system_prompt") or ""}
        found = ask.chat(
            [system, turn],
            max_tokens=ask.limit(body.get("max_output_tokens")),
            streams=bool(body.get("stream")),
            prompt_tokens=len(world.model.tokenize(ask.template([system, turn]))),
        )
        text = interrupted(said, INTERRUPTED, CONTINUE)
        if text is None:
            return found
        return replace(found, opening=text, how="ask")

    def error(self, status: int, message: str, type: str | None) -> Any:  # noqa: A002 - as all APIs call it
        """LM Studio's error document."""
        kind = type or _TYPES.get(status, "internal_error")
        return {"error": {"type": kind, "message": message}}

    def complete(self, events: Sequence[Event | Signal]) -> Any:
        """What ``chat.end`` holds."""
        writer = self.dialect.writer()
        *_, last = [record for event in events for record in writer.write(event)]
        return loads(last.partition(b"data: ")[2])["result"]
