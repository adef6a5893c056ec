"""Each fault breaks the stream where it was told to, to the byte, and nowhere else."""

import gzip
import json
import threading
import time
import zlib

import pytest

from midstream._values.errors import Overloaded
from midstream._values.events import End, Failure, Finish, TextDelta
from midstream.testing import (
    ByteOrderMark,
    Chunking,
    Cut,
    ErrorEvent,
    FakeServer,
    Garbage,
    Gzip,
    LineEnds,
    Pings,
    Redirect,
    Slow,
    Stall,
    Status,
    StayOpen,
)

TEXT = "Hello, world. 日本語 👩‍👩‍👧 done."
DIALECTS = ["openai", "llama.cpp", "llama.cpp-completion", "ollama"]
each_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def whole_body(talk, dialect):
    with FakeServer(TEXT) as server:
        return talk(server).ask(dialect).body


@each_dialect
@pytest.mark.parametrize("kind", ["fin", "rst"])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_cut_after_deltas(talk, text, dialect, kind, after):
    whole = whole_body(talk, dialect)
    with FakeServer(TEXT, faults=[Cut(after, kind)]) as server:
        heard = talk(server).ask(dialect)
        entry = server.requests[0]
    assert heard.end == kind
    assert heard.chunks[-1:] != [b""]
    assert whole.startswith(heard.body)
    assert heard.body.count(b"\n") == whole[: len(heard.body)].count(b"\n")
    assert text(dialect, heard.body) == entry.text
    assert (entry.deltas, entry.ended) == (after, "cut")
    assert entry.body_bytes == len(heard.body)


@each_dialect
def test_cut_at_every_kind_of_byte(talk, dialect):
    whole = whole_body(talk, dialect)
    places = sorted({0, 1, 7, 100, 101, len(whole) - 1, len(whole)})
    for at in places:
        with FakeServer(TEXT, faults=[Cut(at=at)]) as server:
            heard = talk(server).ask(dialect)
            assert server.requests[0].ended == "cut"
        assert heard.end == "fin"
        assert heard.body == whole[:at]
        assert heard.chunks[-1:] != [b""]


def test_cut_inside_a_chunk_at_a_byte(talk):
    whole = whole_body(talk, "openai")
    with FakeServer(TEXT, faults=[Cut(at=300, kind="mid_chunk")]) as server:
        heard = talk(server).ask("openai")
    torn = heard.payload[sum(len(c) + 4 + len(f"{len(c):x}") for c in heard.chunks) :]
    promised, _, got = torn.partition(b"\r\n")
    assert int(promised, 16) > len(got)
    assert heard.body + got == whole[:300]


def test_cut_inside_a_character(talk):
    with FakeServer(TEXT, tokens=["a", "日本"], faults=[Cut(1, "mid_chunk")]) as server:
        heard = talk(server).ask("openai")
    assert heard.wire.endswith('"content":"日'.encode()[:-2])
    assert heard.end == "fin"


@pytest.mark.parametrize("kind", ["fin", "rst"])
def test_cut_before_the_headers(talk, kind):
    with FakeServer(TEXT, faults=[Cut(kind=kind)]) as server:
        heard = talk(server).ask("openai")
        assert (server.requests[0].status, server.requests[0].ended) == (None, "cut")
    assert (heard.wire, heard.end) == (b"", kind)


@each_dialect
def test_clean_end_without_marker(talk, events, dialect):
    with FakeServer(TEXT, faults=[Cut(3, "eof")]) as server:
        heard = talk(server).ask(dialect)
    assert heard.chunks[-1] == b""
    found = events(dialect, heard.body)
    assert sum(isinstance(event, TextDelta) for event in found) == 3
    assert not any(isinstance(event, Finish | End) for event in found)


@each_dialect
def test_half_a_record_then_a_clean_end(talk, dialect):
    whole = whole_body(talk, dialect)
    with FakeServer(TEXT, faults=[Cut(2, "half")]) as server:
        heard = talk(server).ask(dialect)
    assert heard.chunks[-1] == b""
    assert whole.startswith(heard.body)
    assert not heard.body.endswith(b"\n")


@each_dialect
def test_everything_but_the_end_marker(talk, events, text, dialect):
    with FakeServer(TEXT, faults=[Cut(kind="no_done")]) as server:
        heard = talk(server).ask(dialect)
    assert heard.chunks[-1] == b""
    assert text(dialect, heard.body) == TEXT
    found = events(dialect, heard.body)
    assert not any(isinstance(event, End) for event in found)
    finished = any(isinstance(event, Finish) for event in found)
    assert finished == (dialect != "llama.cpp-completion")


