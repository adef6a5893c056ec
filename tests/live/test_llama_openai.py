"""The real llama.cpp through OpenAI's own dialects: what any such server can do.

Its own dialects know more (replay, prefixes); these are for a server of which nothing
is known but its routes.
"""

from __future__ import annotations

import httpx
import pytest

import midstream
from midstream import Backoff, Exactness, Resume
from midstream.testing import Cutter

QUESTION = "Write a short story about a lighthouse keeper."
PROMPT = "The lighthouse keeper opened the door and"
LIMIT = 32  # tokens
QUICK = Backoff(initial=0.05, maximum=0.1)
TEXT = Resume(strategies=["text"], backoff=QUICK)


def answer(endpoint, prompt, resume=None, **asked):
    asked = {"max_tokens": LIMIT, "temperature": 0, "seed": 7, **asked}
    with (
        midstream.Client(endpoint, resume=resume) as client,
        client.stream(prompt, **asked) as stream,
    ):
        stream.read()
    return stream


def ends_of_events(url):
    """Where each event of the completion's body ends, as it is on the wire."""
    body = {"prompt": PROMPT, "max_tokens": LIMIT, "temperature": 0, "seed": 7}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    ends, size = [], 0
    with httpx.stream("POST", f"{url}/v1/completions", json=body) as response:
        for piece in response.iter_raw():
            size += len(f"{len(piece):x}") + 4 + len(piece)
            ends.append(size)
    assert len(ends) > LIMIT
    return ends


def test_a_chat_is_read(llama_url):
    stream = answer(f"openai@{llama_url}", QUESTION)
    same = answer(f"llama.cpp@{llama_url}", QUESTION)
    assert stream.text == same.text != ""
    assert stream.complete
    assert stream.finish_reason == "length"
    assert stream.usage.output_tokens == LIMIT
    assert not stream.usage.estimated


def test_a_cut_chat_is_not_continued_unless_asking_is_allowed(llama_url):
    with Cutter(llama_url, cuts=[2000]) as cutter:
        with pytest.raises(midstream.ResumeUnsupported) as caught:
            answer(f"openai@{cutter.url}", QUESTION, TEXT)
        assert isinstance(caught.value.__cause__, midstream.Dropped)
        assert caught.value.text
        cutter.plan([2000])
        asking = Resume(approximate=True, backoff=QUICK)
        stream = answer(f"openai@{cutter.url}", QUESTION, asking)
    assert stream.complete
    assert stream.exactness is Exactness.APPROXIMATE
    assert stream.text.startswith(caught.value.text)


def test_a_completion_cut_after_every_event(llama_url):
    whole = answer(f"openai-completions@{llama_url}", PROMPT)
    assert whole.usage.output_tokens == LIMIT
    for end in ends_of_events(llama_url)[:-2]:
        with Cutter(llama_url, cuts=[end]) as cutter:
            stream = answer(f"openai-completions@{cutter.url}", PROMPT, TEXT)
            assert len(cutter.cuts) == 1
        assert stream.complete
        assert stream.finish_reason == "length"
        assert whole.text.startswith(stream.text)
        # Whitespace before the cut is generated again, and counts again.
        again = stream.resumes and whole.text[: stream.resumes[0].at][-1].isspace()
        assert again or stream.text == whole.text


def test_errors_before_the_stream(llama_url):
    with pytest.raises(midstream.ContextOverflow):
        answer(f"openai@{llama_url}", "word " * 9000)
    with pytest.raises(midstream.BadRequest):
        answer(f"openai-completions@{llama_url}", PROMPT, extra={"grammar": "no"})


@pytest.mark.parametrize("dialect", ["openai", "openai-completions"])
def test_leaving_stops_the_generation(llama, dialect):
    with (
        midstream.Client(f"{dialect}@{llama.url}") as client,
        client.stream(PROMPT, max_tokens=2000, temperature=0) as stream,
    ):
        for _ in stream:
            break
        stream.close()
        begun = httpx.get(f"{llama.url}/slots").json()
        while any(slot["is_processing"] for slot in begun):
            begun = httpx.get(f"{llama.url}/slots").json()
    assert not stream.complete
