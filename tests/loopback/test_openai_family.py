"""The OpenAI family over real sockets: each server's own way to go on."""

import pytest

import midstream
from midstream import Backoff, Exactness, Finish, ReasoningDelta, Resume, TextDelta
from midstream.testing import Cut, ErrorEvent, FakeServer, Status

TEXT = "Grüße! 日本語👩‍👩‍👧 ha ha  ha. The end\n\nof it."
PREFILLED = [
    "vllm",
    "sglang-chat",
    "tgi-chat",
    "lmstudio",
    "deepseek",
    "mistral",
    "openrouter",
    "groq",
]
QUICK = Backoff(initial=0.01, maximum=0.02)


def ways(*names):
    return Resume(strategies=names, backoff=QUICK)


def answer(server, dialect, resume, prompt="Tell me.", **asked):
    with (
        midstream.Client(server.endpoint(dialect), resume=resume) as client,
        client.stream(prompt, **asked) as stream,
    ):
        stream.read()
    return stream


def deltas(dialect, **options):
    with FakeServer(TEXT, **options) as server:
        answer(server, dialect, None)
        return server.streams[0].deltas


@pytest.mark.parametrize("dialect", ["vllm", "vllm-completions"])
@pytest.mark.parametrize("split", ["text", "bytes"])
def test_ids_after_any_delta(dialect, split):
    for after in range(1, deltas(dialect, split=split)):
        faults = [Cut(after), Cut(2), None]
        with FakeServer(TEXT, split=split, faults=faults) as server:
            stream = answer(server, dialect, ways("tokens"), max_tokens=200)
            assert stream.text == TEXT
            last = server.streams[-1]
        assert last.path.endswith("/v1/completions") or last.how == "top"
        assert {resumption.strategy for resumption in stream.resumes} <= {
            "begin",
            "tokens",
        }


@pytest.mark.parametrize("dialect", ["vllm", "vllm-completions"])
def test_ids_that_are_not_sent_are_made_of_the_text(dialect):
    extra = {"return_token_ids": False}
    for after in range(1, deltas(dialect), 3):
        with FakeServer(TEXT, faults=[Cut(after), None]) as server:
            stream = answer(
                server, dialect, ways("tokens"), extra=extra, max_tokens=200
            )
        assert stream.text == TEXT


@pytest.mark.parametrize("stop", ["ha.", "👩‍👧", "end\n\nof"])
@pytest.mark.parametrize("split", ["text", "bytes"])
def test_stop_strings_over_the_cut_by_ids(stop, split):
    want = TEXT[: TEXT.index(stop)]
    for after in range(1, deltas("vllm", split=split), 2):
        with FakeServer(TEXT, split=split, faults=[Cut(after), Cut(3)]) as server:
            stream = answer(server, "vllm", ways("tokens"), stop=[stop], max_tokens=200)
        assert stream.text == want
        assert stream.finish_reason == "stop"


@pytest.mark.parametrize("dialect", PREFILLED)
def test_a_prefix_after_any_delta(dialect):
    for after in range(1, deltas(dialect), 2):
        with FakeServer(TEXT, faults=[Cut(after), None]) as server:
            stream = answer(server, dialect, ways("text"))
        assert stream.text == TEXT
        assert stream.exactness is Exactness.TEXT


@pytest.mark.parametrize("dialect", ["lmstudio", "mistral"])
def test_a_prefix_that_is_said_again(dialect):
    with FakeServer(TEXT, echo="whole", faults=[Cut(9), None]) as server:
        assert answer(server, dialect, ways("text")).text == TEXT


@pytest.mark.parametrize("dialect", PREFILLED)
@pytest.mark.parametrize("habit", ["refuse", "trim", "skip", "one"])
def test_whitespace_at_the_end_of_the_prefix(dialect, habit):
    pieces = ["Line one.", "\n", "\n", "Line two"]
    faults = [Cut(3), None]
    with FakeServer(tokens=pieces, whitespace=habit, faults=faults) as server:
        stream = answer(server, dialect, ways("text"))
        assert server.streams[1].prefix == "Line one."
    assert stream.text == "Line one.\n\nLine two"


@pytest.mark.parametrize("dialect", PREFILLED)
def test_a_refused_prefix_is_remembered(dialect):
    with FakeServer(TEXT, prefill="refuse", faults=[Cut(4), None, Cut(4)]) as server:
        endpoint = server.endpoint(dialect)
        with midstream.Client(endpoint, resume=ways("text")) as client:
            for _ in range(2):
                with (
                    client.stream("Tell me.") as stream,
                    pytest.raises(midstream.ResumeUnsupported) as caught,
                ):
                    stream.read()
                assert isinstance(caught.value.__cause__, midstream.Dropped)
                assert TEXT.startswith(caught.value.text)
        # Asked once whether it continues, and not again.
        assert [entry.status for entry in server.requests] == [200, 400, 200]