def test_a_cut_beyond_the_end_never_comes(talk):
    with FakeServer(TEXT, faults=[Cut(1000)]) as server:
        assert talk(server).ask("openai").chunks[-1] == b""
        assert server.requests[0].ended == "complete"


def test_refuse_for_a_while(talk):
    with FakeServer(TEXT, faults=[Cut(1, refuse_for=0.1)]) as server:
        talk(server).ask("openai")
        with pytest.raises(ConnectionRefusedError):
            talk(server).connect()
        until = time.monotonic() + 5
        while time.monotonic() < until:
            try:
                talk(server).connect().close()
                break
            except ConnectionRefusedError:
                continue
        assert talk(server).text("openai") == TEXT


def test_refuse_until_told(talk):
    with FakeServer(TEXT) as server:
        server.refuse_connections()
        with pytest.raises(ConnectionRefusedError):
            talk(server).connect()
        server.accept_connections()
        server.accept_connections()
        assert talk(server).text("openai") == TEXT


def test_stall_before_the_headers(talk):
    with FakeServer(TEXT, faults=[Stall()]) as server:
        with talk(server).connect() as sock:
            request = talk(server).request("openai", "POST", "/v1/chat/completions")
            body = b'{"messages":[{"role":"user","content":"x"}],"stream":true}'
            sock.sendall(
                request[:-2] + b"Content-Length: %d\r\n\r\n" % len(body) + body
            )
            entry = server.wait_for_stream()
            assert (entry.status, entry.ended) == (None, None)
        assert server.wait_for_hangup() is entry


def test_stall_with_pings(talk, asking):
    with FakeServer(TEXT, faults=[Stall(2, ping_every=0.001)]) as server:
        heard = talk(server).ask("openai", until=b": ping\n\n\r\n8\r\n")
        assert heard.end is None
        assert server.wait_for_hangup().deltas == 2


@each_dialect
def test_status_in_the_dialects_shape(talk, dialect):
    fault = Status(429, "slow down", type="t", headers={"Retry-After": "3"})
    with FakeServer(TEXT, faults=[fault]) as server:
        heard = talk(server).ask(dialect)
        assert server.requests[0].ended == "refused"
        assert talk(server).text(dialect) == TEXT
    assert heard.status == 429
    assert "Retry-After: 3" in heard.head
    error = heard.json["error"]
    assert error == "slow down" if dialect == "ollama" else error["type"] == "t"


def test_status_with_its_own_body(talk):
    fault = Status(599, body=b"<h1>Bad</h1>", headers={"Content-Type": "text/html"})
    with FakeServer(TEXT, faults=[fault]) as server:
        heard = talk(server).ask("openai")
    assert heard.head.startswith("HTTP/1.1 599 Unassigned")
    assert "Content-Type: text/html" in heard.head
    assert heard.payload == b"<h1>Bad</h1>"


@each_dialect
def test_error_in_the_stream(talk, events, dialect):
    with FakeServer(TEXT, faults=[ErrorEvent("busy", after=2)]) as server:
        heard = talk(server).ask(dialect)
    *before, failure = events(dialect, heard.body)
    assert isinstance(failure, Failure)
    assert failure.error.message == "busy"
    assert isinstance(failure.error, Overloaded) == (dialect != "ollama")
    assert sum(isinstance(event, TextDelta) for event in before) == 2
    assert heard.chunks[-1] == b""


def test_error_then_done_then_on_then_stall(talk, events):
    faults = [
        ErrorEvent(then="done"),
        ErrorEvent(then="go_on"),
        ErrorEvent(then="stall"),
    ]
    with FakeServer(TEXT, faults=faults) as server:
        done = events("openai", talk(server).ask("openai").body)
        assert [type(event) for event in done[1:]] == [Failure, End]
        on = events("openai", talk(server).ask("openai").body)
        assert [type(event) for event in on[1:3]] == [Failure, TextDelta]
        assert isinstance(on[-1], End)
        assert talk(server).ask("openai", until=b"overloaded").end is None
        server.wait_for_hangup()


