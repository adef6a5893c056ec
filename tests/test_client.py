"""Clients: endpoints and their defaults, keys, and what cannot be."""

import anyio
import httpx
import pytest

import midstream
from midstream import AsyncClient, Client, Endpoint, MemoryStore, UsageError
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
    with pytest.raises(UsageError, match="did you mean 'ollama'"):
        Client("olama:gemma3")
    with pytest.raises(UsageError, match="did you mean 'ollama:gemma3'"):
        Client("ollama/gemma3")
    with pytest.raises(UsageError, match="an address alone"):
        Client("http://localhost:8080")
    with pytest.raises(UsageError, match="one by one"):
        Client(["llama.cpp", "ollama:gemma3"])
    with pytest.raises(UsageError, match="AsyncClient"):
        Client("ollama:m", http_client=httpx.AsyncClient())
    with (
        httpx.Client() as sync_client,
        pytest.raises(UsageError, match=r"httpx\.AsyncClient"),
    ):
        AsyncClient("ollama:m", http_client=sync_client)
    with Client("ollama:m") as client, pytest.raises(UsageError, match="max_tokens"):
        client.stream("hi", max_tokens=0)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ({"timeouts": 5}, r"Timeouts\("),
        ({"resume": True}, r"Resume\("),
        ({"store": "streams.db"}, r"SQLiteStore\("),
    ],
)
def test_options_of_the_wrong_type_are_named_at_once(kind, option, hint):
    with pytest.raises(UsageError, match=hint):
        kind("llama.cpp", **option)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        (None, "prompt: give text or a list of messages"),
        ({"role": "user", "content": "hi"}, "prompt: give text or a list of messages"),
        ([{"role": "user"}, "hi"], r"prompt\.1: "),
        ([{"role": 5}], r"prompt\.0\.role: "),
    ],
)
def test_a_prompt_that_is_none_is_named_without_its_types(prompt, said):
    with Client("llama.cpp") as client, pytest.raises(UsageError, match=said) as caught:
        client.stream(prompt)
    assert "str:" not in str(caught.value)


def test_a_stream_that_was_left_gives_no_whole_text():
    with (
        FakeServer("one two three") as server,
        Client(server.endpoint("ollama")) as client,
    ):
        with client.stream("hi") as stream:
            next(iter(stream))
        with pytest.raises(UsageError, match="left before its end"):
            stream.read()
        with client.stream("hi") as stream:
            assert stream.read() == "one two three"
        assert stream.read() == "one two three"


def test_an_async_stream_that_was_left_gives_no_whole_text():
    async def leave(endpoint):
        async with AsyncClient(endpoint) as client:
            async with client.stream("hi") as stream:
                pass
            with pytest.raises(UsageError, match="left before its end"):
                await stream.read()

    with FakeServer("one two three") as server:
        anyio.run(leave, server.endpoint("ollama"))


def test_who_forgets_to_enter_is_told_the_word():
    with pytest.raises(UsageError, match=r": with client\.stream"):
        next(iter(Client("llama.cpp").stream("hi")))

    async def forget():
        await anext(aiter(AsyncClient("llama.cpp").stream("hi")))

    with pytest.raises(UsageError, match=r": async with client\.stream"):
        anyio.run(forget)


def test_a_closed_httpx_client_is_told_from_ours():
    own = httpx.Client()
    own.close()
    with (
        Client("llama.cpp", http_client=own) as client,
        client.stream("hi") as stream,
        pytest.raises(UsageError, match="the httpx client is closed"),
    ):
        stream.read()


def test_a_stream_may_be_left_after_its_client():
    with FakeServer("one two three") as server:
        with Client(server.endpoint("llama.cpp"), store=MemoryStore()) as client:
            stream = client.stream("hi", key="k")
            stream.__enter__()
            next(iter(stream))
        stream.close()
    assert stream.notes == ["leave: the client is closed"]


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
        assert "0 characters, 0 resumes, new" in repr(stream)
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
