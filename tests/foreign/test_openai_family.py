"""The official clients of the OpenAI family read what the fake server writes.

None of them knows midstream. What they would complain about (an unknown shape, a field
that is missing, an error that is not theirs) fails here; and they see the same text,
reasoning, tool calls and usage as was said.
"""

from __future__ import annotations

import contextlib

import groq
import huggingface_hub
import huggingface_hub.errors
import mistralai.client
import mistralai.client.errors
import openai
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
MESSAGES = [{"role": "user", "content": "Hi"}]
SCRIPT = [
    ReasoningDelta("Let me "),
    ReasoningDelta("think."),
    TextDelta("I look "),
    TextDelta("it up."),
    ToolCallDelta(0, "call12345", "look", '{"where":"here"}'),
    Finish("tool_calls", "tool_calls"),
    UsageReport(Usage(7, 5)),
]
KEY = "key-of-nobody"
OPENAI = ["openai", "vllm", "sglang-chat", "lmstudio", "deepseek", "openrouter"]
COMPLETIONS = ["openai-completions", "vllm-completions"]
THOUGHT = {"vllm": "reasoning", "openrouter": "reasoning"}


@pytest.fixture
def clients():
    """Makes clients, which are closed at the test's end."""
    with contextlib.ExitStack() as stack:

        def made(kind, server, dialect):
            url = server.url(dialect)
            options = {"api_key": KEY, "max_retries": 0}
            match kind:
                case "openai":
                    client = openai.OpenAI(base_url=f"{url}/v1", **options)
                case "groq":
                    client = groq.Groq(base_url=url, **options)
                case "mistral":
                    client = mistralai.client.Mistral(api_key=KEY, server_url=url)
                case "hub":
                    client = huggingface_hub.InferenceClient(
                        base_url=f"{url}/v1", token=KEY
                    )
            return stack.enter_context(client)

        yield made


def openai_stream(client, **asked):
    return client.chat.completions.create(
        model="m",
        messages=MESSAGES,
        stream=True,
        stream_options={"include_usage": True},
        **asked,
    )


def groq_stream(client):
    return client.chat.completions.create(model="m", messages=MESSAGES, stream=True)


def hub_stream(client):
    return client.chat_completion(
        MESSAGES, stream=True, stream_options={"include_usage": True}
    )


def mistral_chunks(client, messages=MESSAGES):
    with client.chat.stream(model="m", messages=messages) as stream:
        return [event.data for event in stream]


def joined(pieces):
    return "".join(piece for piece in pieces if piece)


@pytest.mark.parametrize("dialect", OPENAI)
def test_openai_reads_a_chat(clients, dialect):
    with FakeServer(TEXT, faults=[Pings()]) as server:
        chunks = list(openai_stream(clients("openai", server, dialect)))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert joined(delta.content for delta in deltas) == TEXT
    assert deltas[0].role == "assistant"
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert [reason for reason in reasons if reason] == ["stop"]
    (usage,) = [chunk.usage for chunk in chunks if chunk.usage][-1:]
    assert usage.completion_tokens > 5
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


@pytest.mark.parametrize("dialect", OPENAI)
def test_openai_reads_reasoning_and_tools(clients, dialect):
    with FakeServer(events=SCRIPT) as server:
        chunks = list(openai_stream(clients("openai", server, dialect)))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    field = THOUGHT.get(dialect, "reasoning_content")
    assert joined(getattr(d, field, None) for d in deltas) == "Let me think."
    assert joined(delta.content for delta in deltas) == "I look it up."
    (call,) = [call for delta in deltas for call in delta.tool_calls or ()]
    assert (call.index, call.id, call.function.name) == (0, "call12345", "look")
    assert call.function.arguments == '{"where":"here"}'
    usage = [chunk.usage for chunk in chunks if chunk.usage][-1]
    assert (usage.prompt_tokens, usage.completion_tokens) == (7, 5)


@pytest.mark.parametrize("dialect", OPENAI)
def test_openai_sees_errors_as_its_own(clients, dialect):
    fault = ErrorEvent("broke down", after=3, type="server_error", status=500)
    with FakeServer(TEXT, faults=[fault, Status(429, "slow down")]) as server:
        with pytest.raises(openai.APIError, match="broke down"):
            list(openai_stream(clients("openai", server, dialect)))
        with pytest.raises(openai.RateLimitError, match="slow down"):
            openai_stream(clients("openai", server, dialect))


@pytest.mark.parametrize("dialect", OPENAI)
def test_openai_reads_an_answer_at_once(clients, dialect):
    with FakeServer(TEXT) as server:
        client = clients("openai", server, dialect)
        answer = client.chat.completions.create(model="m", messages=MESSAGES)
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens > 5


@pytest.mark.parametrize("dialect", COMPLETIONS)
def test_openai_reads_a_completion(clients, dialect):
    with FakeServer(TEXT) as server:
        client = clients("openai", server, dialect)
        asked = {"model": "m", "prompt": "Hi"}
        usage = {"include_usage": True}
        chunks = list(
            client.completions.create(**asked, stream=True, stream_options=usage)
        )
        whole = client.completions.create(**asked)
    assert joined(c.choices[0].text for c in chunks if c.choices) == TEXT
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens > 5
    assert whole.choices[0].text == TEXT


@pytest.mark.parametrize("dialect", COMPLETIONS)
def test_openai_sees_an_error_in_a_completion(clients, dialect):
    fault = ErrorEvent("broke down", after=2, type="server_error", then="done")
    with FakeServer(TEXT, faults=[fault]) as server:
        client = clients("openai", server, dialect)
        with pytest.raises(openai.APIError, match="broke down"):
            list(client.completions.create(model="m", prompt="Hi", stream=True))


