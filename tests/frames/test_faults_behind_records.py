"""What is whole before a fault is delivered, however the bytes were cut (law 4)."""

import pytest

from midstream import EventTooLarge, WireError
from midstream._frames.json_array import JSONArrayFramer
from midstream._frames.ndjson import NDJSONFramer
from midstream._frames.sse import SSEFramer

LONG = b"x" * 100


def in_pieces(framer, body, size):
    """The records, and the fault behind them."""
    records = []
    for at in range(0, len(body), size):
        try:
            records += framer.decode(body[at : at + size])
        except WireError as error:
            return records + error.records, error
    return records, None


@pytest.mark.parametrize("size", [1, 7, 40, 1000])
@pytest.mark.parametrize(
    ("framer", "body", "kind"),
    [
        (SSEFramer, b"data: 1\n\ndata: 2\n\ndata: " + LONG + b"\n\n", EventTooLarge),
        (SSEFramer, b"data: 1\n\ndata: 2\n\ndata: " + LONG, EventTooLarge),
        (NDJSONFramer, b"1\n2\n" + LONG + b"\n3\n", EventTooLarge),
        (JSONArrayFramer, b'[{"a":1},{"b":2},{"c":"' + LONG + b'"}]', EventTooLarge),
        (JSONArrayFramer, b'[{"a":1},{"b":2},nonsense', WireError),
    ],
)
def test_records_before_a_fault_are_kept(framer, body, kind, size):
    records, fault = in_pieces(framer(limit=64), body, size)
    assert len(records) == 2
    assert type(fault) is kind
