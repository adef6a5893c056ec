"""Ollama's two routes: lines, ends that are none, prefill and raw prompts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._dialects import find
from midstream._dialects.asking import GO_ON
from midstream._dialects.base import Received, Reply
from midstream._values.endpoint import Endpoint
from midstream._values.errors import (
    BadRequest,
    NotFound,
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
    Resumed,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream._values.interruptions import ResumeUnsupported
from midstream._values.usage import Usage

BOTH = pytest.mark.parametrize("name", ["ollama", "ollama-generate"])


def line(name, text="", *, done=False, thinking=None, **more):
    said = {"content": text} if name == "ollama" else {"response": text}
    said |= {} if thinking is None else {"thinking": thinking}
    if name == "ollama":
        said = {"message": {"role": "assistant", **said}}
    return {"model": "m", "created_at": "now", **said, "done": done, **more}


def said(wire, name, *lines, end=b"\n"):
    body = end.join([*(json.dumps(one).encode() for one in lines), b""])
    return wire.signals(name, body)


# -- reading -------------------------------------------------------------------------


@BOTH
def test_an_answer_with_thinking_and_counts(wire, name):
    counts = {"prompt_eval_count": 5, "eval_count": 3}
    assert said(
        wire,
        name,
        line(name, thinking="hm"),
        line(name, "Y", logprobs=[{"token": "Y", "logprob": -0.1}]),
        line(name, "es"),
        line(name, done=True, done_reason="stop", **counts),
    ) == [
        Started(None, "m"),
        ReasoningDelta("hm"),
        TextDelta("Y", logprobs=[{"token": "Y", "logprob": -0.1}]),
        TextDelta("es"),
        Finish("stop", "stop"),
        UsageReport(Usage(5, 3)),
        End(),
    ]


@BOTH
def test_blank_lines_and_crlf_say_nothing(wire, name):
    lines = line(name, "a"), line(name, "b"), line(name, done=True)
    signals = said(wire, name, *lines, end=b"\r\n\n")
    assert wire.meaning(signals).text == "ab"
    assert signals[-2:] == [Finish(None), End()]


@BOTH
def test_a_reason_without_done_is_an_end(wire, name):
    signals = said(wire, name, line(name, "a"), line(name, done_reason="length"))
    assert signals[-1] == Finish("length", "length")


@BOTH
def test_a_body_that_just_ends_has_not_ended(wire, name):
    assert said(wire, name, line(name, "a"))[-1] == TextDelta("a")


@BOTH
def test_thirty_equal_tokens_and_silence_are_the_repeat_guard(wire, name):
    [*_, failure] = said(wire, name, *[line(name, "ha")] * 30)
    assert isinstance(failure.error, ServerFailed)
    assert not failure.error.retryable
    assert "repeat guard" in failure.error.message
    assert said(wire, name, *[line(name, "ha")] * 29)[-1] == TextDelta("ha")


@BOTH
def test_an_error_is_a_line(wire, name):
    [*before, failure] = said(wire, name, line(name, "a"), {"error": "runner stopped"})
    assert wire.meaning(before).text == "a"
    assert failure.error.message == "runner stopped"
    [failure] = wire.signals(name, b"[]\n")
    assert isinstance(failure.error, WireError)


def test_tool_calls_come_whole(wire):
    calls = [
        {"id": "c1", "function": {"name": "f", "arguments": {"a": "é"}}},
        {"function": {"name": "g"}},
    ]
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    signals = said(wire, "ollama", {"model": "m", "message": message, "done": False})
    assert signals[1:] == [
        ToolCallDelta(0, "c1", "f", '{"a":"é"}', closed=True),
        ToolCallDelta(1, None, "g", "{}", closed=True),
    ]


@pytest.mark.parametrize(
    ("status", "cls"), [(400, BadRequest), (404, NotFound), (500, ServerFailed)]
)
@BOTH
def test_statuses(name, status, cls):
    error = find(name).error(Reply(status, {}, b'{"error":"no"}'))
    assert (type(error), error.message) == (cls, "no")


# -- asking and continuing -----------------------------------------------------------

FULL = {"max_tokens": 9, "temperature": 0, "top_p": 0.5, "stop": "x", "seed": 7}
OPTIONS = {
    "num_predict": 9,
    "temperature": 0.0,
    "top_p": 0.5,
    "stop": ["x"],
    "seed": 7,
    "num_ctx": 64,
}


def test_a_conversation(wire):
    extra = {"options": {"num_ctx": 64}, "keep_alive": "1m"}
    call = wire.begin(wire.generation("ollama:m", **FULL, tools=[{}], extra=extra))
    assert call.url == "http://localhost:11434/api/chat"
    assert wire.body(call) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "options": OPTIONS,
        "tools": [{}],
        "keep_alive": "1m",
    }


def test_an_open_turn_and_the_plea_to_go_on(wire):
    generation = wire.generation("ollama:m", max_tokens=9)
    received = Received(text="One", reasoning="hm", tokens=2, left=7)
    going = wire.go_on(generation, "text", received)
    assert (going.sent, going.echo) == ("One", "none")
    body = wire.body(going.call)
    last = {"role": "assistant", "content": "One", "thinking": "hm"}
    assert body["messages"][-1] == last
    assert body["options"] == {"num_predict": 7}
    going = wire.go_on(generation, "ask", received)
    assert going.echo == "tail"
    assert wire.body(going.call)["messages"][1:] == [
        {"role": "assistant", "content": "One"},
        {"role": "user", "content": GO_ON},
    ]
    refusal = BadRequest("the model does not support prefill")
    assert find("ollama").refuses("text", refusal)
    assert not find("ollama").refuses("ask", refusal)


def test_a_prompt_for_the_template(wire):
    extra = {"options": {"num_ctx": 64}, "system": "Be brief."}
    call = wire.begin(wire.generation("ollama-generate:m", **FULL, extra=extra))
    assert call.url == "http://localhost:11434/api/generate"
    assert wire.body(call) == {
        "model": "m",
        "prompt": "Hi",
        "stream": True,
        "options": OPTIONS,
        "system": "Be brief.",
    }


@BOTH
def test_a_base_url_may_end_in_v1(wire, name):
    call = wire.begin(wire.generation(f"{name}:m@http://h/v1"))
    assert call.url.startswith("http://h/api/")


@BOTH
def test_a_model_is_needed(wire, name):
    with pytest.raises(UsageError, match="Ollama needs a model"):
        wire.begin(wire.generation(name))


def test_what_generate_cannot_say(wire):
    with pytest.raises(UsageError, match="use ollama"):
        wire.begin(wire.generation("ollama-generate:m", tools=[{}]))
    messages = [{"role": "user", "content": "Hi"}]
    with pytest.raises(UsageError, match="template"):
        wire.begin(wire.generation("ollama-generate:m", messages))


RECEIVED = Received(text=" one \n", tokens=2, left=7)


def go_on(wire, generation, *replies, received=RECEIVED):
    flow = find("ollama-generate").continuation(generation, "text", received)
    return wire.run(flow, *replies)


def rendered(text):
    document = {"model": "m", "_debug_info": {"rendered_template": text}}
    return Reply(200, {}, json.dumps(document).encode())


def test_the_server_tells_what_its_template_makes_of_a_prompt(wire):
    extra = {"system": "Be brief.", "think": False, "options": {"num_ctx": 64}}
    generation = wire.generation("ollama-generate:m", max_tokens=9, extra=extra)
    [asked], going = go_on(wire, generation, rendered("<user>Hi<model>"))
    assert wire.body(asked) == {
        "model": "m",
        "prompt": "Hi",
        "stream": False,
        "options": {"num_predict": 1, "num_ctx": 64},
        "_debug_render_only": True,
        "system": "Be brief.",
        "think": False,
    }
    assert wire.body(going.call) == {
        "model": "m",
        "prompt": "<user>Hi<model> one \n",
        "raw": True,
        "stream": True,
        "options": {"num_predict": 7, "num_ctx": 64},
    }
    assert going.sent == " one \n"


def test_a_server_that_does_not_tell(wire):
    generation = wire.generation("ollama-generate:m")
    with pytest.raises(ResumeUnsupported, match=r"Endpoint\(template=…\)"):
        go_on(wire, generation, Reply(200, {}, b'{"response": "x"}'))
    with pytest.raises(ServerError, match="no"):
        go_on(wire, generation, Reply(500, {}, b'{"error": "no"}'))


def test_a_raw_prompt_goes_on_as_it_is(wire):
    generation = wire.generation("ollama-generate:m", extra={"raw": True})
    calls, going = go_on(wire, generation)
    assert calls == []
    assert wire.body(going.call)["prompt"] == "Hi one \n"
    assert wire.body(going.call)["raw"] is True


@pytest.mark.parametrize("prompt", ["Hi", [{"role": "user", "content": "Hi"}]])
def test_a_template_renders_here(wire, prompt):
    endpoint = Endpoint(
        "ollama-generate",
        model="m",
        base_url="http://h",
        template=lambda turns: f"<{turns[0].content}>",
    )
    generation = wire.generation(endpoint, prompt)
    begun = wire.body(wire.begin(generation))
    if prompt != "Hi":
        assert (begun["prompt"], begun["raw"]) == ("<Hi>", True)
    calls, going = go_on(wire, generation)
    assert calls == []
    assert wire.body(going.call)["prompt"] == "<Hi> one \n"


def test_thinking_has_no_place_in_a_raw_prompt(wire):
    with pytest.raises(ResumeUnsupported, match="thinking"):
        go_on(
            wire,
            wire.generation("ollama-generate:m"),
            received=Received(text="a", reasoning="hm"),
        )


# -- writing -------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
DELTAS = st.lists(st.builds(TextDelta, TEXTS) | st.builds(ReasoningDelta, TEXTS))


@given(st.sampled_from(["ollama", "ollama-generate"]), DELTAS, st.booleans(), st.data())
def test_what_is_written_is_read(wire, name, deltas, calls, data):
    told = [Started(None, "m"), *deltas]
    if calls and name == "ollama":
        told += [
            ToolCallDelta(0, "c1", "f", '{"a"'),
            ToolCallDelta(0, arguments=":1}"),
            ToolCallDelta(1, None, "g", "{}", closed=True),
        ]
    told += [Finish("stop", "stop"), UsageReport(Usage(5, 3)), End()]
    body = wire.written(name, told)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    want = wire.meaning(told)
    for call in want.calls:
        call.complete = True
    assert wire.meaning(wire.signals(name, body, cuts)) == want


@BOTH
def test_errors_bare_ends_and_what_has_no_place(wire, name):
    told = [Started(), Finish(None), End(), Failure(ServerError("gone"))]
    records = wire.written(name, told).splitlines()
    assert json.loads(records[0])["done"] is True
    assert "done_reason" not in json.loads(records[0])
    assert json.loads(records[1]) == {"error": "gone"}
    assert wire.written(name, [Resumed(None)]) == b""