def test_openai_reads_several_choices(clients):
    with FakeServer("first one", choices=["the second"]) as server:
        chunks = list(openai_stream(clients("openai", server, "vllm"), n=2))
    texts = {0: "", 1: ""}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == {0: "first one", 1: "the second"}


# -- huggingface_hub, for TGI -------------------------------------------------------


def test_huggingface_hub_reads_a_chat(clients):
    with FakeServer(TEXT, faults=[Pings(data=b":\n\n")]) as server:
        chunks = list(hub_stream(clients("hub", server, "tgi-chat")))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert joined(delta.content for delta in deltas) == TEXT
    assert {delta.role for delta in deltas} == {"assistant"}
    assert {chunk.id for chunk in chunks} == {""}
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens > 5


def test_huggingface_hub_reads_tools(clients):
    with FakeServer(events=SCRIPT[2:]) as server:
        chunks = list(hub_stream(clients("hub", server, "tgi-chat")))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    (call,) = [call for delta in deltas for call in delta.tool_calls or ()]
    assert (call.function.name, call.function.arguments) == (
        "look",
        '{"where":"here"}',
    )


def test_huggingface_hub_sees_errors_as_its_own(clients):
    fault = ErrorEvent("broke down", after=3, then="done")
    with FakeServer(TEXT, faults=[fault, Status(429, "slow down")]) as server:
        with pytest.raises(Exception, match="broke down") as caught:
            list(hub_stream(clients("hub", server, "tgi-chat")))
        assert type(caught.value).__module__.startswith("huggingface_hub")
        with pytest.raises(huggingface_hub.errors.HfHubHTTPError, match="429"):
            list(hub_stream(clients("hub", server, "tgi-chat")))


# -- mistralai ----------------------------------------------------------------------


def test_mistralai_reads_a_chat(clients):
    with FakeServer(TEXT, faults=[Pings()]) as server:
        chunks = mistral_chunks(clients("mistral", server, "mistral"))
    choices = [chunk.choices[0] for chunk in chunks]
    assert joined(choice.delta.content for choice in choices) == TEXT
    assert choices[-1].finish_reason == "stop"


def test_mistralai_reads_thinking_tools_and_usage(clients):
    with FakeServer(events=SCRIPT) as server:
        chunks = mistral_chunks(clients("mistral", server, "mistral"))
    contents = [chunk.choices[0].delta.content for chunk in chunks]
    thought = [
        inner.text
        for content in contents
        if isinstance(content, list)
        for part in content
        for inner in part.thinking
    ]
    assert joined(thought) == "Let me think."
    assert joined(c for c in contents if isinstance(c, str)) == "I look it up."
    (call,) = [c for k in chunks for c in k.choices[0].delta.tool_calls or ()]
    assert (call.id, call.function.name) == ("call12345", "look")
    assert call.function.arguments == '{"where":"here"}'
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (7, 5)


def test_mistralai_sees_errors_as_its_own(clients):
    with (
        FakeServer(TEXT, faults=[Status(401, "no such key")]) as server,
        pytest.raises(mistralai.client.errors.SDKError, match="no such key"),
    ):
        mistral_chunks(clients("mistral", server, "mistral"))


def test_mistralais_prefix_is_continued(clients):
    with FakeServer(TEXT) as server:
        prefix = {"role": "assistant", "content": "Grüße! ", "prefix": True}
        client = clients("mistral", server, "mistral")
        chunks = mistral_chunks(client, [*MESSAGES, prefix])
    pieces = [chunk.choices[0].delta.content for chunk in chunks]
    assert "Grüße! " + joined(pieces) == TEXT


# -- groq ---------------------------------------------------------------------------


def test_groq_reads_a_chat(clients):
    with FakeServer(TEXT, faults=[Pings()]) as server:
        chunks = list(groq_stream(clients("groq", server, "groq")))
    choices = [chunk.choices[0] for chunk in chunks]
    assert joined(choice.delta.content for choice in choices) == TEXT
    assert choices[-1].finish_reason == "stop"


def test_groq_reads_reasoning_tools_and_usage(clients):
    with FakeServer(events=SCRIPT) as server:
        chunks = list(groq_stream(clients("groq", server, "groq")))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert joined(delta.reasoning for delta in deltas) == "Let me think."
    assert joined(delta.content for delta in deltas) == "I look it up."
    (call,) = [call for delta in deltas for call in delta.tool_calls or ()]
    assert (call.id, call.function.name) == ("call12345", "look")
    usage = chunks[-1].x_groq.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (7, 5)


def test_groq_sees_errors_as_its_own(clients):
    fault = ErrorEvent("broke down", after=3, type="server_error", status=500)
    with FakeServer(TEXT, faults=[fault, Status(429, "slow down")]) as server:
        with pytest.raises(groq.APIError, match="broke down"):
            list(groq_stream(clients("groq", server, "groq")))
        with pytest.raises(groq.RateLimitError, match="slow down"):
            groq_stream(clients("groq", server, "groq"))


def test_openai_sees_a_cut_as_one(clients):
    pieces = []
    with FakeServer(TEXT, faults=[Cut(after=3)]) as server:
        stream = openai_stream(clients("openai", server, "vllm"))
        with pytest.raises(openai.APIConnectionError):
            pieces.extend(chunk.choices[0].delta.content for chunk in stream)
    assert joined(pieces)
    assert TEXT.startswith(joined(pieces))
