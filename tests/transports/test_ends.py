"""Leaving: closed from elsewhere, cancelled, dropped midway; nothing is left behind."""

import asyncio
import contextlib
import gc
import threading
import time

import anyio
import httpx
import pytest

from midstream._transports import body as bodies
from midstream._transports.http import AsyncHttpTransport, HttpTransport
from midstream._values.errors import Dropped, UsageError


def one_token(peer):
    peer.request()
    peer.head()
    peer.chunk(b"token")
    peer.wait_gone()


def silent(peer):
    peer.request()
    peer.server.seen.set()
    peer.wait_gone()


@pytest.fixture
def watched(serve):
    """A server that tells when a request has come: ``server.seen``."""

    def start(script):
        server = serve(script)
        server.seen = threading.Event()
        return server

    return start


async def until(event):
    await anyio.to_thread.run_sync(event.wait, 10)


# In the same task.


def test_leaving_after_the_first_token_twenty_times(way, serve, call, within):
    server = serve(one_token)

    async def talk(transport):
        for _ in range(20):
            body = await transport.open(call(server.url), within())
            assert await body.read() == b"token"
            await body.aclose()
            await server.left()
            await body.aclose()
            with pytest.raises(Dropped):
                await body.read()

    way(talk, limits=httpx.Limits(max_connections=1), timeout=1)


def test_leaving_before_the_first_read(way, serve, call, within):
    server = serve(one_token)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        await body.aclose()
        await server.left()

    way(talk)


def test_leaving_with_much_in_the_buffer(way, serve, call, within):
    sent = threading.Event()

    def script(peer):
        peer.request()
        peer.head()
        peer.send(b"1\r\nx\r\n" * 2000)
        sent.set()
        peer.wait_gone()

    server = serve(script)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        assert sent.wait(10)
        assert await body.read() == b"x"
        await body.aclose()
        await server.left()

    way(talk)


def test_a_finished_body_gives_its_connection_back(way, serve, call, within):
    def script(peer):
        while True:
            peer.request()
            peer.head()
            peer.chunk(b"token")
            peer.end()

    server = serve(script)

    async def talk(transport):
        for _ in range(5):
            body = await transport.open(call(server.url), within())
            assert await body.read() == b"token"
            assert await body.read() is None
            await body.aclose()

    way(talk)
    assert server.connections == 1


def test_closing_the_transport_ends_its_bodies(way, serve, call, within):
    server = serve(one_token)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        await transport.aclose()
        with pytest.raises(Dropped):
            await body.read()
        await body.aclose()
        await server.left()

    way(talk)


def test_interrupting_ends_only_its_own(way, serve, call, within):
    def script(peer):
        one_token(peer)

    server = serve(script)

    async def talk(transport):
        mine, other = within(), within()
        kept = await transport.open(call(server.url), other)
        body = await transport.open(call(server.url), mine)
        transport.interrupt(mine)
        with pytest.raises(Dropped):
            await body.read()
        with pytest.raises(Dropped):
            await transport.open(call(server.url), mine)
        assert await kept.read() == b"token"
        await kept.aclose()

    way(talk)


# From another thread.


@contextlib.contextmanager
def another_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("end", ["body", "interrupt", "transport"])
def test_closing_under_a_pending_read(blocking_way, serve, call, within, end):
    server = serve(one_token)

    async def talk(transport):
        deadline = within()
        body = (await transport.open(call(server.url), deadline)).inner
        assert body.read() == b"token"

        def close():
            while not body._reading:
                time.sleep(0.001)
            time.sleep(0.05)
            if end == "body":
                body.close()
                body.close()
            elif end == "interrupt":
                transport.interrupt(deadline)
            else:
                transport.inner.close()

        begin = time.monotonic()
        with another_thread(close), pytest.raises(Dropped):
            body.read()
        assert time.monotonic() - begin < 5
        server.wait_gone()

    blocking_way(talk)


@pytest.mark.parametrize("end", ["interrupt", "transport"])
def test_closing_while_the_headers_are_awaited(
    blocking_way, watched, call, within, end
):
    server = watched(silent)

    async def talk(transport):
        deadline = within()

        def close():
            server.seen.wait()
            time.sleep(0.05)
            if end == "interrupt":
                transport.interrupt(deadline)
            else:
                transport.inner.close()

        begin = time.monotonic()
        with another_thread(close), pytest.raises(Dropped):
            await transport.open(call(server.url), deadline)
        assert time.monotonic() - begin < 5
        server.wait_gone()

    blocking_way(talk)


