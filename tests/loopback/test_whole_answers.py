"""An answer arrives whole over real sockets, in every dialect and colour."""

import pytest

import midstream
from midstream import Exactness, Finish, Resume, TextDelta
from midstream.testing import (
    ByteOrderMark,
    Chunking,
    Cut,
    FakeServer,
    Gzip,
    LineEnds,
    Pings,
)

TEXT = "Grüße! 日本語👩‍👩‍👧e\u0301 a\u2028b\u0085c ha ha ha\n\n- item `code`\n" * 2
APPROXIMATE = Resume(approximate=True, backoff=midstream.Backoff(initial=0.01))
HTTP = sorted(n for n, d in midstream.dialects().items() if d.transport == "http")


def test_an_unbroken_answer(colour, dialect):
    with FakeServer(TEXT) as server:
        seen = colour(server.endpoint(dialect))
    assert seen.error is None
    assert seen.joined == seen.stream.text == TEXT
    assert all(seen.pieces)
    assert seen.stream.complete
    assert seen.stream.exactness is Exactness.UNBROKEN
    assert seen.stream.resumes == []
    assert seen.stream.metrics.ttft > 0
    assert seen.stream.metrics.characters == len(TEXT)


def test_events_end_with_one_finish(colour, dialect):
    with FakeServer("one two three") as server:
        seen = colour(server.endpoint(dialect), events=True, max_tokens=100)
    assert [type(e) for e in seen.events].count(Finish) == 1
    assert isinstance(seen.events[-1], Finish)
    texts = [e.text for e in seen.events if isinstance(e, TextDelta)]
    assert "".join(texts) == "one two three"


@pytest.mark.parametrize("kind", ["fin", "rst", "mid_chunk", "eof", "half"])
def test_a_cut_answer_arrives_whole(colour, dialect, kind):
    faults = [Cut(after=9, kind=kind), Cut(after=4, kind=kind), None]
    with FakeServer(TEXT, faults=faults) as server:
        seen = colour(server.endpoint(dialect), client={"resume": APPROXIMATE})
    if kind == "eof" and dialect == "triton":
        # Its stream has no end marker: the proper end of the body is the end.
        assert seen.stream.complete
        return
    if kind == "half" and dialect not in HTTP:
        # gRPC cuts messages itself: half of one is no cut but nonsense.
        assert isinstance(seen.error, midstream.WireError)
        return
    assert seen.error is None
    assert seen.joined == seen.stream.text == TEXT
    assert len(seen.stream.resumes) == 2
    assert seen.stream.complete


def test_a_cut_without_resume_is_no_success(colour, dialect):
    with FakeServer(TEXT, faults=[Cut(after=5)]) as server:
        seen = colour(server.endpoint(dialect), client={"resume": None})
    assert isinstance(seen.error, midstream.StreamInterrupted)
    assert isinstance(seen.error.__cause__, midstream.Dropped)
    assert TEXT.startswith(seen.joined)
    assert seen.error.text == seen.joined == seen.stream.text != ""
    assert seen.error.checkpoint.text == seen.joined
    assert seen.error.resumable
    assert not seen.stream.complete


@pytest.mark.parametrize("name", ["anthropic", "gemini", "llama.cpp", "ollama"])
@pytest.mark.parametrize(
    "odd",
    [
        LineEnds("\r\n"),
        ByteOrderMark(),
        Gzip(),
        Chunking("bytes"),
        Chunking("whole"),
        Chunking(7),
        Pings(count=3),
    ],
    ids=repr,
)
def test_odd_but_legal_bodies(colour, name, odd):
    with FakeServer(TEXT[:40], faults=[odd]) as server:
        seen = colour(server.endpoint(name))
    assert seen.error is None
    assert seen.joined == TEXT[:40]


@pytest.mark.parametrize("name", ["anthropic", "gemini", "llama.cpp", "ollama"])
def test_gzip_that_nobody_announced_is_a_wire_error_when_it_comes_again(colour, name):
    with FakeServer(TEXT, faults=[Gzip(announced=False)] * 2) as server:
        seen = colour(server.endpoint(name))
    assert isinstance(seen.error, midstream.WireError)
    assert seen.joined == ""
