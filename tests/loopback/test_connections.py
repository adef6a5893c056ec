"""What ends leaves no connection behind, also where an error is kept."""

import gc
import time

import pytest

import midstream
from midstream.testing import Cut, ErrorEvent, FakeServer, Status


@pytest.fixture
def no_collection():
    """Errors hold tracebacks, and these hold frames: nobody breaks such cycles here."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "fault",
    [None, Cut(3), ErrorEvent("no", after=3), Status(503), Status(400)],
    ids=lambda fault: type(fault).__name__,
)
def test_no_connection_is_left(colour, family, fault, no_collection):
    with FakeServer("An answer.", faults=[fault]) as server:
        seen = colour(server.endpoint(family), client={"resume": None})
        assert (seen.error is None) is (fault is None)
        until = time.monotonic() + 5
        while server.open_connections and time.monotonic() < until:
            time.sleep(0.01)
        assert server.open_connections == 0
    assert seen.error is None or isinstance(seen.error, midstream.MidstreamError)
