"""``max_tokens`` over a drop, inside a character as well: never more, never less."""

import pytest

import midstream
from midstream import Backoff, Resume
from midstream.testing import Cut, FakeServer

TEXT = "東京は日本語、👩‍👩‍👧で。"
LIMIT = 17
RESUME = Resume(
    strategies=("tokens", "text"), backoff=Backoff(initial=0.001, maximum=0.001)
)
DIALECTS = ["tgi-chat", "tgi", "sglang-chat", "vllm", "llama.cpp-completion", "triton"]


def answer(dialect, faults=()):
    """The stream within the limit, and what the server saw of it."""
    with (
        FakeServer(TEXT, split="bytes", faults=faults) as server,
        midstream.Client(server.endpoint(dialect), resume=RESUME) as client,
        client.stream("Say it.", max_tokens=LIMIT) as stream,
    ):
        stream.read()
        return stream, server.streams


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_drop_at_any_delta_neither_adds_nor_takes_a_token(dialect):
    whole, served = answer(dialect)
    assert whole.finish_reason == "length"
    assert 0 < len(whole.text) < len(TEXT)
    for after in range(1, served[0].deltas):
        stream, served = answer(dialect, [Cut(after)])
        assert stream.text == whole.text
        assert stream.finish_reason == "length"
        assert sum(one.tokens for one in served[1:]) <= LIMIT


@pytest.mark.parametrize("kind", ["fin", "eof"])
def test_a_drop_at_any_byte_neither_adds_nor_takes_a_token_on_tgi_chat(kind):
    whole, served = answer("tgi-chat")
    for at in range(0, served[0].body_bytes, 7):
        stream, _ = answer("tgi-chat", [Cut(at=at, kind=kind)])
        assert stream.text == whole.text