def test_closing_while_a_request_is_taken_slowly(blocking_way, serve, call, within):
    def script(peer):
        peer.server.gone.get()

    server = serve(script)

    async def talk(transport):
        deadline = within()

        def close():
            time.sleep(0.1)
            transport.interrupt(deadline)

        large = call(server.url, content=b"x" * 20_000_000)
        with another_thread(close), pytest.raises(Dropped):
            await transport.open(large, deadline)
        server.gone.put(None)

    blocking_way(talk)


def test_closing_during_a_tls_handshake(serve, call, within):
    accepted = threading.Event()

    def script(peer):
        accepted.set()
        peer.wait_gone()

    server = serve(script)
    transport = HttpTransport(connect=20)
    deadline = within()

    def close():
        accepted.wait()
        time.sleep(0.05)
        transport.interrupt(deadline)

    with another_thread(close), pytest.raises(Dropped):
        transport.open(call(server.url.replace("http:", "https:")), deadline)
    server.wait_gone()
    transport.close()


def test_a_keyboard_interrupt_closes_the_connection(serve, call, within):
    server = serve(one_token)
    transport = HttpTransport(connect=20)
    body = transport.open(call(server.url), within())

    class Pieces:
        def __next__(self):
            raise KeyboardInterrupt

    pieces, body._pieces = body._pieces, Pieces()
    with pytest.raises(KeyboardInterrupt):
        body.read()
    server.wait_gone()
    pieces.close()
    transport.close()


# From another task.


@pytest.mark.parametrize("end", ["body", "interrupt", "transport"])
def test_closing_under_another_tasks_read(async_way, serve, call, within, end):
    server = serve(one_token)

    async def talk(transport):
        deadline = within()
        body = await transport.open(call(server.url), deadline)
        assert await body.read() == b"token"

        async def read():
            with pytest.raises(Dropped):
                await body.read()

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(5):
                if end == "body":
                    await body.aclose()
                    await body.aclose()
                elif end == "interrupt":
                    transport.interrupt(deadline)
                else:
                    await transport.aclose()
                await server.left()

    async_way(talk)


@pytest.mark.parametrize("end", ["interrupt", "transport"])
def test_closing_while_another_task_awaits_the_headers(
    async_way, watched, call, within, end
):
    server = watched(silent)

    async def talk(transport):
        deadline = within()

        async def open_it():
            with pytest.raises((Dropped, UsageError)):
                await transport.open(call(server.url), deadline)

        async with anyio.create_task_group() as group:
            group.start_soon(open_it)
            await until(server.seen)
            with anyio.fail_after(5):
                if end == "interrupt":
                    transport.interrupt(deadline)
                else:
                    await transport.aclose()
                await server.left()

    async_way(talk)


def test_opened_read_and_closed_by_three_tasks(async_way, serve, call, within):
    server = serve(one_token)

    async def talk(transport):
        box = []

        async def open_it():
            box.append(await transport.open(call(server.url), within()))

        async def read():
            assert await box[0].read() == b"token"

        async def close():
            await box[0].aclose()

        for step in (open_it, read, close):
            async with anyio.create_task_group() as group:
                group.start_soon(step)
        await server.left()

    async_way(talk)


def test_closing_in_a_cancelled_scope(async_way, serve, call, within):
    server = serve(one_token)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        assert await body.read() == b"token"
        with anyio.CancelScope() as scope:
            scope.cancel()
            await body.aclose()
        await server.left()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await transport.aclose()

    async_way(talk)


# By cancellation.


def test_cancelling_a_read(async_way, serve, call, within):
    server = serve(one_token)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        assert await body.read() == b"token"
        with anyio.move_on_after(0.1) as scope:
            await body.read()
        assert scope.cancelled_caught
        await server.left()
        await body.aclose()

    async_way(talk)


def test_cancelling_before_the_headers(async_way, watched, call, within):
    server = watched(silent)

    async def talk(transport):
        async with anyio.create_task_group() as group:
            group.start_soon(transport.open, call(server.url), within())
            await until(server.seen)
            group.cancel_scope.cancel()
        await server.left()
        replies = watched(one_token)  # the pool is free
        body = await transport.open(call(replies.url), within())
        await body.aclose()

    async_way(talk, limits=httpx.Limits(max_connections=1), timeout=1)


def test_cancelling_a_tls_handshake(async_way, serve, call, within):
    accepted = threading.Event()

    def script(peer):
        accepted.set()
        peer.wait_gone()

    server = serve(script)
    url = server.url.replace("http:", "https:")

    async def talk(transport):
        async with anyio.create_task_group() as group:
            group.start_soon(transport.open, call(url), within())
            await until(accepted)
            await anyio.sleep(0.05)
            group.cancel_scope.cancel()
        await server.left()

    async_way(talk)


