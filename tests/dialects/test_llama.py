"""llama.cpp's own route: read as captured from real servers, asked, continued, left."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from midstream._dialects import find
from midstream._dialects.base import Received, Reply
from midstream._dialects.llama import CompletionReader
from midstream._values.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    NotFound,
    Overloaded,
    ServerFailed,
    UsageError,
    WireError,
)
from midstream._values.events import (
    End,
    Failure,
    Finish,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream._values.interruptions import ResumeUnsupported
from midstream._values.usage import Usage

NATIVE = "llama.cpp-completion"
EMOJI = "日本語🎉👩‍👩‍👧é ok"


@pytest.fixture(scope="module")
def captured(wire):
    return lambda name: wire.captured(f"llama_native/{name}.http")


def joined(signals):
    return "".join(s.text for s in signals if isinstance(s, TextDelta))


def ids_of(signals):
    return [id_ for s in signals if isinstance(s, TextDelta) for id_ in s.token_ids]


def counted(signals):
    return sum(s.tokens or 0 for s in signals if isinstance(s, TextDelta))


# -- captured bytes --------------------------------------------------------------------

STREAMS = {
    # name: (text or its begin, tokens, finish)
    "completion": (" a place of endless possibilities", None, ("length", "limit")),
    "completion_return_tokens": (None, None, ("length", "limit")),
    "completions_alias": (None, None, ("length", "limit")),
    "completion_n_probs": (None, None, ("length", "limit")),
    "completion_stopword": (None, None, ("stop", "word")),
    "completion_ping": (None, None, ("length", "limit")),
    "utf8_smol_completion": ("日本語🎉👩\u200d👩\u200d👧", 29, ("stop", "eos")),
    "utf8_smol_completion_nprobs": ("日本語🎉👩\u200d👩\u200d👧", 29, ("stop", "eos")),
    "utf8_gemma_completion": ("日本語🎉👩\u200d👩\u200d👧", None, ("stop", "eos")),
    "utf8_smol_limit1": ("", 0, ("length", "limit")),
    "utf8_smol_limit2": ("", 0, ("length", "limit")),
    "utf8_smol_limit4": ("日", 3, ("length", "limit")),
    "utf8_smol_limit7": ("日本", 5, ("length", "limit")),
    "err_empty_prompt": ("", 0, (None, None)),
    "err_n0": ("-", 1, ("length", "limit")),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_captured_stream_says_the_same_under_any_split(name, wire, captured):
    text, tokens, finish = STREAMS[name]
    status, body = captured(name)
    assert status == 200
    whole = wire.signals(NATIVE, body)
    if text is not None:
        assert joined(whole).startswith(text)
    if tokens is not None:
        assert counted(whole) in {tokens, tokens + 1}  # the end of sequence is one
    assert [(s.reason, s.raw) for s in whole if isinstance(s, Finish)] == [finish]
    assert whole[-1] == End()
    usage = next(s.usage for s in whole if isinstance(s, UsageReport))
    assert usage.output_tokens >= counted(whole)
    assert wire.signals(NATIVE, body, range(1, len(body))) == whole
    assert wire.signals(NATIVE, body, range(7, len(body), 100)) == whole


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 3400), max_size=8))
def test_characters_of_many_tokens_survive_any_cut(cuts, wire, captured):
    _, body = captured("utf8_smol_completion")
    cuts = sorted(min(cut, len(body)) for cut in cuts)
    said = wire.signals(NATIVE, body, cuts)
    assert joined(said).startswith("日本語🎉👩\u200d👩\u200d👧")
    assert "\ufffd" not in joined(said)


def test_ids_that_were_held_back_are_missing_and_counted(wire, captured):
    said = wire.signals(NATIVE, captured("utf8_smol_completion")[1])
    first = next(s for s in said if isinstance(s, TextDelta))
    assert (first.text, first.token_ids, first.tokens) == ("日", (115,), 3)
    assert len(ids_of(said)) < counted(said)


def test_probabilities_are_handed_on(wire, captured):
    said = wire.signals(NATIVE, captured("completion_n_probs")[1])
    deltas = [s for s in said if isinstance(s, TextDelta) and s.text]
    assert all(isinstance(delta.logprobs, list) for delta in deltas)


def test_keep_alives_say_nothing(wire, captured):
    _, body = captured("completion_ping")
    assert body.count(b"\n:\n") + body.startswith(b":\n") > 10
    assert wire.signals(NATIVE, re.sub(rb"(?m)^:\n\n", b"", body)) == wire.signals(
        NATIVE, body
    )


def test_a_cut_body_and_its_replay_are_the_whole_body(wire, captured):
    """The bytes of the three captures: unbroken, cut, and from there on."""
    _, unbroken = captured("replay_unbroken")
    _, cut = captured("replay_cut")
    _, rest = captured("replay_resume")
    whole = joined(wire.signals("llama.cpp", unbroken))
    both = wire.signals("llama.cpp", cut + rest, [len(cut)])
    assert len(whole) > 100
    assert joined(both) == whole
    assert both[-1] == End()
    assert End() not in wire.signals("llama.cpp", cut)


def test_the_chat_route_counts_as_timings_tell(wire, captured):
    said = wire.signals(
        "llama.cpp", captured("v1_chat_completions_timings_per_token")[1]
    )
    texts = [s for s in said if isinstance(s, TextDelta)]
    assert [delta.tokens for delta in texts if delta.text] == [1] * 6


@pytest.mark.parametrize("model", ["smol", "gemma"])
@pytest.mark.parametrize("limit", [1, 2, 4, 7])
def test_an_answer_that_ends_inside_a_character_drops_it(model, limit, wire, captured):
    for dialect, name in ("llama.cpp", "chatlimit"), (NATIVE, "limit"):
        _, body = captured(f"utf8_{model}_{name}{limit}")
        said = wire.signals(dialect, body)
        assert EMOJI.startswith(joined(said))
        assert [s.reason for s in said if isinstance(s, Finish)] == ["length"]


ERRORS = {
    "err_bad_grammar": (400, BadRequest, "failed to parse grammar"),
    "err_bad_json": (400, BadRequest, "parse error"),
    "err_bad_json_completion": (400, BadRequest, "parse error"),
    "err_bad_key": (401, AuthenticationFailed, "Invalid API Key"),
    "err_bad_key_messages": (401, AuthenticationFailed, "Invalid API Key"),
    "err_bad_role": (400, BadRequest, ""),
    "err_bad_token_id": (400, BadRequest, ""),
    "err_bad_type": (400, BadRequest, ""),
    "err_bad_utf8": (400, BadRequest, ""),
    "err_ctx_before_chat": (400, ContextOverflow, "3031 tokens"),
    "err_ctx_before_completion": (400, ContextOverflow, "tokens"),
    "err_ctx_before_messages": (400, ContextOverflow, "tokens"),
    "err_ctx_before_responses": (400, ContextOverflow, "tokens"),
    "err_empty_prompt_ids": (400, BadRequest, ""),
    "err_loading_503": (503, Overloaded, "Loading model"),
    "err_loading_503_models": (503, Overloaded, "Loading model"),
    "err_method": (404, NotFound, "File Not Found"),
    "err_no_key": (401, AuthenticationFailed, "Invalid API Key"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_captured_error_is_typed(name, captured):
    status, cls, words = ERRORS[name]
    got, body = captured(name)
    assert got == status
    error = find(NATIVE).error(Reply(status, {}, body))
    assert type(error) is cls
    assert words in error.message
    assert error.retryable is (cls is Overloaded)
    assert error.status == status


@pytest.mark.parametrize("name", ["err_ctx_mid_completion"])
def test_a_full_context_in_mid_stream_is_a_normal_end(name, wire, captured):
    said = wire.signals(NATIVE, captured(name)[1])
    assert Finish("length", "limit") in said
    assert said[-1] == End()


# -- records ---------------------------------------------------------------------------


def record(**fields):
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


@pytest.mark.parametrize(
    ("fault", "cls"),
    [
        (b'data: {"error":{"code":500,"message":"m","type":"server_error"}}\n\n', "s"),
        (b'error: {"code":500,"message":"m","type":"server_error"}\n\n', "s"),
        (b'data: {"error":"m"}\n\n', "s"),
        (b"data: m\n\n", "w"),
        (b"data: [1]\n\n", "w"),
    ],
)
def test_errors_in_mid_stream(fault, cls, wire):
    said = wire.signals(NATIVE, record(content="A", tokens=[1]) + fault)
    assert joined(said) == "A"
    assert isinstance(said[-1], Failure)
    assert type(said[-1].error) is {"s": ServerFailed, "w": WireError}[cls]


def test_the_end_of_the_body_says_nothing():
    assert CompletionReader().eof() == []


def test_a_server_that_does_not_count_says_so(wire):
    said = wire.signals(NATIVE, record(content="A") + record(content="", stop=True))
    assert said == [
        Started(None, None),
        TextDelta("A"),
        Finish(None),
        End(),
    ]


def test_a_token_without_text_is_kept_for_its_id(wire):
    said = wire.signals(NATIVE, record(content="", tokens=[30], tokens_predicted=1))
    assert said[-1] == TextDelta("", tokens=1, token_ids=(30,))


def test_a_last_record_with_text_is_text_and_end(wire):
    said = wire.signals(NATIVE, record(content="A", stop=True, stop_type="word"))
    assert said[1:] == [TextDelta("A"), Finish("stop", "word"), End()]


# -- written and read ------------------------------------------------------------------

events = st.lists(
    st.builds(
        TextDelta,
        st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
        tokens=st.integers(1, 3),
        token_ids=st.lists(st.integers(0, 10**6), min_size=1, max_size=3).map(tuple),
    ),
    max_size=6,
)


@settings(deadline=None)
@given(
    deltas=events,
    reason=st.sampled_from(["stop", "length", None]),
    usage=st.none() | st.builds(Usage, st.integers(0, 99), st.integers(1, 99)),
    cuts=st.lists(st.integers(0, 2000), max_size=4),
)
@example(deltas=[], reason=None, usage=None, cuts=[])
def test_what_is_written_is_read(deltas, reason, usage, cuts, wire):
    signals = [Started("ignored", "m"), *deltas, Finish(reason)]
    signals += [UsageReport(usage)] if usage else []
    body = wire.written(NATIVE, [*signals, End()])
    said = wire.signals(NATIVE, body, sorted(min(c, len(body)) for c in cuts))
    assert [s for s in said if isinstance(s, TextDelta)] == deltas
    assert [s.reason for s in said if isinstance(s, Finish)] == [reason]
    if usage:
        assert UsageReport(usage) in said
    assert said[-1] == End()


def test_an_error_is_written_as_the_server_does(wire):
    fault = Overloaded("busy", status=503, type="unavailable_error", retryable=True)
    [said] = wire.signals(NATIVE, wire.written(NATIVE, [Failure(fault)]))
    assert type(said.error) is Overloaded
    assert said.error.message == "busy"
    [plain] = wire.signals(NATIVE, wire.written(NATIVE, [Failure(ServerFailed("m"))]))
    assert (plain.error.type, plain.error.status) == ("server_error", 500)


def test_what_the_route_does_not_know_is_not_written(wire):
    assert wire.written(NATIVE, [ToolCallDelta(0, "c", "f", "{}")]) == b""


# -- asked -----------------------------------------------------------------------------

URL = "@http://localhost:8080"


def test_a_prompt_is_posted_as_it_is(wire):
    asked = wire.generation(
        NATIVE,
        "Once",
        max_tokens=9,
        temperature=0,
        top_p=0.5,
        stop="x",
        seed=7,
        extra={"n_probs": 2, "cache_prompt": False},
    )
    call = wire.begin(asked)
    assert (call.url, call.method) == ("http://localhost:8080/completion", "POST")
    assert wire.body(call) == {
        "prompt": "Once",
        "stream": True,
        "return_tokens": True,
        "n_predict": 9,
        "temperature": 0.0,
        "top_p": 0.5,
        "stop": ["x"],
        "seed": 7,
        "n_probs": 2,
        "cache_prompt": False,
    }
    assert "x-conversation-id" not in call.headers


def test_messages_are_rendered_by_the_server(wire):
    asked = wire.generation(NATIVE, [{"role": "user", "content": "Hi"}])
    flow = find(NATIVE).begin(asked)
    [render], call = wire.run(flow, Reply(200, {}, b'{"prompt": "<s>Hi"}'))
    assert render.url.endswith("/apply-template")
    assert wire.body(render) == {"messages": [{"role": "user", "content": "Hi"}]}
    assert wire.body(call)["prompt"] == "<s>Hi"


def test_or_by_the_endpoints_template(wire):
    asked = wire.generation(NATIVE, [{"role": "user", "content": "Hi"}])
    endpoint = asked.endpoint.model_copy(update={"template": lambda m: m[0].content})
    call = wire.begin(replace(asked, endpoint=endpoint))
    assert wire.body(call)["prompt"] == "Hi"


def test_tools_have_another_route(wire):
    with pytest.raises(UsageError, match=r"llama\.cpp dialect"):
        wire.begin(wire.generation(NATIVE, tools=[{}]))


def test_keys_are_in_secret_headers_only(wire):
    asked = wire.generation(NATIVE, strategies=("replay",))
    secret = {"api_key": "sk-1", "headers": {"X-Own": "v"}}
    endpoint = type(asked.endpoint)(
        NATIVE, base_url="http://localhost:8080/v1", **secret
    )
    asked = replace(asked, endpoint=endpoint)
    calls = [
        wire.begin(asked),
        wire.go_on(asked, "replay", Received(offset=5)).call,
        wire.go_on(asked, "text", Received(text="A")).call,
        *wire.leave(asked, Received()),
    ]
    for call in calls:
        assert call.secrets == {"authorization": "Bearer sk-1", "x-own": "v"}
        assert "sk-1" not in f"{call!r}{call.url}{call.headers}{call.content}"


# -- continued and left ----------------------------------------------------------------


def test_a_kept_stream_goes_on_from_its_byte(wire):
    asked = wire.generation(NATIVE + URL + "/v1", strategies=("replay", "text"))
    asked = replace(asked, handle="a b&ü")
    assert wire.begin(asked).headers["x-conversation-id"] == "a b&ü"
    continuation = wire.go_on(asked, "replay", Received(offset=2811))
    assert continuation.keeps == "body"
    assert continuation.call.method == "GET"
    assert continuation.call.url == (
        "http://localhost:8080/v1/stream?conv_id=a%20b%26%C3%BC&from=2811"
    )
    [leave] = wire.leave(asked, Received())
    assert (leave.method, leave.url) == (
        "DELETE",
        "http://localhost:8080/v1/stream?conv_id=a%20b%26%C3%BC",
    )


def test_a_stream_that_is_not_kept_is_left_by_closing(wire):
    assert wire.leave(wire.generation(NATIVE, strategies=("text",)), Received()) == []


def test_text_goes_behind_the_prompt_and_the_limit_shrinks(wire):
    asked = wire.generation(NATIVE, "Once", max_tokens=10)
    continuation = wire.go_on(asked, "text", Received(text=" upon ", tokens=6, left=4))
    body = wire.body(continuation.call)
    assert (body["prompt"], body["n_predict"]) == ("Once upon ", 4)
    assert (continuation.sent, continuation.echo, continuation.expect) == (
        " upon ",
        "none",
        "",
    )


def tokens(*ids):
    return Reply(200, {}, json.dumps({"tokens": list(ids)}).encode())


def by_ids(wire, received, *replies):
    asked = wire.generation(NATIVE, "P")
    flow = find(NATIVE).continuation(asked, "tokens", received)
    calls, continuation = wire.run(flow, *replies)
    return [wire.body(call) for call in calls], wire.body(continuation.call)["prompt"]


def test_ids_go_behind_the_prompts_ids(wire):
    received = Received(text="ab", tokens=2, token_ids=[7, 8])
    asked, prompt = by_ids(wire, received, tokens(1, 2))
    assert asked == [{"content": "P", "add_special": True, "parse_special": True}]
    assert prompt == [1, 2, 7, 8]


def test_ids_that_were_kept_back_are_asked_for(wire):
    """As captured: 日 is three tokens, of which only the last was sent."""
    received = Received(
        text="a日b本",
        tokens=7,
        token_ids=[7, -1, -1, 115, 8, -1, 122],
        gaps=[(1, 3, "日"), (5, 2, "本")],
    )
    replies = tokens(1), tokens(20, 21, 115), tokens(30, 122)
    asked, prompt = by_ids(wire, received, *replies)
    assert asked[1:] == [
        {"content": "日", "add_special": False, "parse_special": False},
        {"content": "本", "add_special": False, "parse_special": False},
    ]
    assert prompt == [1, 7, 20, 21, 115, 8, 30, 122]


@pytest.mark.parametrize(
    "again", [tokens(20, 115), tokens(20, 21, 99), tokens(), tokens(1, 2, 3, 115)]
)
def test_ids_that_cannot_be_had_again_become_text_behind_the_prompts_ids(again, wire):
    received = Received(
        text="a日", tokens=4, token_ids=[7, -1, -1, 115], gaps=[(1, 3, "日")]
    )
    assert by_ids(wire, received, tokens(1), again)[1] == [1, "a日"]


def test_ids_fewer_than_tokens_become_text(wire):
    received = Received(text="ab", tokens=3, token_ids=[7, 8])
    assert by_ids(wire, received, tokens(1, 2))[1] == [1, 2, "ab"]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(404, {}, b'{"error": {"message": "File Not Found", "code": 404}}'),
        Reply(200, {}, b"no JSON"),
        Reply(200, {}, b"[]"),
        Reply(200, {}, b'{"tokens": 5}'),
        Reply(200, {}, b"{}"),
    ],
)
def test_without_a_tokenizer_the_next_way_may(reply, wire):
    with pytest.raises(ResumeUnsupported, match="no ids to be had"):
        by_ids(wire, Received(text="a", tokens=1, token_ids=[7]), reply)


def test_a_tokenizer_that_is_busy_is_asked_later(wire):
    with pytest.raises(Overloaded):
        by_ids(wire, Received(text="a"), Reply(503, {}, b"{}"))
