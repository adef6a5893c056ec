"""Keyed streams are kept while they run, also in silence."""

import asyncio
import threading
import time

import anyio
import pytest
from kept_reader import wait_until

import midstream
from midstream import Finish, MemoryStore, TextDelta, ToolCallDelta
from midstream._keeping import keeper, lease, recorder
from midstream.testing import FakeServer, Stall

TEXT = "An answer that takes its time. " * 10


def test_silence_is_stored_too():
    store = MemoryStore()
    with (
        FakeServer(TEXT, faults=[Stall(after=4)]) as server,
        midstream.Client(server.endpoint("ollama"), store=store) as client,
        client.stream("hi", key="k") as stream,
    ):
        shown = ""
        for piece in stream:
            shown += piece
            if server.streams[0].deltas == 4 and shown == server.streams[0].text:
                break
        wait_until(lambda: store.load("k") and store.load("k").text == shown)
        assert not store.load("k").complete


def test_its_own_checkpoint_is_there_before_the_request_goes_out():
    """K3: killed then, the next process does not find an earlier answer."""
    store = MemoryStore()
    with (
        FakeServer(TEXT) as server,
        midstream.Client(server.endpoint("ollama"), store=store) as client,
    ):
        with client.stream("first", key="k") as stream:
            stream.read()
        with client.stream("second", key="k"):
            assert len(server.requests) == 1
            stored = store.load("k")
        assert (stored.text, stored.complete) == ("", False)
        assert stored.request["prompt"] == "second"


def test_the_lease_is_renewed_while_the_stream_is_open(monkeypatch):
    for module in keeper, lease, recorder:
        monkeypatch.setattr(module, "LEASE", 0.3)
    store = MemoryStore()
    with (
        FakeServer(TEXT, faults=[Stall(after=2)]) as server,
        midstream.Client(server.endpoint("ollama"), store=store) as client,
        client.stream("hi", key="k") as stream,
    ):
        next(iter(stream))
        time.sleep(0.6)
        assert not store.acquire("k", "another", 1)
    assert store.acquire("k", "another", 1)


def test_the_threads_end_with_the_last_stream():
    store = MemoryStore()

    def ours():
        names = [thread.name for thread in threading.enumerate()]
        return [n for n in names if n.startswith("midstream-")]

    before = ours()
    with (
        FakeServer(TEXT) as server,
        midstream.Client(server.endpoint("ollama"), store=store) as client,
    ):
        with client.stream("a", key="a") as one, client.stream("b", key="b") as two:
            one.read()
            two.read()
            assert ours().count("midstream-keeper") == 1
            assert ours().count("midstream-lease") <= 2
        assert ours() == before
    assert sorted(store.keys()) == ["a", "b"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_async_streams_are_kept_and_continued(backend):
    store = MemoryStore()

    async def main(endpoint):
        async with midstream.AsyncClient(endpoint, store=store) as client:
            shown = ""
            async with client.stream("hi", key="k") as stream:
                async for piece in stream:
                    shown += piece
                    if len(shown) > 40:
                        break
            async with client.resume("k", after=len(shown)) as stream:
                async for piece in stream:
                    shown += piece
            return shown

    with FakeServer(TEXT) as server:
        assert anyio.run(main, server.endpoint("ollama"), backend=backend) == TEXT
    assert store.load("k").complete


def test_a_call_is_given_once_by_whoever_asks_for_the_key():
    said = ToolCallDelta(0, "c", "f", '{"a":1}')
    store = MemoryStore()
    with (
        FakeServer(events=[TextDelta("So:"), said, Finish("tool_calls")]) as server,
        midstream.Client(server.endpoint("openai"), store=store) as client,
    ):
        with client.stream("hi", key="k") as first:
            first.read()
        with client.resume("k") as again:
            assert again.read() == "So:"
            assert again.tool_calls == first.tool_calls
        [call] = again.tool_calls
        assert (call.parsed(), call.complete) == ({"a": 1}, True)
        assert len(server.streams) == 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("async_", [False, True])
def test_who_is_taken_over_ends_with_lease_lost(async_):
    store = MemoryStore()

    async def read(endpoint):
        async with (
            midstream.AsyncClient(endpoint, store=store) as client,
            client.stream("hi", key="k") as stream,
        ):
            async for _ in stream:
                store.acquire("k", "another", 30, take_over=True)
                await anyio.sleep(0.2)

    with FakeServer(TEXT, always=midstream.testing.Slow(0.01)) as server:
        with pytest.raises(midstream.LeaseLost) as lost:
            if async_:
                anyio.run(read, server.endpoint("ollama"))
            else:
                with (
                    midstream.Client(server.endpoint("ollama"), store=store) as client,
                    client.stream("hi", key="k") as stream,
                ):
                    for _ in stream:
                        store.acquire("k", "another", 30, take_over=True)
                        time.sleep(0.2)
        assert TEXT.startswith(lost.value.text)
        assert lost.value.text


def test_a_stream_is_entered_once_also_with_a_key():
    """K16: a second entering does not disturb the first reader."""
    store = MemoryStore()

    async def main(endpoint):
        async with (
            midstream.AsyncClient(endpoint, store=store) as client,
            client.stream("hi", key="k") as stream,
        ):
            first = await anext(aiter(stream))
            with pytest.raises(midstream.UsageError):
                await stream.__aenter__()
            return first + "".join([piece async for piece in stream])

    with FakeServer(TEXT) as server:
        assert anyio.run(main, server.endpoint("ollama")) == TEXT


async def _cancelled_while_entering(server, store):
    async with midstream.AsyncClient(server.endpoint("ollama"), store=store) as client:
        task = asyncio.create_task(client.stream("hi", key="k").__aenter__())
        await asyncio.to_thread(store.asked.wait, 5)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        store.go.set()  # the store answers when nobody waits any more


async def _cancelled_while_leaving(server, store):
    store.go.set()
    async with midstream.AsyncClient(server.endpoint("ollama"), store=store) as client:

        async def read():
            async with client.stream("hi", key="k") as stream:
                await stream.read()

        task = asyncio.create_task(read())
        await asyncio.to_thread(server.wait_for_stream)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)


@pytest.mark.parametrize("main", [_cancelled_while_entering, _cancelled_while_leaving])
def test_a_task_that_is_cancelled_gives_the_key_back(main):
    class Slow(MemoryStore):
        def acquire(self, *lease, take_over=False):
            self.asked.set()
            self.go.wait(5)
            return super().acquire(*lease, take_over=take_over)

    store = Slow()
    store.asked, store.go = threading.Event(), threading.Event()
    with FakeServer(TEXT, always=Stall(after=2)) as server:
        asyncio.run(main(server, store))
        wait_until(lambda: store.acquire("k", "another", 1))
