"""Google's own client, google-genai, reads what the fake server writes."""

import asyncio

import pytest
from google import genai
from google.genai import errors, types

from midstream import ReasoningDelta, TextDelta, ToolCallDelta, Usage, UsageReport
from midstream.testing import ErrorEvent, FakeServer, Status

TEXT = 'Grüße! 日本語👩‍👩‍👧 {[the "end"]}.'
MODEL = "gemini-2.5-flash"
KEY = "key-of-nobody"


def made(server):
    options = types.HttpOptions(base_url=server.url("gemini"))
    return genai.Client(api_key=KEY, http_options=options)


def streamed(server, contents="Hi", **config):
    with made(server) as client:
        return list(
            client.models.generate_content_stream(
                model=MODEL, contents=contents, config=config or None
            )
        )


def test_a_stream_of_text_with_its_end_and_usage():
    with FakeServer(TEXT) as server:
        chunks = streamed(server, max_output_tokens=99)
        (request,) = server.requests
    assert request.headers["x-goog-api-key"] == KEY
    assert request.query == {"alt": "sse"}
    assert "".join(chunk.text or "" for chunk in chunks) == TEXT
    (end,) = chunks[-1].candidates
    assert end.finish_reason is types.FinishReason.STOP
    assert chunks[-1].usage_metadata.candidates_token_count > 5
    assert {chunk.model_version for chunk in chunks} == {"midstream"}


def test_the_same_without_blocking():
    async def read(server):
        client = made(server).aio
        try:
            stream = await client.models.generate_content_stream(
                model=MODEL, contents="Hi"
            )
            return [chunk.text or "" async for chunk in stream]
        finally:
            await client.aclose()

    with FakeServer(TEXT) as server:
        assert "".join(asyncio.run(read(server))) == TEXT


def test_thoughts_and_function_calls():
    script = [
        ReasoningDelta("Let me think.", signature="c2ln"),
        TextDelta("I look it up."),
        ToolCallDelta(0, "c1", "look", '{"where"'),
        ToolCallDelta(0, arguments=':"here"}'),
        UsageReport(Usage(7, 5, 2)),
    ]
    with FakeServer(events=script) as server:
        chunks = streamed(server)
    parts = [
        part
        for chunk in chunks
        for candidate in chunk.candidates
        for part in candidate.content.parts or ()
    ]
    thought, said, called = parts
    assert (thought.text, thought.thought) == ("Let me think.", True)
    assert thought.thought_signature == b"sig"
    assert said.text == "I look it up."
    assert called.function_call.name == "look"
    assert called.function_call.args == {"where": "here"}
    usage = chunks[-1].usage_metadata
    assert (usage.prompt_token_count, usage.thoughts_token_count) == (7, 2)
    assert usage.candidates_token_count == 3


def test_a_limit_is_told_in_googles_word():
    with FakeServer(tokens=["a ", "b ", "c "]) as server:
        chunks = streamed(server, max_output_tokens=2)
    assert "".join(chunk.text or "" for chunk in chunks) == "a b "
    assert chunks[-1].candidates[0].finish_reason is types.FinishReason.MAX_TOKENS


def test_a_whole_answer_at_once():
    with FakeServer(TEXT) as server, made(server) as client:
        answer = client.models.generate_content(model=MODEL, contents="Hi")
    assert answer.text == TEXT
    assert answer.candidates[0].finish_reason is types.FinishReason.STOP


def test_errors_are_its_own():
    late = ErrorEvent("too busy", after=2, status=503, type="UNAVAILABLE")
    with FakeServer(TEXT, faults=[late, Status(429, "quota")]) as server:
        with pytest.raises(errors.APIError, match="too busy"):
            streamed(server)
        with pytest.raises(errors.ClientError, match="RESOURCE_EXHAUSTED"):
            streamed(server)
