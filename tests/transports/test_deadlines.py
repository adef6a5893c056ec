"""One deadline that moves: connecting, the first token, idle, and a slow reader."""

import socket
import threading
import time
from math import inf

import httpx
import pytest

from midstream._transports import watchdog
from midstream._transports.exchange import Exchange
from midstream._transports.watchdog import Watchdog
from midstream._values.errors import TimedOut
from midstream._values.timeouts import Deadline

SHORT = 0.15


def stream_then_stall(peer):
    peer.request()
    peer.head()
    for _ in range(3):
        peer.chunk(b"token")
        peer.server.gone.get()
    peer.wait_gone()


def test_silence_before_the_headers(way, serve, call, within):
    def script(peer):
        peer.request()
        peer.head()
        peer.end()
        peer.request()
        peer.wait_gone()

    server = serve(script)

    async def talk(transport):
        await transport.send(call(server.url), within())  # all is imported and warm
        with pytest.raises(TimedOut) as caught:
            await transport.open(call(server.url), within(SHORT * 4))
        assert caught.value.kind == "first_token"
        await server.left()

    way(talk)


def test_silence_in_the_body(way, serve, call, within):
    server = serve(stream_then_stall)

    async def talk(transport):
        deadline = within()
        body = await transport.open(call(server.url), deadline)
        for _ in range(3):
            assert await body.read() == b"token"
            server.gone.put(None)
            deadline.kind = "idle"  # much nearer than the first token's
            deadline.at = time.monotonic() + SHORT
        begin = time.monotonic()
        with pytest.raises(TimedOut) as caught:
            await body.read()
        assert caught.value.kind == "idle"
        assert time.monotonic() - begin > SHORT / 2
        with pytest.raises(TimedOut):
            await body.read()
        await server.left()
        await body.aclose()

    way(talk)


@pytest.mark.parametrize(
    "kind", [("thread", "ours"), ("thread", "user"), ("asyncio", "ours")], ids="-".join
)
def test_a_deadline_that_moves_away_is_followed(ways, serve, call, within, kind):
    def script(peer):
        peer.request()
        peer.head()
        for _ in range(3):
            time.sleep(0.5)
            peer.chunk(b"token")
        peer.end()

    server = serve(script)

    async def talk(transport):
        deadline = within(1.2)
        body = await transport.open(call(server.url), deadline)
        while await body.read() is not None:
            deadline.at = time.monotonic() + 1.2

    ways[kind](talk)


def test_no_deadline(way, serve, call, within):
    def script(peer):
        peer.request()
        peer.head()
        for _ in range(3):
            time.sleep(SHORT / 5)
            peer.chunk(b"token")
        peer.end()

    server = serve(script)

    async def talk(transport):
        reply = await transport.send(call(server.url), within(inf))
        assert reply.content == b"token" * 3

    way(talk, connect=None)


def test_a_deadline_that_came_to_be_and_one_that_went(way, serve, call, within):
    server = serve(stream_then_stall)

    async def talk(transport):
        deadline = within(inf)
        body = await transport.open(call(server.url), deadline)
        assert await body.read() == b"token"
        deadline.at = time.monotonic() + SHORT
        server.gone.put(None)
        assert await body.read() == b"token"
        deadline.at = inf
        server.gone.put(None)
        assert await body.read() == b"token"
        server.gone.put(None)
        deadline.at = time.monotonic() + SHORT
        with pytest.raises(TimedOut):
            await body.read()
        await server.left()

    way(talk)


def test_a_slow_reader_is_no_silence(way, serve, call, within):
    sent = threading.Event()

    def script(peer):
        peer.request()
        peer.head()
        peer.chunk(b"one")
        peer.chunk(b"two")
        peer.end()
        sent.set()
        peer.wait_gone()

    server = serve(script)

    async def talk(transport):
        deadline = within()
        body = await transport.open(call(server.url), deadline)
        assert sent.wait(5)
        deadline.at = time.monotonic() - 1
        text = b""
        while (piece := await body.read()) is not None:
            text += piece
        assert text == b"onetwo"

    way(talk)


