"""A real vLLM over HTTP: cut anywhere, the answer is the one that was not cut.

The model recites Japanese and emoji; half of its tokens end in the middle of a
character. Greedy decoding: the whole answer is known, so it is compared, and the
continuation's request is what `continuation` makes, with the ledger's own bookkeeping.
"""

from __future__ import annotations

import json
import threading

import httpx
import pytest

import midstream
from midstream import Backoff, Exactness, Resume, Timeouts, _dialects
from midstream.testing import Cutter

CHAT = [{"role": "user", "content": "Tell me"}]  # Latin and code, then Japanese
RAW = "The quick"
PROMPTS = {
    "vllm": [{"role": "user", "content": "続けて"}],
    "vllm-completions": "吾輩は",
}
ROUTES = {"vllm": "/v1/chat/completions", "vllm-completions": "/v1/completions"}
LIMIT = 79  # tokens; the last of them completes a character
QUICK = Backoff(initial=0.05, maximum=0.1)


def client(dialect, url, *ways):
    resume = Resume(strategies=ways, attempts=30, backoff=QUICK) if ways else None
    return midstream.Client(f"{dialect}:ja@{url}", resume=resume)


def answer(dialect, url, *ways, prompt=None, **asked):
    with (
        client(dialect, url, *ways) as asking,
        asking.stream(prompt or PROMPTS[dialect], temperature=0, **asked) as stream,
    ):
        stream.read()
    return stream


def events_end(vllm, dialect, *, prompt=None, **asked):
    """Where each event of the unbroken body ends, in bytes as they are on the wire."""
    body = {
        "model": "ja",
        "temperature": 0,
        "stream": True,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
        **asked,
    }
    body["messages" if dialect == "vllm" else "prompt"] = prompt or PROMPTS[dialect]
    ends, size = [], 0
    with httpx.stream("POST", vllm.url + ROUTES[dialect], json=body) as response:
        for piece in response.iter_raw():
            for event in piece.split(b"\n\n")[:-1]:
                chunk = len(event) + 2
                # vLLM sends each event in a chunk of its own: its size in hex, two
                # line ends.
                size += len(f"{chunk:x}") + 4 + chunk
                ends.append(size)
    assert len(ends) > LIMIT / 2
    return ends


def every_cut(vllm, dialect, way, *, step=1, **asked):
    """For each event of the answer: the stream that was cut behind it.

    On a busy machine vLLM puts several tokens into one event: then the body may end
    before the last places, and is whole.
    """
    ends, made = events_end(vllm, dialect, **asked), 0
    # Behind the last three (text and finish, usage, [DONE]) nothing is left to resume.
    for end in ends[:-3:step]:
        with Cutter(vllm.url, cuts=[end]) as cutter:
            stream = answer(dialect, cutter.url, way, **asked)
            made += len(cutter.cuts)
        assert stream.complete
        # Before any text the question is simply asked again.
        resumed = bool(stream.resumes) and stream.resumes[0].at > 0
        assert (stream.exactness is not Exactness.UNBROKEN) is resumed
        yield stream
    assert made > 0.8 * len(ends[:-3:step])


@pytest.mark.parametrize("dialect", PROMPTS)
def test_cut_after_every_event_by_token_ids(vllm, dialect):
    whole = answer(dialect, vllm.url, max_tokens=LIMIT)
    assert len(whole.text.encode()) > 2 * len(whole.text)
    for stream in every_cut(vllm, dialect, "tokens", max_tokens=LIMIT):
        assert stream.text == whole.text
        assert stream.finish_reason == whole.finish_reason == "length"
        assert stream.exactness in (Exactness.TOKENS, Exactness.UNBROKEN)
        assert stream.usage.output_tokens == LIMIT


@pytest.mark.parametrize("dialect", ["vllm", "vllm-completions"])
def test_cut_after_every_event_by_text(vllm, dialect):
    """Whitespace before the cut is generated again, and counts again."""
    prompt = CHAT if dialect == "vllm" else RAW
    asked = {"prompt": prompt, "max_tokens": LIMIT}
    whole = answer(dialect, vllm.url, **asked)
    assert "dog.  Two" in whole.text
    for stream in every_cut(vllm, dialect, "text", **asked):
        assert whole.text.startswith(stream.text)
        assert stream.finish_reason == "length"
        before = whole.text[: stream.resumes[0].at] if stream.resumes else ""
        assert stream.text == whole.text or before[-1].isspace()


@pytest.mark.parametrize("dialect", PROMPTS)
@pytest.mark.parametrize("kind", ["fin", "rst"])
def test_cut_again_and_again(vllm, dialect, kind):
    whole = answer(dialect, vllm.url, max_tokens=200)
    with Cutter.random(
        vllm.url, seed=7, count=8, between=(300, 6000), kinds=[kind]
    ) as cutter:
        stream = answer(dialect, cutter.url, "tokens", max_tokens=200)
        assert stream.text == whole.text
        assert len(stream.resumes) == len(cutter.cuts) > 3
    assert stream.usage.output_tokens == 200


@pytest.mark.parametrize("stop", ["生れた", "- a list item", "x + 1\n"])
def test_stop_strings_over_the_cut(vllm, stop):
    """Text lags behind the ids by the length of the stop string, less one."""
    asked = {"prompt": CHAT, "max_tokens": 400, "stop": [stop]}
    whole = answer("vllm", vllm.url, **asked)
    assert whole.finish_reason == "stop"
    assert stop not in whole.text
    for stream in every_cut(vllm, "vllm", "tokens", step=3, **asked):
        assert stream.text == whole.text
        assert stream.finish_reason == "stop"


