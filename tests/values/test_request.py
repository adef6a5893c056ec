"""What a caller asks for, and of whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._values.endpoint import Endpoint
from midstream._values.errors import UsageError
from midstream._values.message import Message
from midstream._values.request import Request

# -- requests --------------------------------------------------------------------------


def test_text_is_one_user_turn():
    [message] = Request.of(prompt="hi").messages
    assert message.body() == {"role": "user", "content": "hi"}


def test_a_conversation_keeps_every_key_it_was_given_and_no_other():
    turns = [
        {"role": "system", "content": "s", "name": "n"},
        Message(role="assistant", content=None, tool_calls=[{"id": "c"}]),
        {"role": "user", "content": [{"type": "text", "text": "t"}]},
    ]
    bodies = [message.body() for message in Request.of(prompt=turns).messages]
    assert bodies == [
        {"role": "system", "content": "s", "name": "n"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
        {"role": "user", "content": [{"type": "text", "text": "t"}]},
    ]


def test_one_stop_string_is_a_list_of_one():
    assert Request.of(prompt="p", stop="x").stop == ["x"]
    assert Request.of(prompt="p", stop=["x", "y"]).stop == ["x", "y"]
    assert Request.of(prompt="p").stop is None


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": [{"content": "no role"}]}, "role"),
        ({"prompt": "p", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "p", "max_tokens": "many"}, "max_tokens"),
        ({"prompt": "p", "temperature": -1}, "temperature"),
        ({"prompt": "p", "top_p": 0}, "top_p"),
        ({"prompt": "p", "top_p": 1.5}, "top_p"),
        ({"prompt": "p", "stop": [1]}, "stop"),
        ({"prompt": "p", "tools": {}}, "tools"),
        ({"prompt": "p", "choice": -1}, "choice"),
        ({"prompt": "p", "temprature": 0}, "temprature"),
    ],
)
def test_a_wrong_argument_is_the_callers_and_named(fields, names):
    with pytest.raises(UsageError, match=names) as caught:
        Request.of(**fields)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "p", "extra": {"a": object()}},
        {"prompt": "p", "extra": {"a": {"b": [object()]}}},
        {"prompt": "p", "tools": [{"f": print}]},
        {"prompt": [{"role": "user", "content": "c", "x": object()}]},
        {"prompt": "half a pair \ud83d"},
        {"prompt": "p", "extra": {"a": "half a pair \ud83d"}},
        {"prompt": [{"role": "user", "content": "\udc80"}]},
    ],
)
def test_what_no_json_can_say_is_refused_before_anything_is_sent(fields):
    with pytest.raises(UsageError):
        Request.of(**fields)


@pytest.mark.parametrize(("choice", "n"), [(3, 1), (2, 2), (1, 0)])
def test_an_answer_that_is_not_asked_for_cannot_be_chosen(choice, n):
    with pytest.raises(UsageError, match=f"choice: there is no answer {choice}"):
        Request.of(prompt="p", choice=choice, extra={"n": n})


@pytest.mark.parametrize(
    "extra",
    [
        {"n": 3},
        {"generationConfig": {"candidateCount": 3}},
        {"sampling_params": {"n": 3}},
    ],
)
def test_any_answer_that_was_asked_for_may_be_chosen(extra):
    assert Request.of(prompt="p", choice=2, extra=extra).choices == 3


def test_a_request_survives_its_dump():
    request = Request.of(
        prompt=[{"role": "user", "content": "x", "name": "n"}],
        stop="s",
        max_tokens=3,
        temperature=0,
        extra={"a": {"b": None}},
    )
    dump = request.model_dump(mode="json", exclude_unset=True)
    assert Request.model_validate(dump) == request


# -- endpoints -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelling", "parts"),
    [
        ("ollama", ("ollama", None, None)),
        ("openai:gpt-4o", ("openai", "gpt-4o", None)),
        ("ollama:gemma3:270m", ("ollama", "gemma3:270m", None)),
        ("llama.cpp@http://h:8080", ("llama.cpp", None, "http://h:8080")),
        (
            "vllm:Qwen/Qwen3-0.6B@http://gpu1:8000",
            ("vllm", "Qwen/Qwen3-0.6B", "http://gpu1:8000"),
        ),
        ("triton-grpc:llm@localhost:8001", ("triton-grpc", "llm", "localhost:8001")),
        ("triton-grpc:llm@[::1]:8001", ("triton-grpc", "llm", "[::1]:8001")),
        ("openai:m@HTTPS://h/v1", ("openai", "m", "HTTPS://h/v1")),
        ("openai:m@v2@http://h", ("openai", "m@v2", "http://h")),
        ("openai:m@http://u:p@h/v1", ("openai", "m", "http://u:p@h/v1")),
        ("openai:ft:gpt-4o:org::id", ("openai", "ft:gpt-4o:org::id", None)),
    ],
)
def test_spellings(spelling, parts):
    endpoint = Endpoint.parse(spelling)
    assert (endpoint.dialect, endpoint.model, endpoint.base_url) == parts
    if "//u:p@" not in spelling:
        assert str(endpoint) == spelling
        assert Endpoint.parse(str(endpoint)) == endpoint


@pytest.mark.parametrize("spelling", ["", ":m", "@http://h", "a b", "a b@http://h"])
def test_what_is_no_endpoint_is_said_so(spelling):
    with pytest.raises(UsageError, match="DIALECT"):
        Endpoint.parse(spelling)


def test_an_endpoint_is_given_back():
    endpoint = Endpoint("ollama")
    assert Endpoint.parse(endpoint) is endpoint


@pytest.mark.parametrize(
    "fields",
    [{"errors": "ignore"}, {"echo": "some"}, {"model": 5}, {"nonsense": 1}],
)
def test_a_wrong_field_is_named(fields):
    with pytest.raises(UsageError, match=next(iter(fields))):
        Endpoint("openai", **fields)


SECRET = "sk-secret-0123456789"


def test_no_secret_is_shown():
    endpoint = Endpoint(
        "openai",
        base_url=f"http://user:{SECRET}@host/v1",
        api_key=SECRET,
        headers={"X-Token": SECRET},
    )
    for shown in str(endpoint), repr(endpoint), f"{endpoint}", f"{[endpoint]}":
        assert SECRET not in shown
    assert str(endpoint) == "openai@http://host/v1"
    assert repr(endpoint) == "<Endpoint openai@http://host/v1>"


@pytest.mark.parametrize(
    "url", ["http://u:a@b@host/v1", "http://u:p@host", "http://@host", "u:p@host:1"]
)
def test_no_part_of_a_password_is_shown(url):
    address = Endpoint("openai", base_url=url).address
    assert address.removeprefix("http://").startswith("host")


def test_a_path_with_an_at_sign_is_no_password():
    address = "http://host/v1/@scope/model"
    assert Endpoint("openai", base_url=address).address == address


def test_an_error_does_not_repeat_the_input():
    with pytest.raises(UsageError) as caught:
        Endpoint("openai", api_key=[SECRET])
    assert SECRET not in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_an_endpoint_or_a_usage_error(spelling):
    try:
        endpoint = Endpoint.parse(spelling)
    except UsageError:
        return
    assert endpoint.dialect
    assert Endpoint.parse(str(endpoint)).dialect == endpoint.dialect


def test_a_query_is_not_shown():
    endpoint = Endpoint.parse("gemini:m@http://host/v1?key=" + SECRET)
    assert str(endpoint) == "gemini:m@http://host/v1"


@pytest.mark.parametrize(
    ("spelling", "model", "base_url"),
    [
        ("anthropic:claude-3-5-sonnet@20240620", "claude-3-5-sonnet@20240620", None),
        ("anthropic:claude-3-5-sonnet@latest", "claude-3-5-sonnet@latest", None),
        ("openai:c@20240620@https://host/v1", "c@20240620", "https://host/v1"),
        ("openai:c@001@host:80", "c@001", "host:80"),
        (
            "openai:@cf/meta/llama-3@https://gateway",
            "@cf/meta/llama-3",
            "https://gateway",
        ),
        ("openai:@cf/meta/llama-3.1", "@cf/meta/llama-3.1", None),
        ("openai:@localhost:8000", None, "localhost:8000"),
        ("openai:@http://h", None, "http://h"),
        ("openai@gpu1", None, "gpu1"),
        ("openai:m@gpu1/v1", "m", "gpu1/v1"),
        ("openai:m@[::1]:80", "m", "[::1]:80"),
        ("openai:m@10.0.0.1", "m", "10.0.0.1"),
        ("openai:m@bob:pw@host", "m", "bob:pw@host"),
        ("openai:m@bob:p@ss@host/v1", "m", "bob:p@ss@host/v1"),
        ("openai@bob:pw@host", None, "bob:pw@host"),
        ("openai:m@https://bob:pw@host", "m", "https://bob:pw@host"),
    ],
)
def test_an_at_sign_may_be_the_models_own(spelling, model, base_url):
    endpoint = Endpoint.parse(spelling)
    assert (endpoint.model, endpoint.base_url) == (model, base_url)
    assert "pw" not in str(endpoint)
    assert "ss" not in str(endpoint).replace("sonnet", "")
