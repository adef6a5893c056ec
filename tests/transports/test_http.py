"""What comes over the line: pieces as they are flushed, whole bodies, broken ones."""

import gzip
import zlib

import httpx
import pytest

from midstream._transports import http
from midstream._values.errors import (
    ConnectFailed,
    Dropped,
    EventTooLarge,
    UsageError,
    WireError,
)


async def read_all(body):
    pieces = []
    while (piece := await body.read()) is not None:
        pieces.append(piece)
    return pieces


def test_each_piece_comes_when_it_is_flushed(way, serve, call, within):
    def script(peer):
        peer.request()
        peer.head("X-Name: Value")
        for number in range(3):
            peer.chunk(b"event %d" % number)
            peer.server.gone.get()
        peer.end()
        peer.wait_gone()

    server = serve(script)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        assert body.status == 200
        assert body.headers["x-name"] == "Value"
        for number in range(3):
            assert await body.read() == b"event %d" % number
            server.gone.put(None)
        assert await body.read() is None
        assert await body.read() is None
        await body.aclose()

    way(talk)


def test_the_request_is_what_the_call_says(way, serve, call, within):
    def script(peer):
        for _ in range(3):
            peer.request()
            peer.head()
            peer.end()

    server = serve(script)

    async def talk(transport):
        await transport.send(
            call(
                server.url,
                content=b"body",
                headers={"X-One": "1"},
                secrets={"Authorization": "Bearer key"},
            ),
            within(),
        )
        await transport.send(call(server.url, method="GET", content=b""), within())
        await transport.send(
            call(server.url, headers={"Accept-Encoding": "gzip"}), within()
        )

    way(talk)
    first, second, third = server.requests
    assert first.line == "POST /v1/x HTTP/1.1"
    assert first.body == b"body"
    assert first.headers["x-one"] == "1"
    assert first.headers["authorization"] == "bearer key"  # lowered by the server
    assert first.headers["accept-encoding"] == "identity"
    assert second.line.startswith("GET ")
    assert "content-length" not in second.headers
    assert third.headers["accept-encoding"] == "gzip"
    assert server.connections == 1


def test_any_status_is_an_answer_and_the_pool_does_not_run_dry(
    way, serve, call, within
):
    def script(peer):
        while True:
            peer.request()
            head = ("Retry-After: 1", "Content-Length: 4")
            peer.head(*head, status="429 Too Many Requests", chunked=False)
            peer.send(b"slow")

    server = serve(script)

    async def talk(transport):
        for turn in range(30):
            body = await transport.open(call(server.url), within())
            assert body.status == 429
            assert body.headers["retry-after"] == "1"
            if turn % 2:
                assert await read_all(body) == [b"slow"]
            await body.aclose()

    way(talk, limits=httpx.Limits(max_connections=2), timeout=1)


def test_a_body_without_length_ends_with_its_connection(way, serve, call, within):
    def script(peer):
        peer.request()
        peer.head("Connection: close", chunked=False)
        peer.send(b"all of it")

    server = serve(script)

    async def talk(transport):
        reply = await transport.send(call(server.url), within())
        assert (reply.status, reply.content) == (200, b"all of it")

    way(talk)


def test_the_end_of_a_connection_is_no_end_of_a_stream(way, serve, call, within):
    """So it would end as well where the server had died."""

    def script(peer):
        peer.request()
        peer.head("Connection: close", chunked=False)
        peer.send(b"all of it?")

    server = serve(script)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        assert await body.read() == b"all of it?"
        for _ in range(2):
            with pytest.raises(Dropped, match="without a length"):
                await body.read()
        await body.aclose()

    way(talk)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "bare"])
@pytest.mark.parametrize("lost", [0, 1, 8, 20])
def test_a_compressed_body_ends_with_its_trailer(
    way, serve, call, within, coding, lost
):
    wbits = {"gzip": 31, "deflate": 15, "bare": -15}[coding]
    packer = zlib.compressobj(wbits=wbits)
    packed = packer.compress(b"text") + packer.flush(zlib.Z_SYNC_FLUSH)
    packed += packer.compress(b" and more") + packer.flush()
    packed = packed[: len(packed) - lost]

    def script(peer):
        peer.request()
        coded = "gzip" if coding == "gzip" else "deflate"
        peer.head(f"Content-Encoding: {coded}")
        peer.chunk(packed)
        peer.end()

    server = serve(script)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        if lost:
            with pytest.raises(Dropped, match="before its trailer"):
                await read_all(body)
        else:
            assert await read_all(body) == [b"text and more"]
        await body.aclose()

    way(talk)


