"""The real Triton over gRPC: cut all along the connection, left, and failing."""

from __future__ import annotations

import time

import pytest

import midstream
from midstream import Backoff, Exactness, Resume
from midstream.testing import CutAt, Cutter

PROMPT = "Q: "
QUICK = {"resume": Resume(attempts=30, backoff=Backoff(initial=0, maximum=0))}
ONCE = {"resume": None}
MESSAGE = 90  # bytes: a message of one token is longer, so a step of it skips none
# Triton 2.51 is prone to crash where a client hangs up on responses that wait in line.
PACED = {"sampling_parameters": {"delay": 0.002}}


@pytest.fixture(scope="module")
def stop(fake_llm):
    """Where the answers end, and what they are up to there."""
    end = fake_llm.TEXT.index(b"walked")
    return "walked", fake_llm.TEXT[:end].decode()


@pytest.fixture(autouse=True)
def _alive(triton):
    """A server that has crashed on being left is started again."""
    if not triton.running:
        restarted(triton)


def restarted(triton):
    assert "Signal (11) received" in triton.log()
    triton.restart()


@pytest.fixture
def read_alive(read, triton):
    """Reads an answer; once more where the server crashed on being cut."""

    def run(cuts, endpoint, **asked):
        while True:
            with Cutter(triton.grpc_url, cuts, raw=True) as cutter:
                try:
                    stream = read(f"{endpoint}@{cutter.url}", PROMPT, **asked)
                except midstream.MidstreamError:
                    if triton.running:
                        raise
                    restarted(triton)
                else:
                    return stream, len(cutter.cuts)

    return run


def test_an_unbroken_answer(read, triton_grpc_url, stop):
    word, whole = stop
    endpoint = f"triton-grpc:llm@{triton_grpc_url}"
    stream = read(endpoint, PROMPT, client=ONCE, stop=word)
    assert stream.text == whole
    assert stream.complete
    assert stream.finish_reason == "stop"
    assert stream.exactness is Exactness.UNBROKEN
    assert stream.usage.input_tokens == len(PROMPT)
    assert stream.usage.output_tokens > 20


@pytest.mark.parametrize(("kind", "step"), [("fin", MESSAGE), ("rst", 3 * MESSAGE)])
def test_cut_after_every_message_the_text_is_the_same(read_alive, stop, kind, step):
    word, whole = stop
    at, places, unbroken = 0, set(), 0
    while unbroken < 3:  # the last bytes of a connection are no message
        stream, cuts = read_alive(
            [CutAt(at, kind)],
            "triton-grpc:llm",
            client=QUICK,
            stop=word,
            extra=PACED,
        )
        assert stream.text == whole
        assert stream.complete
        places.update(resumption.at for resumption in stream.resumes)
        unbroken = 0 if cuts else unbroken + 1
        at += step
    assert len(places) > 10  # it broke at so many places of the text


def test_many_cuts_in_one_answer(read_alive, stop):
    word, whole = stop
    cuts = [CutAt(at, kind) for at in (3000, 2500) for kind in ("fin", "rst")]
    stream, _ = read_alive(
        cuts, "triton-grpc:llm", client=QUICK, stop=word, extra=PACED
    )
    assert stream.text == whole
    assert stream.exactness is Exactness.TEXT


def test_a_limit(read, triton_grpc_url, fake_llm):
    endpoint = f"triton-grpc:llm@{triton_grpc_url}"
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


def test_leaving_stops_the_model_within_two_tokens(triton, triton_grpc_url):
    extra = {"sampling_parameters": {"delay": 0.05}, "max_tokens": 2000}
    done = len(triton.requests())
    with (
        midstream.Client(f"triton-grpc:llm@{triton_grpc_url}") as client,
        client.stream("leaves over gRPC", extra=extra) as stream,
    ):
        next(iter(stream))
    left = time.time()
    (note,) = until(lambda: triton.requests()[done:])
    assert note["end"] == "cancelled"
    assert sum(at > left for at in note["times"]) <= 2


def test_an_error_in_mid_stream_keeps_the_text(read, triton_grpc_url):
    extra = {"sampling_parameters": {"fail_after": 9}}
    endpoint = f"triton-grpc:llm@{triton_grpc_url}"
    with pytest.raises(midstream.ServerFailed, match="CUDA out of memory") as caught:
        read(endpoint, PROMPT, client=QUICK, extra=extra)
    assert caught.value.text != ""
    assert not caught.value.retryable


def test_errors_before_the_first_message(read, triton_grpc_url):
    extra = {"sampling_parameters": {"fail_after": 0}}
    endpoint = f"triton-grpc:llm@{triton_grpc_url}"
    with pytest.raises(midstream.ServerFailed, match="日本"):
        read(endpoint, PROMPT, client=QUICK, extra=extra)
    with pytest.raises(midstream.NotFound, match="unknown model"):
        read(f"triton-grpc:nope@{triton_grpc_url}", PROMPT, client=QUICK)
