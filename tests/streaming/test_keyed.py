"""Entering and leaving keyed streams, whatever their store does meanwhile."""

import asyncio
import gc
import threading
import time

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

import midstream
from midstream import Client, MemoryStore, Resume
from midstream._streaming import stream as streams
from midstream.testing import Cut, FakeServer, Stall

TEXT = "An answer that takes its time. " * 4


class SlowStore(MemoryStore):
    """One whose calls hang until they are let go."""

    def __init__(self, hangs):
        super().__init__()
        self.hangs = hangs
        self.hanging = threading.Event()
        self.go = threading.Event()

    def _hang(self, call):
        if call == self.hangs:
            self.hanging.set()
            assert self.go.wait(10)

    def acquire(self, *args, **words):
        self._hang("acquire")
        return super().acquire(*args, **words)

    def save(self, *args, **words):
        self._hang("save")
        return super().save(*args, **words)

    def release(self, *args):
        self._hang("release")
        super().release(*args)


def is_free(store):
    if not store.acquire("k", "another", 5):
        return False
    store.release("k", "another")
    return True


def test_entering_twice_leaves_the_first_reader_alone(backend):
    """K16."""

    async def main(server):
        async with (
            midstream.AsyncClient(
                server.endpoint("ollama"), store=MemoryStore()
            ) as client,
            client.stream("hi", key="k") as stream,
        ):
            first = await anext(aiter(stream))
            with pytest.raises(midstream.UsageError, match="entered once"):
                await stream.__aenter__()
            return first, await stream.read()

    with FakeServer(TEXT) as server:
        first, text = anyio.run(main, server, backend=backend)
        assert len(server.streams) == 1
    assert text == TEXT
    assert TEXT.startswith(first)


def test_entering_twice_by_blocking():
    store = MemoryStore()
    with (
        FakeServer(TEXT) as server,
        midstream.Client(server.endpoint("ollama"), store=store) as client,
    ):
        with client.stream("hi", key="k") as stream:
            next(iter(stream))
            with pytest.raises(midstream.UsageError, match="entered once"):
                stream.__enter__()
            assert stream.read() == TEXT
        assert is_free(store)


def test_a_store_that_hangs_holds_a_close_for_its_limit_alone(backend, monkeypatch):
    monkeypatch.setattr(streams, "_RELEASE", 0.2)
    store = SlowStore("release")

    async def main(server):
        async with (
            midstream.AsyncClient(server.endpoint("ollama"), store=store) as client,
            client.stream("hi", key="k") as stream,
        ):
            await anext(aiter(stream))
            began = time.monotonic()
            await stream.aclose()
            return time.monotonic() - began

    with FakeServer(TEXT, faults=[Stall(after=3)]) as server:
        try:
            assert anyio.run(main, server, backend=backend) < 5
            server.wait_for_hangup()
        finally:
            store.go.set()


@pytest.mark.parametrize("hangs", ["acquire", "save"])
@pytest.mark.parametrize("cancels", [1, 2, 3])
def test_cancelling_while_it_is_entered_gives_the_lease_back(
    hangs, cancels, wait_until
):
    store = SlowStore(hangs)

    async def main():
        async with midstream.AsyncClient("ollama", store=store) as client:
            task = asyncio.create_task(client.stream("hi", key="k").__aenter__())
            assert await asyncio.to_thread(store.hanging.wait, 5)
            for _ in range(cancels):
                task.cancel()
                await asyncio.sleep(0)
            if cancels == 1:  # it waits for the store
                store.go.set()
            await asyncio.wait([task], timeout=5)
            assert task.cancelled()
            store.go.set()

    asyncio.run(main())
    store.hangs = ""
    wait_until(lambda: is_free(store))


