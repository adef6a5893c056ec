"""Whoever keeps a stream may end it from any thread: its key is another's now."""

import threading

import anyio
import pytest

import midstream
from midstream import StreamInterrupted
from midstream.testing import FakeServer, Stall

TEXT = "An answer that takes its time. " * 4
LOST = "another reader took the key over"


def lose(stream):
    """As a recorder does, who is told by its store."""
    thread = threading.Thread(target=stream._lose, args=[StreamInterrupted(LOST)])
    thread.start()
    thread.join()


def test_a_pending_read_wakes_and_raises_it(family):
    with (
        FakeServer(TEXT, faults=[Stall(after=2)]) as server,
        midstream.Client(server.endpoint(family)) as client,
        client.stream("hi") as stream,
    ):
        seen = []

        def when_silent():
            server.wait_for(lambda entry: entry.deltas >= 2)
            lose(stream)

        thread = threading.Thread(target=when_silent)
        thread.start()
        with pytest.raises(StreamInterrupted, match=LOST) as raised:
            seen.extend(stream)
        thread.join()
        assert raised.value.text == stream.text
        assert raised.value.checkpoint is not None
        with pytest.raises(midstream.UsageError, match=LOST):
            list(stream)
        server.wait_for_hangup()


def test_a_pending_async_read_does_so_too(family, backend):
    async def main(server):
        async with (
            midstream.AsyncClient(server.endpoint(family)) as client,
            client.stream("hi") as stream,
            anyio.create_task_group() as tasks,
        ):

            async def when_silent():
                while not stream.text:  # noqa: ASYNC110 - the server has no events
                    await anyio.sleep(0.005)
                await anyio.to_thread.run_sync(lose, stream)

            tasks.start_soon(when_silent)
            with pytest.raises(StreamInterrupted, match=LOST) as raised:
                await stream.read()
            assert raised.value.text == stream.text
            with pytest.raises(midstream.UsageError, match=LOST):
                await stream.read()

    with FakeServer(TEXT, faults=[Stall(after=2)], replay=False) as server:
        anyio.run(main, server, backend=backend)
        server.wait_for_hangup()


def test_the_new_owners_generation_is_not_stopped():
    with (
        FakeServer(TEXT, faults=[Stall(after=2)]) as server,
        midstream.Client(server.endpoint("llama.cpp")) as client,
    ):
        with client.stream("hi") as stream:
            next(iter(stream))
            lose(stream)
        server.wait_for_hangup()
        assert [entry.method for entry in server.requests] == ["POST"]


def test_nor_by_an_async_reader(backend):
    async def main(server):
        async with (
            midstream.AsyncClient(server.endpoint("llama.cpp")) as client,
            client.stream("hi") as stream,
        ):
            await anext(aiter(stream))
            lose(stream)

    with FakeServer(TEXT, faults=[Stall(after=2)]) as server:
        anyio.run(main, server, backend=backend)
        server.wait_for_hangup()
        assert [entry.method for entry in server.requests] == ["POST"]


def test_a_stream_that_has_not_been_read_raises_at_its_first_read(backend):
    async def main(server):
        async with (
            midstream.AsyncClient(server.endpoint("ollama")) as client,
            client.stream("hi") as stream,
        ):
            lose(stream)
            lose(stream)
            with pytest.raises(StreamInterrupted, match=LOST):
                await stream.read()

    with FakeServer(TEXT) as server:
        anyio.run(main, server, backend=backend)
        assert server.requests == []


def test_after_the_end_it_is_harmless():
    with (
        FakeServer(TEXT) as server,
        midstream.Client(server.endpoint("ollama")) as client,
        client.stream("hi") as stream,
    ):
        assert stream.read() == TEXT
        lose(stream)
        assert stream.read() == TEXT
