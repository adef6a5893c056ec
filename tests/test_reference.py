"""The reference pages are what the code says."""

import importlib.util
from pathlib import Path

import pytest

import midstream
from midstream import _dialects

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "reference"


def test_the_page_of_dialects_is_made_from_the_table():
    source = PAGES / "make_dialects.py"
    spec = importlib.util.spec_from_file_location("make_dialects", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (PAGES / "dialects.md").read_text() == module.page()


def test_every_dialect_says_what_it_is():
    for name, fact in midstream.dialects().items():
        assert fact.name == name
        assert fact.route
        assert fact.end
        assert fact.strategies
        assert fact.proof


def test_a_users_own_dialect_is_listed(monkeypatch):
    monkeypatch.setattr(_dialects, "_TABLE", dict(_dialects._TABLE))
    own = _dialects.openai_chat.OpenAIChat(name="mine", default_url=None)
    midstream.register(own)
    assert midstream.dialects()["mine"].framing == "SSE"
    with pytest.raises(midstream.UsageError, match="needs an address"):
        midstream.Client("mine:m")
    assert str(midstream.Client("mine:m@http://h").endpoints[0]) == "mine:m@http://h"
