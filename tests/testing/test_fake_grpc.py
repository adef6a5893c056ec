"""The fake Triton over gRPC: half characters, in-band errors, cuts at any message."""

import threading
import time

import pytest

from midstream._dialects import kserve
from midstream._dialects.triton_grpc import TRITON_GRPC
from midstream._utf8 import Utf8Decoder
from midstream._values.events import End, Failure, Finish, TextDelta, UsageReport
from midstream.testing import (
    Chunking,
    Cut,
    ErrorEvent,
    FakeServer,
    Garbage,
    Gzip,
    LineEnds,
    Pings,
    Slow,
    Stall,
    Status,
    StayOpen,
)
from midstream.testing._fake.marks import MARKS, Watch

grpc = pytest.importorskip("grpc")

TEXT = "Hi, 日本語 👩‍👩‍👧 done."
CHANNEL = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", -1),
]


def request(prompt, *, final=True, **parameters):
    message = kserve.messages().ModelInferRequest(model_name="llm", id="r1")
    if final:
        parameters["triton_enable_empty_final_response"] = True
    for name, value in parameters.items():
        kserve.put_parameter(message.parameters, name, value)
    spec = kserve.TensorSpec("text_input")
    kserve.put_tensor(message, "input", spec, [prompt])
    return message.SerializeToString()


class Answer:
    def __init__(self):
        self.messages = []
        self.error = None
        self.trailing = {}

    @property
    def events(self):
        reader = TRITON_GRPC.reader()
        return [e for message in self.messages for e in reader.read(message, "")]

    @property
    def raw(self):
        texts = [e.text for e in self.events if isinstance(e, TextDelta)]
        return "".join(texts).encode("utf-8", "surrogateescape")

    @property
    def text(self):
        return self.raw.decode()


def connect(server):
    target = server.url("triton-grpc").removeprefix("grpc://")
    return grpc.insecure_channel(target, options=CHANNEL)


def ask(server, *requests, metadata=(), timeout=10, stop_after=None):
    answer = Answer()
    with connect(server) as channel:
        call = channel.stream_stream(kserve.STREAM)(
            iter(requests), metadata=metadata, timeout=timeout
        )
        try:
            for message in call:
                answer.messages.append(message)
                if len(answer.messages) == stop_after:
                    call.cancel()
        except grpc.RpcError as error:
            answer.error = error.code()
            answer.trailing = dict(error.trailing_metadata() or ())
    return answer


@pytest.mark.parametrize("split", ["text", "bytes"])
def test_whole_answer(split):
    with FakeServer(TEXT, split=split) as server:
        answer = ask(server, request("Q: "))
        entry = server.streams[0]
    assert answer.error is None
    assert answer.text == TEXT
    assert [e.reason for e in answer.events if isinstance(e, Finish)] == ["stop"]
    assert isinstance(answer.events[-1], End)
    assert (entry.dialect, entry.method, entry.path) == (
        "triton-grpc",
        "RPC",
        kserve.STREAM,
    )
    assert (entry.ended, entry.status, entry.how) == ("complete", 200, "top")
    assert entry.body["text_input"] == "Q: "
    assert entry.body["model"] == "llm"
    assert entry.text.encode("utf-8", "surrogateescape") == TEXT.encode()


def test_half_characters_are_in_the_messages():
    with FakeServer(tokens=[b"\xe6", b"\x97\xa5"]) as server:
        answer = ask(server, request("Q: "))
    texts = [e.text for e in answer.events if isinstance(e, TextDelta)]
    assert [t.encode("utf-8", "surrogateescape") for t in texts] == [
        b"\xe6",
        b"\x97\xa5",
    ]
    decoder = Utf8Decoder()
    assert [decoder.decode(text) for text in texts] == ["", "日"]


def test_continues_after_every_message():
    with FakeServer(TEXT, split="bytes") as server:
        messages = ask(server, request("Q: ")).messages
        for cut in range(1, len(messages) - 2):
            part = Answer()
            part.messages = messages[:cut]
            rest = ask(server, request(b"Q: " + part.raw))
            assert part.raw + rest.raw == TEXT.encode()
            assert server.streams[-1].how == "text"


@pytest.mark.parametrize("kind", ["fin", "rst", "mid_chunk"])
def test_cut_after_every_message(kind):
    with FakeServer(TEXT) as server:
        count = server._mind.world.model.steps.__len__()
    faults = [Cut(after, kind) for after in range(count)]
    with FakeServer(TEXT, faults=faults) as server:
        for after in range(count):
            answer = ask(server, request("Q: "))
            assert answer.error is grpc.StatusCode.UNAVAILABLE
            assert len(answer.messages) == after
            assert server.streams[after].deltas == after
            assert server.streams[after].ended == "cut"
        assert ask(server, request("Q: ")).text == TEXT


