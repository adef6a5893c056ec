"""307 and 308 are followed; what is secret stays with the origin it was meant for."""

import httpx
import pytest

from midstream._transports.http import HttpTransport
from midstream._values.errors import Dropped


@pytest.fixture
def target(serve):
    def script(peer):
        while True:
            peer.request()
            peer.head()
            peer.chunk(b"here")
            peer.end()

    return serve(script)


@pytest.fixture
def sending(serve):
    """A server that sends each request to the next of ``locations``."""

    def start(*locations, status="307 Temporary Redirect"):
        queue = list(locations)

        def script(peer):
            while True:
                peer.request()
                location = f"Location: {queue.pop(0)}" if queue else "X-None: 1"
                peer.head(location, "Content-Length: 0", status=status, chunked=False)

        return serve(script)

    return start


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "308 Permanent"])
def test_method_body_and_secrets_are_kept_at_home(way, sending, call, within, status):
    server = sending("/elsewhere?a=b", status=status)

    async def talk(transport):
        sent = call(server.url, content=b"body", secrets={"x-api-key": "key"})
        reply = await transport.send(sent, within())
        assert reply.status == int(status[:3])

    way(talk)
    first, second = server.requests
    assert second.line == "POST /elsewhere?a=b HTTP/1.1"
    assert first.body == second.body == b"body"
    assert first.headers["x-api-key"] == second.headers["x-api-key"] == "key"


def test_secrets_stay_behind_on_the_way_to_another_origin(
    way, sending, target, call, within
):
    server = sending(target.url)

    async def talk(transport):
        body = await transport.open(
            call(
                server.url,
                content=b"body",
                headers={"x-open": "1", "X-Api-Key": "mine too"},
                secrets={"authorization": "Bearer key", "x-special": "key"},
            ),
            within(),
        )
        assert await body.read() == b"here"
        await body.aclose()

    way(
        talk,
        headers={
            "api-key": "key",
            "X-Goog-Api-Key": "key",
            "x-tenant": "a key",
            "cookie": "a=b",
        },
        params={"token": "key"},
        auth=("name", "key"),
    )
    request = target.requests[0]
    assert request.body == b"body"
    assert request.headers["x-open"] == "1"
    secret = {"api-key", "authorization", "cookie", "x-api-key", "x-goog-api-key"}
    assert not secret & request.headers.keys()
    assert "x-special" not in request.headers
    assert "key" not in str(request.headers.values())
    assert "key" not in request.line


def test_who_has_left_does_not_get_them_back(way, sending, call, within):
    home = sending()
    away = sending(home.url)
    start = sending(away.url)

    async def talk(transport):
        await transport.send(call(start.url, secrets={"x-api-key": "key"}), within())

    way(talk)
    assert "x-api-key" not in home.requests[0].headers


def test_another_scheme_is_not_followed(way, sending, call, within):
    server = sending("file:///etc/passwd")

    async def talk(transport):
        reply = await transport.send(call(server.url), within())
        assert reply.status == 307

    way(talk)


def test_a_location_that_is_no_url(way, sending, call, within):
    server = sending("http://127.0.0.1:port/")

    async def talk(transport):
        with pytest.raises(Dropped):
            await transport.send(call(server.url), within())

    way(talk)


def test_other_redirects_are_answers(way, sending, call, within):
    server = sending("/x", status="302 Found")

    async def talk(transport):
        reply = await transport.send(call(server.url), within())
        assert (reply.status, reply.headers["location"]) == (302, "/x")

    way(talk, follow_redirects=True)


def test_a_circle_ends_after_five_hops(way, sending, call, within):
    server = sending(*["/again"] * 9)

    async def talk(transport):
        reply = await transport.send(call(server.url), within())
        assert reply.status == 307

    way(talk)
    assert len(server.requests) == 6


def test_the_deadline_holds_over_the_hops(sending, call, within):
    server = sending(*["/again"] * 9)
    with httpx.Client() as client:
        transport = HttpTransport(client, connect=5)
        deadline = within()

        def interrupt(response):
            transport.interrupt(deadline)

        client.event_hooks["response"] = [interrupt]
        with pytest.raises(Dropped):
            transport.open(call(server.url), deadline)
    assert len(server.requests) == 1
