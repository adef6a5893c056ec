"""Begin, or go on where a stream of this key is stored: in one call."""

import anyio
import pytest

import midstream
from midstream import (
    AsyncClient,
    Client,
    LeaseLost,
    MemoryStore,
    SQLiteStore,
    StreamBusy,
    StreamNotFound,
    UsageError,
)
from midstream.testing import Cut, FakeServer, Slow

TEXT = "An answer that is begun here and read to its end elsewhere. " * 4


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    made = MemoryStore() if request.param == "memory" else None
    made = made or SQLiteStore(tmp_path / "streams.db")
    yield made
    made.close()


def left(server, store, characters=40, dialect="llama.cpp"):
    """What a reader that broke off has seen of the stream "k"."""
    client, shown = Client(server.endpoint(dialect), store=store), ""
    with client, client.stream("ask", key="k", max_tokens=500) as stream:
        for piece in stream:
            shown += piece
            if len(shown) >= characters:
                break
    return shown


def again(client, **how):
    return client.stream("ask", key="k", max_tokens=500, existing="resume", **how)


def test_where_nothing_is_stored_it_begins(store):
    with FakeServer(TEXT) as server:
        client = Client(server.endpoint("ollama"), store=store)
        with client, again(client) as stream:
            assert "".join(stream) == stream.text == TEXT
        assert len(server.streams) == 1


@pytest.mark.parametrize("dialect", ["llama.cpp", "ollama"])
def test_what_is_stored_comes_first_and_then_the_rest(store, dialect):
    with FakeServer(TEXT, always=Slow(0.001)) as server:
        shown = left(server, store, dialect=dialect)
        stored = store.load("k").text
        assert stored.startswith(shown)
        client = Client(server.endpoint(dialect), store=store)
        with client, again(client) as stream:
            pieces = list(stream)
            assert stream.read() == TEXT
    assert pieces[0] == stored
    assert "".join(pieces) == TEXT
    assert store.load("k").complete


def test_what_is_complete_is_given_without_a_request(store):
    with FakeServer(TEXT) as server:
        with Client(server.endpoint("ollama"), store=store) as client:
            with again(client) as stream:
                stream.read()
            with again(client) as stream:
                assert list(stream) == [TEXT]
                assert stream.complete
        assert len(server.requests) == 1


def test_another_request_under_that_key_is_refused_and_the_stored_one_stays(store):
    with FakeServer(TEXT) as server:
        shown = left(server, store)
        with Client(server.endpoint("llama.cpp"), store=store) as client:
            with pytest.raises(UsageError, match="another request"):
                client.stream("other", key="k", existing="resume").__enter__()
            with client.resume("k", have=shown) as stream:  # nobody holds it
                assert shown + stream.read() == TEXT


def test_error_wants_nothing_there(store):
    with FakeServer(TEXT) as server:
        left(server, store)
        with Client(server.endpoint("llama.cpp"), store=store) as client:
            stream = client.stream("ask", key="k", existing="error")
            with pytest.raises(UsageError, match="already"):
                stream.__enter__()
            with client.stream("ask", key="new", existing="error") as stream:
                assert stream.read() == TEXT


def test_replace_forgets_what_was_there(store):
    with FakeServer(TEXT) as server:
        left(server, store)
        client = Client(server.endpoint("llama.cpp"), store=store)
        with client, client.stream("other", key="k") as stream:
            assert store.load("k").text == ""
            assert stream.read() == TEXT
        assert store.load("k").request["prompt"] == "other"


@pytest.mark.parametrize("how", [{"existing": "resume"}, {}])
def test_a_reader_that_is_alive_is_not_disturbed_unless_taken_over(store, how):
    with FakeServer(TEXT, always=Slow(0.02)) as server:
        endpoint = server.endpoint("llama.cpp")
        one, two = Client(endpoint, store=store), Client(endpoint, store=store)
        with one, two, one.stream("ask", key="k") as old:
            texts = iter(old)
            shown = next(texts)
            with pytest.raises(StreamBusy, match="take_over"):
                two.stream("ask", key="k", **how).__enter__()
            shown += next(texts)
            with two.stream("ask", key="k", take_over=True, **how) as new:
                assert new.read() == TEXT
            with pytest.raises(LeaseLost) as caught:
                shown += "".join(texts)
            assert TEXT.startswith(caught.value.text)
            assert caught.value.text.startswith(shown)
        assert store.load("k").text == TEXT


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_same_in_another_colour(store, backend):
    async def main(server):
        client = AsyncClient(server.endpoint("llama.cpp"), store=store)
        async with client, again(client) as stream:
            pieces = [piece async for piece in stream]
            assert await stream.read() == TEXT
            return pieces

    with FakeServer(TEXT, faults=[None, Cut(after=20)]) as server:
        shown = left(server, store)
        pieces = anyio.run(main, server, backend=backend)
    assert "".join(pieces) == TEXT
    assert pieces[0].startswith(shown)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"after": -1}, "0 or more"),
        ({"after": 3, "have": "abc"}, "one of them"),
        ({"have": "quite another text"}, "differ at character 0"),
    ],
)
def test_what_the_caller_cannot_have(store, wrong, words):
    with FakeServer(TEXT) as server:
        left(server, store)
        with Client(server.endpoint("llama.cpp"), store=store) as client:
            with pytest.raises(UsageError, match=words):
                client.resume("k", **wrong).__enter__()
            with pytest.raises(StreamNotFound, match="unknown"):
                client.resume("unknown").__enter__()


def test_a_closed_client_asks_and_resumes_nothing(store):
    client = Client("ollama", store=store)
    client.close()
    for ask in lambda: client.stream("a"), lambda: client.resume("k"):
        with pytest.raises(UsageError, match="closed"):
            ask()


def test_a_client_that_resumes_nothing_gives_only_what_is_complete(store):
    with FakeServer(TEXT) as server:
        left(server, store)
        endpoint = server.endpoint("llama.cpp")
        with Client(endpoint, store=store, resume=None) as client:
            with pytest.raises(UsageError, match="resume=None"):
                client.resume("k").__enter__()
            with client.stream("ask", key="whole") as stream:
                stream.read()
            with client.resume("whole") as stream:
                assert stream.read() == TEXT
                assert isinstance(stream, midstream.Stream)