def test_two_compressed_members_end_with_the_second_trailer(way, serve, call, within):
    first, second = gzip.compress(b"one "), gzip.compress(b"two")

    def script(peer):
        while True:
            more = peer.request().headers["x-lost"]
            peer.head("Content-Encoding: gzip")
            peer.chunk(first + second[: len(second) - int(more)])
            peer.end()

    server = serve(script)

    async def talk(transport):
        for lost in (0, 1, len(second)):
            headers = {"X-Lost": str(lost)}
            body = await transport.open(call(server.url, headers=headers), within())
            if lost == 1:
                with pytest.raises(Dropped, match="before its trailer"):
                    await read_all(body)
            else:
                whole = b"".join(await read_all(body))
                assert whole == (b"one " if lost else b"one two")
            await body.aclose()

    way(talk)


@pytest.mark.parametrize("end", ["fin", "reset", "length"])
def test_a_cut_body_is_dropped_after_what_came(way, serve, call, within, end):
    def script(peer):
        peer.request()
        if end == "length":
            peer.head("Content-Length: 100", chunked=False)
            peer.send(b"some")
        else:
            peer.head()
            peer.chunk(b"some")
        peer.server.gone.get()
        if end == "reset":
            peer.reset()

    server = serve(script)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        assert await body.read() == b"some"
        server.gone.put(None)
        with pytest.raises(Dropped) as first:
            await body.read()
        assert first.value.__cause__ is not None
        with pytest.raises(Dropped):  # a second look does not find a clean end
            await body.read()
        await body.aclose()
        await body.aclose()

    way(talk)


@pytest.mark.parametrize("end", ["fin", "reset", "garbage"])
def test_no_answer_at_all_is_dropped(way, serve, call, within, end):
    def script(peer):
        peer.request()
        if end == "garbage":
            peer.send(b"\x00\x01 no HTTP\r\n\r\n")
        if end == "reset":
            peer.reset()

    server = serve(script)

    async def talk(transport):
        with pytest.raises(Dropped) as caught:
            await transport.open(call(server.url), within())
        assert caught.value.__cause__ is not None

    way(talk)


def test_a_kept_connection_that_the_server_closed_is_not_used(way, serve, call, within):
    def script(peer):
        peer.request()
        peer.head("Content-Length: 2", chunked=False)
        peer.send(b"ok")
        peer.sock.close()
        peer.server.gone.put(None)

    server = serve(script)

    async def talk(transport):
        for _ in range(3):
            reply = await transport.send(call(server.url), within())
            assert reply.content == b"ok"
            await server.left()

    way(talk)
    assert server.connections == 3


def test_a_compressed_stream_comes_event_by_event(way, serve, call, within):
    def script(peer):
        packer = zlib.compressobj(wbits=31)
        peer.request()
        peer.head("Content-Encoding: gzip")
        for number in range(3):
            event = packer.compress(b"event %d" % number)
            peer.chunk(event + packer.flush(zlib.Z_SYNC_FLUSH))
            peer.server.gone.get()
        peer.chunk(packer.flush())
        peer.end()

    server = serve(script)

    async def talk(transport):
        body = await transport.open(call(server.url), within())
        for number in range(3):
            assert await body.read() == b"event %d" % number
            server.gone.put(None)
        assert await body.read() is None

    way(talk)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "aes128gcm", "gzip, aes128gcm"])
def test_a_coding_that_cannot_be_undone_is_a_wire_error(
    way, serve, call, within, coding
):
    def script(peer):
        peer.request()
        peer.head(f"Content-Encoding: {coding}")
        peer.chunk(b"this is no gzip")
        peer.wait_gone()

    server = serve(script)

    async def talk(transport):
        with pytest.raises(WireError, match="Content-Encoding"):
            await transport.send(call(server.url), within())
        await server.left()

    way(talk)


def test_a_whole_answer_is_decoded_and_bounded(way, serve, call, within, monkeypatch):
    monkeypatch.setattr(http, "MAX_REPLY", 5000)
    packed = gzip.compress(b"x" * 5000)

    def script(peer):
        peer.request()
        length = f"Content-Length: {len(packed)}"
        peer.head("Content-Encoding: gzip", length, chunked=False)
        peer.send(packed)
        peer.request()
        peer.head("Content-Length: 9999", chunked=False)
        peer.send(b"x" * 5001)
        peer.wait_gone()

    server = serve(script)

    async def talk(transport):
        reply = await transport.send(call(server.url), within())
        assert reply.content == b"x" * 5000
        with pytest.raises(EventTooLarge):
            await transport.send(call(server.url), within())
        await server.left()

    way(talk)


