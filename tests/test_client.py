"""Clients: endpoints and their defaults, keys, and what cannot be."""

import httpx
import pytest

import midstream
from midstream import AsyncClient, Client, Endpoint, UsageError
from midstream.testing import FakeServer


def test_defaults_are_filled_in(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
    with Client(
        "openai:gpt-4o", "ollama:gemma3", "triton-grpc:llm@host:8001"
    ) as client:
        openai, ollama, triton = client.endpoints
    assert openai.base_url == "https://api.openai.com"
    assert openai.api_key.get_secret_value() == "sk-from-the-environment"
    assert ollama.base_url == "http://localhost:11434"
    assert ollama.api_key is None
    assert triton.base_url == "grpc://host:8001"
    assert "sk-from" not in repr(client)
    assert repr(client).startswith("<Client openai:gpt-4o@https://api.openai.com, ")


def test_a_key_of_the_environment_serves_a_custom_address(monkeypatch):
    monkeypatch.setenv("GOOGLE_API_KEY", "second-choice")
    client = Client("gemini:gemini-2.5-flash@http://proxy/v1beta")
    assert client.endpoints[0].api_key.get_secret_value() == "second-choice"
    monkeypatch.setenv("GEMINI_API_KEY", "first-choice")
    client = Client("gemini:gemini-2.5-flash@http://proxy/v1beta")
    assert client.endpoints[0].api_key.get_secret_value() == "first-choice"


def test_a_given_key_wins(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    client = Client(Endpoint("openai", api_key="given"))
    assert client.endpoints[0].api_key.get_secret_value() == "given"


def test_what_cannot_be():
    with pytest.raises(UsageError, match="name an endpoint"):
        Client()
    with pytest.raises(UsageError, match="no dialect 'olama'"):
        Client("olama:gemma3")
    with pytest.raises(UsageError, match="AsyncClient"):
        Client("ollama:m", http_client=httpx.AsyncClient())
    with (
        httpx.Client() as sync_client,
        pytest.raises(UsageError, match=r"httpx\.AsyncClient"),
    ):
        AsyncClient("ollama:m", http_client=sync_client)
    with Client("ollama:m") as client, pytest.raises(UsageError, match="max_tokens"):
        client.stream("hi", max_tokens=0)


def test_a_users_client_serves_and_stays_open():
    with FakeServer("one two") as server, httpx.Client() as own:
        with (
            Client(server.endpoint("ollama"), http_client=own) as client,
            client.stream("hi") as stream,
        ):
            assert stream.read() == "one two"
        assert not own.is_closed


def test_a_client_that_nobody_closed_leaves_no_socket():
    with FakeServer("one two") as server:
        client = Client(server.endpoint("ollama"))
        with client.stream("hi") as stream:
            stream.read()
        del client, stream
        server.wait_for(lambda entry: entry.ended == "complete")


def test_public_objects_say_what_they_are():
    with FakeServer("one two") as server, Client(server.endpoint("ollama")) as client:
        stream = client.stream("hi")
        assert "0 characters, 0 resumes, open" in repr(stream)
        with stream:
            stream.read()
            assert stream.model == "midstream"
            assert stream.response_id is None
            assert stream.reasoning == stream.refusal == ""
            assert stream.tool_calls == []
            assert stream.choices[0].text == "one two"
        assert "7 characters, 0 resumes, complete" in repr(stream)
        with pytest.raises(UsageError, match="entered once"), stream:
            pass
        assert midstream.__version__
