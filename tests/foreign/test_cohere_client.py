"""The official `cohere` client reads what the fake server writes."""

import cohere
import pytest

from midstream import (
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReport,
)
from midstream.testing import ErrorEvent, FakeServer, Status

TEXT = "Grüße! 日本語👩‍👩‍👧 the end."
ASKED = {"model": "command-a", "messages": [{"role": "user", "content": "Hi"}]}
SCRIPT = [
    ReasoningDelta("Let me "),
    ReasoningDelta("think."),
    TextDelta("I look "),
    TextDelta("it up."),
    ToolCallDelta(0, "c1", "look", '{"where":'),
    ToolCallDelta(0, arguments='"here"}'),
    ToolCallDelta(0, tokens=0, closed=True),
    Finish("tool_calls", "TOOL_CALL"),
    UsageReport(Usage(71, 5, None, 64)),
]


@pytest.fixture
def client():
    """Makes clients, which are closed at the test's end."""
    opened = []

    def made(server):
        made = cohere.ClientV2(api_key="key-of-nobody", base_url=server.url("cohere"))
        opened.append(made)
        return made

    yield made
    for each in opened:
        each._client_wrapper.httpx_client.httpx_client.close()


def test_the_text_why_it_ended_and_usage(client):
    with FakeServer(TEXT) as server:
        events = list(client(server).chat_stream(**ASKED))
    text = "".join(
        e.delta.message.content.text for e in events if e.type == "content-delta"
    )
    assert text == TEXT
    assert events[0].type == "message-start"
    assert events[-1].type == "message-end"
    assert events[-1].delta.finish_reason == "COMPLETE"
    assert events[-1].delta.usage.tokens.output_tokens == server.requests[0].tokens


def test_thinking_tools_and_cached_tokens(client):
    with FakeServer(events=SCRIPT) as server:
        events = list(client(server).chat_stream(**ASKED))
    thoughts, arguments, names = "", "", []
    for event in events:
        match event.type:
            case "content-delta":
                thoughts += event.delta.message.content.thinking or ""
            case "tool-call-start":
                names.append(event.delta.message.tool_calls.function.name)
                arguments += event.delta.message.tool_calls.function.arguments
            case "tool-call-delta":
                arguments += event.delta.message.tool_calls.function.arguments
    assert (thoughts, names) == ("Let me think.", ["look"])
    assert arguments == '{"where":"here"}'
    assert "tool-call-end" in [event.type for event in events]
    assert events[-1].delta.finish_reason == "TOOL_CALL"
    assert events[-1].delta.usage.cached_tokens == 64


def test_the_answer_without_a_stream(client):
    with FakeServer(events=SCRIPT) as server:
        answer = client(server).chat(**ASKED)
    assert answer.message.content[1].text == "I look it up."
    assert answer.message.tool_calls[0].function.arguments == '{"where":"here"}'


def test_limits_and_stop_sequences(client):
    with FakeServer(TEXT) as server:
        answer = client(server).chat(**ASKED, max_tokens=3)
        assert answer.finish_reason == "MAX_TOKENS"
        answer = client(server).chat(**ASKED, stop_sequences=["the"])
        assert answer.finish_reason == "STOP_SEQUENCE"


def test_a_failure_comes_in_the_ends_place(client):
    with FakeServer(TEXT, faults=[ErrorEvent("gone", after=2)]) as server:
        *_, last = client(server).chat_stream(**ASKED)
    assert last.delta.finish_reason == "ERROR"
    assert last.delta.error == "gone"


def test_refusals_are_its_own_errors(client):
    with (
        FakeServer(TEXT, faults=[Status(400, "no")]) as server,
        pytest.raises(cohere.BadRequestError, match="no"),
    ):
        list(client(server).chat_stream(**ASKED))
