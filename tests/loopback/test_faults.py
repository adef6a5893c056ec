"""What servers say when they fail, and what callers see of it."""

import time

import pytest

import midstream
from midstream import Exactness, Resume
from midstream.testing import Cut, ErrorEvent, FakeServer, Status, StayOpen

TEXT = "The answer is forty-two, 四十二です。 Nothing else."
NO_WAIT = Resume(attempts=2, backoff=midstream.Backoff(initial=0, maximum=0))


def test_overloaded_in_mid_stream_is_classed_by_its_type(colour, dialect):
    fault = ErrorEvent("too busy", after=3, type="overloaded_error", status=529)
    with FakeServer(TEXT, faults=[fault]) as server:
        seen = colour(server.endpoint(dialect), client={"resume": None})
    assert isinstance(seen.error, midstream.ServerError)
    assert "too busy" in seen.error.message
    assert seen.error.text == seen.joined != ""


@pytest.mark.parametrize("name", ["openai", "llama.cpp"])
def test_the_error_type_decides_whether_a_retry_may_help(colour, name):
    for type_, cls, retryable in [
        ("overloaded_error", midstream.Overloaded, True),
        ("invalid_request_error", midstream.BadRequest, False),
    ]:
        with FakeServer(TEXT, faults=[ErrorEvent("m", after=1, type=type_)]) as server:
            seen = colour(server.endpoint(name), client={"resume": None})
        assert type(seen.error) is cls
        assert seen.error.retryable is retryable


def test_a_retryable_error_in_mid_stream_is_resumed(colour):
    faults = [ErrorEvent("busy", after=3, type="overloaded_error"), None]
    with FakeServer(TEXT, faults=faults) as server:
        seen = colour(
            server.endpoint("llama.cpp"), client={"resume": NO_WAIT}, temperature=0
        )
    assert seen.error is None
    assert seen.joined == TEXT
    assert "busy" in seen.stream.resumes[0].reason


def test_an_error_and_then_done_is_no_success(colour):
    fault = ErrorEvent("gone", after=2, type="server_error", then="done")
    with FakeServer(TEXT, faults=[fault]) as server:
        seen = colour(server.endpoint("openai"), client={"resume": None})
    assert isinstance(seen.error, midstream.ServerFailed)
    assert not seen.stream.complete


@pytest.mark.parametrize(
    ("status", "type_", "cls"),
    [
        (400, "invalid_request_error", midstream.BadRequest),
        (401, "authentication_error", midstream.AuthenticationFailed),
        (404, "not_found_error", midstream.NotFound),
    ],
)
def test_the_callers_mistakes_are_not_retried(colour, dialect, status, type_, cls):
    if dialect == "triton-grpc":
        type_ = None
    with FakeServer(TEXT, faults=[Status(status, "no", type=type_)]) as server:
        seen = colour(server.endpoint(dialect))
        assert len(server.streams) == 1
    assert isinstance(seen.error, cls)
    assert "no" in seen.error.message
    assert not seen.error.retryable
    assert seen.error.checkpoint.text == ""


def test_thirty_refusals_leave_no_connection_behind(colour):
    refusal = Status(429, "slow down", headers={"Retry-After": "1"})
    with FakeServer(TEXT, faults=[refusal] * 30) as server:
        for _ in range(30):
            seen = colour(server.endpoint("openai"), client={"resume": None})
            assert type(seen.error) is midstream.RateLimited
            assert seen.error.retry_after == 1
            assert "slow down" in seen.error.message


def test_a_busy_server_is_asked_again(colour):
    refusals = [Status(503, "loading"), Status(429, headers={"retry-after-ms": "5"})]
    with FakeServer(TEXT, faults=refusals) as server:
        seen = colour(server.endpoint("ollama"), client={"resume": NO_WAIT})
        assert len(server.streams) == 3
    assert seen.joined == TEXT
    assert seen.stream.resumes == []
    assert seen.stream.exactness is Exactness.UNBROKEN
    assert seen.stream.metrics.connects == 3


def test_a_busy_server_keeps_the_stream_all_the_same(colour):
    resume = Resume(strategies=("replay",), backoff=midstream.Backoff(initial=0))
    with FakeServer(TEXT, faults=[Cut(after=3), Status(503), Status(429)]) as server:
        seen = colour(server.endpoint("llama.cpp"), client={"resume": resume})
        assert [e.how for e in server.streams] == ["top", *["replay"] * 3]
    assert seen.joined == TEXT
    assert seen.stream.exactness is Exactness.REPLAYED


def test_a_server_that_stays_busy_says_so_itself(colour):
    with FakeServer(TEXT, always=Status(503, "still loading")) as server:
        seen = colour(server.endpoint("ollama"), client={"resume": NO_WAIT})
        assert len(server.streams) == 3
    assert type(seen.error) is midstream.Overloaded
    assert "still loading" in str(seen.error)


