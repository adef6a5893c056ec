"""A driver without I/O: a model whose answer is known, at servers that break.

It does what `midstream._streaming.stream` does, over bytes that it makes with the
dialect's own writer, on a clock that only it moves. What a continuation asks for it
learns from the dialect, not from the request's body; bodies are the subject of the
dialects' tests.
"""

import itertools
import json
import random
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from midstream._dialects import find
from midstream._dialects.base import Reply
from midstream._dialects.kserve import METADATA, TensorSpec, write_metadata
from midstream._resume.policy import Resume
from midstream._resume.restoring import begin, restore
from midstream._resume.server import Server
from midstream._session.session import Session
from midstream._streaming.line import _FAULTS
from midstream._values.endpoint import Endpoint
from midstream._values.errors import ConnectFailed, Dropped, MidstreamError
from midstream._values.events import (
    End,
    Finish,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReport,
)
from midstream._values.request import Request
from midstream._values.timeouts import Timeouts
from midstream._values.usage import Usage

_MOST = 300  # connections of one run; more is a loop

# -- the model -------------------------------------------------------------------------


class Model:
    """It says one answer, from any place on, in the same tokens.

    Tokens are runs of bytes, so that one may end inside a character.
    """

    def __init__(self, text, edges=(), reasoning=""):
        self.text = text
        self.reasoning = reasoning
        self.data = text.encode()
        inner = {edge % (len(self.data) or 1) for edge in edges}
        self.edges = [*sorted(inner - {0}), len(self.data)]
        self._ids = {}
        self._pieces = {}

    def id_of(self, piece):
        if piece not in self._ids:
            self._ids[piece] = 1000 + len(self._ids)
            self._pieces[self._ids[piece]] = piece
        return self._ids[piece]

    def tokenize(self, text):
        return [self.id_of(bytes([byte])) for byte in text.encode()]

    encode = tokenize

    def token_bytes(self, id_):
        return self._pieces[id_]

    def detokenize(self, ids):
        return b"".join(self._pieces.get(id_, b"") for id_ in ids)

    def says(self, start=0, reasoned=0, shown=""):
        """The events from a character on; ``shown`` is echoed before."""
        at = len(self.text[:start].encode())
        edges = [at, *(edge for edge in self.edges if edge > at)]
        pieces = [self.data[a:b] for a, b in itertools.pairwise(edges)]
        yield Started("answer", "model")
        for character in self.reasoning[reasoned:]:
            yield ReasoningDelta(character, tokens=1)
        for piece in [*(char.encode() for char in shown), *pieces]:
            text = piece.decode("utf-8", "surrogateescape")
            yield TextDelta(text, tokens=1, token_ids=(self.id_of(piece),))
        yield Finish("stop")
        yield UsageReport(Usage(5, len(pieces) + len(self.reasoning[reasoned:])))
        yield End()


# -- what happens to a connection ------------------------------------------------------


@dataclass
class Cut:
    """The body breaks off after so many bytes (messages, for gRPC)."""

    at: int
    how: str = "reset"  # "eof", "reset", "stall"


@dataclass
class Refused:
    """Another answer than a stream."""

    status: int
    body: bytes = b""
    headers: dict = field(default_factory=dict)


@dataclass
class Unreachable:
    """No connection."""


@dataclass
class Said:
    """A body of its own, whole or cut."""

    body: bytes
    how: str = "eof"


class Spy:
    """A dialect that tells what it was asked for."""

    def __init__(self, dialect, tell):
        self._dialect = dialect
        self._tell = tell

    def __getattr__(self, name):
        return getattr(self._dialect, name)

    def begin(self, generation):
        call = yield from self._dialect.begin(generation)
        self._tell("begin", generation, None, None)
        return call

    def continuation(self, generation, strategy, received):
        asked = yield from self._dialect.continuation(generation, strategy, received)
        self._tell(strategy, generation, received, asked)
        return asked


# -- the driver ------------------------------------------------------------------------


