"""Clients: endpoints and their defaults, keys, and what cannot be."""

import inspect
import math
import pickle

import anyio
import httpx
import pytest

import midstream
from midstream import AsyncClient, Client, Endpoint, MemoryStore, UsageError
from midstream.testing import Cut, FakeServer, Status


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
    with (
        httpx.Client() as sync_client,
        pytest.raises(UsageError, match=r"httpx\.AsyncClient"),
    ):
        AsyncClient("ollama:m", http_client=sync_client)
    with Client("ollama:m") as client, pytest.raises(UsageError, match="max_tokens"):
        client.stream("hi", max_tokens=0)
    with Client("ollama:m") as client, pytest.raises(UsageError, match="extra"):
        client.stream("hi", extra=["top_k"])


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ({"timeouts": 5}, r"Timeouts\("),
        ({"resume": True}, r"Resume\("),
        ({"store": "streams.db"}, r"SQLiteStore\("),
        ({"store": MemoryStore}, r"give a store, MemoryStore\("),
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


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_what_extra_says_in_the_apis_words_is_said_in_the_standard_ones(kind):
    client = kind("ollama:m", "openai")
    with pytest.raises(UsageError, match="give max_tokens=… alone"):
        client.stream("hi", max_tokens=9, extra={"options": {"num_predict": 20}})
    with pytest.raises(UsageError, match="The prompt is the first argument"):
        client.stream("hi", extra={"messages": []})


def test_a_limit_in_extra_holds_over_a_drop():
    text = " ".join(f"word{n}" for n in range(40))
    with (
        FakeServer(text, faults=[Cut(after=7)]) as server,
        Client(server.endpoint("ollama")) as client,
        client.stream("hi", extra={"options": {"num_predict": 20}}) as stream,
    ):
        assert text.startswith(stream.read())
        assert stream.finish_reason == "length"
        asked = [entry.body["options"]["num_predict"] for entry in server.requests]
    assert asked == [20, 20 - 7]


