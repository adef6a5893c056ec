"""Servers with ``/v1/responses``: OpenAI's, which stores background responses, and kin.

A stored response is read again from any sequence number, and only a cancel stops it.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from midstream._dialects.documents import loads
from midstream._dialects.openai_responses import ResponseWriter
from midstream.testing._fake import asked as ask
from midstream.testing._fake.sides.base import Answer, Side, World, document
from midstream.testing._fake.sides.chat import asked_to_go_on
from midstream.testing._fake.sides.llama import LlamaSide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midstream._values.events import Event, Signal
    from midstream.testing._fake.kept import KeptStream, KeptStreams
    from midstream.testing._fake.script import Pen
    from midstream.testing._fake.wire import HttpRequest

_STORED = re.compile(r"/v1/responses/([^/]+)(/cancel)?")
_OPEN = ("in_progress", "incomplete")
_NO_STORE = (
    "This engine does not support `store=True` and therefore does not support the "
    "background mode."
)
_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class ResponsesSide(Side):
    """One such server.

    Attributes:
        continues: Whether it continues a last item that is not completed.
        stores: Whether it knows background responses.
        marks: What only it puts into its responses.
    """

    name: str = "openai-responses"
    route: str = "/v1/responses"
    continues: bool = False
    stores: bool = True
    marks: Mapping[str, Any]

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """The conversation, and whether its last item is open."""
        items = body.get("input")
        if not items:
            raise ask.Refusal(400, "Missing required parameter: 'input'.")
        if self.stores and body.get("background") and world.kept is None:
            raise ask.Refusal(400, _NO_STORE)
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        system = {"role": "system", "content": body.get("instructions") or ""}
        messages = [system, *({**item, "status": None} for item in items)]
        found = ask.chat(
            messages,
            max_tokens=ask.limit(body.get("max_output_tokens")),
            stop=ask.stops(body.get("stop")),
            streams=bool(body.get("stream")),
            prompt_tokens=len(world.model.tokenize(ask.template(messages))),
        )
        if found.turn and not (self.continues and items[-1].get("status") in _OPEN):
            closed = [*messages, {"role": "user", "content": ""}]
            return replace(found, context=repr(closed), opening=b"")
        return asked_to_go_on(found, messages)

    def error(self, status: int, message: str, type: str | None) -> Any:  # noqa: A002 - as all APIs call it
        """OpenAI's error document."""
        kind = type or ("invalid_request_error" if status < 500 else "server_error")  # noqa: PLR2004 - HTTP
        return {
            "error": {"message": message, "type": kind, "param": None, "code": None}
        }

    def pen(self, body: Mapping[str, Any]) -> Pen:
        """A response that is stored has an id of its own."""
        kept = bool(self.stores and body.get("background"))
        id_ = f"resp_{next(_numbers)}"
        writer = ResponseWriter()
        writer.response |= {"id": id_, "background": kept, **self.marks}
        pen = super().pen(body)
        return replace(pen, writer=writer, kept=id_ if kept else None)

    def complete(self, events: Sequence[Event | Signal]) -> Any:
        """The response that the last event holds."""
        writer = ResponseWriter()
        *_, last = [record for event in events for record in writer.write(event)]
        return loads(last.partition(b"data: ")[2])["response"]

    def replayed(
        self, request: HttpRequest, world: World
    ) -> tuple[KeptStream, int] | None:
        """By its id, behind the event of a sequence number."""
        found = _STORED.fullmatch(request.path)
        if found is None or request.method != "GET":
            return None
        _, stream = self._stored(found[1], world)
        after = int(request.query.get("starting_after", -1))
        return stream, stream.size_while(lambda data: _number(data) <= after)

    def other(self, request: HttpRequest, world: World) -> Answer | None:
        """The end of a background response."""
        found = _STORED.fullmatch(request.path)
        if found is None or found[2] is None or request.method != "POST":
            return None
        kept, _ = self._stored(found[1], world)
        kept.stop(found[1])
        return document({"id": found[1], "object": "response", "status": "cancelled"})

    def _stored(self, id_: str, world: World) -> tuple[KeptStreams, KeptStream]:
        stream = world.kept.find(id_) if world.kept is not None else None
        if world.kept is None or stream is None or not self.stores:
            raise ask.Refusal(404, f"Response with id '{id_}' not found.")
        return world.kept, stream


def _number(record: bytes) -> int:
    """A record's sequence number; what is no event belongs to the one before."""
    found = re.search(rb'"sequence_number":(\d+)\}\s*$', record)
    return int(found[1]) if found else -1


@dataclass(frozen=True, kw_only=True)
class LlamaResponsesSide(LlamaSide, ResponsesSide):
    """llama.cpp's: it keeps any stream by its name, and stores no responses."""

    name: str = "llama.cpp-responses"
    continues: bool = True
    stores: bool = False

    def pen(self, body: Mapping[str, Any]) -> Pen:
        """A bare comment keeps the connection alive."""
        return replace(super().pen(body), ping=b":\n\n")


RESPONSES_SIDES = (
    ResponsesSide(marks={}),
    LlamaResponsesSide(marks={}),
    ResponsesSide(
        name="vllm-responses", continues=True, marks={"kv_transfer_params": None}
    ),
)
