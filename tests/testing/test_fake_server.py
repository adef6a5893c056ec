"""The fake server answers as real servers do, and breaks exactly as it was told to."""

import json

import httpx
import pytest

from midstream._dialects import find
from midstream._events import Finish, TextDelta
from midstream.testing import Cut, ErrorEvent, FakeServer, Stall, Status

TEXT = "Hello, world. 日本語 👩‍👩‍👧 done."
DIALECTS = ["openai", "llama.cpp", "llama.cpp-completion", "ollama"]


def ask(dialect, *, prefix=None, **more):
    if dialect == "llama.cpp-completion":
        return "/completion", {"prompt": "Hi" + (prefix or ""), "stream": True, **more}
    messages = [{"role": "user", "content": "Hi"}]
    if prefix is not None:
        messages.append({"role": "assistant", "content": prefix})
    body = {"model": "m", "messages": messages, "stream": True, **more}
    return "/api/chat" if dialect == "ollama" else "/v1/chat/completions", body


def read(dialect, body):
    """All events of a body, with the dialect's own reader."""
    kind = find(dialect)
    framer, reader = kind.framer(), kind.reader()
    found = [*framer.decode(body), *framer.flush()]
    return [event for data, name in found for event in reader.read(data, name)]


def text_of(dialect, body):
    events = read(dialect, body)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.fixture
def http():
    with httpx.Client(timeout=10) as client:
        yield client


def stream(http, server, dialect, **more):
    """Status, what came of the body, and the error that ended it."""
    route, body = ask(dialect, **more)
    got, error = b"", None
    with http.stream("POST", server.url(dialect) + route, json=body) as response:
        try:
            for piece in response.iter_bytes():
                got += piece
        except httpx.TransportError as broke:
            error = broke
    return response.status_code, got, error


@pytest.mark.parametrize("dialect", DIALECTS)
def test_answers_whole(http, dialect):
    with FakeServer(TEXT) as server:
        status, got, error = stream(http, server, dialect)
    assert (status, error) == (200, None)
    assert text_of(dialect, got) == TEXT
    ends = [event.reason for event in read(dialect, got) if isinstance(event, Finish)]
    assert ends == ["stop"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", ["fin", "rst"])
def test_cut_after_three_then_goes_on(http, dialect, kind):
    with FakeServer(TEXT, faults=[Cut(3, kind)]) as server:
        _, got, error = stream(http, server, dialect)
        assert error is not None
        first = text_of(dialect, got)
        assert server.requests[0].deltas == 3
        assert server.requests[0].text == first
        _, got, error = stream(http, server, dialect, prefix=first)
        rest = text_of(dialect, got)
    assert error is None
    assert rest == (TEXT if dialect == "openai" else TEXT[len(first) :])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_status_in_the_dialects_own_shape(http, dialect):
    fault = Status(503, "Loading", headers={"Retry-After": "1"})
    with FakeServer(TEXT, faults=[fault]) as server:
        status, got, _ = stream(http, server, dialect)
        assert server.requests[0].ended == "refused"
    assert status == 503
    error = json.loads(got)["error"]
    assert error == "Loading" if dialect == "ollama" else error["message"] == "Loading"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_error_in_mid_stream(http, dialect):
    with FakeServer(TEXT, faults=[ErrorEvent("boom", after=2)]) as server:
        _, got, error = stream(http, server, dialect)
    assert error is None
    assert b"boom" in got
    assert server.requests[0].deltas == 2


@pytest.mark.parametrize("after", [None, 0, 2])
def test_stall_ends_when_the_client_leaves(after):
    with (
        FakeServer(TEXT, faults=[Stall(after)]) as server,
        httpx.Client(timeout=httpx.Timeout(10, read=0.05)) as client,
    ):
        route, body = ask("openai")
        with pytest.raises(httpx.ReadTimeout):
            client.post(server.url("openai") + route, json=body)
        assert server.wait_for_hangup().deltas == (after or 0)


def test_closing_while_a_stream_stalls():
    with httpx.Client(timeout=10) as client:
        with FakeServer(TEXT, faults=[Stall(1)]) as server:
            route, body = ask("openai")
            url = server.url("openai") + route
            with client.stream("POST", url, json=body) as response:
                server.wait_for(lambda entry: entry.deltas == 1)
                server.close()
                with pytest.raises(httpx.TransportError):
                    response.read()
        assert server.requests[0].ended == "stopped"


def test_kept_stream_from_any_byte(http):
    headers = {"X-Conversation-Id": "a"}
    route, body = ask("llama.cpp")
    with FakeServer(TEXT) as server:
        base = server.url("llama.cpp")
        whole = http.post(base + route, json=body, headers=headers).content
        for offset in range(0, len(whole) + 1, 7):
            rest = http.get(f"{base}/v1/stream?conv_id=a&from={offset}").content
            assert rest == whole[offset:]