# -- wrong arguments -------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("wrong", "form"),
    [
        ({"base_url": "http://host"}, 'Client("llama.cpp@http://localhost:8080")'),
        ({"model": "gpt-4o"}, 'Client("openai:gpt-4o")'),
        ({"api_key": "sk"}, 'Endpoint("openai", api_key="…")'),
        ({"timeout": 5}, "Client(…, timeouts=…)"),
        ({"max_retries": 5}, "Resume(attempts=…)"),
        ({"resum": None}, "did you mean resume=…?"),
        ({"zzz": 1}, "there are endpoints, timeouts, resume, store, http_client"),
    ],
)
def test_a_client_shows_the_right_form(kind, wrong, form):
    with pytest.raises(UsageError) as caught:
        kind("ollama:m", **wrong)
    assert str(caught.value).startswith(f"{kind.__name__}({next(iter(wrong))}=…): ")
    assert form in str(caught.value)
    with pytest.raises(UsageError):
        kind(**wrong)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("arguments", "options", "form"),
    [
        ((), {"messages": [{"role": "user", "content": "hi"}]}, 'stream("Hello")'),
        (("hi",), {"input": "hi"}, 'stream("Hello")'),
        (("hi",), {"model": "gpt-4o"}, 'Client("openai:gpt-4o")'),
        (("hi",), {"max_completion_tokens": 9}, "max_tokens=…"),
        (("hi",), {"temprature": 0}, "did you mean temperature=…?"),
        (("hi",), {"stream": True}, "leave it out"),
        (("hi",), {"zzz": 1}, 'extra={"name": value}'),
        ((), {}, "missing a required argument: 'prompt'; it takes prompt, max_tokens"),
        (("hi", 200), {}, "too many positional arguments"),
        (("hi",), {"prompt": "hi"}, "multiple values for argument 'prompt'"),
    ],
)
def test_a_stream_shows_the_right_form(kind, arguments, options, form):
    client = kind("ollama:m")
    with pytest.raises(UsageError) as caught:
        client.stream(*arguments, **options)
    assert form in str(caught.value)
    assert str(caught.value).startswith("stream(")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_resume_shows_the_right_form(kind):
    client = kind("ollama:m", store=MemoryStore())
    with pytest.raises(UsageError, match=r"did you mean after=…"):
        client.resume("k", aftr=3)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("key", "options", "form"),
    [
        ("k", {"after": "3"}, "resume(after='3'): give characters"),
        ("k", {"after": 2.5}, "resume(after=2.5): give characters"),
        ("k", {"have": 3}, "resume(have=3): give the text"),
        ("k", {"have": b"ab"}, "resume(have=b'ab'): give the text"),
        (None, {}, "key=None: give a name"),
        ("", {}, "key='': give a name"),
    ],
)
def test_resume_names_what_is_of_the_wrong_type(kind, key, options, form):
    client = kind("ollama:m", store=MemoryStore())
    with pytest.raises(UsageError) as caught:
        client.resume(key, **options)
    assert str(caught.value).startswith(form)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_signatures_stay_what_they_are(kind):
    names = list(inspect.signature(kind.stream).parameters)
    assert names[:3] == ["self", "prompt", "max_tokens"]
    kinds = {p.kind for p in inspect.signature(kind.stream).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    assert inspect.getdoc(kind.stream).startswith("Ask for an answer")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gpt-4o", "openai:gpt-4o"),
        ("gpt-oss-20b", "ollama:gpt-oss-20b"),
        ("o3-mini", "openai:o3-mini"),
        ("claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        ("claude-3-5-sonnet@20240620", "anthropic:claude-3-5-sonnet@20240620"),
        ("gemini-2.5-flash", "gemini:gemini-2.5-flash"),
        ("Qwen/Qwen3-0.6B", "vllm:Qwen/Qwen3-0.6B"),
        ("gemma3", "ollama:gemma3"),
        ("olama/gemma3", "ollama:gemma3"),
    ],
)
def test_a_models_name_gets_its_dialect(name, meant):
    with pytest.raises(UsageError, match="did you mean") as caught:
        Client(name)
    assert repr(meant)[:-1] in str(caught.value)
    assert "DIALECT[:MODEL][@URL]" in str(caught.value)
    assert str(caught.value).count(",") < 5  # no list of all there are


class Httpx2Client:
    """As a client of another library, with httpx's methods."""

    __module__ = "httpx2._client"

    def send(self):
        """Nothing."""


Httpx2Client.__name__ = Httpx2Client.__qualname__ = "Client"


def test_a_foreign_http_client_is_refused_at_once():
    wrong = [Httpx2Client(), httpx.Client, object(), 5, httpx.Timeout(5)]
    for kind in Client, AsyncClient:
        for client in wrong:
            with pytest.raises(UsageError) as caught:
                kind("ollama:m", http_client=client)
            form = f"{kind.__name__}(…, http_client=httpx.{kind.__name__}("
            assert form in str(caught.value)
    with pytest.raises(UsageError, match=r"httpx2\.Client"):
        Client("ollama:m", http_client=Httpx2Client())


def test_a_client_of_the_other_colour_is_sent_there():
    with pytest.raises(UsageError, match=r"is for midstream\.AsyncClient"):
        Client("ollama:m", http_client=httpx.AsyncClient())
    with (
        httpx.Client() as sync_client,
        pytest.raises(UsageError, match=r"is for midstream\.Client"),
    ):
        AsyncClient("ollama:m", http_client=sync_client)


def test_a_kind_of_httpx_client_will_do():
    class Mine(httpx.Client):
        """A user's own."""

    with Mine() as mine, Client("ollama:m", http_client=mine) as client:
        assert client.endpoints