def test_garbage(talk):
    faults = [Garbage(after=1), Garbage(b"?", after=2, then="eof")]
    with FakeServer(TEXT, faults=faults) as server:
        first = talk(server).ask("openai").chunks
        assert first[2] == b"data: \xff\xfe{nonsense\n\n"
        assert first[-2] == b"data: [DONE]\n\n"
        assert talk(server).ask("openai").chunks[-2:] == [b"?", b""]


@each_dialect
def test_pings(talk, text, dialect):
    plain = whole_body(talk, dialect)
    with FakeServer(TEXT, always=Pings(3, every=2)) as server:
        heard = talk(server).ask(dialect)
        ping = {
            "openai": b": ping\n\n",
            "ollama": b"\n",
        }.get(dialect, b":\n\n")
        times = -(-server.requests[0].deltas // 2)
    assert heard.chunks.count(ping) == 3 * times
    assert b"".join(c for c in heard.chunks if c != ping) == plain
    assert text(dialect, heard.body) == TEXT


def test_pings_of_your_own(talk):
    with FakeServer(TEXT, always=Pings(data=b"event: ping\ndata: {}\n\n")) as server:
        assert b"event: ping\ndata: {}\n\n" in talk(server).ask("openai").chunks


@each_dialect
@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_line_ends(talk, text, dialect, ending):
    plain = whole_body(talk, dialect)
    with FakeServer(TEXT, always=LineEnds(ending)) as server:
        body = talk(server).ask(dialect).body
    assert body == plain.replace(b"\n", ending.encode())
    if ending == "\r\n":
        assert text(dialect, body) == TEXT


def test_byte_order_mark(talk, text):
    plain = whole_body(talk, "openai")
    with FakeServer(TEXT, always=ByteOrderMark()) as server:
        body = talk(server).ask("openai").body
    assert body == b"\xef\xbb\xbf" + plain
    assert text("openai", body) == TEXT


@pytest.mark.parametrize("announced", [True, False])
def test_gzip_is_flushed_record_by_record(talk, announced):
    plain = whole_body(talk, "openai")
    with FakeServer(TEXT, always=Gzip(announced)) as server:
        heard = talk(server).ask("openai")
    assert ("Content-Encoding: gzip" in heard.head) == announced
    assert gzip.decompress(heard.body) == plain
    unzip = zlib.decompressobj(wbits=31)
    assert unzip.decompress(heard.chunks[0]).endswith(b"\n\n")


def test_gzip_torn_inside_a_chunk(talk):
    faults = [[Gzip(), Cut(2, "mid_chunk")], [Gzip(), Cut(2)]]
    with FakeServer(TEXT, faults=faults) as server:
        torn, cut = talk(server).ask("openai"), talk(server).ask("openai")
    assert torn.end == "fin"
    assert torn.chunks == cut.chunks
    assert len(torn.payload) > len(cut.payload)


def test_chunks_of_any_size(talk):
    plain = whole_body(talk, "openai")
    hows = ["record", "whole", "bytes", 1, 7, 100_000]
    with FakeServer(TEXT, faults=[Chunking(how) for how in hows]) as server:
        heard = {how: talk(server).ask("openai") for how in hows}
    assert {h.body for h in heard.values()} == {plain}
    assert {len(c) for c in heard[1].chunks} == {0, 1}
    assert max(len(c) for c in heard[7].chunks) == 7
    assert heard["whole"].wire == heard["record"].wire == heard["bytes"].wire


def test_a_body_that_ends_with_the_connection(talk):
    plain = whole_body(talk, "openai")
    faults = [Chunking("close"), [Chunking("close"), Cut(2, "mid_chunk")]]
    with FakeServer(TEXT, faults=faults) as server:
        heard = talk(server).ask("openai")
        torn = talk(server).ask("openai")
        old = talk(server).ask("openai", version="1.0")
    assert "chunked" not in heard.head
    assert heard.payload == old.payload == plain
    assert plain.startswith(torn.payload)
    assert len(torn.payload) < len(plain)


def test_whole_is_flushed_before_a_stall(talk):
    faults = [[Chunking("whole"), Stall(2)], [Chunking("whole"), StayOpen()]]
    with FakeServer(TEXT, faults=faults) as server:
        talk(server).ask("openai", until=b"\n\n\r\n")
        assert server.wait_for_hangup().deltas == 2
        heard = talk(server).ask("openai", until=b"[DONE]")
        assert heard.end is None
        assert server.wait_for_hangup(2).ended == "hung_up"


def test_stay_open_after_the_end_marker(talk):
    with FakeServer(TEXT, faults=[StayOpen()]) as server:
        heard = talk(server).ask("openai", until=b"data: [DONE]\n\n\r\n")
        assert heard.end is None
        assert b"" not in heard.chunks
        server.wait_for_hangup()


@pytest.mark.parametrize("code", [302, 307])
def test_redirect_to_another_origin(talk, code):
    with (
        FakeServer(TEXT) as there,
        FakeServer(TEXT, faults=[Redirect(there.url("openai"), code=code)]) as here,
    ):
        heard = talk(here).ask("openai")
        assert heard.status == code
        assert f"Location: {there.url('openai')}/v1/chat/completions" in heard.head


def test_redirect_to_a_path(talk):
    with FakeServer(TEXT, faults=[Redirect("http://127.0.0.1:1/x")]) as server:
        assert (
            "Location: http://127.0.0.1:1/x\r" in talk(server).ask("openai").head + "\r"
        )


def test_slow(talk):
    faults = [Slow(0.01), Slow(0.0, first=0.05), Slow(0.001)]
    with FakeServer("abc", tokens=["a", "b", "c"], faults=faults) as server:
        for least in 0.03, 0.05, 0.003:
            begin = time.monotonic()
            assert talk(server).text("openai") == "abc"
            assert time.monotonic() - begin >= least


def test_several_at_once_by_rule(talk, text):
    def rule(entry):
        return [Cut(2), Pings()] if entry.body.get("seed") == 1 else None

    with FakeServer(TEXT, faults=rule) as server:
        assert talk(server).text("openai") == TEXT
        heard = talk(server).ask("openai", body={"seed": 1})
        assert heard.chunks[-1] != b""
        assert b": ping\n\n" in heard.chunks
    with FakeServer(TEXT, faults=[rule, None, rule]) as server:
        ends = [talk(server).ask("openai", body={"seed": 1}).end for _ in range(4)]
        assert [r.ended for r in server.streams] == ["cut", "complete"] * 1 + [
            "cut",
            "complete",
        ]
    assert ends == ["fin"] * 4


def test_faults_count_streams_only(talk):
    with FakeServer(TEXT, faults=[Cut(1)]) as server:
        assert talk(server).get("openai", "/v1/models").status == 200
        talk(server).ask("openai")
        assert server.streams[0].ended == "cut"


def test_as_fast_as_the_client_reads(talk, text):
    with FakeServer("ab", tokens=["a", "b"], repeat=5000) as server:
        heard = talk(server).ask("openai")
        assert text("openai", heard.body) == server.text == "ab" * 5000
        assert server.requests[0].deltas == 10_000
        assert len(heard.body) > 1_000_000


def test_a_reader_that_stops_reading_holds_the_server_up(talk, asking):
    with FakeServer("ab", repeat=1_000_000) as server:
        with talk(server).connect() as sock:
            body = json.dumps(asking("openai")).encode()
            request = talk(server).request(
                "openai", "POST", "/v1/chat/completions", body
            )
            sock.sendall(request)
            sock.recv(10)
            server.wait_for(lambda entry: entry.body_bytes > 1000)
            assert server.requests[0].ended is None
        assert server.wait_for_hangup().deltas < 2_000_000


def test_closing_while_the_client_does_not_read(talk, asking):
    with FakeServer("ab", repeat=10_000_000) as server, talk(server).connect() as sock:
        body = json.dumps(asking("openai")).encode()
        sock.sendall(
            talk(server).request("openai", "POST", "/v1/chat/completions", body)
        )
        server.wait_for(lambda entry: entry.deltas > 1)
        begin = time.monotonic()
        server.close()
        assert time.monotonic() - begin < 1
        assert server.requests[0].ended == "stopped"


def test_nothing_is_left_behind(talk):
    faults = [Stall(), Stall(1), Cut(1, "rst"), Cut(1)]
    with FakeServer(TEXT, faults=faults) as server:
        socks = []
        for _ in range(2):
            sock = talk(server).connect()
            body = b'{"messages":[{"role":"user","content":"x"}],"stream":true}'
            path = "/v1/chat/completions"
            sock.sendall(talk(server).request("openai", "POST", path, body))
            socks.append(sock)
        server.wait_for_stream(2)
        talk(server).ask("openai")
        talk(server).ask("openai")
        assert server.connections == 4
        assert server.open_connections >= 2
    for sock in socks:
        sock.close()
    server.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("fake")]