@pytest.mark.parametrize("owner", ["ours", "user"])
def test_cancelling_an_asyncio_task(serve, call, within, owner):
    server = serve(one_token)

    async def talk():
        async with contextlib.AsyncExitStack() as stack:
            client = None
            if owner == "user":
                client = await stack.enter_async_context(httpx.AsyncClient())
            transport = AsyncHttpTransport(client, connect=5)
            body = await transport.open(call(server.url), within())
            assert await body.read() == b"token"
            task = asyncio.create_task(body.read())
            await anyio.wait_all_tasks_blocked()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.left()
            await transport.aclose()

    asyncio.run(talk())


def test_a_time_limit_of_asyncios(serve, call, within):
    server = serve(one_token)

    async def talk():
        transport = AsyncHttpTransport(connect=5)
        body = await transport.open(call(server.url), within())
        assert await body.read() == b"token"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await body.read()
        assert asyncio.current_task().cancelling() == 0
        await server.left()
        await transport.aclose()

    asyncio.run(talk())


# Memory.


def test_a_slow_reader_stops_the_server(async_way, serve, call, within):
    piece = b"x" * 10_000
    total = 200_000_000
    progress = [0]

    def script(peer):
        peer.request()
        peer.head()
        while progress[0] < total:
            peer.chunk(piece)
            progress[0] += len(piece)
        peer.end()

    server = serve(script)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        first = await body.read()
        sent = -1
        while sent != progress[0]:
            sent = progress[0]
            await anyio.sleep(0.1)
        assert sent < 32_000_000
        size = len(first)
        while size < sent:
            size += len(await body.read())
        await body.aclose()

    async_way(talk)


def test_a_body_that_is_forgotten_leaves_nothing_pending(serve, call, within):
    server = serve(one_token)

    async def talk():
        transport = AsyncHttpTransport(connect=5)
        body = await transport.open(call(server.url), within())
        await body.read()
        await transport.aclose()
        with pytest.raises(Dropped):
            await body.read()
        del body
        gc.collect()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(talk())


# Transports that are no network.


class Interrupting(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Its reader is ended while a piece is on the way."""

    def __init__(self, transports, deadline):
        self.transports = transports
        self.deadline = deadline

    def __iter__(self):
        self.transports[0].interrupt(self.deadline)
        yield b"too late"

    async def __aiter__(self):
        self.transports[0].interrupt(self.deadline)
        yield b"too late"


def test_a_piece_that_comes_after_the_end_is_not_delivered(call, within, ways):
    for colour in ("thread", "asyncio", "trio"):
        deadline = within()
        transports = []
        response = httpx.Response(200, stream=Interrupting(transports, deadline))
        mock = httpx.MockTransport(lambda _, response=response: response)

        async def talk(transport, deadline=deadline, transports=transports):
            transports.append(transport)
            body = await transport.open(call("http://mock/"), deadline)
            with pytest.raises(Dropped):
                await body.read()

        ways[colour, "user"](talk, transport=mock)


class Endless(httpx.AsyncByteStream):
    async def __aiter__(self):
        while True:
            yield b"x"


def test_an_endless_transport_can_be_left(call, within, monkeypatch):
    monkeypatch.setattr(bodies, "BUFFERED_PIECES", 10)

    async def talk():
        mock = httpx.MockTransport(lambda _: httpx.Response(200, stream=Endless()))
        async with httpx.AsyncClient(transport=mock) as client:
            transport = AsyncHttpTransport(client, connect=1)
            body = await transport.open(call("http://mock/"), within())
            assert await body.read() == b"x"
            await body.aclose()

    asyncio.run(talk())


class Blocked(httpx.SyncByteStream):
    def __init__(self):
        self.reading = threading.Event()
        self.closed = threading.Event()

    def __iter__(self):
        self.reading.set()
        self.closed.wait(10)
        yield b"late"

    def close(self):
        self.closed.set()


def test_a_transport_without_a_socket_is_closed(call, within):
    stream = Blocked()
    mock = httpx.MockTransport(lambda _: httpx.Response(200, stream=stream))
    with httpx.Client(transport=mock) as client:
        transport = HttpTransport(client, connect=1)
        body = transport.open(call("http://mock/"), within())

        def close():
            stream.reading.wait()
            body.close()

        with another_thread(close), pytest.raises(Dropped):
            body.read()
