"""The network streams by themselves: plain limits, broken sockets, addresses."""

import asyncio
import gzip
import socket
import ssl
import time
import zlib
from math import inf

import httpcore
import httpx
import pytest

from midstream._transports.asyncio_backend import HIGH_WATER, AsyncioBackend
from midstream._transports.exchange import Exchange, Limit, exchange_of
from midstream._transports.inflate import Inflater
from midstream._transports.mapping import bare, open_error
from midstream._transports.stock import AsyncTracer, StockLine, Tracer
from midstream._transports.sync_backend import SyncBackend, SyncStream, is_readable
from midstream._values.errors import Dropped, UsageError, WireError
from midstream._values.timeouts import Deadline

FULL = b"x" * 50_000_000


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield SyncStream(ours), theirs


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_plain_limits_of_a_socket(pair):
    stream, theirs = pair
    theirs.send(b"abc")
    assert stream.read(2, None) == b"ab"
    assert stream.read(2, 5) == b"c"
    with pytest.raises(httpcore.ReadTimeout):
        stream.read(2, 0.05)
    with pytest.raises(httpcore.WriteTimeout):
        stream.write(FULL, 0.05)


def test_a_socket_that_is_closed(pair):
    stream, theirs = pair
    assert not stream.get_extra_info("is_readable")
    theirs.close()
    assert stream.get_extra_info("is_readable")
    assert stream.read(1) == b""
    with pytest.raises(httpcore.WriteError):
        stream.write(b"x")
    stream.close()
    assert is_readable(stream.get_extra_info("socket"))
    with pytest.raises(httpcore.ReadError):
        stream.read(1, 1)
    with pytest.raises(httpcore.ReadError):
        stream.read(1, None)


def test_what_httpcore_may_ask(pair):
    stream, _ = pair
    assert stream.get_extra_info("ssl_object") is None
    assert stream.get_extra_info("anything") is None


def test_a_cancelled_exchange_waits_for_nothing(pair):
    stream, theirs = pair
    exchange = Exchange(Deadline())
    exchange.cancel()  # nothing to break yet
    limit = Limit(5, exchange)
    theirs.send(b"abc")
    with pytest.raises(httpcore.ReadError):
        stream.read(1, limit)
    with pytest.raises(httpcore.ConnectError):
        SyncBackend().connect_tcp("127.0.0.1", 1, limit)


def test_addresses_share_the_time(monkeypatch, listener):
    deaf = ("127.0.0.2", listener.getsockname()[1])
    good = listener.getsockname()
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", at) for at in (deaf, good)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    stream = SyncBackend().connect_tcp("name", good[1], 5)
    assert stream.get_extra_info("socket").getpeername() == good
    stream.close()

    async def connect():
        stream = await AsyncioBackend().connect_tcp("name", good[1], 5)
        assert stream.get_extra_info("socket").getpeername() == good
        await stream.aclose()
        await asyncio.sleep(0)

    asyncio.run(connect())
    found.clear()
    with pytest.raises(httpcore.ConnectError):
        SyncBackend().connect_tcp("name", 80)
    with pytest.raises(httpcore.ConnectError):
        asyncio.run(AsyncioBackend().connect_tcp("name", 80))