@pytest.mark.parametrize(
    ("make", "form"),
    [
        (Endpoint, 'Endpoint("openai", model="gpt-4o"'),
        (lambda: Endpoint("openai", url="http://h"), "it is base_url=…"),
        (lambda: Endpoint("openai", zzz=1), "there are dialect, model, base_url"),
        (lambda: midstream.Timeouts(read=5), "first_token=…"),
        (lambda: midstream.Timeouts(idl=5), "did you mean idle=…?"),
        (lambda: midstream.Timeouts(5), "too many positional arguments"),
        (lambda: midstream.Resume(max_retries=5), "Resume(attempts=…)"),
        (lambda: midstream.Resume(atempts=5), "did you mean attempts=…?"),
        (lambda: midstream.Backoff(max=5), "did you mean maximum=…?"),
    ],
)
def test_values_show_the_right_form(make, form):
    with pytest.raises(UsageError) as caught:
        make()
    assert form in str(caught.value)


REGROUPERS = [
    ("words", r"Words\(\), not 'words'"),
    ("sentence", r"Sentences\(\)"),
    ("zzz", r"Words\(\)"),
    (midstream.Words, r"Words\(\), not Words"),
    (5, "feed, flush and deadline.* no int"),
    (None, "no NoneType"),
]


@pytest.mark.parametrize(("by", "form"), REGROUPERS)
def test_a_regrouper_is_an_object(by, form):
    with pytest.raises(UsageError, match=form):
        list(midstream.regroup(["a"], by))
    with FakeServer("a") as server, Client(server.endpoint("ollama")) as client:
        stream = client.stream("hi")
        with stream, pytest.raises(UsageError, match=form):
            list(stream.chunks(by))


@pytest.mark.parametrize(("by", "form"), REGROUPERS)
def test_an_async_regrouper_is_an_object(by, form):
    async def texts():
        yield "a"

    async def ask(endpoint):
        async with AsyncClient(endpoint) as client, client.stream("hi") as stream:
            with pytest.raises(UsageError, match=form):
                stream.chunks(by)

    with pytest.raises(UsageError, match=form):
        midstream.aregroup(texts(), by)
    with FakeServer("a") as server:
        anyio.run(ask, server.endpoint("ollama"))


@pytest.mark.parametrize("wrong", ["x", math.nan, -1, [1], True])
def test_a_regrouper_made_of_nonsense_says_so(wrong):
    for make in (
        lambda: midstream.Words(wrong),
        lambda: midstream.Sentences(wrong),
        lambda: midstream.Tokens(4, max_wait=wrong),
        lambda: midstream.Frames(wrong),
        lambda: midstream.Frames(60, wrong),
    ):
        with pytest.raises(UsageError, match=r"0 or more|above 0"):
            make()
    with pytest.raises(UsageError, match=r"1 or more.*Tokens"):
        midstream.Tokens("x")


@pytest.mark.parametrize("wait", [1e10, math.inf, 10**400])
def test_a_regrouper_may_wait_for_ever(wait):
    for by in midstream.Words(wait), midstream.Sentences(wait):
        assert "".join(midstream.regroup(["a ", "b"], by)) == "a b"
    with pytest.raises(UsageError, match="max_lag"):
        midstream.Frames(60, wait)


@pytest.mark.parametrize(
    ("faults", "dialect"),
    [
        ([Cut(after=2)], "llama.cpp"),
        ([Cut(after=2)], "triton-grpc"),
        ([Status(500)], "llama.cpp"),
        ([Status(401)], "openai"),
        ([Cut()], "ollama"),
    ],
)
def test_an_error_out_of_a_stream_names_its_endpoint_and_travels(faults, dialect):
    with FakeServer("one two three", faults=faults) as server:
        endpoint = server.endpoint(dialect)
        with (
            Client(endpoint, resume=None) as client,
            pytest.raises(midstream.MidstreamError) as caught,
            client.stream("hi") as stream,
        ):
            stream.read()
    error = caught.value
    assert str(error).endswith(f"({client.endpoints[0]})")
    assert error.checkpoint.text == error.text
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(error))))
    assert type(again) is type(error)
    assert (str(again), again.text) == (str(error), error.text)
    assert again.checkpoint == error.checkpoint
    assert type(again.__cause__) is type(error.__cause__)