def test_a_large_request_waits_for_a_slow_server(way, serve, call, within):
    def script(peer):
        peer.server.gone.get()
        assert len(peer.request().body) == len(content)
        peer.head()
        peer.end()

    server = serve(script)
    content = b"x" * 20_000_000

    async def talk(transport):
        server.gone.put(None)
        reply = await transport.send(call(server.url, content=content), within())
        assert reply.status == 200

    way(talk)


def test_an_early_answer_to_a_large_request_is_read(way, serve, call, within):
    def script(peer):
        peer.sock.recv(10)
        peer.head("Content-Length: 0", status="413 Too Large", chunked=False)
        while peer.sock.recv(1_000_000):
            pass

    server = serve(script)

    async def talk(transport):
        large = call(server.url, content=b"x" * 5_000_000)
        reply = await transport.send(large, within())
        assert reply.status == 413

    way(talk)


def test_nobody_listens(way, serve, call, within):
    server = serve(lambda peer: None)
    server.close()
    url = f"http://name:key@127.0.0.1:{server.port}/v1/x?key=key"

    async def talk(transport):
        with pytest.raises(ConnectFailed) as caught:
            await transport.open(call(url, secrets={"x-api-key": "key"}), within())
        assert f"http://127.0.0.1:{server.port}/v1/x" in str(caught.value)
        assert "key" not in str(caught.value)
        assert caught.value.__cause__ is not None

    way(talk)


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:80/x",
        "ftp://127.0.0.1/x",
        "http:///x",
        "http://127.0.0.1:port/x",
        "http://\x7f/",
    ],
)
def test_what_is_no_address_is_the_callers_mistake(way, call, within, url):
    async def talk(transport):
        with pytest.raises(UsageError):
            await transport.open(call(url), within())

    way(talk)


@pytest.mark.parametrize(("name", "value"), [("a b", "1"), ("x", "sk-1\n"), ("x", "é")])
def test_a_header_that_cannot_be_sent_is_told_without_its_value(
    way, call, within, name, value
):
    async def talk(transport):
        with pytest.raises(UsageError) as caught:
            await transport.open(
                call("http://127.0.0.1:1/", secrets={name: value}), within()
            )
        assert value.strip() not in str(caught.value) or value == "1"

    way(talk)


def test_a_bad_header_of_the_users_client_is_told_without_its_value(
    serve, call, within, ways
):
    server = serve(lambda peer: peer.wait_gone())

    async def talk(transport):
        with pytest.raises(UsageError) as caught:
            await transport.open(call(server.url), within())
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__

    for colour in ("thread", "asyncio", "trio"):
        ways[colour, "user"](talk, headers={"x-api-key": "key\n"})


def test_a_closed_transport_is_told_so(way, serve, call, within):
    def script(peer):
        peer.request()
        peer.head()
        peer.end()

    server = serve(script)

    async def talk(transport):
        await transport.send(call(server.url), within())
        await transport.aclose()
        await transport.aclose()
        with pytest.raises(UsageError):
            await transport.open(call(server.url), within())

    way(talk)


def test_a_users_client_stays_open_and_may_be_closed_by_the_user(serve, call, within):
    def script(peer):
        peer.request()
        peer.head()
        peer.end()

    server = serve(script)
    with httpx.Client() as client:
        transport = http.HttpTransport(client, connect=1)
        transport.send(call(server.url), within())
        transport.close()
        assert not client.is_closed
    transport = http.HttpTransport(client, connect=1)
    with pytest.raises(UsageError):
        transport.open(call(server.url), within())


def test_what_the_users_client_raises_before_the_headers_is_the_users(call, within):
    class Custom(Exception):
        pass

    def refuse(request):
        raise Custom

    with httpx.Client(event_hooks={"request": [refuse]}) as client:
        transport = http.HttpTransport(client, connect=1)
        with pytest.raises(Custom):
            transport.open(call("http://127.0.0.1:1/"), within())


@pytest.mark.parametrize("variable", ["http_proxy", "ALL_PROXY"])
def test_a_proxy_of_the_environment_is_used(
    way, serve, call, within, monkeypatch, variable
):
    def script(peer):
        peer.request()
        peer.head()
        peer.chunk(b"by the proxy")
        peer.end()

    server = serve(script)
    monkeypatch.setenv(variable, f"http://127.0.0.1:{server.port}")

    async def talk(transport):
        reply = await transport.send(call("http://example.invalid/x"), within())
        assert reply.content == b"by the proxy"

    way(talk)
    assert server.requests[0].line == "POST http://example.invalid/x HTTP/1.1"
