"""What the tests of the framers share."""

import itertools
from collections.abc import Iterator

import pytest


def _framed(framer, pieces):
    records = []
    for piece in pieces:
        records += framer.decode(piece)
    return records, framer.flush()


def _splits(body: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, with empty reads, and cut in two at every place."""
    yield [body]
    yield [body[at : at + 1] for at in range(len(body))]
    yield [b"", *(body[at : at + 3] + b"" for at in range(0, len(body), 3)), b""]
    for cut in range(1, len(body)):
        yield [body[:cut], body[cut:]]


def _cut(body: bytes, marks) -> list[bytes]:
    """Cut at any places; equal ones give empty reads."""
    edges = [0, *sorted(mark % (len(body) + 1) for mark in marks), len(body)]
    return [body[a:b] for a, b in itertools.pairwise(edges)]


@pytest.fixture(scope="session")
def cut():
    """Cut a body at the given places."""
    return _cut


@pytest.fixture(scope="session")
def framed():
    """Run pieces through a framer: (records while reading, records at the end)."""
    return _framed


@pytest.fixture(scope="session")
def splits():
    """All simple ways to cut a body into reads."""
    return _splits


@pytest.fixture(scope="session")
def same():
    """The records of a body, which every split of it must give."""

    def run(make, body):
        expected = _framed(make(), [body])
        for pieces in _splits(body):
            assert _framed(make(), pieces) == expected, pieces
        return expected

    return run
