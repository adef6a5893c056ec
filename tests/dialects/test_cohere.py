"""Cohere chat: every event, and the one way in which an answer goes on."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream._dialects import find
from midstream._dialects.asking import GO_ON
from midstream._dialects.base import Received, Reply
from midstream._values.errors import (
    AuthenticationFailed,
    BadRequest,
    RateLimited,
    ServerError,
    ServerFailed,
    UsageError,
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

START = {"type": "message-start", "id": "c1", "delta": {"message": {"role": "a"}}}
USAGE = {
    "billed_units": {"input_tokens": 5.0, "output_tokens": 3.0},
    "tokens": {"input_tokens": 70.0, "output_tokens": 4.0},
    "cached_tokens": 64.0,
}


def content(index=0, kind="content-delta", **fields):
    return {"type": kind, "index": index, "delta": {"message": {"content": fields}}}


def call(index, kind="tool-call-delta", arguments="", **fields):
    function = {"arguments": arguments}
    if "name" in fields:
        function["name"] = fields.pop("name")
    message = {"tool_calls": {**fields, "function": function}}
    return {"type": kind, "index": index, "delta": {"message": message}}


def ended(reason="COMPLETE", **fields):
    return {"type": "message-end", "delta": {"finish_reason": reason, **fields}}


# -- reading -------------------------------------------------------------------------


def test_an_answer_with_thinking_and_usage(wire):
    said = wire.said(
        "cohere",
        START,
        content(0, "content-start", type="thinking", thinking=""),
        content(0, thinking="hm"),
        {"type": "content-end", "index": 0},
        content(1, "content-start", type="text", text="Y"),
        content(1, text="es"),
        {"type": "citation-start", "delta": {"message": {"citations": {}}}},
        {"type": "citation-end"},
        {"type": "content-end", "index": 1},
        ended(usage=USAGE),
        b"[DONE]",
    )
    assert said == [
        Started("c1"),
        ReasoningDelta("hm"),
        TextDelta("Y"),
        TextDelta("es"),
        Finish("stop", "COMPLETE"),
        UsageReport(Usage(70, 4, None, 64)),
        End(),
    ]


def test_what_is_billed_stands_in_for_what_is_counted(wire):
    usage = {"billed_units": {"input_tokens": 5, "output_tokens": 3}}
    assert wire.meaning(wire.said("cohere", ended(usage=usage))).usage == Usage(5, 3)
    assert wire.meaning(wire.said("cohere", ended(usage={}))).usage is None


def test_probabilities_and_ids(wire):
    logprobs = {"text": "ab", "token_ids": [7, 8], "logprobs": [-0.1, -0.2]}
    said = wire.said("cohere", {**content(text="ab"), "logprobs": logprobs})
    assert said == [TextDelta("ab", 0, 2, (7, 8), logprobs)]


def test_tool_calls_after_a_plan(wire):
    plan = {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "I look."}}}
    said = wire.said(
        "cohere",
        plan,
        {**plan, "delta": {"message": {"tool_plan": ""}}},
        call(0, "tool-call-start", id="t1", name="f"),
        call(0, arguments='{"a"'),
        call(0, arguments=":1}"),
        {"type": "tool-call-end", "index": 0},
        call(1, "tool-call-start", id="t2", name="g", arguments="{}"),
        {"type": "tool-call-end", "index": 1},
        ended("TOOL_CALL"),
    )
    assert said[0] == ReasoningDelta("I look.")
    calls = wire.meaning(said).calls
    assert [(c.id, c.name, c.arguments, c.complete) for c in calls] == [
        ("t1", "f", '{"a":1}', True),
        ("t2", "g", "{}", True),
    ]
    assert said[-2:] == [Finish("tool_calls", "TOOL_CALL"), End()]


def test_a_call_that_a_limit_cut_is_never_whole(wire):
    said = wire.said(
        "cohere",
        call(0, "tool-call-start", id="t", name="f", arguments='{"a'),
        {"type": "tool-call-end", "index": 0},
        ended("MAX_TOKENS"),
    )
    assert not wire.meaning(said).calls[0].complete


@pytest.mark.parametrize(
    ("raw", "reason"),
    [("COMPLETE", "stop"), ("STOP_SEQUENCE", "stop"), ("MAX_TOKENS", "length")],
)
def test_finish_reasons(wire, raw, reason):
    assert wire.said("cohere", ended(raw)) == [Finish(reason, raw), End()]


@pytest.mark.parametrize("raw", ["ERROR", "TIMEOUT"])
def test_an_end_that_is_a_failure(wire, raw):
    [text, failure] = wire.said("cohere", content(text="Hi"), ended(raw, error="gone"))
    assert text == TextDelta("Hi")
    assert type(failure.error) is ServerFailed
    assert (failure.error.message, failure.error.type) == ("gone", raw)
    assert failure.error.retryable
    [failure] = wire.said("cohere", ended(raw))
    assert raw in failure.error.message


def test_an_end_without_a_reason_makes_none_up(wire):
    assert wire.said("cohere", ended(None)) == [Finish(None), End()]
    assert wire.said("cohere", content(text="a"), b"[DONE]") == [TextDelta("a"), End()]


def test_a_body_that_ends_in_mid_answer_ends_nothing(wire):
    assert wire.said("cohere", START, content(text="a")) == [
        Started("c1"),
        TextDelta("a"),
    ]


def test_an_error_in_an_events_place(wire):
    [failure] = wire.said("cohere", {"error": {"message": "cap", "code": 429}})
    assert (type(failure.error), failure.error.message) == (RateLimited, "cap")


def test_what_is_unknown_says_nothing(wire):
    said = wire.said(
        "cohere",
        {"type": "debug", "prompt": "x"},
        {"type": "shrug"},
        content(text=""),
        {"type": "content-delta", "delta": None},
        {"type": "content-delta", "delta": {"message": {"content": None}}},
        {},
    )
    assert said == []


@pytest.mark.parametrize(
    ("status", "cls"),
    [(400, BadRequest), (401, AuthenticationFailed), (429, RateLimited)],
)
def test_refusals_are_a_message(status, cls):
    error = find("cohere").error(Reply(status, {}, b'{"id":"x","message":"no"}'))
    assert (type(error), error.message) == (cls, "no")


def test_characters_cut_in_any_way_come_whole(wire):
    text = "日本語👩‍👩‍👧e\u0301"
    records = [content(text=c) for c in text] + [ended()]
    raw = [json.dumps(r, ensure_ascii=False).encode() for r in records]
    body = b"".join(b"data: " + data + b"\n\n" for data in raw)
    whole = wire.signals("cohere", body)
    assert wire.meaning(whole).text == text
    assert wire.signals("cohere", body, range(1, len(body))) == whole


# -- writing -------------------------------------------------------------------------

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
sides = st.one_of(st.builds(TextDelta, words), st.builds(ReasoningDelta, words))
counts = st.integers(0, 10_000)


@st.composite
def answers(draw):
    events = [Started("c9"), *draw(st.lists(sides, max_size=8))]
    finish = draw(
        st.sampled_from([Finish("stop", "COMPLETE"), Finish("length", "MAX_TOKENS")])
    )
    calls = draw(st.lists(words, max_size=3))
    for index, name in enumerate(calls):
        events.append(ToolCallDelta(index, f"t{index}", name))
        pieces = draw(st.lists(words, max_size=3))
        events += [ToolCallDelta(index, arguments=piece) for piece in pieces]
        events.append(ToolCallDelta(index, tokens=0, closed=True))
        finish = Finish("tool_calls", "TOOL_CALL")
    usage = draw(st.builds(Usage, counts, counts, st.none(), st.none() | counts))
    return [*events, finish, UsageReport(usage), End()]


@settings(deadline=None)
@given(answers(), st.data())
def test_what_is_written_is_read_the_same(wire, events, data):
    body = wire.written("cohere", events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    assert wire.meaning(wire.signals("cohere", body, cuts)) == wire.meaning(events)


def test_what_cohere_has_no_words_for(wire):
    logprobs = {"token_ids": [1], "logprobs": [-1.0]}
    events = [
        RefusalDelta("No."),
        ReasoningDelta("", tokens=0, signature="c2ln"),
        TextDelta("a", logprobs=logprobs),
        ToolCallDelta(0, "t", "f", '{"a'),
        Finish("stop", "eos"),
        End(),
    ]
    said = wire.meaning(wire.signals("cohere", wire.written("cohere", events)))
    assert (said.text, said.signatures, said.finish) == (
        "No.a",
        [],
        ("stop", "COMPLETE"),
    )
    assert said.logprobs == [logprobs]
    foreign = wire.written("cohere", [Finish("other", "other"), End()])
    assert wire.signals("cohere", foreign)[0] == Finish("other", "other")
    assert wire.signals("cohere", wire.written("cohere", [End()]))[0] == Finish(None)


def test_failures_are_written_as_ends(wire):
    for error in ServerError("m"), ServerFailed("m", type="TIMEOUT"):
        body = wire.written("cohere", [Failure(error)])
        [failure] = wire.signals("cohere", body)
        assert failure.error.message == "m"
        assert failure.error.type == (error.type or "ERROR")


def test_a_resumption_leaves_no_trace_on_the_wire():
    resumed = Resumed(Resumption(0, "", "ask", 5, None, 0.0))
    assert find("cohere").writer().write(resumed) == []


# -- asking --------------------------------------------------------------------------


def test_parameters_go_by_their_own_names(wire):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    prompt = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]
    asked = wire.generation(
        "cohere:command-a",
        prompt,
        max_tokens=5,
        temperature=0,
        top_p=0.5,
        stop="END",
        seed=7,
        tools=tools,
        extra={"safety_mode": "OFF"},
    )
    made = wire.begin(asked)
    assert made.url == "https://api.cohere.com/v2/chat"
    assert wire.body(made) == {
        "model": "command-a",
        "messages": prompt,
        "stream": True,
        "max_tokens": 5,
        "temperature": 0,
        "p": 0.5,
        "stop_sequences": ["END"],
        "seed": 7,
        "tools": tools,
        "safety_mode": "OFF",
    }
    with pytest.raises(UsageError, match="model"):
        wire.begin(wire.generation("cohere"))


def test_asking_is_a_turn_of_the_user(wire):
    asked = wire.generation("cohere:command-a", max_tokens=9)
    continuation = wire.go_on(asked, "ask", Received(text="Hello wo", left=7))
    body = wire.body(continuation.call)
    assert body["max_tokens"] == 7
    assert body["messages"][1:] == [
        {"role": "assistant", "content": "Hello wo"},
        {"role": "user", "content": GO_ON},
    ]
    assert (continuation.sent, continuation.echo) == ("Hello wo", "tail")
    nothing = wire.go_on(asked, "ask", Received(reasoning="hm"))
    assert len(wire.body(nothing.call)["messages"]) == 1


def test_no_prefix_is_continued(wire):
    with pytest.raises(ResumeUnsupported):
        wire.go_on(wire.generation("cohere:m"), "text", Received(text="a"))
