"""Our own network streams under TLS."""

import threading

import anyio
import pytest

from midstream._transports import pool
from midstream._values.errors import ConnectFailed, Dropped, TimedOut


def stream(peer):
    peer.request()
    peer.head()
    peer.chunk(b"x" * 300_000)
    peer.chunk(b"token")
    peer.server.gone.get()
    peer.end()
    peer.request()
    peer.head()
    peer.wait_gone()


def test_a_stream_over_tls(way, serve, server_context, trust, call, within):
    server = serve(stream, server_context)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        size = 0
        while size < 300_000:
            size += len(await body.read())
        assert await body.read() == b"token"
        server.gone.put(None)
        assert await body.read() is None
        deadline = within(0.3, "idle")
        body = await transport.open(call(server.url), deadline)  # the same connection
        with pytest.raises(TimedOut):
            await body.read()
        await server.left()

    way(talk)
    assert server.connections == 1


def test_a_large_request_over_tls(way, serve, server_context, trust, call, within):
    def script(peer):
        peer.server.gone.get()
        peer.request()
        peer.head()
        peer.end()

    server = serve(script, server_context)

    async def talk(transport):
        server.gone.put(None)
        large = call(server.url, content=b"x" * 3_000_000)
        assert (await transport.send(large, within())).status == 200

    way(talk)


def test_a_cut_under_tls(way, serve, server_context, trust, call, within):
    def script(peer):
        peer.request()
        peer.head()
        peer.chunk(b"token")

    server = serve(script, server_context)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        assert await body.read() == b"token"
        with pytest.raises(Dropped):
            await body.read()

    way(talk)


def test_closing_under_a_pending_read(
    blocking_way, serve, server_context, trust, call, within
):
    server = serve(stream, server_context)

    async def talk(transport):
        body = (await transport.open(call(server.url), within())).inner
        size = 0
        while size < 300_005:
            size += len(body.read())
        timer = threading.Timer(0.1, body.close)
        timer.start()
        with pytest.raises(Dropped):
            body.read()
        timer.join()
        server.gone.put(None)

    blocking_way(talk)


def test_closing_under_another_tasks_read(
    async_way, serve, server_context, trust, call, within
):
    server = serve(stream, server_context)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        size = 0
        while size < 300_005:
            size += len(await body.read())

        async def read():
            with pytest.raises(Dropped):
                await body.read()

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            await body.aclose()
        server.gone.put(None)

    async_way(talk)


def test_an_unknown_certificate(way, serve, server_context, call, within):
    server = serve(stream, server_context)

    async def talk(transport):
        with pytest.raises(ConnectFailed, match="SSL_CERT_FILE"):
            await transport.open(call(server.url), within())

    way(talk)


def test_no_tls_on_the_other_side(way, serve, trust, call, within):
    def script(peer):
        peer.send(b"I speak no TLS\r\n\r\n")
        peer.wait_gone()

    server = serve(script)

    async def talk(transport):
        with pytest.raises(ConnectFailed, match="https"):
            await transport.open(call(server.url.replace("http:", "https:")), within())

    way(talk)


def test_there_is_one_context(trust):
    assert pool.ssl_context() is pool.ssl_context()
