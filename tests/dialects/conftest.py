"""What a dialect says and sends, without a session around it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from midstream._dialects import find
from midstream._dialects.base import Generation, Reply
from midstream._session.leg import Leg
from midstream._values.endpoint import Endpoint
from midstream._values.events import (
    End,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream._values.request import Request
from midstream._values.tool_call import ToolCall

CAPTURES = Path(__file__).parents[1] / "captures"


@dataclass
class Meaning:
    """What a stream said, however it was cut into events."""

    id: str | None = None
    model: str | None = None
    text: str = ""
    reasoning: str = ""
    signatures: list = field(default_factory=list)
    refusal: str = ""
    calls: list = field(default_factory=list)
    finish: tuple | None = None
    usage: object = None
    logprobs: list = field(default_factory=list)
    failure: tuple | None = None
    ended: bool = False

    def add(self, event):
        match event:
            case Started():
                self.id, self.model = event.id or self.id, event.model or self.model
            case TextDelta():
                self.text += event.text
                self.logprobs += [event.logprobs] if event.logprobs else []
            case ReasoningDelta():
                self.reasoning += event.text
                if event.signature is not None:
                    self.signatures.append((len(self.reasoning), event.signature))
            case RefusalDelta():
                self.refusal += event.text
            case ToolCallDelta():
                self.call(event)
            case Finish():
                self.finish = event.reason, event.raw
            case UsageReport():
                self.usage = event.usage
            case Failure():
                error = event.error
                self.failure = type(error), error.message, error.retryable
            case End():
                self.ended = True

    def call(self, event):
        while len(self.calls) <= event.index:
            self.calls.append(ToolCall(len(self.calls)))
        call = self.calls[event.index]
        call.id, call.name = call.id or event.id, call.name or event.name
        call.arguments += event.arguments
        call.complete = call.complete or event.closed


class Wire:
    """Bytes and calls of one dialect."""

    def generation(self, endpoint, prompt="Hi", **how):
        """What a client would ask for; ``strategies``, ``memory`` besides."""
        more = {name: how.pop(name) for name in ("strategies", "memory") if name in how}
        spelled = Endpoint.parse(endpoint)
        if spelled.base_url is None:
            url = find(spelled.dialect).default_url
            spelled = spelled.model_copy(update={"base_url": url})
        request = Request.of(prompt=prompt, **how)
        return Generation(endpoint=spelled, request=request, handle="h1", **more)

    def run(self, flow, *replies):
        """The calls of a flow, and what it returns."""
        calls, answers = [], iter(replies)
        try:
            calls.append(next(flow))
            while True:
                calls.append(flow.send(next(answers, Reply(200, {}, b"{}"))))
        except StopIteration as stop:
            return calls, stop.value

    def begin(self, generation):
        """The first call."""
        dialect = find(generation.endpoint.dialect)
        return self.run(dialect.begin(generation))[1]

    def go_on(self, generation, strategy, received):
        """The continuation."""
        dialect = find(generation.endpoint.dialect)
        return self.run(dialect.continuation(generation, strategy, received))[1]

    def leave(self, generation, received):
        """The calls that stop it."""
        dialect = find(generation.endpoint.dialect)
        return self.run(dialect.leave(generation, received))[0]

    def body(self, call):
        """A call's JSON document."""
        return json.loads(call.content)

    def captured(self, name):
        """Status and body of a recorded response."""
        head, _, body = (CAPTURES / name).read_bytes().partition(b"\r\n\r\n")
        if b"chunked" in head and not body.startswith(b"event:"):
            body = b"".join(_chunks(body))
        return int(head.split()[1]), body

    def captured_text(self, name):
        """Notes on what a server did."""
        return (CAPTURES / name).read_text()

    def signals(self, dialect, body, cuts=(), generation=None):
        """What a body says, cut at those places; a fault last."""
        asked = generation or self.generation(f"{dialect}:m@http://localhost:1")
        leg = Leg(find(dialect), asked)
        said, at = [], 0
        for cut in [*cuts, len(body)]:
            said += leg.receive(body[at:cut])
            at = cut
            if leg.fault is not None or End() in said:
                return self._with_fault(said, leg)
        said += leg.eof()[0]
        return self._with_fault(said, leg)

    def _with_fault(self, said, leg):
        return said if leg.fault is None else [*said, Failure(leg.fault)]

    def meaning(self, signals):
        """What they say, all together."""
        meaning = Meaning()
        for signal in signals:
            meaning.add(signal)
        return meaning

    def said(self, dialect, *events):
        """What a few events say, each the document of one SSE record."""
        return self.signals(dialect, b"".join(map(record, events)))

    def written(self, dialect, signals):
        """The body that says the same."""
        writer = find(dialect).writer()
        return b"".join(piece for s in signals for piece in writer.write(s))


def record(document):
    """An SSE record that is named as its document, or raw bytes."""
    if isinstance(document, bytes):
        return b"data: " + document + b"\n\n"
    name = document.get("type")
    line = f"event: {name}\n" if name else ""
    return f"{line}data: {json.dumps(document)}\n\n".encode()


def _chunks(body):
    while True:
        size, _, body = body.partition(b"\r\n")
        if not int(size or b"0", 16):  # a cut body ends without the last chunk
            return
        yield body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]


@pytest.fixture(scope="session")
def wire():
    return Wire()
