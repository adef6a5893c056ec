"""Ollama's own client reads what the fake server writes, on both routes."""

import asyncio

import ollama
import pytest

from midstream import ReasoningDelta, TextDelta, ToolCallDelta, Usage, UsageReport
from midstream.testing import ErrorEvent, FakeServer, Status

TEXT = "Grüße! 日本語👩‍👩‍👧 the end."
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def client_of():
    clients = []

    def made(server):
        clients.append(ollama.Client(host=server.url("ollama")))
        return clients[-1]

    yield made
    for client in clients:
        client._client.close()


def test_a_chat(client_of):
    with FakeServer(TEXT) as server:
        chunks = list(client_of(server).chat("m", MESSAGES, stream=True))
    assert "".join(chunk.message.content for chunk in chunks) == TEXT
    assert [chunk.done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].done_reason == "stop"
    assert chunks[-1].eval_count > 5
    assert chunks[-1].prompt_eval_count > 0


def test_a_prompt(client_of):
    with FakeServer(TEXT) as server:
        client = client_of(server)
        chunks = list(client.generate("m", "Hi", stream=True))
        whole = client.generate("m", "Hi")
        raw = client.generate("m", "Hi", raw=True)
    assert "".join(chunk.response for chunk in chunks) == TEXT
    assert chunks[-1].done_reason == "stop"
    assert chunks[-1].eval_count > 5
    assert whole.response == raw.response == TEXT


def test_a_prompt_without_blocking():
    async def read(server):
        async with ollama.AsyncClient(host=server.url("ollama")) as client:
            stream = await client.generate("m", "Hi", stream=True)
            return [chunk.response async for chunk in stream]

    with FakeServer(TEXT) as server:
        assert "".join(asyncio.run(read(server))) == TEXT


def test_thinking_and_tools(client_of):
    script = [
        ReasoningDelta("Let me think."),
        TextDelta("I look it up."),
        ToolCallDelta(0, "c1", "look", '{"where"'),
        ToolCallDelta(0, arguments=':"here"}'),
        UsageReport(Usage(7, 5)),
    ]
    with FakeServer(events=script) as server:
        chunks = list(client_of(server).chat("m", MESSAGES, stream=True))
    assert "".join(c.message.thinking or "" for c in chunks) == "Let me think."
    assert "".join(c.message.content for c in chunks) == "I look it up."
    (call,) = [call for c in chunks for call in c.message.tool_calls or ()]
    assert (call.function.name, call.function.arguments) == ("look", {"where": "here"})
    assert (chunks[-1].prompt_eval_count, chunks[-1].eval_count) == (7, 5)


def test_thinking_before_a_prompts_answer(client_of):
    script = [ReasoningDelta("hm"), TextDelta("Yes.")]
    with FakeServer(events=script) as server:
        chunks = list(client_of(server).generate("m", "Hi", stream=True))
    assert "".join(c.thinking or "" for c in chunks) == "hm"
    assert "".join(c.response for c in chunks) == "Yes."


def test_errors_are_its_own(client_of):
    faults = [ErrorEvent("runner stopped", after=2), Status(404, "no such model")] * 2
    with FakeServer(TEXT, faults=faults) as server:
        client = client_of(server)
        for asked in (
            lambda: client.chat("m", MESSAGES, stream=True),
            lambda: client.generate("m", "Hi", stream=True),
        ):
            with pytest.raises(ollama.ResponseError, match="runner stopped"):
                list(asked())
            with pytest.raises(ollama.ResponseError, match="no such model") as refused:
                list(asked())
            assert refused.value.status_code == 404
