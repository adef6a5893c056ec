"""A cancelled read goes on for the next reader, and closing survives every cancel."""

import asyncio
import contextvars
import gc

import anyio
import anyio.lowlevel
import pytest

import midstream
from midstream import Timeouts, Words
from midstream._transports.body import AsyncHttpBody
from midstream.testing import Cut, FakeServer, Slow, Stall

TEXT = "An answer that takes its time. " * 4
LONG = TEXT * 10


async def heartbeats(iterator, seconds=0.03):
    """What an iterator gives, asked again and again by a reader without patience."""
    pieces, beats = [], 0
    while True:
        with anyio.move_on_after(seconds) as scope:
            try:
                pieces.append(await anext(iterator))
            except StopAsyncIteration:
                return pieces, beats
        beats += scope.cancelled_caught


async def native_heartbeats(iterator, seconds=0.03):
    pieces, beats = [], 0
    while True:
        try:
            pieces.append(await asyncio.wait_for(anext(iterator), seconds))
        except TimeoutError:
            beats += 1
        except StopAsyncIteration:
            return pieces, beats


BEATS = [
    pytest.param("asyncio", native_heartbeats, id="asyncio, natively"),
    pytest.param("asyncio", heartbeats, id="asyncio, by scope"),
    pytest.param("trio", heartbeats, id="trio"),
]
WAYS = {
    "texts": aiter,
    "chunks": lambda stream: stream.chunks(Words(max_wait=None)),
    "chunks in time": lambda stream: stream.chunks(Words(max_wait=0.5)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("loop", "beat"), BEATS)
def test_a_heartbeat_costs_no_request_and_no_character(family, loop, beat, way):
    """K10, K2: shorter than the first token, and than what comes between two."""

    async def main(server):
        async with (
            midstream.AsyncClient(server.endpoint(family)) as client,
            client.stream("hi") as stream,
        ):
            return await beat(WAYS[way](stream))

    with FakeServer(TEXT[:40], faults=[Slow(0.04, first=0.3)]) as server:
        pieces, beats = anyio.run(main, server, backend=loop)
        assert len(server.streams) == 1
    assert "".join(pieces) == TEXT[:40]
    assert beats >= 3


@pytest.mark.parametrize(("loop", "beat"), BEATS)
@pytest.mark.parametrize("kind", ["first_token", "idle", "total"])
def test_limits_count_whoever_waits(family, loop, beat, kind):
    async def main(server):
        limits = Timeouts(**{"first_token": 60, kind: 0.3})
        async with (
            midstream.AsyncClient(
                server.endpoint(family), timeouts=limits, resume=None
            ) as client,
            client.stream("hi") as stream,
        ):
            await beat(aiter(stream))

    stall = Stall(after=0 if kind != "idle" else 2)
    with FakeServer(TEXT, faults=[stall], replay=False) as server:
        with pytest.raises(midstream.MidstreamError) as raised:
            anyio.run(main, server, backend=loop)
        assert len(server.streams) == 1
    timeout = raised.value if kind == "total" else raised.value.__cause__
    assert timeout.kind == kind


@pytest.mark.parametrize(("loop", "beat"), BEATS)
def test_attempts_count_too(loop, beat):
    async def main(server):
        resume = midstream.Resume(attempts=2, backoff=midstream.Backoff(initial=0))
        async with (
            midstream.AsyncClient(server.endpoint("ollama"), resume=resume) as client,
            client.stream("hi") as stream,
        ):
            await beat(aiter(stream))

    with FakeServer(TEXT, faults=[Cut(after=0)] * 20) as server:
        with pytest.raises(midstream.StreamInterrupted):
            anyio.run(main, server, backend=loop)
        assert len(server.streams) < 10


@pytest.mark.parametrize(("loop", "beat"), BEATS)
def test_the_last_read_is_not_lost_to_a_slow_hang_up(loop, beat, monkeypatch):
    """K2: it used to be awaited between booking the end and giving it on."""
    aclose = AsyncHttpBody.aclose

    async def slowly(self):
        await anyio.sleep(0.3)
        await aclose(self)

    async def main(server):
        async with (
            midstream.AsyncClient(server.endpoint("openai")) as client,
            client.stream("hi") as stream,
        ):
            pieces, _ = await beat(aiter(stream))
            assert stream.complete
            return "".join(pieces)

    monkeypatch.setattr(AsyncHttpBody, "aclose", slowly)
    with FakeServer(TEXT) as server:
        assert anyio.run(main, server, backend=loop) == TEXT


@pytest.mark.parametrize("cancels", [1, 2, 3])
@pytest.mark.parametrize("after", [0, 2])
def test_a_task_cancelled_again_in_the_next_tick_leaks_nothing(family, cancels, after):
    """K9: closing once used to mark the stream ended before it had closed it."""

    async def main(server):
        async with midstream.AsyncClient(server.endpoint(family)) as client:

            async def talk():
                async with client.stream("hi") as stream:
                    await stream.read()

            task = asyncio.create_task(talk())
            await asyncio.to_thread(
                server.wait_for, lambda entry: entry.streams and entry.deltas >= after
            )
            for _ in range(cancels):
                task.cancel()
                await asyncio.sleep(0)
            await asyncio.wait([task])
            assert task.cancelled()
            await asyncio.to_thread(server.wait_for_hangup)

    with FakeServer(TEXT, faults=[Stall(after=after)], replay=False) as server:
        asyncio.run(main(server))


@pytest.mark.parametrize("cancels", [1, 2, 3])
def test_a_close_that_is_cancelled_goes_on(family, cancels):
    async def main(server):
        async with (
            midstream.AsyncClient(server.endpoint(family)) as client,
            client.stream("hi") as stream,
        ):
            await anext(aiter(stream))
            task = asyncio.create_task(stream.aclose())
            for _ in range(cancels):
                await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait([task])
            await asyncio.to_thread(server.wait_for_hangup)

    with FakeServer(TEXT, faults=[Stall(after=3)], replay=False) as server:
        asyncio.run(main(server))


def test_a_stream_that_nobody_holds_ends(family, backend):
    """Left without a close: its reader holds the line, and not the stream."""

    async def main(server):
        async with midstream.AsyncClient(server.endpoint(family)) as client:
            stream = client.stream("hi")
            await stream.__aenter__()
            async for _ in stream:
                break
            del stream
            gc.collect()
            await anyio.to_thread.run_sync(server.wait_for_hangup)

    with FakeServer(TEXT, faults=[Stall(after=3)], replay=False) as server:
        anyio.run(main, server, backend=backend)


def test_a_loop_that_ends_takes_the_reader_along(family, backend, caplog):
    async def main(server, kept):
        client = midstream.AsyncClient(server.endpoint(family))
        stream = client.stream("hi")
        await stream.__aenter__()
        await anext(aiter(stream))
        kept += client, stream

    with FakeServer(TEXT, faults=[Stall(after=3)], replay=False) as server:
        kept = []
        anyio.run(main, server, kept, backend=backend)
        server.wait_for_hangup()
        kept.clear()
        gc.collect()
    assert not caplog.records


def test_the_reader_outlives_the_scope_of_its_first_caller(family, backend):
    async def main(server):
        async with (
            midstream.AsyncClient(server.endpoint(family)) as client,
            client.stream("hi") as stream,
        ):
            with anyio.CancelScope() as scope:
                first = await anext(aiter(stream))
                scope.cancel()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anext, aiter(stream))
                await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            return first, await stream.read()

    with FakeServer(LONG) as server:
        first, text = anyio.run(main, server, backend=backend)
        assert len(server.streams) == 1
    assert text == LONG
    assert LONG.startswith(first)