@pytest.mark.parametrize("dialect", PREFILLED)
def test_the_budget_shrinks(dialect):
    with FakeServer(tokens=list("abcdefghijkl"), faults=[Cut(6), None]) as server:
        stream = answer(server, dialect, ways("tokens", "text"), max_tokens=10)
        assert server.streams[1].body["max_tokens"] == 4
    assert stream.text == "abcdefghij"
    assert stream.finish_reason == "length"
    with FakeServer(tokens=list("abcdefghijkl"), faults=[Cut(10)]) as server:
        stream = answer(server, dialect, ways("tokens", "text"), max_tokens=10)
        assert len(server.streams) == 1
    assert stream.text == "abcdefghij"
    assert stream.finish_reason == "length"


@pytest.mark.parametrize("dialect", PREFILLED)
def test_reasoning_has_a_channel_of_its_own(dialect):
    script = [ReasoningDelta("Let me "), ReasoningDelta("see."), TextDelta("It is.")]
    with FakeServer(events=script) as server:
        stream = answer(server, dialect, None)
    assert stream.reasoning == "Let me see."
    assert stream.text == "It is."


@pytest.mark.parametrize("dialect", ["deepseek", "openrouter", "groq", "vllm"])
def test_text_after_reasoning_is_continued(dialect):
    script = [
        ReasoningDelta("Let me see.", tokens=1),
        TextDelta("It "),
        TextDelta("is "),
        TextDelta("so."),
    ]
    with FakeServer(events=script, faults=[Cut(3), None]) as server:
        resume = ways("tokens", "text")
        if dialect == "vllm":
            # The fake model's ids are those of its text alone.
            with pytest.raises(midstream.ResumeUnsupported, match="reasoning"):
                answer(server, dialect, resume, stop=["none"])
            return
        stream = answer(server, dialect, resume)
    assert stream.text == "It is so."
    assert stream.reasoning == "Let me see."


@pytest.mark.parametrize("dialect", PREFILLED)
def test_a_cut_tool_call_is_not_continued(dialect):
    script = [
        TextDelta("I look."),
        midstream.ToolCallDelta(0, "call12345", "f", '{"path":"/x","body":"line'),
        midstream.ToolCallDelta(0, None, None, ' two"}'),
    ]
    tools = [{"type": "function", "function": {"name": "f"}}]
    with (
        FakeServer(events=script, faults=[Cut(2)]) as server,
        pytest.raises(midstream.ToolCallInterrupted) as caught,
    ):
        answer(server, dialect, ways("tokens", "text"), tools=tools)
    (call,) = caught.value.tool_calls
    assert (call.name, call.complete) == ("f", False)
    assert call.arguments == '{"path":"/x","body":"line'


@pytest.mark.parametrize("dialect", PREFILLED)
def test_a_tool_call_that_a_limit_cut_is_not_whole(dialect):
    script = [
        midstream.ToolCallDelta(0, "call12345", "f", '{"path":'),
        Finish("length", "length"),
    ]
    with FakeServer(events=script) as server:
        stream = answer(server, dialect, None)
    (call,) = stream.tool_calls
    assert stream.finish_reason == "length"
    assert (call.arguments, call.complete) == ('{"path":', False)


@pytest.mark.parametrize("dialect", PREFILLED)
def test_an_error_and_then_done_is_resumed_or_raised(dialect):
    busy = ErrorEvent("busy", after=4, status=503, then="done")
    with FakeServer(TEXT, faults=[busy, None]) as server:
        stream = answer(server, dialect, ways("text"))
        assert stream.text == TEXT
        assert "busy" in stream.resumes[0].reason
    wrong = ErrorEvent("wrong", after=4, status=400, type="invalid_request_error")
    with (
        FakeServer(TEXT, faults=[wrong]) as server,
        pytest.raises(midstream.BadRequest, match="wrong"),
    ):
        answer(server, dialect, ways("text"))


@pytest.mark.parametrize("dialect", [*PREFILLED, "openai", "openai-completions"])
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, midstream.AuthenticationFailed),
        (404, midstream.NotFound),
        (429, midstream.RateLimited),
        (503, midstream.Overloaded),
    ],
)
def test_statuses(dialect, status, error):
    fault = Status(status, "no", headers={"Retry-After": "3"})
    with (
        FakeServer(TEXT, faults=[fault]) as server,
        pytest.raises(error, match="no") as caught,
    ):
        answer(server, dialect, None)
    assert caught.value.status == status
    assert caught.value.retry_after == 3
    assert caught.value.retryable is (status in (429, 503))
