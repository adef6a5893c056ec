"""An end that may be a cut completes nothing, whatever the dialect."""

import httpx
import pytest

from midstream.testing import Chunking, Cut, FakeServer, Gzip

TEXT = "Grüße! 日本語 to you."
WHOLE_BY_END = ["triton"]  # the body's proper end is its only end marker
CUTS = {
    "close": lambda after: [Cut(after), Chunking("close")],
    "gzip": lambda after: [Cut(after, "eof"), Gzip(trailer=False)],
    "both": lambda after: [Cut(after, "fin"), Chunking("close"), Gzip()],
}


@pytest.fixture(params=["ours", "user"])
def client(request, colour):
    """Makes the options of a client: our own pool, or the user's."""

    def options():
        if request.param == "ours":
            return {}
        kind = httpx.Client if colour.name == "sync" else httpx.AsyncClient
        nothing_kept = httpx.Limits(max_keepalive_connections=0)
        return {"http_client": kind(trust_env=False, limits=nothing_kept)}

    return options


@pytest.mark.parametrize("dialect", WHOLE_BY_END)
@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_that_looks_like_an_end_is_resumed(colour, client, dialect, cut):
    with FakeServer(TEXT) as server:
        colour(server.endpoint(dialect))
        deltas = server.streams[0].deltas
    for after in range(1, deltas, 3):
        with FakeServer(TEXT, faults=[CUTS[cut](after)]) as server:
            outcome = colour(server.endpoint(dialect), client=client())
            requests = len(server.streams)
        assert outcome.error is None
        assert outcome.joined == TEXT
        assert outcome.stream.complete
        assert requests == 2


@pytest.mark.parametrize("fault", [[Gzip()], []])
def test_a_proper_end_is_one(colour, fault):
    with FakeServer(TEXT, faults=[fault]) as server:
        outcome = colour(server.endpoint("triton"))
        assert outcome.joined == TEXT
        assert len(server.streams) == 1


@pytest.mark.parametrize("dialect", ["openai", "ollama", "gemini", "tgi", "sglang"])
def test_an_end_marker_needs_no_proper_end_behind_it(colour, dialect):
    faults = [[Chunking("close"), Gzip(trailer=False)]]
    with FakeServer(TEXT, faults=faults) as server:
        outcome = colour(server.endpoint(dialect))
        assert outcome.joined == TEXT
        assert outcome.stream.complete
        assert len(server.streams) == 1
