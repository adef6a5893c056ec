"""LM Studio's own API: every event, and the one way in which an answer goes on."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream._dialects import find
from midstream._dialects.base import Received, Reply
from midstream._dialects.lmstudio import CONTINUE, INTERRUPTED
from midstream._values.errors import (
    BadRequest,
    NotFound,
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
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream._values.interruptions import ResumeUnsupported
from midstream._values.usage import Usage

NAME = "lmstudio-native"
START = {"type": "chat.start", "model_instance_id": "gemma"}
STATS = {
    "input_tokens": 9,
    "total_output_tokens": 5,
    "reasoning_output_tokens": 2,
    "tokens_per_second": 43.7,
}


def message(text):
    return {"type": "message.delta", "content": text}


def ended(**result):
    return {"type": "chat.end", "result": result}


# -- reading -------------------------------------------------------------------------


def test_an_answer_with_loading_reasoning_and_usage(wire):
    said = wire.said(
        NAME,
        START,
        {"type": "model_load.progress", "progress": 0.5},
        {"type": "prompt_processing.progress", "progress": 0.5},
        {"type": "reasoning.start"},
        {"type": "reasoning.delta", "content": "hm"},
        {"type": "reasoning.delta", "content": ""},
        {"type": "reasoning.end"},
        {"type": "message.start"},
        message("Y"),
        message(""),
        message("es"),
        {"type": "message.end"},
        ended(model_instance_id="gemma", stats=STATS, response_id="resp_1"),
    )
    assert said == [
        Started(None, "gemma"),
        ReasoningDelta("hm"),
        TextDelta("Y"),
        TextDelta("es"),
        Started("resp_1", "gemma"),
        Finish(None),
        UsageReport(Usage(9, 5, 2)),
        End(),
    ]


def test_an_end_with_nothing_in_it_makes_nothing_up(wire):
    assert wire.said(NAME, {"type": "chat.end"}) == [Finish(None), End()]


def test_tools_that_the_server_runs_are_no_calls(wire):
    tool = {"tool": "model_search", "provider_info": {"type": "plugin"}}
    said = wire.said(
        NAME,
        {"type": "tool_call.start", **tool},
        {"type": "tool_call.arguments", "arguments": {"limit": 1}, **tool},
        {"type": "tool_call.success", "output": "x", **tool},
        {"type": "tool_call.failure", "reason": "no such tool"},
        message("Found."),
    )
    assert said == [TextDelta("Found.")]


@pytest.mark.parametrize(
    ("kind", "cls", "retryable"),
    [
        ("invalid_request", BadRequest, False),
        ("not_implemented", BadRequest, False),
        ("model_not_found", NotFound, False),
        ("job_not_found", NotFound, False),
        ("internal_error", ServerFailed, True),
        ("mcp_connection_error", ServerFailed, True),
        ("unknown", ServerFailed, True),
    ],
)
def test_an_error_counts_and_not_the_end_after_it(wire, kind, cls, retryable):
    error = {"type": kind, "message": "m", "code": "some_detail", "param": None}
    said = wire.said(
        NAME, message("Hi"), {"type": "error", "error": error}, ended(stats=STATS)
    )
    meaning = wire.meaning(said)
    assert meaning.text == "Hi"
    assert meaning.failure == (cls, "m", retryable)
    assert not meaning.ended


def test_a_body_that_ends_in_mid_answer_ends_nothing(wire):
    assert wire.said(NAME, START, message("a")) == [
        Started(None, "gemma"),
        TextDelta("a"),
    ]


def test_refusals_before_the_stream():
    content = (
        b'{"error":{"type":"invalid_request","message":"\\"model\\" is required"}}'
    )
    error = find(NAME).error(Reply(400, {}, content))
    assert (type(error), error.message) == (BadRequest, '"model" is required')


def test_characters_cut_in_any_way_come_whole(wire):
    text = "日本語👩‍👩‍👧e\u0301"
    records = [*map(message, text), ended(stats=STATS)]
    raw = [json.dumps(r, ensure_ascii=False).encode() for r in records]
    body = b"".join(b"event: x\ndata: " + data + b"\n\n" for data in raw)
    whole = wire.signals(NAME, body)
    assert wire.meaning(whole).text == text
    assert wire.signals(NAME, body, range(1, len(body))) == whole


# -- writing -------------------------------------------------------------------------

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
sides = st.one_of(st.builds(TextDelta, words), st.builds(ReasoningDelta, words))
counts = st.integers(0, 10_000)


@settings(deadline=None)
@given(st.lists(sides, max_size=8), st.builds(Usage, counts, counts, counts), st.data())
def test_what_is_written_is_read_the_same(wire, said, usage, data):
    begin = Started(None, "gemma")
    events = [begin, *said, Started("resp_9"), Finish(None), UsageReport(usage), End()]
    body = wire.written(NAME, events)
    assert body.count(b"event: chat.start") == 1
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    assert wire.meaning(wire.signals(NAME, body, cuts)) == wire.meaning(events)


def test_what_lm_studio_has_no_words_for(wire):
    events = [
        RefusalDelta("No."),
        ReasoningDelta("", tokens=0, signature="c2ln"),
        ToolCallDelta(0, "t", "f", "{}"),
        Finish("stop", "stop"),
        End(),
    ]
    said = wire.meaning(wire.signals(NAME, wire.written(NAME, events)))
    assert (said.text, said.calls, said.signatures) == ("No.", [], [])
    assert (said.finish, said.usage) == ((None, None), None)


def test_failures_are_written_as_errors(wire):
    for error, cls in [
        (ServerError("m"), ServerFailed),
        (BadRequest("m", type="invalid_request"), BadRequest),
    ]:
        said = wire.signals(NAME, wire.written(NAME, [Failure(error)]))
        assert type(said[0].error) is cls


# -- asking --------------------------------------------------------------------------


def test_parameters_go_by_their_own_names(wire):
    prompt = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
    ]
    asked = wire.generation(
        f"{NAME}:gemma",
        prompt,
        max_tokens=5,
        temperature=0,
        top_p=0.5,
        seed=7,
        extra={"store": False},
    )
    call = wire.begin(asked)
    assert call.url == "http://localhost:1234/api/v1/chat"
    assert wire.body(call) == {
        "model": "gemma",
        "input": "Hi",
        "system_prompt": "Be brief.\n\nBe kind.",
        "stream": True,
        "max_output_tokens": 5,
        "temperature": 0,
        "top_p": 0.5,
        "store": False,
    }


@pytest.mark.parametrize(
    ("prompt", "how", "words"),
    [
        ("Hi", {"stop": "END"}, "stop"),
        ("Hi", {"tools": [{"name": "f"}]}, "tools"),
        ([{"role": "assistant", "content": "Hi"}], {}, "one user"),
        ([{"role": "user", "content": "a"}] * 2, {}, "one user"),
        (
            [
                {"role": "system", "content": [{"type": "text", "text": "x"}]},
                {"role": "user", "content": "a"},
            ],
            {},
            "one user",
        ),
    ],
)
def test_what_the_api_cannot_say_is_refused(wire, prompt, how, words):
    with pytest.raises(UsageError, match=words):
        wire.begin(wire.generation(f"{NAME}:gemma", prompt, **how))


def test_a_model_is_needed(wire):
    with pytest.raises(UsageError, match="model"):
        wire.begin(wire.generation(NAME))


def test_asking_is_part_of_the_turn(wire):
    asked = wire.generation(f"{NAME}:gemma", max_tokens=9)
    continuation = wire.go_on(asked, "ask", Received(text="Hello wo", left=7))
    body = wire.body(continuation.call)
    assert body["input"] == f"Hi{INTERRUPTED}Hello wo{CONTINUE}"
    assert body["max_output_tokens"] == 7
    assert (continuation.sent, continuation.echo) == ("Hello wo", "tail")
    image = {"type": "image", "data_url": "data:image/png;base64,AA=="}
    asked = wire.generation(f"{NAME}:gemma", [{"role": "user", "content": [image]}])
    body = wire.body(wire.go_on(asked, "ask", Received(text="a")).call)
    plea = f"{INTERRUPTED}a{CONTINUE}"
    assert body["input"] == [image, {"type": "message", "content": plea}]
    nothing = wire.go_on(asked, "ask", Received(reasoning="hm"))
    assert wire.body(nothing.call)["input"] == [image]


def test_no_prefix_is_continued(wire):
    with pytest.raises(ResumeUnsupported):
        wire.go_on(wire.generation(f"{NAME}:m"), "text", Received(text="a"))
