"""What was closed is freed at once: no circle holds the text (K26)."""

import gc
import weakref

import anyio
import pytest

import midstream
from midstream import Words
from midstream.testing import Cut, FakeServer, Stall

TEXT = "An answer that takes its time. " * 4
ENDS = {"complete": None, "broken": Cut(after=3), "left": Stall(after=3)}


@pytest.fixture(autouse=True)
def _no_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def remembered(stream):
    return [weakref.ref(stream), weakref.ref(stream._session.ledger)]


def read(stream, end):
    pieces = stream.chunks(Words(max_wait=0.05))
    try:
        for _ in pieces:
            if end == "left":
                break
    except midstream.StreamInterrupted:
        assert end == "broken"
    pieces.close()


async def aread(stream, end):
    try:
        async for _ in stream:
            if end == "left":
                break
    except midstream.StreamInterrupted:
        assert end == "broken"


@pytest.mark.parametrize("end", ENDS)
def test_a_closed_stream_is_freed(family, end):
    with FakeServer(TEXT, faults=[ENDS[end]], replay=False) as server:
        with (
            midstream.Client(server.endpoint(family), resume=None) as client,
            client.stream("hi") as stream,
        ):
            read(stream, end)
            left = remembered(stream)
        del stream, client
        assert [ref() for ref in left] == [None, None]


@pytest.mark.parametrize("end", ENDS)
def test_a_closed_async_stream_is_freed(family, end, backend):
    async def main(server):
        async with midstream.AsyncClient(
            server.endpoint(family), resume=None
        ) as client:
            async with client.stream("hi") as stream:
                await aread(stream, end)
                left = remembered(stream)
            del stream
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            return [ref() for ref in left]

    with FakeServer(TEXT, faults=[ENDS[end]], replay=False) as server:
        assert anyio.run(main, server, backend=backend) == [None, None]