def test_the_reader_has_the_context_of_its_first_caller(backend):
    import httpx  # noqa: PLC0415 - for this test alone

    who = contextvars.ContextVar("who", default="nobody")
    seen = []

    async def note(request):
        seen.append(who.get())

    async def main(server):
        who.set("the caller")
        async with (
            httpx.AsyncClient(event_hooks={"request": [note]}) as http,
            midstream.AsyncClient(server.endpoint("ollama"), http_client=http) as c,
            c.stream("hi") as stream,
        ):
            await stream.read()

    with FakeServer(TEXT) as server:
        anyio.run(main, server, backend=backend)
    assert seen == ["the caller"]


def test_the_reader_goes_few_reads_ahead(backend):
    async def main(server):
        async with (
            midstream.AsyncClient(server.endpoint("ollama")) as client,
            client.stream("hi") as stream,
        ):
            iterator = aiter(stream)
            for _ in range(20):
                await anext(iterator)
            await anyio.sleep(0.3)
            return len(stream.text)

    with FakeServer("x" * 4000, repeat=5000) as server:  # 20 MB
        assert anyio.run(main, server, backend=backend) < 1 << 20


def test_no_connection_is_made_before_it_is_asked_for(backend):
    async def main(server):
        async with (
            midstream.AsyncClient(server.endpoint("ollama")) as client,
            client.stream("hi") as stream,
        ):
            iterator = aiter(stream)
            await anext(iterator)
            await anyio.to_thread.run_sync(
                server.wait_for, lambda entry: entry.ended == "cut"
            )
            await anyio.sleep(0.1)

    with FakeServer(TEXT, faults=[Cut(after=2)]) as server:
        anyio.run(main, server, backend=backend)
        assert len(server.streams) == 1