def test_a_deadline_that_has_passed_sends_nothing(way, serve, call, within):
    server = serve(lambda peer: None)

    async def talk(transport):
        with pytest.raises(TimedOut):
            await transport.open(call(server.url), within(-1))

    way(talk)
    assert server.connections == 0


def test_a_server_that_takes_no_request(way, serve, call, within):
    def script(peer):
        peer.server.gone.get()

    server = serve(script)

    async def talk(transport):
        large = call(server.url, content=b"x" * 20_000_000)
        with pytest.raises(TimedOut) as caught:
            await transport.open(large, within(SHORT * 2))
        assert caught.value.kind == "first_token"
        server.gone.put(None)

    way(talk)


@pytest.fixture
def deaf():
    """An address whose connections never come about: its queue is full."""
    with socket.socket() as listener, socket.socket() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting.connect(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


def test_no_connection(way, call, within, deaf):
    async def talk(transport):
        with pytest.raises(TimedOut) as caught:
            await transport.open(call(deaf), within())
        assert caught.value.kind == "connect"
        assert caught.value.seconds == SHORT

    way(talk, connect=SHORT)


def test_the_deadline_holds_while_connecting(way, call, within, deaf):
    async def talk(transport):
        with pytest.raises(TimedOut) as caught:
            await transport.open(call(deaf), within(SHORT))
        assert caught.value.kind == "first_token"

    way(talk)


def test_no_tls_handshake(way, serve, call, within):
    def script(peer):
        peer.wait_gone()

    server = serve(script)

    async def talk(transport):
        url = server.url.replace("http:", "https:")
        with pytest.raises(TimedOut) as caught:
            await transport.open(call(url), within())
        assert caught.value.kind == "connect"
        await server.left()

    way(talk, connect=SHORT)


def test_a_call_beside_the_stream_has_its_own_patience(way, serve, call, within):
    def script(peer):
        peer.request()
        peer.head()
        peer.chunk(b"begun")
        peer.wait_gone()

    server = serve(script)

    async def talk(transport):
        with pytest.raises(TimedOut) as caught:
            await transport.send(call(server.url, patience=SHORT), within())
        assert caught.value.seconds == SHORT
        await server.left()

    way(talk)


def test_a_full_pool_is_no_connection(way, serve, call, within):
    if way.owner == "ours":
        return

    def script(peer):
        peer.request()
        peer.head()
        peer.wait_gone()

    server = serve(script)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        with pytest.raises(TimedOut) as caught:
            await transport.open(call(server.url), within())
        assert caught.value.kind == "connect"
        await body.aclose()
        await server.left()

    way(talk, connect=SHORT, limits=httpx.Limits(max_connections=1))


class Line:
    def __init__(self):
        self.broken = threading.Event()

    def cancel(self):
        self.broken.set()


@pytest.fixture
def exchange():
    exchange = Exchange(Deadline())
    exchange.line = Line()
    return exchange


def test_a_watchdog_waits_for_a_read(exchange):
    exchange.deadline.at = time.monotonic() - 1
    dog = Watchdog(exchange)
    assert not exchange.line.broken.wait(SHORT)
    dog.watch()
    assert exchange.line.broken.wait(5)
    assert exchange.expired
    dog.stop()


def test_a_watchdog_forgives_a_read_that_finds_something(exchange, monkeypatch):
    monkeypatch.setattr(watchdog, "GRACE", 30)
    dog = Watchdog(exchange)
    exchange.deadline.at = time.monotonic() - 1
    dog.watch()
    time.sleep(0.05)  # it waits for the grace to end
    dog.rest()
    with dog._changed:
        dog._changed.notify()
    assert not exchange.line.broken.wait(SHORT)
    dog.stop()


def test_a_watchdog_ends_at_once(exchange):
    dog = Watchdog(exchange)
    exchange.deadline.at = time.monotonic() + 1000
    dog.watch()
    dog.stop()
    assert not exchange.line.broken.is_set()
