"""Keyed streams are kept while they run, also in silence; a store may fail."""

import asyncio
import logging
import threading
import time

import anyio
import pytest

import midstream
from midstream import Finish, MemoryStore, TextDelta, ToolCallDelta
from midstream._keeping import keeper
from midstream._keeping.keeper import Keeper, Kept
from midstream.testing import FakeServer, Stall

TEXT = "An answer that takes its time. " * 10


@pytest.fixture
def opened_kept(monkeypatch):
    """A keyed stream that nobody looks at but the test."""
    monkeypatch.setattr(keeper, "_INTERVAL", 60)
    store = MemoryStore()
    client = midstream.Client("ollama", store=store)
    session = client._session("hi")
    kept = Kept(Keeper(store), "k")
    kept.open()
    kept.begin(session, threading.Lock(), lambda _: None)
    yield kept, session, store
    kept.close()
    client.close()


def wait_until(condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


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


def test_the_lease_is_renewed_while_the_stream_is_open(monkeypatch):
    monkeypatch.setattr(keeper, "_LEASE", 0.3)
    monkeypatch.setattr(keeper, "_INTERVAL", 0.02)
    store = MemoryStore()
    with (
        FakeServer(TEXT, faults=[Stall(after=2)]) as server,
        midstream.Client(server.endpoint("ollama"), store=store) as client,
        client.stream("hi", key="k") as stream,
    ):
        next(iter(stream))
        time.sleep(0.5)
        assert not store.acquire("k", "another", 1)
    assert store.acquire("k", "another", 1)


def test_the_keepers_thread_ends_with_the_last_stream():
    store = MemoryStore()
    with (
        FakeServer(TEXT) as server,
        midstream.Client(server.endpoint("ollama"), store=store) as client,
    ):
        with client.stream("a", key="a") as one, client.stream("b", key="b") as two:
            one.read()
            two.read()
            names = [thread.name for thread in threading.enumerate()]
            assert names.count("midstream-keeper") == 1
        names = [thread.name for thread in threading.enumerate()]
        assert "midstream-keeper" not in names
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


def test_a_call_that_is_closed_later_is_stored_closed(opened_kept):
    kept, session, store = opened_kept
    session.ledger.add_tool(ToolCallDelta(0, "c", "f", "{}"))
    kept.look()
    assert not store.load("k").tool_calls[0].complete
    session.ledger.add_tool(ToolCallDelta(0, closed=True, tokens=0))
    kept.look()
    assert store.load("k").tool_calls[0].complete


def test_what_changes_while_a_checkpoint_is_taken_is_seen_by_the_next_look(
    opened_kept, monkeypatch
):
    kept, session, store = opened_kept
    take = session.checkpoint

    def slow():
        taken = take()
        session.ledger.add_text(TextDelta("late"), whole=True)
        monkeypatch.undo()
        return taken

    session.ledger.add_text(TextDelta("x"), whole=True)
    monkeypatch.setattr(session, "checkpoint", slow)
    kept.look()
    assert store.load("k").text == "x"
    kept.look()
    assert store.load("k").text == "xlate"


class Broken(MemoryStore):
    """A store whose disk is full."""

    def save(self, key, checkpoint):
        raise OSError("no space left")


def test_a_store_that_fails_does_not_end_the_stream(caplog, monkeypatch):
    monkeypatch.setattr(keeper, "_INTERVAL", 0.01)
    with (
        FakeServer(TEXT, faults=[Stall(after=2)]) as server,
        midstream.Client(server.endpoint("ollama"), store=Broken()) as client,
        caplog.at_level(logging.ERROR, "midstream"),
        client.stream("hi", key="k") as stream,
    ):
        assert next(iter(stream))
        wait_until(lambda: "stream 'k' was not stored" in caplog.text)
    assert "the last state of stream 'k' was not stored" in caplog.text


def test_a_late_look_does_not_undo_the_end():
    class Slow(MemoryStore):
        def save(self, key, checkpoint):
            if key == "slow" and not checkpoint.complete:
                looked.set()
                go.wait(5)
            super().save(key, checkpoint)

    looked, go, store = threading.Event(), threading.Event(), Slow()
    with (
        FakeServer(TEXT, faults=[Stall(after=1)]) as server,
        midstream.Client(server.endpoint("ollama"), store=store) as client,
        client.stream("hi", key="other") as other,
    ):
        next(iter(other))
        with client.stream("hi", key="slow") as stream:
            next(iter(stream))
            assert looked.wait(5)
            threading.Timer(0.1, go.set).start()
            stream.read()
        assert store.load("slow").complete
        assert store.acquire("slow", "another", 1)


async def _cancelled_while_entering(server, store):
    async with midstream.AsyncClient(server.endpoint("ollama"), store=store) as client:
        task = asyncio.create_task(client.stream("hi", key="k").__aenter__())
        await asyncio.to_thread(store.asked.wait, 5)
        task.cancel()
        asyncio.get_running_loop().call_later(0.1, store.go.set)
        await asyncio.wait([task])
        assert task.cancelled()


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
        def acquire(self, *lease):
            self.asked.set()
            self.go.wait(5)
            return super().acquire(*lease)

    store = Slow()
    store.asked, store.go = threading.Event(), threading.Event()
    with FakeServer(TEXT, always=Stall(after=2)) as server:
        asyncio.run(main(server, store))
        wait_until(lambda: store.acquire("k", "another", 1))
