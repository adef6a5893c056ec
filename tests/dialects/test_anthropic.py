"""Anthropic messages: captured servers, every event, and how an answer goes on."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream._dialects import find
from midstream._dialects.anthropic import CONTINUE, INTERRUPTED, continues_turns
from midstream._dialects.base import Received, Reply
from midstream._values.endpoint import Endpoint
from midstream._values.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    NotFound,
    Overloaded,
    RateLimited,
    ServerError,
    ServerFailed,
    UsageError,
    WireError,
)
from midstream._values.events import (
    End,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Resumed,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream._values.interruptions import ResumeUnsupported
from midstream._values.resumption import Resumption
from midstream._values.usage import Usage

SEA = "The sea is a vast and mysterious realm, teeming with life"
START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "model": "claude-x",
        "usage": {"input_tokens": 7, "output_tokens": 1},
    },
}
STOP = {"type": "message_stop"}


def block(index=0, **fields):
    fields = fields or {"type": "text", "text": ""}
    return {"type": "content_block_start", "index": index, "content_block": fields}


def delta(kind="text_delta", index=0, **fields):
    inner = {"type": kind, **fields}
    return {"type": "content_block_delta", "index": index, "delta": inner}


def stopped(index=0):
    return {"type": "content_block_stop", "index": index}


def ended(reason="end_turn", **usage):
    inner = {"stop_reason": reason, "stop_sequence": None}
    return {"type": "message_delta", "delta": inner, "usage": usage}


# -- reading -------------------------------------------------------------------------


def test_llama_says_the_sea(wire):
    status, body = wire.captured("llama/v1_messages.http")
    said = wire.meaning(wire.signals("anthropic", body))
    assert (status, said.text, said.ended) == (200, SEA, True)
    assert said.finish == ("length", "max_tokens")
    assert said.usage == Usage(38, 12, None, 37)
    assert said.model == "smol"
    assert said.id.startswith("chatcmpl-")


def test_vllm_says_the_same_events(wire):
    _, body = wire.captured("vllm/msgs.raw")
    said = wire.meaning(wire.signals("anthropic", body))
    assert said.text.endswith("ho mean")
    assert said.finish == ("length", "max_tokens")
    assert said.usage == Usage(14, 5)


def test_a_context_that_is_full_in_mid_answer_ends_it(wire):
    _, body = wire.captured("llama/err_ctx_mid_messages.http")
    said = wire.meaning(wire.signals("anthropic", body))
    assert said.finish == ("length", "max_tokens")
    assert said.ended


@pytest.mark.parametrize(
    "name", ["llama/v1_messages.http", "llama/utf8_smol_messages.http", "vllm/msgs.raw"]
)
def test_captured_bytes_say_the_same_however_they_are_cut(wire, name):
    _, body = wire.captured(name)
    whole = wire.signals("anthropic", body)
    assert wire.signals("anthropic", body, range(1, len(body))) == whole
    for cut in range(0, len(body), 7):
        assert wire.signals("anthropic", body, [cut]) == whole


@pytest.mark.parametrize("name", ["llama/v1_messages.http", "vllm/msgs.raw"])
def test_captured_bytes_survive_being_written_again(wire, name):
    _, body = wire.captured(name)
    signals = wire.signals("anthropic", body)
    again = wire.signals("anthropic", wire.written("anthropic", signals))
    assert wire.meaning(again) == wire.meaning(signals)


def test_a_body_that_ends_in_mid_answer_ends_nothing(wire):
    _, body = wire.captured("llama/v1_messages.http")
    for cut in range(len(body) - len(b'"message_stop"}\n\n')):
        said = wire.meaning(wire.signals("anthropic", body[:cut]))
        assert not said.ended
        assert SEA.startswith(said.text)
        assert said.finish is None or said.text == SEA


def test_the_usage_so_far_is_told_at_the_begin(wire):
    assert wire.said("anthropic", START) == [
        Started("msg_1", "claude-x"),
        UsageReport(Usage(7)),
    ]
    bare = {"type": "message_start", "message": {"id": "m", "model": "x"}}
    assert wire.said("anthropic", bare) == [Started("m", "x")]


def test_cached_tokens_are_tokens_of_the_input(wire):
    usage = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 100,
        "output_tokens": 1,
    }
    start = {"type": "message_start", "message": {"id": "m", "usage": usage}}
    details = {"thinking_tokens": 6}
    end = ended(output_tokens=9, output_tokens_details=details, input_tokens=None)
    said = wire.meaning(wire.said("anthropic", start, end, STOP))
    assert said.usage == Usage(123, 9, 6, 100)


def test_thinking_its_seal_and_what_is_redacted(wire):
    said = wire.said(
        "anthropic",
        block(0, type="thinking", thinking="Let ", signature=""),
        delta("thinking_delta", thinking="me see."),
        delta("thinking_delta", thinking=""),
        delta("signature_delta", signature="c2ln"),
        stopped(0),
        block(1, type="redacted_thinking", data="b3BhcXVl"),
        stopped(1),
        block(2, type="text", text="Y"),
        delta(index=2, text="es"),
        delta(index=2, text=""),
    )
    assert said == [
        ReasoningDelta("Let "),
        ReasoningDelta("me see."),
        ReasoningDelta("", tokens=0, signature="c2ln"),
        ReasoningDelta("", tokens=0, signature="b3BhcXVl"),
        TextDelta("Y"),
        TextDelta("es"),
    ]


def test_tool_calls_are_whole_when_something_follows_them(wire):
    said = wire.said(
        "anthropic",
        delta(text="Let me check."),
        block(1, type="tool_use", id="t1", name="f", input={}),
        delta("input_json_delta", 1, partial_json=""),
        delta("input_json_delta", 1, partial_json='{"a":"\\u00'),
        delta("input_json_delta", 1, partial_json='e9"}'),
        stopped(1),
        block(2, type="tool_use", id="t2", name="g", input={"b": 1}),
        stopped(2),
        ended("tool_use"),
        STOP,
    )
    assert said == [
        TextDelta("Let me check."),
        ToolCallDelta(0, "t1", "f"),
        ToolCallDelta(0, arguments='{"a":"\\u00'),
        ToolCallDelta(0, arguments='e9"}'),
        ToolCallDelta(0, tokens=0, closed=True),
        ToolCallDelta(1, "t2", "g", '{"b":1}'),
        ToolCallDelta(1, tokens=0, closed=True),
        Finish("tool_calls", "tool_use"),
        End(),
    ]
    assert json.loads(wire.meaning(said).calls[0].arguments) == {"a": "é"}


def test_a_call_that_a_limit_cut_is_never_whole(wire):
    said = wire.said(
        "anthropic",
        block(0, type="tool_use", id="t", name="f", input={}),
        delta("input_json_delta", partial_json='{"path":"/x","body":"line'),
        stopped(0),
        ended("max_tokens"),
        STOP,
    )
    call = wire.meaning(said).calls[0]
    assert not call.complete
    assert call.arguments == '{"path":"/x","body":"line'


def test_calls_that_share_an_index_stay_apart(wire):
    said = wire.said(
        "anthropic",
        block(0, type="tool_use", id="a", name="f", input={}),
        delta("input_json_delta", partial_json='{"a":1}'),
        stopped(0),
        block(0, type="tool_use", id="b", name="g", input={}),
        delta("input_json_delta", partial_json="{}"),
        stopped(0),
        ended("tool_use"),
    )
    calls = wire.meaning(said).calls
    assert [(c.id, c.name, c.arguments, c.complete) for c in calls] == [
        ("a", "f", '{"a":1}', True),
        ("b", "g", "{}", True),
    ]


def test_tools_that_the_server_runs_are_no_calls(wire):
    said = wire.said(
        "anthropic",
        block(0, type="server_tool_use", id="s", name="web_search", input={}),
        delta("input_json_delta", partial_json='{"query":"x"}'),
        stopped(0),
        block(1, type="web_search_tool_result", tool_use_id="s", content=[]),
        stopped(1),
        delta(index=2, text="Found."),
    )
    assert said == [TextDelta("Found.")]


def test_what_is_unknown_says_nothing(wire):
    said = wire.said(
        "anthropic",
        {"type": "ping"},
        {"type": "message_shrug", "x": 1},
        delta("shrug_delta", x=1),
        delta("citations_delta", citation={"cited_text": "c"}),
        {"type": "content_block_delta", "index": 0, "delta": None},
        {"type": "content_block_start", "index": 3},
        {"type": "message_delta", "delta": None},
        {},
        b"[DONE]",
    )
    assert said == []


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "refusal"),
        ("pause_turn", "pause_turn"),
    ],
)
def test_finish_reasons(wire, raw, reason):
    said = wire.said("anthropic", ended(raw, output_tokens=2), STOP)
    assert said == [Finish(reason, raw), UsageReport(Usage(None, 2)), End()]


def test_an_end_without_a_reason_makes_none_up(wire):
    assert wire.said("anthropic", ended(None), STOP) == [End()]


def test_a_server_that_gave_up_has_not_answered(wire):
    [failure] = wire.said("anthropic", ended("abort"), STOP)
    assert isinstance(failure.error, ServerFailed)


@pytest.mark.parametrize(
    ("kind", "cls", "retryable"),
    [
        ("overloaded_error", Overloaded, True),
        ("rate_limit_error", RateLimited, True),
        ("api_error", ServerFailed, True),
        ("timeout_error", ServerFailed, True),
        ("invalid_request_error", BadRequest, False),
        ("authentication_error", AuthenticationFailed, False),
        ("permission_error", AuthenticationFailed, False),
        ("billing_error", AuthenticationFailed, False),
        ("not_found_error", NotFound, False),
    ],
)
def test_errors_in_mid_stream_are_classed_by_their_type(wire, kind, cls, retryable):
    error = {"type": "error", "error": {"type": kind, "message": "m"}}
    said = wire.meaning(wire.said("anthropic", START, delta(text="Hi"), error, STOP))
    assert said.text == "Hi"
    assert said.failure == (cls, "m", retryable)
    assert not said.ended


def test_an_error_without_its_event(wire):
    [failure] = wire.said("anthropic", {"error": {"message": "gone", "code": 500}})
    assert (type(failure.error), failure.error.message) == (ServerFailed, "gone")


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("llama/err_bad_key_messages.http", AuthenticationFailed),
        ("llama/err_ctx_before_messages.http", ContextOverflow),
        ("vllm/err_msgs.raw", NotFound),
    ],
)
def test_captured_refusals(wire, name, cls):
    status, body = wire.captured(name)
    error = find("anthropic").error(Reply(status, {}, body))
    assert type(error) is cls
    assert error.message in body.decode()
    assert not error.retryable


def test_529_is_overloaded_and_says_when_to_come_back():
    content = b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'
    error = find("anthropic").error(Reply(529, {"retry-after": "3"}, content))
    assert (type(error), error.retryable, error.retry_after) == (Overloaded, True, 3)


def test_a_record_that_is_no_json_is_a_fault_of_the_wire(wire):
    [failure] = wire.said("anthropic", b"{oops")
    assert isinstance(failure.error, WireError)


def test_characters_cut_in_any_way_come_whole(wire):
    text = "日本語👩‍👩‍👧e\u0301"
    said = [START, *(delta(text=c) for c in text), ended(), STOP]
    raw = [json.dumps(d, ensure_ascii=False).encode() for d in said]
    body = b"".join(b"data: " + data + b"\n\n" for data in raw)
    for cuts in range(1, len(body)), range(0, len(body), 3):
        assert wire.meaning(wire.signals("anthropic", body, cuts)).text == text


def test_halves_of_a_character_in_two_deltas_are_joined(wire):
    records = (
        rb'{"type":"text_delta","text":"x\ud83d"}',
        rb'{"type":"text_delta","text":"\ude00y"}',
    )
    body = b"".join(
        b'data: {"type":"content_block_delta","index":0,"delta":' + r + b"}\n\n"
        for r in records
    )
    texts = [s.text for s in wire.signals("anthropic", body)]
    assert texts == ["x", "😀y"]


# -- writing -------------------------------------------------------------------------

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
sides = st.one_of(
    st.builds(TextDelta, words),
    st.builds(ReasoningDelta, words),
    st.builds(ReasoningDelta, words, signature=st.just("c2ln")),
    st.just(ReasoningDelta("", tokens=0, signature="b3BhcXVl")),
)
counts = st.integers(0, 10_000)
usages = st.builds(
    lambda i, o, r, c: Usage(i + (c or 0), o, r, c),
    counts.filter(bool),
    counts,
    st.none() | counts,
    st.none() | counts,
)


@st.composite
def answers(draw):
    events = [Started("msg_9", "claude-y"), *draw(st.lists(sides, max_size=8))]
    reasons = ["end_turn", "max_tokens", "refusal"]
    calls = draw(st.lists(words, max_size=3))
    for index, name in enumerate(calls):
        events.append(ToolCallDelta(index, f"t{index}", name))
        pieces = draw(st.lists(words, max_size=3))
        events += [ToolCallDelta(index, arguments=piece) for piece in pieces]
        events.append(ToolCallDelta(index, tokens=0, closed=True))
        reasons = ["tool_use"]
    raw = draw(st.sampled_from(reasons))
    reason = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
    events.append(Finish(reason.get(raw, raw), raw))
    return [*events, UsageReport(draw(usages)), End()]


@settings(deadline=None)
@given(answers(), st.data())
def test_what_is_written_is_read_the_same(wire, events, data):
    body = wire.written("anthropic", events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    assert wire.meaning(wire.signals("anthropic", body, cuts)) == wire.meaning(events)


def test_foreign_words_for_the_end_become_anthropics_own(wire):
    for finish, raw in [
        (Finish("stop", "eos"), "end_turn"),
        (Finish("length", "limit"), "max_tokens"),
        (Finish("tool_calls", "tool_calls"), "tool_use"),
        (Finish("content_filter", "SAFETY"), "refusal"),
        (Finish("stop", "stop_sequence"), "stop_sequence"),
        (Finish("insufficient", None), "insufficient"),
    ]:
        body = wire.written("anthropic", [Started(), finish, End()])
        assert wire.meaning(wire.signals("anthropic", body)).finish[1] == raw
    body = wire.written("anthropic", [Started(), End()])
    assert wire.meaning(wire.signals("anthropic", body)).finish is None


def test_refusals_are_written_as_text_and_failures_as_errors(wire):
    events = [RefusalDelta("No."), Failure(Overloaded("m", type="overloaded_error"))]
    said = wire.signals("anthropic", wire.written("anthropic", events))
    assert said[0] == TextDelta("No.")
    assert isinstance(said[1].error, Overloaded)
    said = wire.signals(
        "anthropic", wire.written("anthropic", [Failure(ServerError("m"))])
    )
    assert isinstance(said[0].error, ServerFailed)


def test_calls_left_open_are_ended_with_the_answer(wire):
    events = [ToolCallDelta(0, "t", "f", '{"a'), Finish("length", "max_tokens"), End()]
    said = wire.meaning(wire.signals("anthropic", wire.written("anthropic", events)))
    assert (said.calls[0].arguments, said.calls[0].complete) == ('{"a', False)


def test_a_resumption_leaves_no_trace_on_the_wire():
    resumed = Resumed(Resumption(0, "", "text", 3, None, 0.0))
    assert find("anthropic").writer().write(resumed) == []


# -- asking --------------------------------------------------------------------------


def test_parameters_go_by_their_own_names(wire):
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    asked = wire.generation(
        "anthropic:claude-sonnet-4-5",
        max_tokens=50,
        temperature=0,
        top_p=0.5,
        stop="END",
        seed=7,
        tools=tools,
        extra={"top_k": 3},
    )
    call = wire.begin(asked)
    assert call.url == "https://api.anthropic.com/v1/messages"
    assert wire.body(call) == {
        "model": "claude-sonnet-4-5",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 50,
        "stream": True,
        "temperature": 0,
        "top_p": 0.5,
        "stop_sequences": ["END"],
        "tools": tools,
        "top_k": 3,
    }


def test_a_limit_is_always_given(wire):
    assert wire.body(wire.begin(wire.generation("anthropic:m")))["max_tokens"] == 4096


def test_other_servers_get_the_seed_and_need_no_model(wire):
    call = wire.begin(wire.generation("anthropic@http://localhost:8080/v1", seed=7))
    assert call.url == "http://localhost:8080/v1/messages"
    assert wire.body(call)["seed"] == 7
    assert "model" not in wire.body(call)
    with pytest.raises(UsageError, match="model"):
        wire.begin(wire.generation("anthropic"))


def test_the_version_is_no_secret_and_own_headers_are(wire):
    endpoint = Endpoint("anthropic", model="m", headers={"X-Team": "blue"})
    call = wire.begin(wire.generation(endpoint))
    assert call.headers["anthropic-version"] == "2023-06-01"
    assert call.secrets == {"x-team": "blue"}


def test_keys_by_server(wire):
    for name, secrets in [
        ("anthropic", {"x-api-key": "sk-1"}),
        ("llama.cpp-messages", {"x-api-key": "sk-1"}),
        ("vllm-messages", {"authorization": "Bearer sk-1"}),
    ]:
        asked = wire.generation(
            Endpoint(name, model="m", base_url="http://h:1", api_key="sk-1")
        )
        call = wire.begin(asked)
        assert call.secrets == secrets
        assert "sk-1" not in repr(call)


def test_system_messages_travel_apart(wire):
    prompt = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "developer", "content": "Be kind."},
    ]
    body = wire.body(wire.begin(wire.generation("anthropic:m", prompt)))
    assert body["system"] == "Be brief.\n\nBe kind."
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    cached = {"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}}
    prompt[0]["content"] = [cached]
    body = wire.body(wire.begin(wire.generation("anthropic:m", prompt)))
    assert body["system"] == [cached, {"type": "text", "text": "Be kind."}]


# -- going on ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        None,
        "smollm2",
        "qwen3:8b",
        "claude-2.1",
        "claude-instant-1.2",
        "claude-3-opus-20240229",
        "claude-3-5-sonnet-20241022",
        "claude-3-7-sonnet-latest",
        "claude-sonnet-4-20250514",
        "claude-opus-4-1-20250805",
        "claude-haiku-4-5",
        "claude-sonnet-4-5-20250929",
        "anthropic.claude-v2:1",
        "us.anthropic.claude-opus-4-5-20251101-v1:0",
        "claude-sonnet-4-5@20250929",
        "anthropic/claude-3.5-sonnet",
    ],
)
def test_models_that_go_on_with_a_turn(model):
    assert continues_turns(model)


@pytest.mark.parametrize(
    "model",
    [
        "claude-opus-4-6",
        "claude-sonnet-4-6-20260210",
        "anthropic/claude-sonnet-4.6",
        "claude-opus-4-10",
        "claude-sonnet-5",
        "claude-5-haiku",
        "claude-fable-1",
        "claude-mythos-preview",
        "Claude-Next",
    ],
)
def test_models_that_refuse_a_turn_to_go_on_with(wire, model):
    assert not continues_turns(model)
    asked = wire.generation(f"anthropic:{model}")
    with pytest.raises(ResumeUnsupported, match="does not continue"):
        wire.go_on(asked, "text", Received(text="Hello wo"))


def test_the_answer_so_far_is_one_block_without_whitespace_at_its_end(wire):
    asked = wire.generation("anthropic:claude-sonnet-4-5", max_tokens=10)
    received = Received(text="Line one.\n\n", tokens=4, left=6)
    continuation = wire.go_on(asked, "text", received)
    body = wire.body(continuation.call)
    assert continuation.sent == "Line one."
    assert body["max_tokens"] == 6
    assert body["messages"][1:] == [
        {"role": "assistant", "content": [{"type": "text", "text": "Line one."}]}
    ]


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_turn_is_never_sent(wire, text):
    asked = wire.generation("anthropic:m")
    continuation = wire.go_on(asked, "text", Received(text=text))
    assert continuation.sent == ""
    assert len(wire.body(continuation.call)["messages"]) == 1


def test_a_server_that_trims_nothing_gets_the_whitespace(wire):
    asked = wire.generation("llama.cpp-messages")
    assert wire.go_on(asked, "text", Received(text="a ")).sent == "a "
    asked = wire.generation("llama.cpp-messages", stop="bc")  # " bc" may be one token
    assert wire.go_on(asked, "text", Received(text="a ")).sent == "a"


@pytest.mark.parametrize(
    ("own", "sent"),
    [
        ("Sure:", [{"type": "text", "text": "Sure: ok"}]),
        ([{"type": "text", "text": "Sure:"}], [{"type": "text", "text": "Sure: ok"}]),
        (
            [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
            [
                {"type": "tool_use", "id": "t", "name": "f", "input": {}},
                {"type": "text", "text": " ok"},
            ],
        ),
        (None, [{"type": "text", "text": " ok"}]),
    ],
)
def test_a_turn_that_the_caller_left_open_is_gone_on_with(wire, own, sent):
    prompt = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": own},
    ]
    asked = wire.generation("anthropic:m", prompt)
    body = wire.body(wire.go_on(asked, "text", Received(text=" ok")).call)
    assert body["messages"][1:] == [{"role": "assistant", "content": sent}]


def test_thinking_is_never_sent_in_part(wire):
    asked = wire.generation("anthropic:claude-sonnet-4-5")
    with pytest.raises(ResumeUnsupported, match="signature"):
        wire.go_on(asked, "text", Received(text="a", reasoning="hm"))
    for kind in "enabled", "adaptive":
        extra = {"thinking": {"type": kind}}
        asked = wire.generation("anthropic:claude-sonnet-4-5", extra=extra)
        with pytest.raises(ResumeUnsupported, match="enabled"):
            wire.go_on(asked, "text", Received(text="a"))
    extra = {"thinking": {"type": "disabled"}}
    asked = wire.generation("anthropic:claude-sonnet-4-5", extra=extra)
    assert wire.go_on(asked, "text", Received(text="a")).sent == "a"


def test_asking_is_a_turn_of_the_user(wire):
    asked = wire.generation("anthropic:claude-opus-4-6", max_tokens=10)
    received = Received(text="Hello wo", reasoning="hm", left=8)
    continuation = wire.go_on(asked, "ask", received)
    body = wire.body(continuation.call)
    assert body["max_tokens"] == 8
    assert continuation.echo == "tail"
    assert continuation.sent == "Hello wo"
    assert [turn["role"] for turn in body["messages"]] == ["user", "user"]
    assert body["messages"][1]["content"] == f"{INTERRUPTED}Hello wo{CONTINUE}"
    nothing = wire.go_on(asked, "ask", Received(reasoning="hm"))
    assert len(wire.body(nothing.call)["messages"]) == 1


@pytest.mark.parametrize(
    "message",
    [
        "This model does not support assistant message prefill.",
        "The conversation must end with a user message.",
        (
            "When `thinking` is enabled, a final `assistant` message must start with a "
            "thinking block."
        ),
    ],
)
def test_refusals_of_a_prefix_are_known_by_their_words(message):
    dialect = find("anthropic")
    assert dialect.refuses("text", BadRequest(message))
    assert not dialect.refuses("ask", BadRequest(message))
    assert not dialect.refuses("text", BadRequest("max_tokens: too large"))
    assert not dialect.refuses("text", Overloaded(message))


def test_structured_outputs_are_not_continued(wire):
    dialect, schema = find("anthropic"), {"type": "json_schema", "schema": {}}
    for extra, refused in [
        ({"output_format": schema}, True),
        ({"output_config": {"format": schema}}, True),
        ({"output_config": {"effort": "low"}}, False),
        ({"grammar": "root ::= x"}, True),
        ({}, False),
    ]:
        request = wire.generation("anthropic:m", extra=extra).request
        assert bool(dialect.no_prefix(request)) is refused


def test_what_llama_keeps_is_fetched_by_its_bytes_and_stopped_by_name(wire):
    asked = wire.generation("llama.cpp-messages@http://h:1", strategies=("replay",))
    assert wire.begin(asked).headers["x-conversation-id"] == "h1"
    continuation = wire.go_on(asked, "replay", Received(offset=99))
    assert continuation.call.url == "http://h:1/v1/stream?conv_id=h1&from=99"
    assert continuation.keeps == "body"
    [call] = wire.leave(asked, Received())
    assert call.method == "DELETE"
    unkept = wire.generation("llama.cpp-messages@http://h:1")
    assert wire.leave(unkept, Received()) == []
    assert wire.leave(wire.generation("anthropic:m"), Received()) == []