@pytest.mark.parametrize(
    "error", [socket.gaierror(-2, "unknown"), UnicodeError("idna")]
)
def test_a_name_that_is_none(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(httpcore.ConnectError):
        SyncBackend().connect_tcp("name", 80, 5)
    with pytest.raises(httpcore.ConnectError):
        asyncio.run(AsyncioBackend().connect_tcp("name", 80, 5))


def run(talk, listener):
    """Run ``talk(stream, theirs)`` over one connection."""

    async def connected():
        stream = await AsyncioBackend().connect_tcp(*listener.getsockname())
        theirs, _ = listener.accept()
        with theirs:
            await talk(stream, theirs)
            await stream.aclose()
            await stream.aclose()
            await asyncio.sleep(0)

    asyncio.run(connected())


def test_plain_limits_on_asyncio(listener):
    async def talk(stream, theirs):
        theirs.send(b"abc")
        assert await stream.read(2, None) == b"ab"
        assert await stream.read(2, 5) == b"c"
        with pytest.raises(httpcore.ReadTimeout):
            await stream.read(2, 0.05)
        with pytest.raises(httpcore.WriteTimeout):
            await stream.write(FULL, 0.05)

    run(talk, listener)


def test_the_connection_ends_on_asyncio(listener):
    async def talk(stream, theirs):
        assert not stream.get_extra_info("is_readable")
        theirs.send(b"abc")
        theirs.close()
        assert await stream.read(10) == b"abc"
        assert await stream.read(10) == b""
        assert stream.get_extra_info("is_readable")
        with pytest.raises(httpcore.WriteError):
            await stream.write(b"x")

    run(talk, listener)


def test_a_write_ends_with_its_connection(listener):
    async def talk(stream, theirs):
        write = asyncio.create_task(stream.write(FULL))
        await asyncio.sleep(0.05)
        theirs.close()
        with pytest.raises(httpcore.WriteError):
            await write

    run(talk, listener)


def test_the_timer_follows_the_deadline(listener):
    async def talk(stream, theirs):
        exchange = Exchange(Deadline())
        limit = Limit(inf, exchange)
        loop = asyncio.get_running_loop()
        # It rings while nobody waits, is set again, finds that the deadline went away.
        exchange.deadline.at = time.monotonic() + 0.05
        theirs.send(b"a")
        assert await stream.read(1, limit) == b"a"
        await asyncio.sleep(0.1)
        exchange.deadline.at = time.monotonic() + 0.05
        loop.call_later(0.02, setattr, exchange.deadline, "at", inf)
        loop.call_later(0.1, theirs.send, b"b")
        assert await stream.read(1, limit) == b"b"
        # It is nearer than before.
        exchange.deadline.at = time.monotonic() + 50
        loop.call_later(0.02, theirs.send, b"c")
        assert await stream.read(1, limit) == b"c"
        exchange.deadline.at = time.monotonic() + 0.05
        with pytest.raises(httpcore.ReadTimeout):
            await stream.read(1, limit)

    run(talk, listener)


def test_reading_pauses_beyond_the_mark(listener):
    async def talk(stream, theirs):
        theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        sending = asyncio.create_task(loop.sock_sendall(theirs, FULL))
        await asyncio.sleep(0.2)
        assert stream._size < 3 * HIGH_WATER
        size = 0
        while size < len(FULL):
            size += len(await stream.read(65536))
        await sending

    run(talk, listener)


def test_a_connection_of_another_event_loop_is_not_used(listener):
    async def connect():
        return await AsyncioBackend().connect_tcp(*listener.getsockname())

    async def look(stream):
        assert stream.get_extra_info("is_readable")
        await stream.aclose()

    stream = asyncio.run(connect())
    asyncio.run(look(stream))
    transport, stream._transport = stream._transport, None
    with pytest.warns(ResourceWarning):  # asyncio's word for what it cannot close
        transport.__del__()
    transport._sock = None


def test_a_tls_handshake_that_fails_on_asyncio(listener):
    async def talk(stream, theirs):
        theirs.send(b"no TLS")
        context = ssl.create_default_context()
        with pytest.raises(httpcore.ConnectError):
            await stream.start_tls(context, "localhost", None)

    run(talk, listener)


def test_a_limit_leads_to_its_exchange():
    exchange = Exchange(Deadline())
    assert exchange_of(Limit(3, exchange)) is exchange
    assert exchange_of(None).deadline.at == inf
    assert exchange_of(1.0).left() <= 1


class Stream:
    def __init__(self, sock):
        self.sock = sock

    def get_extra_info(self, info):
        return self.sock


def test_a_stock_stream_without_a_socket_is_left_alone():
    StockLine(Stream(None)).cancel()


def test_a_connection_that_stands_too_late_is_broken():
    ours, theirs = socket.socketpair()
    exchange = Exchange(Deadline())
    exchange.cancel()
    with ours, theirs:
        stream = Stream(ours)
        Tracer(exchange)("connection.connect_tcp.complete", {"return_value": stream})
        assert theirs.recv(1) == b""


def test_a_handshake_that_fails_without_a_connection():
    asyncio.run(AsyncTracer()("connection.start_tls.failed", {}))


def test_cancellation_is_nobodys_error():
    exchange = Exchange(Deadline())
    error = asyncio.CancelledError()
    assert open_error(error, exchange, url="http://x/", connect=1) is None
    ours = Dropped("x")
    assert open_error(ours, exchange, url="http://x/", connect=1) is ours


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://name:key@host:80/p?k=v#f", "http://host:80/p"),
        ("host/p?k=v", "host/p"),
        ("http://host#f", "http://host"),
    ],
)
def test_a_url_is_shown_without_what_is_secret(url, shown):
    assert bare(url) == shown


def split(inflater, data):
    return b"".join(inflater.inflate(bytes((byte,))) for byte in data)


def test_inflating_several_members():
    two = gzip.compress(b"one ") + gzip.compress(b"two")
    assert Inflater().inflate(two) == b"one two"
    assert split(Inflater(), two) == b"one two"


@pytest.mark.parametrize("wbits", [15, -15])
def test_inflating_both_kinds_of_deflate(wbits):
    packer = zlib.compressobj(wbits=wbits)
    packed = packer.compress(b"text") + packer.flush()
    assert Inflater(bare=True).inflate(packed) == b"text"
    assert split(Inflater(bare=True), packed) == b"text"


def test_a_compressed_body_that_breaks():
    inflater = Inflater()
    inflater.inflate(gzip.compress(b"one")[:-8])
    with pytest.raises(WireError):
        inflater.inflate(b"wrong check sum")


def test_an_address_that_only_httpx_refuses():
    error = httpx.UnsupportedProtocol("ftp")
    ours = open_error(error, Exchange(Deadline()), url="ftp://k@x/", connect=1)
    assert isinstance(ours, UsageError)
    assert "k@" not in str(ours)
