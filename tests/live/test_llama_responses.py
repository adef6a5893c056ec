"""The real llama.cpp's ``/v1/responses``: read, cut after every event, replayed, left.

It numbers no events and knows no background: whoever asks for that is told by the
answer, and goes on from the text.
"""

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


def ask(client, **asked):
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
    body = {"input": [turn], "max_output_tokens": LIMIT, "temperature": 0, "seed": 7}
    found = ends_of_events(llama_url, "/v1/responses", body)
    assert len(found) == LIMIT + 8
    return found


@pytest.fixture(scope="module")
def whole(llama_url):
    """The answer as it is when nothing breaks."""
    return answer(f"llama.cpp-responses@{llama_url}")


def test_an_answer_is_read(llama_url, whole):
    same = answer(f"llama.cpp@{llama_url}")
    assert whole.text == same.text != ""
    assert whole.complete
    assert whole.usage.output_tokens == LIMIT
    assert whole.usage.input_tokens == same.usage.input_tokens
    assert whole.model == same.model
    assert whole.response_id.startswith("resp_")


def test_instructions_and_turns_are_understood(llama_url):
    conversation = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Say hi."},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "And bye."},
    ]
    texts = []
    for dialect in "llama.cpp", "llama.cpp-responses", "openai-responses":
        with (
            midstream.Client(f"{dialect}@{llama_url}") as client,
            client.stream(conversation, max_tokens=8, temperature=0) as stream,
        ):
            texts.append(stream.read())
    assert texts[0] == texts[1] == texts[2] != ""


def test_an_answer_cut_after_every_event(llama_url, whole, ends):
    with (
        Cutter(llama_url) as cutter,
        midstream.Client(f"llama.cpp-responses@{cutter.url}", resume=BY_TEXT) as client,
    ):
        for end in ends[4:-5]:
            cutter.plan([end])
            stream = ask(client)
            assert stream.text == whole.text
            assert stream.exactness is Exactness.TEXT
        assert len(cutter.cuts) == LIMIT - 1


def test_whoever_calls_it_openai_goes_on_as_well(llama_url, whole, ends):
    with (
        Cutter(llama_url) as cutter,
        midstream.Client(
            f"openai-responses@{cutter.url}", resume=Resume(backoff=QUICK)
        ) as client,
    ):
        for end in ends[5:-5:4]:
            cutter.plan([end])
            stream = ask(client)
            assert stream.text == whole.text
            assert [r.strategy for r in stream.resumes] == ["text"]


def test_what_is_kept_is_replayed_under_any_sampling(llama_url):
    resume = Resume(backoff=QUICK)
    with (
        Cutter(llama_url) as cutter,
        midstream.Client(f"llama.cpp-responses@{cutter.url}", resume=resume) as client,
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
        said["delta"]
        for said in map(json.loads, lines)
        if said["type"] == "response.output_text.delta"
    )


@pytest.mark.parametrize("dialect", ["openai-responses", "llama.cpp-responses"])
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
