"""The official `openai` client reads the responses that the fake server writes."""

import openai
import pytest

from midstream import (
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReport,
)
from midstream.testing import Cut, ErrorEvent, FakeServer, Pings, Status

TEXT = "Grüße! 日本語👩‍👩‍👧 the end."
ASKED = {"model": "gpt-x", "input": "Hi"}
SCRIPT = [
    ReasoningDelta("Let me "),
    ReasoningDelta("think."),
    ReasoningDelta("", tokens=0, signature="c2ln"),
    TextDelta("I look "),
    TextDelta("it up."),
    RefusalDelta("Not that."),
    ToolCallDelta(0, "call_1", "look", '{"where":'),
    ToolCallDelta(0, arguments='"here"}'),
    ToolCallDelta(0, tokens=0, closed=True),
    Finish("tool_calls", "completed"),
    UsageReport(Usage(71, 5, 2, 64)),
]


@pytest.fixture
def responses():
    """Opens the client's responses on a server, and closes it at the test's end."""
    opened = []

    def made(server, dialect="openai-responses"):
        client = openai.OpenAI(
            api_key="key-of-nobody",
            base_url=f"{server.url(dialect)}/v1",
            max_retries=0,
        )
        opened.append(client)
        return client.responses

    yield made
    for client in opened:
        client.close()


@pytest.mark.parametrize(
    "dialect", ["openai-responses", "llama.cpp-responses", "vllm-responses"]
)
def test_the_text_and_how_it_ended(responses, dialect):
    with (
        FakeServer(TEXT, always=Pings()) as server,
        responses(server, dialect).stream(**ASKED) as stream,
    ):
        deltas = [e.delta for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text == TEXT
    assert final.status == "completed"
    assert final.usage.output_tokens == server.requests[0].tokens


def test_a_limit(responses):
    with FakeServer(TEXT) as server:
        final = responses(server).create(**ASKED, max_output_tokens=3)
        assert (final.status, final.incomplete_details.reason) == (
            "incomplete",
            "max_output_tokens",
        )
        with responses(server).stream(**ASKED, max_output_tokens=3) as stream:
            *_, last = stream
    assert last.type == "response.incomplete"


def test_reasoning_refusal_tools_and_usage(responses):
    with (
        FakeServer(events=SCRIPT) as server,
        responses(server).stream(**ASKED) as stream,
    ):
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    reasoning, message, refusal, call = final.output
    assert reasoning.content[0].text == "Let me think."
    assert reasoning.encrypted_content == "c2ln"
    assert message.content[0].text == "I look it up."
    assert refusal.content[0].refusal == "Not that."
    assert (call.call_id, call.name) == ("call_1", "look")
    assert call.arguments == '{"where":"here"}'
    assert "response.function_call_arguments.done" in kinds
    assert final.usage.input_tokens_details.cached_tokens == 64
    assert final.usage.output_tokens_details.reasoning_tokens == 2


def test_events_are_numbered_without_gaps(responses):
    with FakeServer(TEXT) as server:
        stream = responses(server).create(**ASKED, stream=True)
        numbers = [event.sequence_number for event in stream]
    assert numbers == list(range(len(numbers)))


def test_a_background_response_is_read_on_and_cancelled(responses):
    with FakeServer(TEXT) as server:
        api = responses(server)
        stream = api.create(**ASKED, stream=True, background=True, store=True)
        seen = [next(stream) for _ in range(6)]
        stream.close()
        first = seen[0].response
        assert first.background
        after = seen[-1].sequence_number
        seen += api.retrieve(first.id, stream=True, starting_after=after)
        numbers = [event.sequence_number for event in seen]
        assert numbers == list(range(len(numbers)))
        assert seen[-1].response.output_text == TEXT
        assert api.cancel(first.id).status == "cancelled"
        with pytest.raises(openai.NotFoundError):
            api.retrieve(first.id, stream=True)


def test_a_server_without_a_store_refuses(responses):
    with (
        FakeServer(TEXT, replay=False) as server,
        pytest.raises(openai.BadRequestError, match="store"),
    ):
        responses(server).create(**ASKED, stream=True, background=True)


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (429, openai.RateLimitError),
        (503, openai.InternalServerError),
    ],
)
def test_refusals_are_its_own_errors(responses, status, cls):
    with (
        FakeServer(TEXT, faults=[Status(status, "no")]) as server,
        pytest.raises(cls, match="no"),
    ):
        responses(server).create(**ASKED, stream=True)


def test_an_error_in_mid_stream_is_an_event_or_an_error_of_its_own(responses):
    with FakeServer(TEXT, faults=[ErrorEvent("busy", after=2)]) as server:
        stream = responses(server).create(**ASKED, stream=True)
        events = list(stream)
    assert events[-1].type == "error"
    assert events[-1].message == "busy"


def test_a_cut_is_not_taken_for_an_end(responses):
    with (
        FakeServer(TEXT, faults=[Cut(after=3)]) as server,
        pytest.raises(openai.APIConnectionError),
    ):
        list(responses(server).create(**ASKED, stream=True))
