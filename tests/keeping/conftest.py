"""Fixtures of keyed streams; their parts are in `kept_reader`."""

import sys
from pathlib import Path

import pytest

from midstream._keeping import keeper, lease, recorder, workers

sys.path.insert(0, str(Path(__file__).parent))

from kept_reader import Gate, Reader


@pytest.fixture
def quick(monkeypatch):
    """Short intervals and limits: a test waits for what comes of them."""
    monkeypatch.setattr(keeper, "INTERVAL", 0.01)
    monkeypatch.setattr(recorder, "AGAIN", 0.02)
    for module in keeper, workers:
        monkeypatch.setattr(module, "LIMIT", 0.2)
    for module in keeper, lease, recorder:
        monkeypatch.setattr(module, "LEASE", 0.3)


@pytest.fixture
def gate():
    store = Gate()
    yield store
    store.open.set()


@pytest.fixture
def reader(quick, gate):
    """A stream that is kept, with short intervals."""
    made = Reader(gate)
    made.begin()
    yield made
    gate.open.set()
    gate.error = None
    made.close()
