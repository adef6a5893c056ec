"""The real Triton over HTTP: cut after every event, left, and failing."""

from __future__ import annotations

import time

import pytest

import midstream
from midstream import Backoff, Exactness, Resume, TextDelta, Timeouts
from midstream.testing import CutAt, Cutter

PROMPT = "Q: "
QUICK = {"resume": Resume(attempts=30, backoff=Backoff(initial=0, maximum=0))}
ONCE = {"resume": None}


@pytest.fixture(scope="module")
def stop(fake_llm):
    """Where the answers end, and what they are up to there."""
    end = fake_llm.TEXT.index(b"walked")
    return "walked", fake_llm.TEXT[:end].decode()


@pytest.fixture(scope="module")
def ends(ends_of_events, triton_http_url, stop):
    """Where each event of such an answer ends."""
    flags = ("exclude_input_in_output", "return_finish_reason")
    counts = ("return_num_input_tokens", "return_num_output_tokens")
    body = {"text_input": PROMPT, "stop": [stop[0]]}
    body |= dict.fromkeys((*flags, *counts), True)
    route = "/v2/models/llm/generate_stream"
    return ends_of_events(triton_http_url, route, body)


def test_an_unbroken_answer(read, triton_http_url, stop):
    word, whole = stop
    stream = read(f"triton:llm@{triton_http_url}", PROMPT, client=ONCE, stop=word)
    assert stream.text == whole
    assert stream.complete
    assert stream.finish_reason == "stop"
    assert stream.exactness is Exactness.UNBROKEN
    assert stream.usage.input_tokens == len(PROMPT)
    assert stream.usage.output_tokens > 20


@pytest.mark.parametrize("kind", ["fin", "rst"])
def test_cut_after_every_event_the_text_is_the_same(
    read, triton_http_url, stop, ends, kind
):
    word, whole = stop
    assert len(ends) > 20
    for end in ends[:-1]:
        with Cutter(triton_http_url, [CutAt(end, kind)]) as cutter:
            stream = read(f"triton:llm@{cutter.url}", PROMPT, client=QUICK, stop=word)
            assert len(cutter.cuts) == 1
        assert stream.text == whole
        [resumption] = stream.resumes  # without a whole character: from the begin
        assert resumption.strategy == ("text" if resumption.at else "begin")


def test_cut_inside_events_and_characters(read, triton_http_url, stop, ends):
    word, whole = stop
    for at in range(0, ends[-1], 149):
        with Cutter(triton_http_url, [at]) as cutter:
            stream = read(f"triton:llm@{cutter.url}", PROMPT, client=QUICK, stop=word)
        assert stream.text == whole
        assert stream.complete


def test_many_cuts_in_one_answer(read, triton_http_url, stop):
    word, whole = stop
    cuts = [CutAt(at, kind) for at in (300, 50, 777, 1000) for kind in ("fin", "rst")]
    with Cutter(triton_http_url, cuts) as cutter:
        stream = read(f"triton:llm@{cutter.url}", PROMPT, client=QUICK, stop=word)
    assert stream.text == whole
    assert len(stream.resumes) >= 4
    assert stream.exactness is Exactness.TEXT


def test_a_limit(read, triton_http_url, fake_llm):
    endpoint = f"triton:llm@{triton_http_url}"
    stream = read(endpoint, PROMPT, client=ONCE, max_tokens=40)
    text = fake_llm.TEXT[: fake_llm.BORDERS[40]]
    assert stream.text == text.decode("utf-8", "replace")
    assert stream.finish_reason == "length"
    assert stream.usage.output_tokens == 40


def until(condition):
    """What a condition gives once it gives something, within 30 seconds."""
    end = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def test_leaving_stops_the_model_within_two_tokens(triton, triton_http_url):
    delay = 0.05
    extra = {"parameters": {"delay": delay}, "max_tokens": 2000}
    extra["sampling_parameters"] = {"delay": delay}
    done = len(triton.requests())
    with (
        midstream.Client(f"triton:llm@{triton_http_url}") as client,
        client.stream("leaves over HTTP", extra=extra) as stream,
    ):
        next(iter(stream))
    left = time.time()
    (note,) = until(lambda: triton.requests()[done:])
    assert note["end"] == "cancelled"
    assert sum(at > left for at in note["times"]) <= 2


def test_an_error_in_mid_stream_keeps_the_text(read, triton_http_url):
    extra = {"sampling_parameters": {"fail_after": 9}}
    with pytest.raises(midstream.ServerFailed, match="CUDA out of memory") as caught:
        read(f"triton:llm@{triton_http_url}", PROMPT, client=QUICK, extra=extra)
    assert caught.value.text != ""
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("endpoint", "extra", "error", "words"),
    [
        (
            "triton:llm",
            {"sampling_parameters": {"fail_after": 0}},
            "BadRequest",
            "日本",
        ),
        ("triton:nope", {}, "NotFound", "unknown model"),
        ("triton:llm", {"max_tokens": "many"}, "BadRequest", "parse"),
    ],
)
def test_errors_before_the_stream(read, triton_http_url, endpoint, extra, error, words):
    with pytest.raises(getattr(midstream, error), match=words):
        read(f"{endpoint}@{triton_http_url}", PROMPT, client=QUICK, extra=extra)


def test_a_server_that_dies_and_comes_back(read, triton, triton_http_url, stop):
    """Half the answer comes, the server is killed, and started again."""
    word, whole = stop
    resume = Resume(attempts=60, backoff=Backoff(initial=0.2, maximum=0.5))
    timeouts = Timeouts(connect=5)
    with midstream.Client(
        f"triton:llm@{triton_http_url}", resume=resume, timeouts=timeouts
    ) as client:
        extra = {"sampling_parameters": {"delay": 0.02}}
        with client.stream(PROMPT, stop=word, extra=extra) as stream:
            texts = (e.text for e in stream.events() if isinstance(e, TextDelta))
            got = [next(texts) for _ in range(8)]
            triton.restart()
            got += texts
    assert "".join(got) == stream.text == whole
    assert stream.finish_reason == "stop"