@pytest.mark.parametrize("hangs", ["acquire", "save"])
def test_leaving_its_scope_while_it_is_entered_does_so_too(hangs, backend, wait_until):
    store = SlowStore(hangs)

    async def main():
        async with (
            midstream.AsyncClient("ollama", store=store) as client,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(client.stream("hi", key="k").__aenter__)
            assert await anyio.to_thread.run_sync(store.hanging.wait, 5)
            tasks.cancel_scope.cancel()
            store.go.set()

    anyio.run(main, backend=backend)
    store.hangs = ""
    wait_until(lambda: is_free(store))


def test_closing_while_it_is_entered_gives_the_lease_back(backend, wait_until):
    store = SlowStore("save")

    async def main():
        async with midstream.AsyncClient("ollama", store=store) as client:
            stream = client.stream("hi", key="k")

            async def enter():
                with pytest.raises(midstream.UsageError, match="left before its end"):
                    await stream.__aenter__()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(enter)
                assert await anyio.to_thread.run_sync(store.hanging.wait, 5)
                tasks.start_soon(stream.aclose)
                await anyio.wait_all_tasks_blocked()
                store.go.set()
            with pytest.raises(midstream.UsageError, match="left before its end"):
                await stream.read()

    anyio.run(main, backend=backend)
    store.hangs = ""
    wait_until(lambda: is_free(store))


@pytest.mark.parametrize("read", [False, True])
def test_a_stream_that_nobody_left_gives_its_key_back(read, wait_until):
    store = MemoryStore()
    with (
        FakeServer(TEXT) as server,
        midstream.Client(server.endpoint("ollama"), store=store) as client,
    ):
        stream = client.stream("hi", key="k").__enter__()
        assert not read or stream.read() == TEXT
        assert not is_free(store)
        del stream
        gc.collect()
        wait_until(lambda: is_free(store))


@pytest.mark.parametrize("read", [False, True])
def test_an_async_stream_that_nobody_left_does_so_too(read, backend, wait_until):
    async def main(server, store):
        async with midstream.AsyncClient(
            server.endpoint("ollama"), store=store
        ) as client:
            stream = await client.stream("hi", key="k").__aenter__()
            assert not read or await stream.read() == TEXT
            assert not is_free(store)
            del stream
            gc.collect()
            await anyio.to_thread.run_sync(wait_until, lambda: is_free(store))

    with FakeServer(TEXT) as server:
        anyio.run(main, server, MemoryStore(), backend=backend)


class LateStore(MemoryStore):
    """One whose second reader gets what is stored only when it is let go."""

    def __init__(self):
        super().__init__()
        self.loads = 0
        self.hanging = threading.Event()
        self.go = threading.Event()

    def load(self, key):
        self.loads += 1
        if self.loads == 1:
            self.hanging.set()
            assert self.go.wait(4)
        return super().load(key)


def test_who_comes_next_waits_for_one_that_was_cancelled_while_it_entered(backend):
    """It has the lease, and gives it back in its own time."""
    store = LateStore()

    async def main(server):
        client = midstream.AsyncClient(server.endpoint("ollama"), store=store)
        async with client:
            async with client.stream("hi", key="k") as stream:
                shown = await anext(aiter(stream))
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:

                    async def cancel():
                        await anyio.to_thread.run_sync(store.hanging.wait)
                        scope.cancel()

                    tasks.start_soon(cancel)
                    await client.resume("k").__aenter__()
            assert scope.cancelled_caught
            threading.Timer(0.2, store.go.set).start()
            async with client.resume("k", have=shown) as rest:
                return shown + await rest.read()

    with FakeServer(TEXT) as server:
        assert anyio.run(main, server, backend=backend) == TEXT


@pytest.mark.parametrize("dialect", ["llama.cpp", "vllm-responses"])
def test_what_continued_a_text_is_not_replayed_by_another_process(dialect):
    """From its begin it is the rest alone, which is not what had been delivered."""
    ours, theirs = MemoryStore(), MemoryStore()
    by_text = Resume(strategies=("text", "replay"))
    with FakeServer(TEXT, faults=[Cut(6), Stall(8)]) as server:
        endpoint = server.endpoint(dialect)
        client = Client(endpoint, store=ours, resume=by_text)
        with client, client.stream("hi", key="k") as stream:
            items = iter(stream)
            shown = ""
            while not stream.resumes or len(shown) <= stream.resumes[0].at:
                shown += next(items)
            stored = stream.checkpoint()
            assert (stored.text, stored.handle) == (stream.text, "")
            theirs.save("k", stored)  # as if this process were killed now
            with (
                Client(endpoint, store=theirs, resume=Resume()) as other,
                other.resume("k", have=stored.text) as rest,
            ):
                assert stored.text + rest.read() == TEXT
