"""The real llama.cpp's ``/v1/messages``: read, cut after each event, replayed, left."""

from __future__ import annotations

import itertools
import json

import httpx
import pytest

import midstream
from midstream import Backoff, Exactness, Resume
from midstream.testing import Cutter

QUESTION = "Write a short story about a lighthouse keeper."
LIMIT = 20  # tokens
QUICK = Backoff(initial=0, maximum=0)
BY_TEXT = Resume(strategies=["text"], backoff=QUICK)


def ask(client, resume=None, **asked):
    asked = {"max_tokens": LIMIT, "temperature": 0, "seed": 7, **asked}
    with client.stream(QUESTION, **asked) as stream:
        stream.read()
    return stream


def answer(endpoint, resume=None, **asked):
    with midstream.Client(endpoint, resume=resume) as client:
        return ask(client, **asked)


@pytest.fixture
def ends(ends_of_events, llama_url):
    """Where the answer can be cut behind an event."""
    turn = {"role": "user", "content": QUESTION}
    body = {"messages": [turn], "max_tokens": LIMIT, "temperature": 0, "seed": 7}
    found = ends_of_events(llama_url, "/v1/messages", body)
    assert len(found) == LIMIT + 5
    return found


@pytest.fixture(scope="module")
def whole(llama_url):
    """The answer as it is when nothing breaks."""
    return answer(f"llama.cpp-messages@{llama_url}")


@pytest.mark.parametrize("dialect", ["anthropic", "llama.cpp-messages"])
def test_an_answer_is_read(llama_url, whole, dialect):
    stream = answer(f"{dialect}@{llama_url}")
    same = answer(f"llama.cpp@{llama_url}")
    assert stream.text == same.text == whole.text != ""
    assert stream.complete
    assert stream.finish_reason == "length"
    assert stream.usage.output_tokens == LIMIT
    assert stream.usage.input_tokens == same.usage.input_tokens
    assert not stream.usage.estimated


def test_an_answer_cut_after_every_event(llama_url, whole, ends):
    with (
        Cutter(llama_url) as cutter,
        midstream.Client(f"llama.cpp-messages@{cutter.url}", resume=BY_TEXT) as client,
    ):
        for end in ends[2:-4]:
            cutter.plan([end])
            stream = ask(client)
            assert stream.text == whole.text
            assert stream.exactness is Exactness.TEXT
            assert stream.finish_reason == "length"
        assert len(cutter.cuts) == LIMIT - 1


def test_whoever_calls_it_anthropic_goes_on_as_well(llama_url, whole, ends):
    with (
        Cutter(llama_url) as cutter,
        midstream.Client(f"anthropic@{cutter.url}", resume=BY_TEXT) as client,
    ):
        for end in ends[3:-4:4]:
            cutter.plan([end])
            stream = ask(client)
            assert stream.text == whole.text
            assert len(stream.resumes) == 1


def test_what_is_kept_is_replayed_under_any_sampling(llama_url):
    resume = Resume(backoff=QUICK)
    with (
        Cutter(llama_url) as cutter,
        midstream.Client(f"llama.cpp-messages@{cutter.url}", resume=resume) as client,
    ):
        for first, second in [(10, 60), (900, 100), (1411, 90), (1800, 600)]:
            cutter.plan([first, second])
            stream = ask(client, temperature=1, seed=None, max_tokens=24)
            assert stream.text == kept_text(llama_url, stream.checkpoint().handle)
            assert stream.exactness is Exactness.REPLAYED
            assert len(stream.resumes) == 2


def kept_text(url, name):
    """The answer as the server still has it."""
    query = {"conv_id": name, "from": 0}
    body = httpx.get(f"{url}/v1/stream", params=query, trust_env=False, timeout=60).text
    lines = [line[6:] for line in body.splitlines() if line.startswith("data: ")]
    return "".join(
        said["delta"].get("text", "")
        for said in map(json.loads, lines)
        if said["type"] == "content_block_delta"
    )


def test_a_stop_string_over_the_cut_still_stops(llama_url, whole, ends):
    words = whole.text.split(" ")
    stop = f"{words[5]} {words[6]}"
    with (
        Cutter(llama_url) as cutter,
        midstream.Client(f"llama.cpp-messages@{cutter.url}", resume=BY_TEXT) as client,
    ):
        for end in ends[4:8]:
            cutter.plan([end])
            stream = ask(client, stop=stop)
            assert stream.text == whole.text.partition(stop)[0]
            assert stream.finish_reason == "stop"


@pytest.mark.parametrize("dialect", ["anthropic", "llama.cpp-messages"])
def test_leaving_stops_the_generation(llama_url, dialect):
    with (
        midstream.Client(f"{dialect}@{llama_url}") as client,
        client.stream(QUESTION, max_tokens=2000, temperature=0) as stream,
    ):
        assert list(itertools.islice(stream, 2))
    while any(slot["is_processing"] for slot in slots(llama_url)):
        assert not stream.complete


def slots(url):
    return httpx.get(f"{url}/slots", trust_env=False).json()


def test_a_context_that_is_too_small_is_told_before_the_stream(llama_url):
    with (
        pytest.raises(midstream.ContextOverflow),
        midstream.Client(f"anthropic@{llama_url}") as client,
        client.stream("word " * 9000) as stream,
    ):
        stream.read()
