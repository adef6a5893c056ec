"""Tools to test streaming clients with: servers that break on purpose.

`FakeServer` plays a model whose answer is known, in every dialect, on a real port; a
list of faults says how each of its streams breaks. The pytest fixture
``midstream_server`` makes them and closes them. `Cutter` stands between a client and a
real server, and cuts what passes.
"""

from midstream.testing._fake.faults import (
    ByteOrderMark,
    Chunking,
    Cut,
    ErrorEvent,
    Fault,
    Garbage,
    Gzip,
    LineEnds,
    Pings,
    Redirect,
    Slow,
    Stall,
    Status,
    StayOpen,
)
from midstream.testing._fake.recorded import Recorded
from midstream.testing._fake.server import FakeServer
from midstream.testing.cutter import CutAt, CutMade, Cutter

__all__ = [
    "ByteOrderMark",
    "Chunking",
    "Cut",
    "CutAt",
    "CutMade",
    "Cutter",
    "ErrorEvent",
    "FakeServer",
    "Fault",
    "Garbage",
    "Gzip",
    "LineEnds",
    "Pings",
    "Recorded",
    "Redirect",
    "Slow",
    "Stall",
    "Status",
    "StayOpen",
]

for _value in [globals()[name] for name in __all__]:
    if isinstance(_value, type):
        _value.__module__ = __name__  # where users find it
