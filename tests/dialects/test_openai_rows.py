"""What each server of the OpenAI family is asked, and how it is asked to go on."""

import json

import pytest

from midstream._dialects import find
from midstream._dialects.base import Generation, Received, Reply
from midstream._values.endpoint import Endpoint
from midstream._values.errors import BadRequest, Overloaded, ServerFailed, UsageError
from midstream._values.interruptions import ResumeUnsupported
from midstream._values.message import Message
from midstream._values.request import Request

TURN = {"role": "user", "content": "Hi"}


def generation(name, prompt="Hi", *, url=None, template=None, strategies=(), **asked):
    dialect = find(name)
    endpoint = Endpoint(
        name,
        model="m",
        base_url=url or dialect.default_url,
        api_key="k" * 9,
        template=template,
    )
    request = Request.of(prompt=prompt, **asked)
    return Generation(
        endpoint=endpoint, request=request, strategies=strategies, handle="h"
    )


def run(flow, *replies):
    """Run a flow; gives its result and the calls that it made on the way."""
    calls, answers = [], list(replies)
    try:
        call = next(flow)
        while True:
            calls.append(call)
            answer = answers.pop(0)
            if not isinstance(answer, Reply):
                answer = Reply(200, {}, json.dumps(answer).encode())
            call = flow.send(answer)
    except StopIteration as stop:
        assert not answers
        return stop.value, calls


def begin(name, *replies, **more):
    call, calls = run(find(name).begin(generation(name, **more)), *replies)
    return call, json.loads(call.content), calls


def go_on(name, strategy, received, *replies, **more):
    asked = generation(name, **more)
    flow = find(name).continuation(asked, strategy, Received(**received))
    continuation, calls = run(flow, *replies)
    return continuation, json.loads(continuation.call.content), calls


@pytest.mark.parametrize(
    ("name", "url", "key"),
    [
        ("openai", "https://api.openai.com/v1/chat/completions", "OPENAI_API_KEY"),
        ("openai-completions", "https://api.openai.com/v1/completions", None),
        ("vllm", "http://localhost:8000/v1/chat/completions", "VLLM_API_KEY"),
        ("vllm-completions", "http://localhost:8000/v1/completions", None),
        ("sglang-chat", "http://localhost:30000/v1/chat/completions", None),
        ("tgi-chat", "http://localhost:8080/v1/chat/completions", "HF_TOKEN"),
        ("lmstudio", "http://localhost:1234/v1/chat/completions", "LM_API_TOKEN"),
        ("deepseek", "https://api.deepseek.com/chat/completions", "DEEPSEEK_API_KEY"),
        ("mistral", "https://api.mistral.ai/v1/chat/completions", "MISTRAL_API_KEY"),
        ("openrouter", "https://openrouter.ai/api/v1/chat/completions", None),
        ("groq", "https://api.groq.com/openai/v1/chat/completions", "GROQ_API_KEY"),
    ],
)
def test_where_each_is_asked(name, url, key):
    call, body, _ = begin(name, max_tokens=5, prompt="Hi")
    assert call.url == url
    assert call.secrets == {"authorization": "Bearer " + "k" * 9}
    assert "k" * 9 not in repr(call)
    assert body["model"] == "m"
    assert body["stream"] is True
    assert key is None or key in find(name).key_variables
    with_v1 = call.url.removesuffix("/chat/completions").removesuffix("/completions")
    again, _, _ = begin(name, max_tokens=5, url=with_v1)
    assert again.url == url


@pytest.mark.parametrize("name", ["mistral", "groq"])
def test_who_is_not_asked_for_usage(name):
    _, body, _ = begin(name)
    assert "stream_options" not in body


def test_names_that_differ():
    _, body, _ = begin("mistral", seed=7, max_tokens=5)
    assert body["random_seed"] == 7
    assert "seed" not in body
    _, body, _ = begin("openai", max_tokens=5)
    assert body["max_completion_tokens"] == 5
    _, body, _ = begin("openai", max_tokens=5, url="http://localhost:1")
    assert body["max_tokens"] == 5


def test_extra_is_merged_and_wins():
    extra = {"stream_options": {"include_obfuscation": False}, "top_k": 3}
    _, body, _ = begin("vllm", extra=extra)
    assert body["stream_options"] == {
        "include_usage": True,
        "include_obfuscation": False,
    }
    assert body["top_k"] == 3
    assert body["return_token_ids"] is True


PREFIXES = {
    "vllm": {"continue_final_message": True, "add_generation_prompt": False},
    "sglang-chat": {"continue_final_message": True, "add_generation_prompt": False},
    "tgi-chat": {},
    "lmstudio": {},
    "deepseek": {},
    "mistral": {},
    "openrouter": {},
    "groq": {},
}


