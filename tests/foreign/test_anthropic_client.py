"""The official `anthropic` client reads what the fake server writes."""

import anthropic
import httpx2
import pytest

from midstream import (
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReport,
)
from midstream.testing import Cut, ErrorEvent, FakeServer, Pings, Status

TEXT = "Grüße! 日本語👩‍👩‍👧 the end."
ASKED = {
    "model": "someones-model",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Hi"}],
}
SCRIPT = [
    ReasoningDelta("Let me "),
    ReasoningDelta("think."),
    ReasoningDelta("", tokens=0, signature="c2ln"),
    ReasoningDelta("", tokens=0, signature="b3BhcXVl"),
    TextDelta("I look "),
    TextDelta("it up."),
    ToolCallDelta(0, "toolu_1", "look", '{"where":'),
    ToolCallDelta(0, arguments='"here"}'),
    ToolCallDelta(0, tokens=0, closed=True),
    ToolCallDelta(1, "toolu_2", "wait", ""),
    Finish("tool_calls", "tool_use"),
    UsageReport(Usage(71, 5, None, 64)),
]


@pytest.fixture
def messages():
    """Opens the client's messages on a server, and closes it at the test's end."""
    opened = []

    def made(server, dialect="anthropic"):
        client = anthropic.Anthropic(
            api_key="key-of-nobody", base_url=server.url(dialect), max_retries=0
        )
        opened.append(client)
        return client.messages

    yield made
    for client in opened:
        client.close()


@pytest.mark.parametrize(
    "dialect", ["anthropic", "llama.cpp-messages", "vllm-messages"]
)
def test_the_text_and_why_it_ended(messages, dialect):
    pings = Pings()
    with (
        FakeServer(TEXT, always=pings) as server,
        messages(server, dialect).stream(**ASKED) as stream,
    ):
        assert "".join(stream.text_stream) == TEXT
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn"
    assert final.content[0].text == TEXT
    assert final.usage.output_tokens == server.requests[0].tokens


def test_limits_and_stop_sequences(messages):
    with FakeServer(TEXT) as server:
        final = messages(server).create(**{**ASKED, "max_tokens": 3})
        assert final.stop_reason == "max_tokens"
        with messages(server).stream(**ASKED, stop_sequences=["the"]) as stream:
            assert stream.get_final_message().stop_reason == "stop_sequence"


def test_thinking_tools_and_usage(messages):
    with (
        FakeServer(events=SCRIPT) as server,
        messages(server).stream(**ASKED) as stream,
    ):
        final = stream.get_final_message()
    thinking, redacted, text, call, empty = final.content
    assert (thinking.thinking, thinking.signature) == ("Let me think.", "c2ln")
    assert (redacted.type, redacted.data) == ("redacted_thinking", "b3BhcXVl")
    assert text.text == "I look it up."
    assert (call.id, call.name, call.input) == ("toolu_1", "look", {"where": "here"})
    assert (empty.name, empty.input) == ("wait", {})
    assert final.stop_reason == "tool_use"
    assert (final.usage.input_tokens, final.usage.cache_read_input_tokens) == (7, 64)
    assert final.usage.output_tokens == 5


def test_the_answer_without_a_stream(messages):
    with FakeServer(events=SCRIPT) as server:
        final = messages(server).create(**ASKED)
    assert [block.type for block in final.content] == ["thinking", "text"] + [
        "tool_use"
    ] * 2
    assert final.content[2].input == {"where": "here"}


def test_a_trailing_turn_is_gone_on_with(messages):
    prefix = {"role": "assistant", "content": [{"type": "text", "text": "Grüße!"}]}
    asked = {**ASKED, "messages": [*ASKED["messages"], prefix]}
    with (
        FakeServer(TEXT, split="text") as server,
        messages(server).stream(**asked) as stream,
    ):
        assert "Grüße!" + "".join(stream.text_stream) == TEXT


@pytest.mark.parametrize(
    ("status", "type_", "cls"),
    [
        (400, None, anthropic.BadRequestError),
        (401, None, anthropic.AuthenticationError),
        (404, None, anthropic.NotFoundError),
        (429, None, anthropic.RateLimitError),
        (529, None, anthropic.InternalServerError),
    ],
)
def test_refusals_are_its_own_errors(messages, status, type_, cls):
    with (
        FakeServer(TEXT, faults=[Status(status, "no", type=type_)]) as server,
        pytest.raises(cls, match="no") as caught,
    ):
        messages(server).create(**ASKED, stream=True)
    assert caught.value.body["type"] == "error"


def test_an_error_in_mid_stream_is_its_own_error(messages):
    with (
        FakeServer(TEXT, faults=[ErrorEvent("busy", after=2)]) as server,
        pytest.raises(anthropic.APIStatusError, match="busy"),
        messages(server).stream(**ASKED) as stream,
    ):
        stream.until_done()


def test_a_later_claude_refuses_a_trailing_turn(messages):
    prefix = {"role": "assistant", "content": "Gr"}
    asked = {**ASKED, "model": "claude-opus-4-6"}
    asked["messages"] = [*ASKED["messages"], prefix]
    with (
        FakeServer(TEXT) as server,
        pytest.raises(anthropic.BadRequestError, match="prefill"),
    ):
        messages(server).create(**asked, stream=True)


def test_a_cut_is_not_taken_for_an_end(messages):
    with (
        FakeServer(TEXT, faults=[Cut(after=3)]) as server,
        pytest.raises(httpx2.RemoteProtocolError),
        messages(server).stream(**ASKED) as stream,
    ):
        stream.until_done()
