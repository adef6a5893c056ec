"""A user's HTTP/2 client: connections that end under a stream, streams left early."""

import threading

import anyio
import h2.config
import h2.connection
import h2.events
import pytest

from midstream._transports.http2 import reset_frame
from midstream._values.errors import Dropped, TimedOut


class Session:
    """One HTTP/2 connection, as the server has it."""

    def __init__(self, peer):
        self.peer = peer
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        self.h2.initiate_connection()
        self.flush()
        self._events = []

    def flush(self):
        self.peer.send(self.h2.data_to_send())

    def wait(self, kind):
        """The next event of this kind; None when the client is gone."""
        while True:
            while self._events:
                event = self._events.pop(0)
                if isinstance(event, kind):
                    return event
            data = self.peer.sock.recv(65536)
            if not data:
                return None
            self._events += self.h2.receive_data(data)
            self.flush()

    def request(self):
        event = self.wait(h2.events.StreamEnded)
        return None if event is None else event.stream_id

    def head(self, stream):
        self.h2.send_headers(stream, [(":status", "200")])
        self.flush()

    def data(self, stream, data, *, end=False):
        self.h2.send_data(stream, data, end_stream=end)
        self.flush()


OPTIONS = {"http1": False, "http2": True}


@pytest.fixture(params=["thread", "asyncio", "trio"])
def way(request, ways):
    """A user's client; our own speaks HTTP/1.1 only."""
    return ways[request.param, "user"]


def test_a_stream(way, serve, call, within):
    def script(peer):
        session = Session(peer)
        for _ in range(2):
            stream = session.request()
            session.head(stream)
            session.data(stream, b"token")
            session.data(stream, b"", end=True)
        session.wait(h2.events.ConnectionTerminated)

    server = serve(script)

    async def talk(transport):
        for _ in range(2):
            reply = await transport.send(call(server.url), within())
            assert reply.content == b"token"

    way(talk, **OPTIONS)
    assert server.connections == 1


def test_going_away_after_our_stream(way, serve, call, within):
    """httpcore ends every stream at GOAWAY; what came before it is not lost."""

    def script(peer):
        session = Session(peer)
        stream = session.request()
        session.head(stream)
        session.data(stream, b"token")
        peer.server.gone.get()
        if peer.server.connections == 1:
            session.h2.close_connection(last_stream_id=stream)
            session.flush()
            peer.wait_gone()
        else:
            session.data(stream, b" end", end=True)
            session.wait(h2.events.ConnectionTerminated)

    server = serve(script)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        assert await body.read() == b"token"
        server.gone.put(None)
        with pytest.raises(Dropped, match="GOAWAY"):
            await body.read()
        await server.left()
        server.gone.put(None)
        reply = await transport.send(call(server.url), within())
        assert reply.content == b"token end"

    way(talk, **OPTIONS)
    assert server.connections == 2


def test_a_reset_stream(way, serve, call, within):
    def script(peer):
        session = Session(peer)
        stream = session.request()
        session.head(stream)
        session.data(stream, b"one")
        peer.server.gone.get()
        session.h2.reset_stream(stream, error_code=8)
        session.flush()
        stream = session.request()
        session.head(stream)
        session.data(stream, b"two", end=True)
        session.wait(h2.events.ConnectionTerminated)

    server = serve(script)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        assert await body.read() == b"one"
        server.gone.put(None)
        with pytest.raises(Dropped, match="RST_STREAM"):
            await body.read()
        reply = await transport.send(call(server.url), within())
        assert reply.content == b"two"

    way(talk, **OPTIONS)


def test_going_away_before_our_stream_is_tried_again(way, serve, call, within):
    def script(peer):
        session = Session(peer)
        stream = session.request()
        if peer.server.connections == 1:
            session.h2.close_connection(last_stream_id=0)
            session.flush()
            peer.wait_gone()
        else:
            session.head(stream)
            session.data(stream, b"token", end=True)
            session.wait(h2.events.ConnectionTerminated)

    server = serve(script)

    async def talk(transport):
        with pytest.raises(Dropped):
            await transport.send(call(server.url), within())
        reply = await transport.send(call(server.url), within())
        assert reply.content == b"token"

    way(talk, **OPTIONS)


def test_a_stream_that_is_left_is_reset_and_its_connection_lives(
    way, serve, call, within
):
    def script(peer):
        session = Session(peer)
        left = session.request()
        session.head(left)
        session.data(left, b"token")
        assert session.wait(h2.events.StreamReset).stream_id == left
        peer.server.gone.put(None)
        stream = session.request()
        session.head(stream)
        session.data(stream, b"next", end=True)
        session.wait(h2.events.ConnectionTerminated)

    server = serve(script)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        assert await body.read() == b"token"
        await body.aclose()
        await server.left()
        reply = await transport.send(call(server.url), within())
        assert reply.content == b"next"

    way(talk, **OPTIONS)
    assert server.connections == 1


def test_a_silent_stream_times_out(way, serve, call, within):
    def script(peer):
        session = Session(peer)
        session.head(session.request())
        peer.wait_gone()

    server = serve(script)

    async def talk(transport):
        deadline = within()
        body = await transport.open(call(server.url), deadline)
        deadline.at = within(0.2).at
        with pytest.raises(TimedOut):
            await body.read()

    way(talk, **OPTIONS)


def test_closing_under_a_pending_read(serve, call, within, ways):
    def script(peer):
        session = Session(peer)
        session.head(session.request())
        session.wait(h2.events.StreamReset)
        peer.server.gone.put(None)

    server = serve(script)

    async def talk(transport):
        body = await transport.open(call(server.url), within())

        async def read():
            with pytest.raises(Dropped):
                await body.read()

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            await body.aclose()
        await server.left()

    for colour in ("asyncio", "trio"):
        ways[colour, "user"](talk, **OPTIONS)


def test_closing_under_another_threads_read(serve, call, within, ways):
    def script(peer):
        session = Session(peer)
        session.head(session.request())
        peer.wait_gone()

    server = serve(script)

    async def talk(transport):
        body = (await transport.open(call(server.url), within())).inner
        timer = threading.Timer(0.1, body.close)
        timer.start()
        with pytest.raises(Dropped):
            body.read()
        timer.join()

    ways["thread", "user"](talk, **OPTIONS)


def test_the_frame_is_one_that_h2_reads():
    assert reset_frame(5) == b"\0\0\x04\x03\0\0\0\0\x05\0\0\0\x08"
