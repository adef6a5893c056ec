"""What is over is freed at once: nothing of ours, and no text, waits for the collector.

A server with long answers and many streams would else hold all of them until a full
collection, which comes late and stops everything.
"""

import gc

import anyio
import pytest

import midstream
from midstream import Backoff, Resume
from midstream.testing import Cut, FakeServer

WORD = "unmistakable"
TEXT = f"{WORD} and more. " * 20
RESUME = Resume(backoff=Backoff(initial=0.001, maximum=0.001))


def blocking(endpoint):
    with (
        midstream.Client(endpoint, resume=RESUME) as client,
        client.stream("Hi") as stream,
    ):
        return sum(map(len, stream))


async def awaiting(endpoint):
    async with (
        midstream.AsyncClient(endpoint, resume=RESUME) as client,
        client.stream("Hi") as stream,
    ):
        return sum([len(text) async for text in stream])


def left_behind():
    """What is of ours, or holds the text, among what only the collector can free."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found, gc.garbage[:] = list(gc.garbage), []
    return [
        one
        for one in found
        if _is_ours(type(one).__module__)
        or (type(one) in (list, tuple, dict) and WORD in repr(one))
    ]


def _is_ours(module):
    return module.split(".")[0] == "midstream" and "testing" not in module


@pytest.fixture
def frozen():
    """No collection but ours; what was there before does not count."""
    gc.collect()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.parametrize("faults", [[], [Cut(3)]], ids=["unbroken", "resumed"])
@pytest.mark.parametrize("dialect", ["vllm", "ollama", "triton-grpc", "vllm-grpc"])
@pytest.mark.parametrize("colour", ["sync", "asyncio", "trio"])
def test_a_closed_client_leaves_nothing_in_circles(frozen, colour, dialect, faults):
    def run(endpoint):
        gc.collect()
        if colour == "sync":
            return blocking(endpoint), left_behind()

        async def both():
            said = await awaiting(endpoint)
            await anyio.wait_all_tasks_blocked()
            return said, left_behind()

        return anyio.run(both, backend=colour)

    with FakeServer(TEXT, faults=[None, *faults]) as server:
        run(server.endpoint(dialect))  # what is imported and learned once
        said, left = run(server.endpoint(dialect))
    assert said == len(TEXT)
    assert left == []
