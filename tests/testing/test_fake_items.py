"""The fake server as Anthropic, OpenAI responses, Cohere and LM Studio.

What it refuses, and where it goes on; the rest their own clients show (tests/foreign).
"""

import httpx
import pytest

from midstream import Finish, TextDelta, ToolCallDelta
from midstream.testing import FakeServer

TEXT = "Hello, world."
TURN = {"role": "user", "content": "Hi"}
OPEN = {"role": "assistant", "content": "Hello"}


@pytest.fixture
def post():
    """Sends a document to a dialect's route."""
    with httpx.Client(trust_env=False) as client:

        def sent(server, dialect, route, body):
            return client.post(server.url(dialect) + route, json=body)

        yield sent


@pytest.mark.parametrize(
    ("dialect", "route", "body", "words"),
    [
        ("anthropic", "/v1/messages", {"max_tokens": 5}, "messages"),
        ("anthropic", "/v1/messages", {"messages": [TURN]}, "max_tokens"),
        ("openai-responses", "/v1/responses", {"model": "m"}, "input"),
        ("cohere", "/v2/chat", {"messages": [TURN]}, "model"),
        ("lmstudio-native", "/api/v1/chat", {"input": "Hi"}, "model"),
    ],
)
def test_what_must_be_given(post, dialect, route, body, words):
    with FakeServer(TEXT) as server:
        reply = post(server, dialect, route, body)
    assert reply.status_code == 400
    assert words in reply.text


def test_turns_that_are_over_begin_a_new_answer(post):
    message = {"messages": [TURN, OPEN], "max_tokens": 50}
    item = {"input": [TURN, {**OPEN, "status": "completed"}]}
    with FakeServer(TEXT) as server:
        reply = post(server, "vllm-messages", "/v1/messages", message).json()
        assert reply["content"][0]["text"] == TEXT
        for dialect in "openai-responses", "vllm-responses", "llama.cpp-responses":
            reply = post(server, dialect, "/v1/responses", item).json()
            assert reply["output"][0]["content"][0]["text"] == TEXT


def test_open_turns_are_gone_on_with(post):
    message = {"messages": [TURN, OPEN], "max_tokens": 50}
    item = {"input": [TURN, {**OPEN, "status": "in_progress"}]}
    rest = TEXT.removeprefix("Hello")
    with FakeServer(tokens=["Hello", ", ", "world", "."]) as server:
        for dialect in "anthropic", "llama.cpp-messages":
            reply = post(server, dialect, "/v1/messages", message).json()
            assert reply["content"][0]["text"] == rest
        for dialect in "vllm-responses", "llama.cpp-responses":
            reply = post(server, dialect, "/v1/responses", item).json()
            assert reply["output"][0]["content"][0]["text"] == rest


def test_answers_of_lm_studio_as_one_document(post):
    with FakeServer(TEXT) as server:
        body = {"model": "m", "input": "Hi"}
        reply = post(server, "lmstudio-native", "/api/v1/chat", body).json()
    assert reply["output"] == [{"type": "message", "content": TEXT}]
    assert reply["stats"]["total_output_tokens"] > 0


def test_an_answer_of_nothing_but_a_call(post):
    events = [ToolCallDelta(0, "c", "f", "{}"), Finish("tool_calls", "TOOL_CALL")]
    body = {"model": "m", "messages": [TURN], "max_tokens": 9}
    with FakeServer(events=events) as server:
        reply = post(server, "cohere", "/v2/chat", body).json()
        assert reply["message"]["content"] == []
        reply = post(server, "anthropic", "/v1/messages", body).json()
        assert [block["type"] for block in reply["content"]] == ["tool_use"]


def test_responses_that_are_not_stored_are_not_found(post):
    with FakeServer(events=[TextDelta("a")], replay=False) as server:
        url = server.url("openai-responses") + "/v1/responses/resp_x"
        assert httpx.get(url, trust_env=False).status_code == 404
        assert httpx.get(f"{url}/nothing", trust_env=False).status_code == 404
        assert httpx.post(f"{url}/cancel", trust_env=False).status_code == 404
        assert httpx.post(url, trust_env=False).status_code == 404