def test_cut_at_a_byte_and_before_anything():
    with FakeServer(TEXT, faults=[Cut(at=100), Cut(), Cut(kind="rst")]) as server:
        answers = [ask(server, request("Q: ")) for _ in range(3)]
        assert [a.error for a in answers] == [grpc.StatusCode.UNAVAILABLE] * 3
        assert len(b"".join(answers[0].messages)) <= 100
        assert server.streams[0].body_bytes == 100
        assert answers[1].messages == answers[2].messages == []


def test_clean_ends_that_are_none():
    faults = [Cut(2, "eof"), Cut(kind="no_done"), Cut(1, "half")]
    with FakeServer(TEXT, faults=faults) as server:
        eof = ask(server, request("Q: "))
        assert (eof.error, len(eof.messages)) == (None, 2)
        reason = ask(server, request("Q: "))
        assert reason.text == TEXT
        assert not any(isinstance(event, End) for event in reason.events)
        assert any(isinstance(event, Finish) for event in reason.events)
        assert len(ask(server, request("Q: ")).messages) == 2


def test_without_opting_in_there_is_no_final_response():
    with FakeServer(TEXT) as server:
        answer = ask(server, request("Q: ", final=False))
    assert answer.text == TEXT
    assert not any(isinstance(event, End) for event in answer.events)


def test_limits_stops_and_usage():
    with FakeServer(tokens=["a", "b", "c", "<", "e", ">"]) as server:
        answer = ask(server, request("Q: ", max_tokens=2))
        assert answer.text == "ab"
        assert [e.reason for e in answer.events if isinstance(e, Finish)] == ["length"]
        usage = [e.usage for e in answer.events if isinstance(e, UsageReport)]
        assert usage[0].output_tokens == 2
        assert ask(server, request("Q: ", stop="<e>")).text == "abc"
        assert ask(server, request("Q: ", stop="<x>")).text == "abc<e>"


def test_several_requests_on_one_stream():
    with FakeServer("ab") as server:
        answer = ask(server, request("Q: "), request("Q: a"))
        assert answer.raw == b"abb"
        assert [entry.how for entry in server.streams] == ["top", "text"]


def test_metadata_and_configuration():
    messages = kserve.messages()
    with FakeServer(TEXT) as server, connect(server) as channel:
        body = messages.ModelMetadataRequest(name="m").SerializeToString()
        found = kserve.read_metadata(channel.unary_unary(kserve.METADATA)(body))
        assert "text_input" in found.inputs
        assert "text_output" in found.outputs
        body = messages.ModelConfigRequest(name="m").SerializeToString()
        assert kserve.read_config(channel.unary_unary(kserve.CONFIG)(body)) == {}
        with pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary("/no.Such/Method")(b"")
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert [entry.path for entry in server.requests] == [
            kserve.METADATA,
            kserve.CONFIG,
        ]
        assert server.streams == []


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (503, "UNAVAILABLE"),
        (429, "RESOURCE_EXHAUSTED"),
        (401, "UNAUTHENTICATED"),
        (404, "NOT_FOUND"),
        (400, "INVALID_ARGUMENT"),
        (500, "INTERNAL"),
    ],
)
def test_statuses(code, name):
    fault = Status(code, "no", headers={"Retry-After": "1"})
    with FakeServer(TEXT, faults=[fault]) as server:
        answer = ask(server, request("Q: "))
        assert answer.error is grpc.StatusCode[name]
        assert answer.trailing["retry-after"] == "1"
        assert server.streams[0].ended == "refused"
        assert server.streams[0].status == code
        assert ask(server, request("Q: ")).text == TEXT


def test_the_key_and_whole_routes():
    with FakeServer(TEXT, api_key="k", routes={kserve.METADATA: Status(404)}) as server:
        unauthenticated = ask(server, request("Q: "))
        assert unauthenticated.error is grpc.StatusCode.UNAUTHENTICATED
        key = (("authorization", "Bearer k"),)
        assert ask(server, request("Q: "), metadata=key).text == TEXT
        assert server.streams[1].headers["authorization"] == "Bearer k"
        with connect(server) as channel, pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary(kserve.METADATA)(b"", metadata=key)
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND


def test_errors_come_in_band():
    faults = [
        ErrorEvent("boom", after=2),
        ErrorEvent("x", then="done"),
        Garbage(b"\xff"),
    ]
    with FakeServer(TEXT, faults=faults) as server:
        answer = ask(server, request("Q: "))
        assert answer.error is None
        assert isinstance(answer.events[-1], Failure)
        assert answer.events[-1].error.message == "boom"
        assert sum(isinstance(event, TextDelta) for event in answer.events) == 2
        done = ask(server, request("Q: ")).events
        assert isinstance(done[-1], End)
        assert ask(server, request("Q: ")).messages[0] == b"\xff"


def test_what_makes_no_sense_here_is_left_out():
    faults = [[LineEnds(), Pings(), Chunking("whole"), Gzip()]]
    with FakeServer(TEXT, faults=faults) as server:
        assert ask(server, request("Q: ")).text == TEXT


@pytest.mark.parametrize("fault", [Stall(), Stall(0), Stall(2), StayOpen()])
def test_stalls_until_the_client_leaves(fault):
    with FakeServer(TEXT, faults=[fault]) as server:
        answer = ask(server, request("Q: "), timeout=0.3)
        assert answer.error is grpc.StatusCode.DEADLINE_EXCEEDED
        entry = server.wait_for_hangup()
    if isinstance(fault, Stall):
        assert entry.deltas == (fault.after or 0)


def test_a_cancelled_call_is_noticed():
    with FakeServer(TEXT, faults=[Stall(3)]) as server:
        answer = ask(server, request("Q: "), stop_after=3)
        assert answer.error is grpc.StatusCode.CANCELLED
        assert server.wait_for_hangup().deltas == 3


def test_closing_while_a_stream_stalls():
    server = FakeServer(TEXT, faults=[Stall(1)])
    with server, connect(server) as channel:
        call = channel.stream_stream(kserve.STREAM)(iter([request("Q: ")]))
        next(call)
        begin = time.monotonic()
        server.close()
        assert time.monotonic() - begin < 2
        with pytest.raises(grpc.RpcError):
            next(call)
        assert server.requests[0].ended == "stopped"
    assert not [t for t in threading.enumerate() if t.name.startswith("fake")]


def test_slow_and_refusing():
    faults = [Slow(0.005), Cut(1, refuse_for=30)]
    with FakeServer("abc", tokens=["a", "b"], faults=faults) as server:
        begin = time.monotonic()
        assert ask(server, request("Q: ")).text == "ab"
        assert time.monotonic() - begin >= 0.01
        assert server.connections >= 1
        ask(server, request("Q: "))
        assert ask(server, request("Q: ")).error is grpc.StatusCode.UNAVAILABLE
        server.accept_connections()
        assert ask(server, request("Q: ")).text == "ab"
        assert len(server.streams) == 3


def test_large_messages_and_many():
    big = "x" * (6 << 20)
    with FakeServer(tokens=[big], faults=[None, Cut(0, "mid_chunk")]) as server:
        assert ask(server, request("Q: ")).text == big
        assert ask(server, request("Q: ")).messages == []
    with FakeServer(tokens=["ab"], repeat=500) as server:
        assert ask(server, request("Q: ")).messages


def test_the_mark_is_found_however_it_is_cut():
    for kind, mark in MARKS.items():
        wire = b"before" + mark + b"after"
        for size in range(1, len(wire)):
            watch, passed = Watch(), b""
            for start in range(0, len(wire), size):
                if watch.found is None:
                    passed += watch.pass_on(wire[start : start + size])
            assert watch.found == kind
            assert passed.startswith(b"before")
            assert b"after" not in passed
    watch = Watch()
    assert watch.pass_on(b"nothing") == b"nothing"
    assert watch.found is None


def test_the_address():
    with FakeServer() as server:
        assert server.url("triton-grpc").startswith("grpc://127.0.0.1:")
        assert server.url("triton-grpc") == server.url("triton-grpc")
        assert server.endpoint("triton-grpc", "llm") == (
            "triton-grpc:llm@" + server.url("triton-grpc")
        )


def test_a_call_that_is_over_before_it_begins():
    """A client may be gone before the handler runs: its callback never comes."""

    class Gone:
        def add_callback(self, callback):
            return False

    with FakeServer(TEXT) as server:
        server.url("triton-grpc")
        service = server._doors._grpc
        entry = server._ledger.add(dialect="triton-grpc", method="RPC", path="")
        assert service._watch(entry, Gone()).is_set()
        assert entry.hung_up
