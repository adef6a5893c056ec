"""What may befall the first of two servers: the other one takes over, or nobody may.

Wherever another server can help, the answer arrives whole, and no character that was
shown is taken back. Where the caller is at fault, nobody else is asked.
"""

import json

import pytest

import midstream
from midstream import Backoff, Resume, Timeouts
from midstream.testing import Cut, ErrorEvent, FakeServer, Garbage, Stall, Status

TEXT = "The answer that must arrive whole, whichever server says it. " * 3
QUICK = Resume(attempts=2, backoff=Backoff(initial=0.01, maximum=0.02))
SHORT = Timeouts(first_token=0.4, idle=0.4)
OVERFLOW = json.dumps(
    {"error": {"message": "maximum context length is 9", "code": 400}}
).encode()
DOWN = [Cut(after=9, refuse_for=600)]

TAKEN_OVER = {
    "refused connection": DOWN,
    "reset before the headers": [Cut(after=None, kind="rst")] * 9,
    "silent from the begin": [Stall(after=0)] * 9,
    "silent in the middle": [Stall(after=9)] * 9,
    "drops again and again": [Cut(after=9), *[Cut(after=0)] * 9],
    "500 before the stream": [Status(500)] * 9,
    "502 before the stream": [Status(502)] * 9,
    "503 before the stream": [Status(503)] * 9,
    "429 that asks for an hour": [Status(429, headers={"retry-after": "3600"})] * 9,
    "overloaded in the middle": [ErrorEvent(after=9)] * 9,
    "malformed in the middle": [Garbage(after=9)] * 9,
    "no such model": [Status(404)] * 9,
    "wrong key": [Status(401)] * 9,
    "no access": [Status(403)] * 9,
    "context too small": [Status(400, body=OVERFLOW)] * 9,
    "a web page in its place": [
        Status(200, body=b"<html>hello</html>", headers={"content-type": "text/html"})
    ]
    * 9,
}


@pytest.mark.parametrize("faults", TAKEN_OVER.values(), ids=TAKEN_OVER)
def test_the_other_server_takes_over(colour, faults):
    with FakeServer(TEXT, faults=faults) as ill, FakeServer(TEXT) as well:
        seen = colour(
            ill.endpoint("llama.cpp"),
            well.endpoint("llama.cpp"),
            client={"resume": QUICK, "timeouts": SHORT},
        )
    assert seen.error is None
    assert seen.joined == seen.stream.text == TEXT
    assert seen.stream.complete
    # One that brings enough each time is gone on with.
    assert well.streams or len(ill.streams) > 3


@pytest.mark.parametrize("faults", [[Stall(after=0)] * 9, [Stall(after=9)] * 9])
def test_a_silent_server_is_waited_for_once(colour, faults):
    """Not as often as it may be tried where nobody else is there (K30)."""
    with FakeServer(TEXT, faults=faults) as ill, FakeServer(TEXT) as well:
        seen = colour(
            ill.endpoint("ollama"), well.endpoint("ollama"), client={"timeouts": SHORT}
        )
        assert len(ill.requests) == 1
    assert seen.joined == TEXT


@pytest.mark.parametrize(
    ("status", "kind"), [(400, midstream.BadRequest), (413, midstream.BadRequest)]
)
def test_the_callers_mistake_is_asked_of_nobody_else(colour, status, kind):
    with FakeServer(TEXT, faults=[Status(status)]) as one, FakeServer(TEXT) as other:
        seen = colour(one.endpoint("llama.cpp"), other.endpoint("llama.cpp"))
        assert other.requests == []
    assert type(seen.error) is kind


def test_who_was_ill_is_asked_last_for_a_while_and_then_first_again():
    with FakeServer(TEXT, faults=[Status(401)]) as ill, FakeServer(TEXT) as well:
        endpoints = ill.endpoint("ollama"), well.endpoint("ollama")
        with midstream.Client(*endpoints, resume=QUICK) as client:
            for _ in range(3):
                with client.stream("hi") as stream:
                    assert stream.read() == TEXT
                    assert stream.endpoint == client.endpoints[1]
            assert len(ill.requests) == 1
            client._servers[0].health.down_until = 0  # half a minute later
            with client.stream("hi") as stream:
                assert stream.read() == TEXT
                assert stream.endpoint == client.endpoints[0]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
@pytest.mark.parametrize(
    "name", ["anthropic", "llama.cpp", "ollama", "tgi", "triton-grpc"]
)
def test_what_ends_a_stream_that_dropped_is_an_interruption(colour, name, status):
    """Whatever the dialect: its cause is the refusal, the drop is behind (K25)."""
    faults = [Cut(after=9), *[Status(status, message="no more of this")] * 9]
    resume = Resume(attempts=2, backoff=QUICK.backoff, strategies=("text",))
    with FakeServer(TEXT, faults=faults) as server:
        seen = colour(server.endpoint(name), client={"resume": resume})
    assert isinstance(seen.error, midstream.StreamInterrupted)
    cause = seen.error.__cause__
    assert isinstance(cause, midstream.ServerError)
    behind = cause.__cause__
    if not isinstance(behind, midstream.Dropped):
        behind = behind.__cause__  # gRPC's own error is between
    assert isinstance(behind, midstream.Dropped)
    assert seen.error.text == seen.joined != ""
    assert TEXT.startswith(seen.joined)


@pytest.mark.parametrize("name", ["anthropic", "llama.cpp", "openai"])
def test_an_error_inside_a_stream_that_did_not_drop_is_raised_as_itself(colour, name):
    fault = ErrorEvent("no", after=9, type="invalid_request_error", status=400)
    with FakeServer(TEXT, faults=[fault]) as server:
        seen = colour(server.endpoint(name))
    assert isinstance(seen.error, midstream.ServerError)
    assert seen.error.text == seen.joined != ""
