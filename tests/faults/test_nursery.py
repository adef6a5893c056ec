"""A process that begins a stream is dead when its order is done."""

import importlib

import pytest

import midstream
from midstream import SQLiteStore
from midstream.testing import FakeServer, Slow

TEXT = "いろはにほへと、ちりぬるを。"


@pytest.fixture
def nursery(program, tmp_path):
    made = importlib.import_module("nursery").Nursery(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("colour", ["sync", "asyncio", "trio"])
def test_it_shows_some_pieces_and_dies(program, nursery, tmp_path, colour):
    ordered = importlib.import_module("nursery").Order
    path = tmp_path / "streams.db"
    with FakeServer(TEXT, always=Slow(0.001)) as server:
        endpoints = [midstream.Endpoint.parse(server.endpoint("llama.cpp"))]
        order = ordered(path, "key", endpoints, {}, "?", {}, colour, 3, 0.5)
        shown, wrong = nursery.run(order)
        server.wait_for_stream()
    assert wrong == ""
    assert len(shown) == 3
    assert TEXT.startswith("".join(shown))
    store = SQLiteStore(path)
    assert store.acquire("key", "another", 5.0)  # a dead owner is none
    store.close()


def test_what_goes_wrong_in_it_is_told(program, nursery, tmp_path):
    ordered = importlib.import_module("nursery").Order
    endpoints = [midstream.Endpoint.parse("llama.cpp@http://127.0.0.1:1")]
    asked = {"no_such_word": 1}
    order = ordered(tmp_path / "s.db", "key", endpoints, {}, "?", asked, "sync", 3, 0)
    shown, wrong = nursery.run(order)
    assert shown == []
    assert "no_such_word" in wrong
