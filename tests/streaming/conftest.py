"""Streams of a fake server: kinds of line, and what waits for a condition."""

import time

import pytest

FAMILIES = ("openai", "ollama", "triton-grpc")


@pytest.fixture(params=FAMILIES)
def family(request):
    """One dialect for each kind of line."""
    return request.param


@pytest.fixture(params=["asyncio", "trio"])
def backend(request):
    """What the async streams run on."""
    return request.param


@pytest.fixture
def wait_until():
    """Wait for a condition, in five seconds at most."""

    def wait(condition):
        until = time.monotonic() + 5
        while not condition():
            assert time.monotonic() < until, "it never came about"
            time.sleep(0.005)

    return wait