@pytest.mark.parametrize("name", sorted(PREFIXES))
def test_a_prefix_with_each_servers_flags(name):
    received = {"text": "The sky\n ", "tokens": 3, "left": 7}
    continuation, body, _ = go_on(
        name, "text", received, max_tokens=10, extra={"min_tokens": 5}
    )
    last = body["messages"][-1]
    assert body["messages"][:-1] == [TURN]
    assert last["role"] == "assistant"
    assert last["content"] == continuation.sent == "The sky"
    assert last.get("prefix", False) is (name in ("deepseek", "mistral"))
    assert body["max_tokens"] == 7
    assert body["min_tokens"] == 2
    flags = ("continue_final_message", "add_generation_prompt")
    assert {key: body[key] for key in flags if key in body} == PREFIXES[name]
    echo = "whole" if name in ("lmstudio", "mistral") else "none"
    assert continuation.echo == echo


@pytest.mark.parametrize(
    "base", ["https://api.deepseek.com", "https://api.deepseek.com/v1/"]
)
def test_deepseek_continues_on_its_beta_route(base):
    continuation, _, _ = go_on("deepseek", "text", {"text": "a"}, url=base)
    assert continuation.call.url == "https://api.deepseek.com/beta/chat/completions"


def test_llama_keeps_whitespace_at_the_end():
    continuation, body, _ = go_on("llama.cpp", "text", {"text": "a \n"})
    assert body["messages"][-1]["content"] == continuation.sent == "a \n"


def test_a_callers_own_open_turn_is_made_longer():
    prompt = [Message(**TURN), Message(role="assistant", content="Once ")]
    _, body, _ = go_on("tgi-chat", "text", {"text": "upon"}, prompt=prompt)
    assert body["messages"][1:] == [{"role": "assistant", "content": "Once upon"}]


THOUGHT = {"reasoning": "hm", "text": "so", "tokens": 2}
OPEN = {"reasoning": "hm", "text": "", "tokens": 1}


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("deepseek", "reasoning_content"),
        ("llama.cpp", "reasoning_content"),
        ("openrouter", "reasoning"),
        ("groq", "reasoning"),
    ],
)
def test_reasoning_that_has_ended_goes_along(name, field):
    _, body, _ = go_on(name, "text", THOUGHT)
    assert body["messages"][-1][field] == "hm"
    assert body["messages"][-1]["content"] == "so"


def test_reasoning_that_is_open_where_it_can_be_continued():
    _, body, _ = go_on("deepseek", "text", OPEN)
    turn = {"content": "", "prefix": True, "reasoning_content": "hm"}
    assert body["messages"][-1] == {"role": "assistant", **turn}
    _, body, _ = go_on("llama.cpp", "text", OPEN)
    assert body["continue_final_message"] == "reasoning_content"
    assert body["add_generation_prompt"] is False


@pytest.mark.parametrize(
    ("name", "received"),
    [
        ("vllm", OPEN),
        ("vllm", THOUGHT),
        ("mistral", THOUGHT),
        ("tgi-chat", OPEN),
        ("openrouter", OPEN),
        ("groq", OPEN),
    ],
)
def test_reasoning_that_cannot_be_continued(name, received):
    with pytest.raises(ResumeUnsupported, match="reasoning"):
        go_on(name, "text", received)


def test_asking_to_go_on():
    continuation, body, _ = go_on("openai", "ask", {"text": "a ", "left": 3})
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == "a "
    assert continuation.echo == "tail"
    assert find("openai").strategies == ("ask",)


def test_replay_is_the_servers_own():
    asked = generation("llama.cpp", strategies=("replay",))
    dialect = find("llama.cpp")
    continuation, _ = run(dialect.continuation(asked, "replay", Received(offset=5)))
    assert continuation.keeps == "body"
    call, _ = run(dialect.begin(asked))
    assert call.headers["x-conversation-id"] == "h"
    _, calls = run(dialect.leave(asked, Received()), Reply(204, {}, b""))
    assert [call.method for call in calls] == ["DELETE"]
    assert run(dialect.leave(generation("llama.cpp"), Received())) == (None, [])
    assert run(find("openai").leave(generation("openai"), Received())) == (None, [])


@pytest.mark.parametrize(
    ("words", "refuses"),
    [
        ("This model does not support assistant message prefill.", True),
        ("continue_final_message and add_generation_prompt are not compatible.", True),
        ("conversation must end with a user message", True),
        ("temperature must be positive", False),
    ],
)
def test_a_refused_prefix_is_known_by_its_words(words, refuses):
    error = BadRequest(words, status=400)
    assert find("openrouter").refuses("text", error) is refuses
    assert not find("openrouter").refuses("ask", error)
    assert not find("openrouter").refuses("text", ServerFailed(words))