class Run:
    """One stream from its begin to its end.

    Attributes:
        events: What the caller saw.
        error: What was raised out of the stream, if anything.
        asked: (strategy, received) of each connection that was asked for.
        calls: All calls but those that open a stream.
        opens: The calls that open a stream.
        pauses: The waits before connections.
    """

    def __init__(
        self,
        name,
        model,
        breaks=(),
        *,
        resume=None,
        timeouts=None,
        reads=None,
        again="all",
        answers=None,
        endpoint=None,
        others=(),
        stored=None,
        after=0,
        have=None,
        **request,
    ):
        self.model = model
        self.breaks = list(breaks)
        self.reads = reads
        self.again = again  # "none": held-off white space does not come again
        self.answers = answers or {}
        self.now = 100.0
        self.events, self.error = [], None
        self.asked, self.calls, self.opens, self.pauses = [], [], [], []
        self.kept = {}
        self._answer = None
        numbers = itertools.count(1)
        names = (name, *others)
        self.servers = [self._server(n, endpoint or {}) for n in names]
        request.setdefault("prompt", "why?")
        self._more = {
            "timeouts": timeouts or Timeouts(),
            "resume": resume,
            "handles": lambda: f"handle-{next(numbers)}",
            "random": random.Random(7),
        }
        asked = Request.of(**request)
        self._begin(begin(self.servers, asked, self._more["handles"]()))
        if stored is not None:
            self.restore(stored, after, have)

    def _begin(self, beginning):
        self.session = Session(self.servers, beginning, **self._more)

    def restore(self, stored, after=0, have=None):
        """Go on with what another process left."""
        more = {"after": after, "have": have}
        self._begin(restore(self.servers, stored, self.now, **more))
        self.events += self.session.backlog()
        return self

    def _server(self, name, fields):
        dialect = find(name) if isinstance(name, str) else name
        scheme = "grpc" if dialect.transport == "grpc" else "http"
        known = {"model": "m", "base_url": f"{scheme}://host:1"}
        if dialect.name == "gemini":
            known["model"] = "gemini-2.5-flash"  # one that continues
        if dialect.name == "vllm-grpc":
            known |= {"tokenizer": self.model, "template": str}
        endpoint = Endpoint(dialect.name, **{**known, **fields})
        return Server(endpoint, Spy(dialect, self._tell))

    # What the caller sees

    @property
    def text(self):
        """The text that was given out."""
        return "".join(e.text for e in self.events if type(e) is TextDelta)

    @property
    def reasoning(self):
        return "".join(e.text for e in self.events if type(e) is ReasoningDelta)

    @property
    def strategies(self):
        return [strategy for strategy, _ in self.asked]

    # The server's side

    def _tell(self, strategy, generation, received, continuation):
        if received is not None:  # its ids grow with the answer
            received = replace(received, token_ids=list(received.token_ids))
        self.asked.append((strategy, received))
        dialect = self.session.server.dialect
        self._answer = []
        if self.breaks and isinstance(self.breaks[0], Said | Refused | Unreachable):
            return
        if strategy == "replay":
            records = self.kept[generation.handle]
            if continuation.keeps == "body":
                self._answer = [b"".join(records)[received.offset :]]
            else:
                self._answer = records[self._place(dialect, generation, received) :]
            return
        start = reasoned = 0
        shown = ""
        if continuation is not None:
            start = len(continuation.sent)
            if continuation.expect or self.again == "none":
                start = len(received.text) - len(continuation.expect)
            reasoned = len(received.reasoning)
            if continuation.echo == "whole":  # as it is declared
                shown = continuation.sent
            if continuation.reader is not None:  # on another route, in its format
                dialect = find("vllm-completions")
        says = self.model.says(start, reasoned, shown)
        self.kept[generation.handle] = self._answer = _written(dialect, says)

    def _place(self, dialect, generation, received):
        """Behind the record after which a reader had this cursor."""
        reader = dialect.reader(generation)
        framer = dialect.framer()
        for at, record in enumerate(self.kept[generation.handle]):
            for data, name in framer.decode(record):
                reader.read(data, name)
            if reader.cursor == received.cursor:
                return at + 1
        return 0

    def _reply(self, call):
        self.calls.append(call)
        for route, answer in self.answers.items():
            if route in call.url or route in call.method:
                return answer
        if call.method == METADATA:
            names = ("text_output", "finish_reason")
            content = write_metadata(
                "m", [TensorSpec("text_input")], [TensorSpec(name) for name in names]
            )
            return Reply(200, {}, content)
        if call.method == "DELETE" or call.url.endswith("/cancel"):
            return Reply(204, {}, b"")
        body = json.loads(call.content or b"{}")
        if call.url.endswith("/apply-template"):
            document = {"prompt": str(body["messages"])}
        elif call.url.endswith("/v1/models"):
            document = {"data": [{"id": "m", "max_model_len": 9999}]}
        elif call.url.endswith("/detokenize"):
            text = self.model.detokenize(body["tokens"]).decode("utf-8", "replace")
            document = {"prompt": text, "text": text}
        elif body.get("_debug_render_only"):
            document = {"_debug_info": {"rendered_template": body["prompt"]}}
        elif "/v2/models/" in call.url:
            names = ("text_input", "text_output")
            tensors = [[{"name": n, "datatype": "BYTES", "shape": [1]}] for n in names]
            document = {"inputs": tensors[0], "outputs": tensors[1]}
        elif call.url.endswith("/tokenize"):
            given = body.get("content") or body.get("prompt") or str(body)
            ids = self.model.tokenize(given)
            document = {"tokens": ids, "count": len(ids), "max_model_len": 9999}
        else:
            return Reply(404, {}, b'{"error": {"message": "no such route"}}')
        return Reply(200, {}, json.dumps(document).encode())

    # The loop, as in midstream._streaming.stream

    def run(self):
        session = self.session
        try:
            while not session.ended:
                try:
                    self._connection()
                except _FAULTS as fault:
                    self.events += session.dropped(fault, self.now)
        except MidstreamError as error:
            self.error = session.signed(error)
        self.drive(session.leave())
        return self

    def drive(self, flow):
        """Run a flow of calls."""
        reply = None
        while True:
            try:
                call = flow.send(reply)
            except StopIteration as stop:
                return stop.value
            reply = self._reply(call)

    def _connection(self):
        session = self.session
        assert len(self.asked) < _MOST, "it reconnects for ever"
        self.pauses.append(session.pause)
        self.now += session.pause
        self.opens.append(self.drive(session.connect(self.now)))
        end = self.breaks.pop(0) if self.breaks else Cut(1 << 40, "eof")
        match end:
            case Unreachable():
                raise ConnectFailed("refused")
            case Refused():
                assert not session.opened(end.status, end.headers)
                session.refused(Reply(end.status, end.headers, end.body))
            case Said():
                self._answer, end = [end.body], Cut(1 << 40, end.how)
        assert session.opened(200, {})
        self.events += session.backlog()
        for piece in self._pieces(end.at):
            self.now += 0.01
            self.events += session.receive(piece, self.now)
            if session.ended:
                return
            session.check()
        if end.how == "eof":
            self.events += session.eof(self.now)
        elif end.how == "stall":
            self.now = session.deadline.at
            raise session.deadline.error()
        else:
            raise Dropped("reset")
        session.check()

    def _pieces(self, at):
        if self.session.server.dialect.transport == "grpc":
            return self._answer[:at]
        body = b"".join(self._answer)[:at]
        if self.reads is None:
            return [body] if body else []
        if isinstance(self.reads, int):
            size = self.reads
            return [body[a : a + size] for a in range(0, len(body), size)]
        marks = sorted(mark % (len(body) + 1) for mark in self.reads)
        return [body[a:b] for a, b in itertools.pairwise([0, *marks, len(body)])]