def test_nobody_listens(colour):
    with FakeServer(TEXT) as server:
        endpoint = server.endpoint("llama.cpp")
    seen = colour(endpoint, client={"resume": NO_WAIT})
    assert type(seen.error) is midstream.ConnectFailed
    seen = colour(endpoint, client={"resume": None})
    assert type(seen.error) is midstream.ConnectFailed


def test_attempts_without_progress_are_counted(colour):
    faults = [Cut(after=4), *[Cut()] * 9]
    with FakeServer(TEXT, faults=faults) as server:
        resume = Resume(
            attempts=3, strategies=("text",), backoff=midstream.Backoff(initial=0)
        )
        seen = colour(server.endpoint("llama.cpp"), client={"resume": resume})
        assert len(server.streams) == 4
    assert type(seen.error) is midstream.ResumeExhausted
    assert seen.error.text == seen.joined != ""
    assert isinstance(seen.error.__cause__, midstream.Dropped)


def test_done_with_the_socket_left_open_ends_at_once(colour):
    with FakeServer(TEXT, faults=[StayOpen()]) as server:
        began = time.monotonic()
        seen = colour(server.endpoint("openai"))
        assert time.monotonic() - began < 4  # the idle limit is 5
        server.wait_for(lambda entry: entry.ended is not None)
    assert seen.joined == TEXT
    assert seen.stream.complete


def test_finish_without_done_is_complete(colour, dialect):
    with FakeServer(TEXT, faults=[Cut(kind="no_done")]) as server:
        seen = colour(server.endpoint(dialect), client={"resume": None}, max_tokens=99)
    if dialect in ("openai", "llama.cpp"):
        assert seen.error is None
        assert seen.stream.complete
    assert seen.joined == TEXT


def test_no_key_is_in_any_error(colour):
    key = "sk-secret-0123456789"
    fault = Status(401, f"wrong key {key}", type="authentication_error")
    with FakeServer(TEXT, faults=[fault]) as server:
        endpoint = midstream.Endpoint(
            "openai", base_url=server.url("openai"), api_key=key, model="m"
        )
        seen = colour(endpoint)
        assert server.requests[0].headers["authorization"] == f"Bearer {key}"
        assert key not in server.requests[0].path
    assert key not in f"{seen.error} {seen.error!r} {seen.stream!r} {endpoint!r}"
    assert key not in seen.error.checkpoint.model_dump_json()


def test_the_budget_shrinks_by_what_came(colour):
    tokens = [f"{n} " for n in range(20)]
    with FakeServer(tokens=tokens, faults=[Cut(after=6)]) as server:
        seen = colour(
            server.endpoint("ollama"), client={"resume": NO_WAIT}, max_tokens=10
        )
        first, second = (entry.body["options"] for entry in server.streams)
    assert (first["num_predict"], second["num_predict"]) == (10, 4)
    assert seen.joined == "".join(tokens[:10])
    assert seen.stream.finish_reason == "length"


def test_with_nothing_left_no_request_is_sent(colour):
    tokens = [f"{n} " for n in range(20)]
    with FakeServer(tokens=tokens, faults=[Cut(after=10)]) as server:
        seen = colour(
            server.endpoint("ollama"), client={"resume": NO_WAIT}, max_tokens=10
        )
        assert len(server.streams) == 1
    assert seen.error is None
    assert seen.joined == "".join(tokens[:10])
    assert seen.stream.finish_reason == "length"
    assert seen.stream.complete


def test_a_refused_prefill_is_remembered_and_the_first_drop_is_the_cause(colour):
    with FakeServer("Hello world", faults=[Cut(after=2)], prefill="refuse") as server:
        resume = Resume(strategies=("text",), backoff=midstream.Backoff(initial=0))
        seen = colour(server.endpoint("llama.cpp"), client={"resume": resume})
        assert len(server.streams) == 2
    assert type(seen.error) is midstream.ResumeUnsupported
    assert isinstance(seen.error.__cause__, midstream.Dropped)
    assert seen.error.text == seen.joined != ""


def test_the_next_endpoint_goes_on_in_mid_stream(colour):
    with (
        FakeServer(TEXT, faults=[Cut(after=5, refuse_for=60)]) as first,
        FakeServer(TEXT) as second,
    ):
        seen = colour(
            first.endpoint("llama.cpp"),
            second.endpoint("ollama"),
            client={"resume": NO_WAIT},
        )
        assert second.streams[0].prefix != ""
        address = second.url("ollama")
    assert seen.error is None
    assert seen.joined == TEXT
    assert seen.stream.resumes[0].endpoint.dialect == "ollama"
    assert address in str(seen.stream.resumes[0].endpoint)