# -- completions ---------------------------------------------------------------------


def test_a_completion_is_the_prompt_and_what_came():
    received = {"text": "time ", "tokens": 2, "left": 3}
    continuation, body, _ = go_on(
        "openai-completions", "text", received, prompt="Once upon a ", stop="x"
    )
    assert body["prompt"] == "Once upon a time"
    assert continuation.sent == "time"
    assert body["max_tokens"] == 3
    assert body["stop"] == ["x"]
    assert continuation.reader is None


def test_messages_need_a_template_for_a_completion():
    with pytest.raises(UsageError, match="template"):
        begin("openai-completions", prompt=[TURN])
    with pytest.raises(ResumeUnsupported, match="template"):
        go_on("openai-completions", "text", {"text": "a"}, prompt=[TURN])
    _, body, _ = begin(
        "openai-completions", prompt=[TURN], template=lambda turns: f"<{len(turns)}>"
    )
    assert body["prompt"] == "<1>"
    with pytest.raises(UsageError, match="tools"):
        begin("openai-completions", tools=[{"type": "function"}])


# -- token ids -------------------------------------------------------------------------

IDS = {
    "text": "た。",
    "tokens": 3,
    "token_ids": (5, 6, 7),
    "prompt_ids": (1, 2),
    "left": 4,
}


@pytest.mark.parametrize("name", ["vllm", "vllm-completions"])
def test_ids_after_ids(name):
    continuation, body, calls = go_on(
        name, "tokens", IDS, max_tokens=7, temperature=0, extra={"min_tokens": 6}
    )
    assert calls == []
    assert continuation.call.url == "http://localhost:8000/v1/completions"
    assert body["prompt"] == [1, 2, 5, 6, 7]
    assert body["max_tokens"] == 4
    assert body["min_tokens"] == 3
    assert body["return_token_ids"] is True
    assert body["model"] == "m"
    assert (continuation.sent, continuation.expect, continuation.again) == (
        "た。",
        "",
        0,
    )
    _, text = continuation.reader.read(
        b'{"choices":[{"text":"a","token_ids":[8]}]}', ""
    )
    assert text.token_ids == (8,)


def test_what_only_a_chat_takes_stays_behind():
    extra = {"chat_template_kwargs": {"a": 1}, "top_k": 5, "max_completion_tokens": 9}
    _, body, _ = go_on("vllm", "tokens", IDS, extra=extra)
    assert body["top_k"] == 5
    assert not body.keys() & {"chat_template_kwargs", "max_completion_tokens"}
    _, body, _ = go_on("vllm-completions", "tokens", IDS, extra={"echo": False})
    assert body["echo"] is False


def test_ids_of_the_prompt_are_asked_for():
    received = IDS | {"prompt_ids": ()}
    extra = {"chat_template_kwargs": {"a": 1}}
    _, body, (call,) = go_on(
        "vllm", "tokens", received, {"tokens": [8, 9]}, url="http://h/v1", extra=extra
    )
    assert call.url == "http://h/tokenize"
    asked = json.loads(call.content)
    assert asked["messages"] == [TURN]
    assert asked["add_generation_prompt"] is True
    assert asked["chat_template_kwargs"] == {"a": 1}
    assert body["prompt"] == [8, 9, 5, 6, 7]
    _, body, (call,) = go_on("vllm-completions", "tokens", received, {"tokens": [8]})
    assert json.loads(call.content) == {"model": "m", "prompt": "Hi"}
    assert body["prompt"] == [8, 5, 6, 7]


def test_ids_that_are_not_known_are_made_of_the_text():
    received = {"text": "abcdefghijkl", "tokens": 12, "left": 9}
    made = {"tokens": list(range(12))}
    continuation, body, calls = go_on(
        "vllm",
        "tokens",
        received,
        {"tokens": [99]},
        made,
        {"prompt": "abc\ufffd"},
        {"prompt": "abc"},
    )
    assert [call.url.rpartition("/")[2] for call in calls] == [
        "tokenize",
        "tokenize",
        "detokenize",
        "detokenize",
    ]
    assert json.loads(calls[1].content)["add_special_tokens"] is False
    assert body["prompt"] == [99, 0, 1, 2]
    assert (continuation.sent, continuation.expect) == ("abc", "defghijkl")
    assert continuation.again == 9
    assert body["max_tokens"] == 9 + 9


