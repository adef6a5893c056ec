"""What every dialect has in common, and the table of them."""

from dataclasses import dataclass

import pytest

from midstream import dialects, register
from midstream._dialects import asking, find
from midstream._dialects.base import (
    CONSTRAINTS,
    EXACTNESS,
    Call,
    Generation,
    Received,
    join_url,
)
from midstream._dialects.finish import finish
from midstream._dialects.ollama import OllamaChat
from midstream._values.endpoint import Endpoint
from midstream._values.errors import BadRequest, ServerFailed, UsageError
from midstream._values.events import Finish
from midstream._values.exactness import Exactness
from midstream._values.message import Message
from midstream._values.request import Request

NAMES = sorted(dialects())


# -- URLs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h", "http://h/v1/chat/completions"),
        ("http://h/", "http://h/v1/chat/completions"),
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h/v1//", "http://h/v1/chat/completions"),
        ("http://h/v1/chat", "http://h/v1/chat/completions"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
        ("http://h/api/v1", "http://h/api/v1/chat/completions"),
        ("http://h/openai", "http://h/openai/v1/chat/completions"),
        ("http://h/v1/x", "http://h/v1/x/v1/chat/completions"),
        ("http://v1", "http://v1/v1/chat/completions"),
        ("http://h:1/v2", "http://h:1/v2/v1/chat/completions"),
    ],
)
def test_a_route_is_never_doubled(base, url):
    assert join_url(base, "/v1/chat/completions") == url


# -- the table -------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_dialect_is_known_by_its_name(name):
    dialect = find(name)
    assert dialect.name == name
    assert set(dialect.strategies) <= set(EXACTNESS)
    assert dialect.transport in {"http", "grpc"}
    if dialect.default_url is not None:
        assert "://" in dialect.default_url
        assert not dialect.default_url.rstrip("/").endswith("/v1")
    assert all(key == key.upper() for key in dialect.key_variables)
    assert list(dialect.framer().decode(b"")) in ([], [(b"", "")])
    assert dialect.reader() is not dialect.reader()
    assert dialect.writer() is not dialect.writer()


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError, match=r"'xyz'; there are .*llama\.cpp, .*ollama"):
        find("xyz")


def test_a_dialect_of_ones_own_is_found_and_may_replace_one():
    before = find("ollama")
    mine = OllamaChat(name="ollama", default_url="http://mine")
    try:
        register(mine)
        assert find("ollama") is mine
    finally:
        register(before)
    assert find("ollama") is before


def test_a_plain_dialect_leaves_by_closing_and_refuses_no_way():
    dialect = find("triton-grpc")
    generation = Generation(
        endpoint=Endpoint("ollama", model="m"), request=Request.of(prompt="p")
    )
    assert list(dialect.leave(generation, Received())) == []
    assert not dialect.refuses("replay", BadRequest("x"))


@pytest.mark.parametrize("field", sorted(CONSTRAINTS))
@pytest.mark.parametrize(
    "name", ["openai", "llama.cpp", "llama.cpp-completion", "ollama"]
)
def test_a_grammar_restarts_at_the_prefix(name, field):
    free = Request.of(prompt="p", extra={"other": 1})
    bound = Request.of(prompt="p", extra={field: "x"})
    assert find(name).no_prefix(free) is None
    assert field in find(name).no_prefix(bound)


def test_each_way_has_its_exactness():
    assert EXACTNESS == {
        "replay": Exactness.REPLAYED,
        "tokens": Exactness.TOKENS,
        "text": Exactness.TEXT,
        "rerun": Exactness.RERUN,
        "ask": Exactness.APPROXIMATE,
    }


def test_a_call_shows_no_secret():
    call = Call(url="http://h", secrets={"authorization": "Bearer sk-1"})
    assert "sk-1" not in repr(call)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("word", "stop"),
        ("length", "length"),
        ("limit", "length"),
        ("function_call", "tool_calls"),
        ("content_filter", "content_filter"),
        ("a word of its own", "a word of its own"),
    ],
)
def test_a_finish_has_the_common_word_and_the_servers_own(raw, reason):
    assert finish(raw, 2) == Finish(reason, raw, 2)


@pytest.mark.parametrize("raw", ["abort", "error", "insufficient_system_resource"])
def test_a_server_that_gave_up_has_not_finished(raw):
    failure = finish(raw)
    assert type(failure.error) is ServerFailed
    assert failure.error.retryable
    assert failure.error.type == raw


# -- asking ----------------------------------------------------------------------------