def test_stop_strings_cut_twice_keep_the_limit(vllm):
    asked = {"prompt": CHAT, "max_tokens": LIMIT, "stop": ["ストリーミング"]}
    whole = answer("vllm", vllm.url, **asked)
    for second in range(300, 4000, 500):
        with Cutter(vllm.url, cuts=[5000, second]) as cutter:
            stream = answer("vllm", cutter.url, "tokens", **asked)
        assert stream.text == whole.text
        assert stream.checkpoint().tokens == LIMIT


def test_ids_unknown_are_made_of_the_text(vllm):
    asked = {"prompt": CHAT, "max_tokens": 400, "stop": ["どこで"]}
    whole = answer("vllm", vllm.url, **asked)
    hidden = {"extra": {"return_token_ids": False}}
    for cut in range(400, 11000, 800):
        with Cutter(vllm.url, cuts=[cut]) as cutter:
            stream = answer("vllm", cutter.url, "tokens", **asked, **hidden)
        assert stream.text == whole.text


def test_without_a_limit_all_the_room_there_is(vllm):
    whole = answer("vllm", vllm.url)
    assert whole.finish_reason == "length"
    with Cutter(vllm.url, cuts=[20000]) as cutter:
        stream = answer("vllm", cutter.url, "tokens")
    assert stream.text == whole.text
    assert len(stream.resumes) == 1
    raw = answer("vllm-completions", vllm.url)
    assert raw.usage.output_tokens + raw.usage.input_tokens == 1024


def test_messages_are_rendered_by_the_server(vllm):
    whole = answer("vllm", vllm.url, prompt=CHAT, max_tokens=LIMIT)
    with Cutter(vllm.url, cuts=[4000]) as cutter:
        stream = answer(
            "vllm-completions", cutter.url, "tokens", prompt=CHAT, max_tokens=LIMIT
        )
    assert stream.text == whole.text
    assert len(stream.resumes) == 1


def test_both_flags_or_none(vllm):
    """With the first alone vLLM says no, in words that are known."""
    messages = [*CHAT, {"role": "assistant", "content": "The"}]
    with (
        client("vllm", vllm.url) as asking,
        asking.stream(messages, extra={"continue_final_message": True}) as stream,
        pytest.raises(midstream.BadRequest) as caught,
    ):
        stream.read()
    assert _dialects.find("vllm").refuses("text", caught.value)


@pytest.mark.parametrize("dialect", PROMPTS)
def test_leaving_stops_the_generation(vllm, dialect):
    made = "vllm:generation_tokens_total"
    with (
        client(dialect, vllm.url) as asking,
        asking.stream(PROMPTS[dialect], max_tokens=900, temperature=0) as stream,
    ):
        for _ in stream:
            if len(stream.text) > 20:
                break
        assert vllm.metric("vllm:num_requests_running") == 1
        stream.close()
        at_close = vllm.metric(made)
        while vllm.metric("vllm:num_requests_running"):
            assert vllm.metric(made) <= at_close + 2
        assert vllm.metric(made) <= at_close + 2


class Spoiling(httpx.HTTPTransport):
    """Asks for a continuation of an id that the model does not have."""

    def handle_request(self, request):
        body = {**json.loads(request.read()), "prompt": [999999]}
        spoiled = httpx.Request(
            request.method, request.url, json=body, extensions=request.extensions
        )
        return super().handle_request(spoiled)


def test_an_error_in_the_stream_is_raised_as_such(vllm):
    """An id that does not exist: status 200, an error event, and then [DONE]."""
    with (
        httpx.Client(transport=Spoiling()) as line,
        midstream.Client(f"vllm-completions:ja@{vllm.url}", http_client=line) as asking,
        asking.stream("x", max_tokens=5) as stream,
        pytest.raises(midstream.BadRequest, match="out of vocabulary") as caught,
    ):
        stream.read()
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("model", "asked", "error"),
    [
        ("nobody", {}, midstream.NotFound),
        ("ja", {"max_tokens": 5000}, midstream.BadRequest),
        ("ja", {"prompt": "猫" * 3000}, midstream.ContextOverflow),
        ("ja", {"extra": {"top_logprobs": "x"}}, midstream.BadRequest),
    ],
)
def test_refused_before_the_stream(vllm, model, asked, error):
    asked = {"prompt": "x", **asked}
    with (
        midstream.Client(f"vllm:{model}@{vllm.url}") as asking,
        asking.stream(**asked) as stream,
        pytest.raises(error),
    ):
        stream.read()


def test_a_server_that_leaves_is_a_drop(vllm_that_leaves):
    """At SIGTERM it says "abort" and [DONE], neither of which is the answer's end.

    Or it says nothing more, when it killed its engine before that could say so: then it
    waits for its clients to close, and only a limit ends the waiting.
    """
    server, patience = vllm_that_leaves, Timeouts(idle=3)
    whole = answer("vllm", server.url, max_tokens=600)
    with (
        midstream.Client(
            f"vllm:ja@{server.url}", resume=None, timeouts=patience
        ) as asking,
        asking.stream(PROMPTS["vllm"], max_tokens=600, temperature=0) as stream,
        pytest.raises((midstream.ServerFailed, midstream.StreamInterrupted)) as caught,
    ):
        read_while_it_leaves(stream, server)
    error = caught.value
    said = isinstance(error, midstream.ServerFailed) and error.type == "abort"
    assert said or isinstance(error.__cause__, midstream.TimedOut)
    assert not stream.complete
    assert len(error.text) > 20
    assert whole.text.startswith(error.text)
    assert error.checkpoint.text == error.text


def read_while_it_leaves(stream, server):
    leaving = threading.Thread(target=server.stop)
    try:
        for _ in stream:
            if leaving.ident is None and len(stream.text) > 20:
                leaving.start()
    finally:
        stream.close()
        leaving.join()