def _written(dialect, says):
    """The records that a server makes of events."""
    writer = dialect.writer()
    if dialect.name in {"openai-responses", "vllm-responses"}:
        writer.response["background"] = True  # as it was asked for
    return [record for event in says for record in writer.write(event)]


def _bodies(name, model):
    """The records of a whole answer."""
    return _written(find(name), model.says())


def _ends_clean(name):
    """Whether a clean end of the body is the dialect's own end, as Triton's is."""
    return any(type(signal) is End for signal in find(name).reader().eof())


@pytest.fixture(scope="session")
def world():
    """The parts of the driver."""
    return SimpleNamespace(
        Model=Model,
        Cut=Cut,
        Refused=Refused,
        Unreachable=Unreachable,
        Said=Said,
        Run=Run,
        bodies=_bodies,
        reply=lambda status, content=b"{}": Reply(status, {}, content),
        ends_clean=_ends_clean,
        only=lambda *ways, **more: Resume(strategies=ways, **{"attempts": 30, **more}),
    )


def _mutate(record, where, value):
    """A text record with one of its JSON fields replaced."""
    prefix, brace, rest = record.partition(b"{")
    if not brace:
        return record
    rest, _, tail = rest.rpartition(b"}")
    document = json.loads(b"{" + rest + b"}")
    places = list(_places(document))
    holder, key = places[where % len(places)]
    holder[key] = value
    text = json.dumps(document)  # halves of pairs as escapes
    return prefix + text.encode() + tail


def _places(value):
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            yield value, key
            yield from _places(value[key])


@pytest.fixture(scope="session")
def mutate():
    """Replace a field of a record."""
    return _mutate