def test_extra_is_merged_into_objects_and_replaces_all_else():
    body = {"a": {"b": 1, "c": {"d": 2}}, "e": [1], "f": 3}
    merged = asking.merge(
        body, {"a": {"c": {"x": 9}, "b": None}, "e": [2], "f": {}, "g": 1}
    )
    assert merged == {
        "a": {"b": None, "c": {"d": 2, "x": 9}},
        "e": [2],
        "f": {},
        "g": 1,
    }


def test_only_what_the_caller_set_is_sent():
    names = {"max_tokens": "n", "temperature": "t", "stop": "s"}
    assert asking.parameters(Request.of(prompt="p"), names) == {}
    request = Request.of(prompt="p", max_tokens=9, temperature=0)
    assert asking.parameters(request, names) == {"n": 9, "t": 0}
    assert asking.parameters(request, names, left=4) == {"n": 4, "t": 0}
    assert asking.parameters(request, {"seed": "x"}) == {}


def turns(*pairs):
    return [Message(role=role, content=content) for role, content in pairs]


def test_the_received_text_is_an_open_turn():
    messages = turns(("user", "q"))
    assert asking.with_prefix(messages, "so far", prefix=True) == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "so far", "prefix": True},
    ]


def test_a_turn_that_the_caller_had_opened_is_continued_not_doubled():
    messages = turns(("user", "q"), ("assistant", "Once "))
    assert asking.with_prefix(messages, "upon") == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "Once upon"},
    ]
    parts = [Message(role="assistant", content=[{"type": "text", "text": "x"}])]
    assert len(asking.with_prefix(parts, "y")) == 2
    assert asking.with_prefix([], "y") == [{"role": "assistant", "content": "y"}]


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("This model does not support assistant message prefill.", True),
        ("Assistant response prefill is incompatible with enable_thinking.", True),
        ("Cannot set both add_generation_prompt and continue_final_message", True),
        ("Requests ending with a model turn are not supported.", True),
        ("The conversation must end with a user message.", True),
        ("max_tokens is too large", False),
    ],
)
def test_a_prefill_is_refused_in_words(words, refused):
    assert asking.refuses_prefill(BadRequest(words)) is refused
    assert not asking.refuses_prefill(ServerFailed(words))


def test_a_raw_prompt_needs_text_or_a_template():
    def prompt(given, **endpoint):
        return asking.raw_prompt(
            Generation(
                endpoint=Endpoint("llama.cpp-completion", **endpoint),
                request=Request.of(prompt=given),
            )
        )

    assert prompt("p") == "p"
    conversation = [{"role": "user", "content": "q"}]
    with pytest.raises(UsageError, match=r"Endpoint\(template=…\)"):
        prompt(conversation)
    assert prompt(conversation, template=lambda m: f"<{m[0].content}>") == "<q>"


def test_the_least_tokens_shrink_by_what_came():
    asked = {"min_tokens": 5}
    assert asking.least_tokens({**asked}, None) == asked
    assert asking.least_tokens({**asked}, Received(tokens=3)) == {"min_tokens": 2}
    assert asking.least_tokens({**asked}, Received(tokens=9)) == {"min_tokens": 0}
    assert asking.least_tokens({}, Received(tokens=9)) == {}


def test_a_body_is_posted_as_json_to_the_endpoints_route():
    generation = Generation(
        endpoint=Endpoint("openai", base_url="http://h/v1", api_key="k"),
        request=Request.of(prompt="p"),
    )
    call = asking.post(generation, "/v1/x", {"a": "日"}, **{"x-more": "1"})
    assert (call.url, call.method) == ("http://h/v1/x", "POST")
    assert call.content == '{"a":"日"}'.encode()
    assert call.headers == {"content-type": "application/json", "x-more": "1"}
    assert call.secrets == {"authorization": "Bearer k"}
    beside = asking.post(asking.rooted(generation), "/tokenize", {})
    assert beside.url == "http://h/tokenize"


def test_an_endpoints_own_headers_win():
    @dataclass
    class Asked:
        endpoint: Endpoint

    own = {"Authorization": "Basic x", "X-A": "b"}
    assert asking.bearer(Asked(Endpoint("openai", api_key="k", headers=own))) == {
        "authorization": "Basic x",
        "x-a": "b",
    }
    assert asking.bearer(Asked(Endpoint("openai"))) == {}
    assert asking.bearer(Asked(Endpoint("openai", api_key="k"))) == {
        "authorization": "Bearer k"
    }
