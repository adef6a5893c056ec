"""Streams that go on by their key, or at a server of another kind."""

import anyio
import pytest

import midstream
from midstream import (
    Exactness,
    MemoryStore,
    Resume,
    StreamInterrupted,
    Timeouts,
    UsageError,
)
from midstream.testing import Cut, FakeServer, Slow, Stall, Status

TEXT = "The quick brown fox jumps over the lazy dog. 速い茶色の狐。" * 2


def begun(server, dialect, model):
    """A store with a stream that broke."""
    store = MemoryStore()
    endpoint = server.endpoint(dialect, model=model)
    with (
        midstream.Client(endpoint, resume=None, store=store) as client,
        client.stream("hi", key="k") as stream,
        pytest.raises(midstream.StreamInterrupted),
    ):
        stream.read()
    return store


def test_nothing_is_asked_anew_where_resuming_is_off():
    with FakeServer(TEXT, faults=[Cut(after=4)]) as server:
        store = begun(server, "ollama", "a")
        asked = len(server.requests)
        with (
            midstream.Client(
                server.endpoint("ollama"), resume=None, store=store
            ) as client,
            pytest.raises(UsageError, match="not complete"),
            client.resume("k"),
        ):
            pass
        assert len(server.requests) == asked


@pytest.mark.parametrize(
    ("spoken", "model", "ids", "exactness"),
    [
        ("vllm-completions", "a", True, Exactness.TOKENS),
        ("vllm-completions", "b", False, Exactness.APPROXIMATE),
        ("llama.cpp-completion", "a", False, Exactness.TOKENS),
    ],
)
def test_ids_of_another_model_or_dialect_are_not_sent(spoken, model, ids, exactness):
    with FakeServer(TEXT, faults=[Cut(after=6)]) as first:
        store = begun(first, "vllm-completions", "a")
    known = store.load("k").token_ids
    assert known
    with (
        FakeServer(TEXT) as second,
        midstream.Client(second.endpoint(spoken, model=model), store=store) as client,
        client.resume("k") as stream,
    ):
        assert stream.read() == TEXT
        assert stream.exactness is exactness
        sent = second.streams[-1].body["prompt"]
        assert (sent[-len(known) :] == known) is ids
        assert not [request for request in second.requests if request.status == 404]


def test_a_generation_is_left_in_its_own_dialect():
    with (
        FakeServer(TEXT, faults=[Cut(after=4), Status(401)]) as first,
        FakeServer(TEXT) as second,
        midstream.Client(
            first.endpoint("openai-responses"), second.endpoint("llama.cpp")
        ) as client,
        client.stream("hi") as stream,
    ):
        assert stream.read() == TEXT
    assert [request.method for request in first.requests] == ["POST", "GET", "POST"]
    assert first.requests[-1].path.endswith("/cancel")


def test_a_long_repetition_is_no_silence():
    with (
        FakeServer(TEXT, faults=[Cut(after=12)], always=Slow(0.05)) as server,
        midstream.Client(
            server.endpoint("openai"),
            resume=Resume(strategies=["rerun"], attempts=1),
            timeouts=Timeouts(first_token=0.4, idle=0.4),
        ) as client,
        client.stream("hi", seed=1) as stream,
    ):
        assert stream.read() == TEXT


@pytest.mark.parametrize("resume", [Resume(), None])
def test_a_read_that_is_cancelled_goes_on_for_the_next_one(async_colour, resume):
    """It is no drop; what ends it are the stream's own limits."""

    async def main(server):
        endpoint, limits = server.endpoint("ollama"), Timeouts(idle=1)
        client = midstream.AsyncClient(endpoint, resume=resume, timeouts=limits)
        async with client, client.stream("hi") as stream:
            iterator = aiter(stream)
            pieces = [await anext(iterator)]
            with anyio.move_on_after(0.3):
                pieces += [piece async for piece in iterator]
                pytest.fail("it stalls")
            assert len(server.requests) == 1
            if resume is None:
                with pytest.raises(StreamInterrupted) as caught:
                    await anext(iterator)
                assert caught.value.__cause__.kind == "idle"
                return stream.text
            pieces += [piece async for piece in iterator]
            assert len(stream.resumes) == 1
            return stream.text

    with FakeServer(TEXT, faults=[Stall(after=3)]) as server:
        text = async_colour.run(main, server)
        expected = server.text if resume else server.streams[0].text
    assert text == expected


def test_a_stream_that_broke_is_not_read_as_if_it_were_whole():
    with (
        FakeServer(TEXT, faults=[Cut(after=4)]) as server,
        midstream.Client(server.endpoint("ollama"), resume=None) as client,
        client.stream("hi") as stream,
    ):
        with pytest.raises(StreamInterrupted):
            stream.read()
        with pytest.raises(UsageError, match=r"broke .* before its end"):
            stream.read()


def test_a_server_that_cannot_be_asked_is_passed_over():
    messages = [{"role": "user", "content": "hi"}]
    with (
        FakeServer(TEXT, faults=[Status(401)]) as first,
        FakeServer(TEXT) as raw,
        FakeServer(TEXT) as last,
        midstream.Client(
            first.endpoint("openai"), raw.endpoint("triton"), last.endpoint("ollama")
        ) as client,
        client.stream(messages) as stream,
    ):
        assert stream.read() == TEXT
        assert last.streams


def test_a_server_that_cannot_continue_still_begins():
    with (
        FakeServer(TEXT, faults=[Cut(after=4)]) as first,
        FakeServer(TEXT) as second,
        midstream.Client(first.endpoint("openai"), second.endpoint("ollama")) as client,
    ):
        for asked in (1, 2):
            with client.stream("hi") as stream:
                assert stream.read() == TEXT
            assert len(first.streams) == asked
