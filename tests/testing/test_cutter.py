"""The cutter cuts where it was told to, to the byte, and is invisible elsewhere."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import threading

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._values.errors import UsageError
from midstream.testing import _proxy
from midstream.testing._meter import HttpMeter, Meter, Plan
from midstream.testing.cutter import CutAt, CutMade, Cutter, streams_tokens

EVENTS = [f'data: {{"n":{n},"text":"日本{n}🎉"}}\n\n'.encode() for n in range(12)]
CHUNKS = b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in EVENTS)
BODY = CHUNKS + b"0\r\n\r\n"
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
STREAM = HEAD + BODY
JSON = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
)


class Upstream:
    """A server that answers each request with the bytes its path stands for."""

    def __init__(self, answers):
        self.answers = answers
        self.requests = []
        self.sent = 0
        self.hung_up = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._open = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(sock)
            thread = threading.Thread(target=self._serve, args=(sock,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock):
        with sock, contextlib.suppress(OSError):
            reader = sock.makefile("rb")
            with reader:
                while line := reader.readline():
                    self.requests.append(line.decode().rsplit(" ", 1)[0])
                    length = 0
                    while (field := reader.readline()) not in (b"\r\n", b""):
                        name, _, value = field.partition(b":")
                        if name.lower() == b"content-length":
                            length = int(value)
                    reader.read(length)
                    answer = self.answers[line.split()[1].decode()]
                    if callable(answer):
                        answer(self, sock)
                        return
                    sock.sendall(answer)
            # Until the client is gone: an end from this side is not what is tested.
        self.hung_up.set()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture
def upstream():
    server = Upstream({"/stream": STREAM, "/json": JSON})
    yield server
    server.close()


def ask(sock, path="/stream", method="GET"):
    sock.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def read_on(sock):
    """All that comes, and whether it ended with a reset."""
    got = bytearray()
    try:
        while data := sock.recv(65536):
            got += data
    except ConnectionResetError:
        return bytes(got), True
    return bytes(got), False


def read_exactly(sock, size):
    got = bytearray()
    while len(got) < size:
        data = sock.recv(size - len(got))
        assert data
        got += data
    return bytes(got)


def connect(cutter):
    return socket.create_connection(
        ("127.0.0.1", int(cutter.url.rsplit(":", 1)[1])), timeout=10
    )


def test_without_a_plan_everything_passes(upstream):
    with Cutter(upstream.url) as cutter, connect(cutter) as sock:
        for _ in range(3):
            ask(sock)
            assert read_exactly(sock, len(STREAM)) == STREAM
        ask(sock, "/json")
        assert read_exactly(sock, len(JSON)) == JSON
        assert cutter.connections == 1
    assert cutter.cuts == []


@pytest.mark.parametrize("kind", ["fin", "rst"])
def test_cut_at_every_byte_of_the_body(upstream, kind):
    positions = range(len(BODY) + 1)
    with Cutter(upstream.url, [CutAt(at, kind) for at in positions]) as cutter:
        for at in positions:
            with connect(cutter) as sock:
                ask(sock)
                got, reset = read_on(sock)
            assert got == HEAD + BODY[:at]
            assert reset == (kind == "rst")
            assert cutter.cuts[-1] == CutMade(at + 1, at, kind, "GET /stream")
        assert cutter.planned == []


def test_httpx_sees_a_drop(upstream):
    with Cutter(upstream.url, [100, CutAt(100, "rst")]) as cutter:
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(cutter.url + "/stream", trust_env=False)
        with pytest.raises(httpx.ReadError):
            httpx.get(cutter.url + "/stream", trust_env=False)
        assert httpx.get(cutter.url + "/stream", trust_env=False).content == b"".join(
            EVENTS
        )


def test_other_responses_pass_on_the_same_connection(upstream):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9"
    upstream.answers |= {
        "/none": b"HTTP/1.1 204 No Content\r\n\r\n",
        "/head": head + b"\r\n\r\n",
        "/continue": b"HTTP/1.1 100 Continue\r\n\r\n" + JSON,
        "/trailer": JSON.replace(
            b"Content-Length: 2\r\n\r\n{}",
            b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\nA: b\r\n\r\n",
        ),
    }
    others = ["/json", "/none", "/head", "/continue", "/trailer", "/json"]
    with Cutter(upstream.url, [7]) as cutter, connect(cutter) as sock:
        for path in others:
            ask(sock, path, "HEAD" if path == "/head" else "GET")
            answer = upstream.answers[path]
            assert read_exactly(sock, len(answer)) == answer
        ask(sock)
        assert read_on(sock) == (HEAD + BODY[:7], False)
        assert cutter.cuts == [CutMade(1, 7, "fin", "GET /stream")]


def test_requests_with_bodies_are_told_apart(upstream):
    with Cutter(upstream.url, [5]) as cutter, connect(cutter) as sock:
        body = b"GET /wrong HTTP/1.1\r\n\r\n"
        sock.sendall(
            b"POST /json HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        read_exactly(sock, len(JSON))
        ask(sock)
        read_on(sock)
        assert [made.request for made in cutter.cuts] == ["GET /stream"]


def test_a_response_that_ends_first_leaves_the_cut_to_the_next(upstream):
    short = HEAD + b"3\r\nabc\r\n0\r\n\r\n"
    upstream.answers["/short"] = short
    with Cutter(upstream.url, [50, 60]) as cutter:
        with connect(cutter) as sock:
            ask(sock, "/short")
            assert read_exactly(sock, len(short)) == short
            ask(sock)
            assert read_on(sock) == (HEAD + BODY[:50], False)
        with connect(cutter) as sock:
            ask(sock, "/short")
            read_exactly(sock, len(short))
        with connect(cutter) as sock:
            ask(sock)
            assert read_on(sock) == (HEAD + BODY[:60], False)
        assert [made.passed for made in cutter.cuts] == [50, 60]


def test_the_caller_says_what_may_be_cut(upstream):
    asked = []

    def eligible(path, content_type):
        asked.append((path, content_type))
        return path == "/json"

    with Cutter(upstream.url, [1], eligible=eligible) as cutter, connect(cutter) as s:
        ask(s)
        read_exactly(s, len(STREAM))
        ask(s, "/json")
        assert read_on(s) == (JSON[:-1], False)
    assert asked == [
        ("/stream", "text/event-stream; charset=utf-8"),
        ("/json", "application/json"),
    ]


def test_streams_of_tokens_are_eligible():
    assert streams_tokens("/", "text/event-stream")
    assert streams_tokens("/", "Application/X-NDJSON; charset=utf-8")
    assert not streams_tokens("/", "application/json")
    assert not streams_tokens("/", "")


def test_raw_counts_all_bytes_of_a_connection(upstream):
    cuts = [30, CutAt(70, "rst"), 0, len(STREAM) + 10]
    with Cutter(upstream.url, cuts, raw=True) as cutter:
        for at, ended_by_reset in ((30, False), (70, True), (0, False)):
            with connect(cutter) as sock:
                ask(sock)
                assert read_on(sock) == (STREAM[:at], ended_by_reset)
        with connect(cutter) as sock:
            ask(sock)
            read_exactly(sock, len(STREAM))
            ask(sock)
            assert read_on(sock) == (STREAM[:10], False)
        assert [made.request for made in cutter.cuts] == [""] * 4


def test_plan_may_grow(upstream):
    with Cutter(upstream.url) as cutter:
        for at in (3, 200):
            cutter.plan([CutAt(at, "rst")])
            assert cutter.planned == [CutAt(at, "rst")]
            with connect(cutter) as sock:
                ask(sock)
                assert read_on(sock) == (HEAD + BODY[:at], True)


def test_random_is_repeatable_and_uses_every_kind():
    def make(seed):
        url = "http://127.0.0.1:1"
        return Cutter.random(url, seed=seed, count=6, between=(10, 99)).planned

    assert make(1) == make(1) != make(2)
    assert [cut.kind for cut in make(1)] == ["fin", "rst"] * 3
    assert all(10 <= cut.at <= 99 for cut in make(1))


@pytest.mark.parametrize(
    ("upstream_url", "prefix", "suffix"),
    [
        ("http://localhost:80/v1/", "http://127.0.0.1:", "/v1"),
        ("localhost:8001", "127.0.0.1:", ""),
        ("grpc://localhost:8001", "grpc://127.0.0.1:", ""),
    ],
)
def test_url_keeps_scheme_and_path(upstream_url, prefix, suffix):
    with Cutter(upstream_url) as cutter:
        assert cutter.url.startswith(prefix)
        assert cutter.url.endswith(suffix)


@pytest.mark.parametrize("wrong", ["https://x:443", "http://x", "x", ""])
def test_an_upstream_it_cannot_serve_is_refused(wrong):
    with pytest.raises(UsageError):
        Cutter(wrong)


def test_a_cut_before_the_beginning_is_refused():
    with pytest.raises(UsageError):
        Cutter("http://x:1", [-1])


def test_a_slow_reader_slows_the_server_down(upstream):
    piece = b"x" * 65536
    blocked = threading.Event()

    def pour(server, sock):
        sock.settimeout(1)
        try:
            while server.sent < 200_000_000:
                server.sent += sock.send(piece)
        except TimeoutError:
            blocked.set()

    upstream.answers["/pour"] = pour
    with Cutter(upstream.url) as cutter, connect(cutter) as sock:
        ask(sock, "/pour")
        assert blocked.wait(60)
        got, _ = read_on(sock)
    assert len(got) == upstream.sent


def test_a_reset_does_not_wait_for_ever(upstream, monkeypatch):
    monkeypatch.setattr(_proxy, "_DELIVERY", 0.05)
    size = 200_000
    upstream.answers["/big"] = HEAD.replace(b"chunked", b"identity") + b"x" * size
    with Cutter(upstream.url, [CutAt(size, "rst")]) as cutter:
        with socket.socket() as sock:
            # Far less than the answer: the rest waits in the cutter's send queue.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", int(cutter.url.rsplit(":", 1)[1])))
            ask(sock, "/big")
            poll = select.poll()
            poll.register(sock, select.POLLHUP)
            assert poll.poll(20_000)  # the reset comes though nothing was read
            got, reset = read_on(sock)
        assert reset
        assert 0 < len(got) < size
        assert cutter.cuts == [CutMade(1, size, "rst", "GET /big")]


def test_a_client_that_leaves_closes_the_server_connection(upstream):
    with Cutter(upstream.url) as cutter:
        with connect(cutter) as sock:
            ask(sock)
            read_exactly(sock, 100)
        assert upstream.hung_up.wait(10)


def test_a_client_that_resets_closes_the_server_connection(upstream):
    with Cutter(upstream.url) as cutter:
        sock = connect(cutter)
        ask(sock)
        read_exactly(sock, len(STREAM))
        _proxy._Side(sock).reset()
        assert upstream.hung_up.wait(10)


def test_the_end_of_the_server_is_passed_on(upstream):
    answer = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n"
    upstream.answers["/close"] = lambda _, sock: sock.sendall(answer)
    with Cutter(upstream.url, [500]) as cutter, connect(cutter) as sock:
        ask(sock, "/close")
        assert read_on(sock) == (answer, False)


def test_no_server_is_a_reset():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    # The reset may be there before the connect returns.
    with (
        Cutter(f"http://127.0.0.1:{port}") as cutter,
        pytest.raises(ConnectionResetError),
        connect(cutter) as sock,
    ):
        sock.recv(1)


def test_closing_drops_what_is_open_and_is_harmless_twice(upstream):
    cutter = Cutter(upstream.url, [100_000])
    cutter.start()
    with connect(cutter) as sock:
        ask(sock)
        read_exactly(sock, len(HEAD) + 10)
        cutter.close()
        cutter.close()
        _, _ = read_on(sock)
    assert cutter.planned == [CutAt(100_000)]
    assert not [t for t in threading.enumerate() if t.name == "midstream-cutter"]


def test_what_a_client_says_after_the_cut_is_lost(upstream):
    with Cutter(upstream.url, [4]) as cutter, connect(cutter) as sock:
        ask(sock)
        assert read_on(sock) == (HEAD + BODY[:4], False)
        ask(sock)
        assert read_on(sock) == (b"", False)
    assert upstream.requests == ["GET /stream"]


# Invariant: however the bytes are split on their way, the same ones pass.
NDJSON = (
    b"\r\nHTTP/1.1 200 OK\r\ncontent-type:application/x-ndjson\r\n"
    b"content-length:2\r\n\r\n7\n"
)
ANSWERS = [
    (b"GET /json HTTP/1.1\r\n\r\n", JSON),
    (b"POST /stream HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd", STREAM),
    (
        b"GET /sized HTTP/1.1\r\n\r\n",
        NDJSON,
    ),
    (
        b"GET /rest HTTP/1.0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: tail\n\n",
    ),
]


def split(data, cuts):
    borders = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(borders)]


def passed(at, borders):
    plan = Plan([at])
    meter = HttpMeter(plan, streams_tokens)
    meter.begin()
    for request, _ in ANSWERS:
        for part in split(request, borders):
            meter.sent(part)
    size = 0
    for part in split(b"".join(answer for _, answer in ANSWERS), borders):
        allowed = meter.allow(part)
        size += allowed
        if meter.due:
            meter.carry_out(1)
            return size, meter.request
        assert allowed == len(part)
    meter.end()
    assert plan.left() == [CutAt(at)]
    return size, None


@given(at=st.integers(0, 700), borders=st.lists(st.integers(0, 2000), max_size=40))
def test_any_split_is_cut_at_the_same_byte(at, borders):
    assert passed(at, borders) == passed(at, [])


def test_any_split_byte_by_byte():
    for at in range(len(BODY) + 2):
        assert passed(at, range(2000)) == passed(at, [])


@given(st.binary(min_size=1), st.lists(st.integers(0, 200), max_size=8))
def test_what_is_no_http_passes(noise, borders):
    meter = HttpMeter(Plan([0]), lambda *_: False)
    for part in split(noise, borders):
        meter.sent(part)
        assert meter.allow(part) == len(part)


@pytest.mark.parametrize(
    "noise",
    [
        b"x" * 200_000,
        HEAD + b"no chunk size\r\n" + b"x" * 100,
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n\0\1\2",
    ],
)
def test_broken_http_passes(noise):
    meter = HttpMeter(Plan([]), streams_tokens)
    assert meter.allow(noise) == len(noise)
    assert meter.allow(b"more\r\n\r\n") == 8


def test_raw_meter_counts_from_the_beginning():
    meter = Meter(Plan([3]))
    meter.begin()
    meter.sent(b"not counted")
    assert meter.allow(b"ab") == 2
    assert not meter.due
    assert meter.allow(b"cd") == 1
    assert meter.due