def test_a_short_text_is_asked_for_again_whole():
    received = {"text": "abc", "tokens": 3, "left": 9}
    continuation, body, _ = go_on(
        "vllm", "tokens", received, {"tokens": [99]}, {"tokens": [1, 2, 3]}
    )
    assert body["prompt"] == [99]
    assert (continuation.sent, continuation.expect) == ("", "abc")
    assert (continuation.again, body["max_tokens"]) == (3, 12)


def test_ids_that_run_ahead_of_the_text_are_cut_back():
    received = IDS | {"text": "た"}
    continuation, body, calls = go_on(
        "vllm",
        "tokens",
        received,
        {"prompt": "た。\ufffd"},
        {"prompt": "た。"},
        {"prompt": "た"},
        stop=["。。"],
    )
    assert [json.loads(call.content)["tokens"] for call in calls] == [
        [5, 6, 7],
        [5, 6],
        [5],
    ]
    assert body["prompt"] == [1, 2, 5]
    assert body["stop"] == ["。。"]
    assert (continuation.sent, continuation.expect) == ("た", "")
    assert (continuation.again, body["max_tokens"]) == (2, 6)


def test_ids_that_never_spell_the_text():
    ids = tuple(range(20))
    received = {"text": "x", "tokens": 20, "token_ids": ids, "prompt_ids": (1,)}
    answers = [{"prompt": "y"}] * 8
    with pytest.raises(ResumeUnsupported, match="spell"):
        go_on("vllm", "tokens", received, *answers, stop=["s"])


def test_without_a_limit_the_room_is_asked_for_once():
    received = IDS | {"left": None}
    asked = generation("vllm")
    models = {"data": [{"id": "m", "max_model_len": 1024}]}
    flow = find("vllm").continuation(asked, "tokens", Received(**received))
    continuation, (call,) = run(flow, models)
    assert (call.method, call.url) == ("GET", "http://localhost:8000/v1/models")
    assert json.loads(continuation.call.content)["max_tokens"] == 1024
    flow = find("vllm").continuation(asked, "tokens", Received(**received))
    continuation, calls = run(flow)
    assert calls == []


def test_a_server_that_does_not_tell_its_room():
    with pytest.raises(ResumeUnsupported, match="room"):
        go_on("vllm", "tokens", IDS | {"left": None}, {"data": [{"id": "m"}]})
    _, body, _ = begin("vllm-completions", Reply(404, {}, b""))
    assert "max_tokens" not in body
    _, body, _ = begin("vllm-completions", {"data": [{"max_model_len": 64}]})
    assert body["max_tokens"] == 64


def test_messages_for_a_completion_are_rendered_by_the_server():
    _, body, (call,) = begin(
        "vllm-completions", {"tokens": [3, 4]}, prompt=[TURN], max_tokens=5
    )
    assert json.loads(call.content)["messages"] == [TURN]
    assert body["prompt"] == [3, 4]


@pytest.mark.parametrize(
    ("received", "asked", "words"),
    [
        (OPEN, {}, "reasoning is open"),
        (THOUGHT, {}, "ids of the reasoning"),
        (IDS | {"reasoning": "hm"}, {"stop": ["x"]}, "reasoning"),
        (IDS, {"tools": [{"type": "function"}]}, "tools"),
        (IDS, {"extra": {"logprobs": True}}, "logprobs"),
    ],
)
def test_what_ids_cannot_continue(received, asked, words):
    with pytest.raises(ResumeUnsupported, match=words):
        go_on("vllm", "tokens", received, {"tokens": [1]}, **asked)


def test_reasoning_whose_ids_are_known_is_in_the_prompt():
    _, body, _ = go_on("vllm", "tokens", IDS | {"reasoning": "hm"})
    assert body["prompt"] == [1, 2, 5, 6, 7]


@pytest.mark.parametrize(
    ("status", "raised"), [(404, ResumeUnsupported), (503, Overloaded)]
)
def test_a_tokenizer_route_that_fails(status, raised):
    reply = Reply(status, {}, b'{"error":"no"}')
    with pytest.raises(raised) as caught:
        go_on("vllm", "tokens", IDS | {"prompt_ids": ()}, reply)
    assert getattr(caught.value, "retryable", False) is (status == 503)


def test_the_endpoint_may_have_no_model():
    dialect = find("vllm")
    endpoint = Endpoint("vllm", base_url="http://h")
    asked = Generation(endpoint=endpoint, request=Request.of(prompt="Hi"))
    received = Received(**IDS | {"prompt_ids": ()})
    continuation, (call,) = run(
        dialect.continuation(asked, "tokens", received), {"tokens": [1]}
    )
    assert "model" not in json.loads(call.content)
    assert "model" not in json.loads(continuation.call.content)
    completions = find("openai-completions")
    for other in (completions, dialect):
        call, _ = run(other.begin(asked))
        assert "model" not in json.loads(call.content)
