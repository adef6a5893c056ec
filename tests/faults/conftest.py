"""The matrix is a program whose files import each other by their plain names."""

import sys
from pathlib import Path

import pytest


@pytest.fixture
def program(monkeypatch):
    """Makes its modules importable."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    yield
    for name in ("texts", "cases", "judging", "nursery", "lives", "running", "matrix"):
        sys.modules.pop(name, None)
