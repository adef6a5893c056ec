"""midstream's own clients against the fake server: cut after every single delta."""

import pytest

import midstream
from midstream.testing import Cut, FakeServer

TEXT = "Hello, world. 日本語 👩‍👩‍👧 done."
FAST = midstream.Resume(attempts=3, backoff=midstream.Backoff(initial=0, maximum=0))


@pytest.mark.parametrize("split", ["text", "bytes"])
@pytest.mark.parametrize(
    ("dialect", "replay", "strategy"),
    [
        ("llama.cpp", True, "replay"),
        ("llama.cpp", False, "text"),
        ("llama.cpp-completion", True, "replay"),
        ("llama.cpp-completion", False, "tokens"),
        ("ollama", True, "text"),
        ("triton-grpc", True, "text"),
    ],
)
def test_cut_after_every_delta(dialect, replay, strategy, split):
    with FakeServer(TEXT, split=split) as server:
        with midstream.Client(server.endpoint(dialect)) as client:
            assert client.stream("Why?").__enter__().read() == TEXT
        count = server.streams[0].deltas
    if dialect == "triton-grpc":
        count = min(count, 12)
    faults = [fault for n in range(1, count) for fault in (Cut(n), None)]
    with (
        FakeServer(TEXT, split=split, faults=faults, replay=replay) as server,
        midstream.Client(server.endpoint(dialect), resume=FAST) as client,
    ):
        for _ in range(1, count):
            with client.stream("Why?") as stream:
                assert stream.read() == TEXT
            assert [r.strategy for r in stream.resumes] == [strategy]
        assert {entry.how for entry in server.streams} == {"top", strategy}
