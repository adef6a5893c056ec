"""A server is killed in mid-answer: another kind goes on, or the same, restarted."""

from __future__ import annotations

import json
import threading

import httpx
import pytest

import midstream
from midstream import Backoff, Exactness, Resume
from midstream.testing.llama import LlamaServer

STORY = "Write a short story about a lighthouse keeper."
RAW = "The lighthouse keeper"
GREEDY = {"temperature": 0, "seed": 7}
KILLED_AFTER = 20  # pieces
PATIENT = Backoff(initial=0.1, maximum=1)


@pytest.fixture
def doomed():
    """A llama.cpp of one's own, to be killed."""
    with LlamaServer("smollm2", slots=1) as server:
        yield server


def read(endpoint, prompt, ask, resume=None):
    with (
        midstream.Client(endpoint, resume=resume) as client,
        client.stream(prompt, **ask) as stream,
    ):
        stream.read()
    return stream


@pytest.mark.parametrize(
    ("dialect", "prompt", "way"),
    [
        ("llama.cpp", STORY, "text"),
        ("llama.cpp-completion", RAW, "tokens"),
        ("llama.cpp-completion", RAW, "text"),
    ],
)
def test_killed_and_restarted(doomed, dialect, prompt, way):
    """What it kept is gone with it; a prefix gives the identical greedy text."""
    endpoint, ask = f"{dialect}@{doomed.url}", {**GREEDY, "max_tokens": 40}
    read(endpoint, prompt, ask)
    whole = read(endpoint, prompt, ask).text
    resume = Resume(attempts=60, backoff=PATIENT, strategies=("replay", way))
    with (
        midstream.Client(endpoint, resume=resume) as client,
        client.stream(prompt, **ask) as stream,
    ):
        text = ""
        for number, piece in enumerate(stream):
            text += piece
            if number == 12:
                doomed.kill()
                begin = threading.Thread(target=doomed.start)
                begin.start()
        begin.join()
    assert stream.complete
    assert text == stream.text == whole
    assert [r.strategy for r in stream.resumes] == [way]
    assert any("replay" in note for note in stream.notes)


@pytest.fixture
def killable(triton):
    """The real Triton, to be killed; it is there again afterwards."""
    yield triton
    triton.restart()


def cut_short(first, second, prompt, ask, kill, http_client=None):
    """A stream whose first server is killed after 20 pieces.

    Returns:
        The stream, what the first server had said, and its tokens.
    """
    resume = Resume(attempts=1, strategies=("text",), backoff=Backoff(initial=0.05))
    with (
        midstream.Client(
            first, second, resume=resume, http_client=http_client
        ) as client,
        client.stream(prompt, **ask) as stream,
    ):
        said = ""
        for number, piece in enumerate(stream):
            said += piece if not stream.resumes else ""
            if number == KILLED_AFTER:
                kill()
        tokens = stream.checkpoint().tokens
    assert stream.complete
    (resumption,) = stream.resumes
    assert resumption.endpoint.dialect == second.partition("@")[0].partition(":")[0]
    assert resumption.at == len(said) > KILLED_AFTER
    assert stream.exactness is Exactness.APPROXIMATE  # another model
    # At its limit llama.cpp drops half a character, and the tokens that it took.
    assert ask["max_tokens"] - 2 <= tokens <= ask["max_tokens"]
    return stream, said


def test_triton_is_killed_and_llama_goes_on(killable, llama_url):
    """It is asked for the rest, with the whole prefix.

    What it then says is no measure: asked twice for the same, greedy, it may differ by
    what its cache holds.
    """
    ask = {"temperature": 0, "max_tokens": 60}
    ask["extra"] = {"sampling_parameters": {"delay": 0.02}}
    first = f"triton-grpc:llm@{killable.grpc_url}"
    second = f"llama.cpp-completion@{llama_url}"
    asked = []
    with httpx.Client(event_hooks={"request": [asked.append]}) as own:
        stream, said = cut_short(first, second, "Q: ", ask, killable.kill, own)
    (request,) = [r for r in asked if r.url.path == "/completion"]
    body = json.loads(request.content)
    assert body["prompt"] == "Q: " + said
    assert 0 < body["n_predict"] < 60
    assert stream.text.startswith(said)
    assert len(stream.text) > len(said)


@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_llama_is_killed_and_triton_goes_on(doomed, triton, fake_llm, transport):
    """Its model says its text from the beginning after whatever is not of it."""
    address = triton.grpc_url if transport == "grpc" else triton.http_url
    second = f"triton{'-grpc' if transport == 'grpc' else ''}:llm@{address}"
    ask = {**GREEDY, "max_tokens": 60}
    first = f"llama.cpp-completion@{doomed.url}"
    stream, said = cut_short(first, second, RAW, ask, doomed.kill)
    rest = stream.text.removeprefix(said)
    assert len(rest) > 5
    assert fake_llm.TEXT.decode().startswith(rest.rstrip("\ufffd"))


# -- leaving -------------------------------------------------------------------------


def decoded(http, url):
    """Tokens that the server has made for the answers it is at, and whether it is."""
    slots = http.get(f"{url}/slots").json()
    busy = [slot for slot in slots if slot["is_processing"]]
    return sum(slot["next_token"][0]["n_decoded"] for slot in slots), bool(busy)


@pytest.mark.parametrize("ways", [("text",), ("replay",)])
@pytest.mark.parametrize(
    ("dialect", "prompt"), [("llama.cpp", STORY), ("llama.cpp-completion", RAW)]
)
def test_the_server_stops_within_two_tokens(doomed, dialect, prompt, ways):
    """Closing the socket does it, or DELETE where the server would keep the stream."""
    endpoint = f"{dialect}@{doomed.url}"
    with (
        httpx.Client(timeout=60) as http,
        midstream.Client(endpoint, resume=Resume(strategies=ways)) as client,
    ):
        with client.stream(prompt, **GREEDY, max_tokens=2000) as stream:
            for number, _ in enumerate(stream):
                if number == KILLED_AFTER:
                    break
        before, _ = decoded(http, doomed.url)
        while (now := decoded(http, doomed.url))[1]:
            assert now[0] <= before + 2
        assert now[0] <= before + 2
