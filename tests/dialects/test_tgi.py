"""TGI's own route: tokens, the whole text at the end, and errors with status 200."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._dialects import find
from midstream._dialects.base import Received, Reply
from midstream._values.errors import (
    BadRequest,
    ContextOverflow,
    Overloaded,
    ServerError,
    ServerFailed,
    UsageError,
)
from midstream._values.events import (
    End,
    Failure,
    Finish,
    ReasoningDelta,
    TextDelta,
    UsageReport,
)
from midstream._values.usage import Usage


def token(text, id_=7, **fields):
    special = fields.pop("special", False)
    logprob = fields.pop("logprob", None)
    said = {"id": id_, "text": text, "logprob": logprob, "special": special}
    return {"index": 1, "token": said, "generated_text": None, "details": None} | fields


def details(reason="eos_token", **more):
    return {"finish_reason": reason, "generated_tokens": 3, "input_length": 5} | more


# -- reading -------------------------------------------------------------------------


def test_tokens_inside_a_character_are_empty_and_count(wire):
    end = token("</s>", 2, special=True, generated_text="我很", details=details())
    said = wire.said(
        "tgi", token("我", 1), token("", 3), token("", 4), token("很", 5), end
    )
    assert said == [
        TextDelta("我", 0, 1, (1,)),
        TextDelta("", 0, 1, (3,)),
        TextDelta("", 0, 1, (4,)),
        TextDelta("很", 0, 1, (5,)),
        TextDelta("", 0, 1, (2,)),
        Finish("stop", "eos_token"),
        UsageReport(Usage(5, 3)),
        End(),
    ]


def test_no_space_after_the_colon(wire):
    body = b"data:" + json.dumps(token("a")).encode() + b"\n\n:\n\ndata:[DONE]\n\n"
    assert wire.signals("tgi", body) == [TextDelta("a", 0, 1, (7,))]


def test_what_a_limit_cut_off_is_in_the_whole_text(wire):
    end = token("", 3, generated_text="日\ufffd", details=details("length"))
    said = wire.said("tgi", token("日"), end)
    assert said[1:4] == [
        TextDelta("", 0, 1, (3,)),
        TextDelta("\ufffd", tokens=0),
        Finish("length", "length"),
    ]


@pytest.mark.parametrize("whole", ["Say: ab", "a", "xb and more", ""])
def test_a_whole_text_that_differs_changes_nothing(wire, whole):
    end = token("b", generated_text=whole)
    said = wire.said("tgi", token("a"), end)
    assert wire.meaning(said).text == "ab"
    assert said[-2:] == [Finish(None), End()]


def test_probabilities(wire):
    top = [{"id": 7, "text": "a", "logprob": -0.1}]
    said = wire.said(
        "tgi", token("a", logprob=-0.1), token("b", logprob=-0.2, top_tokens=top)
    )
    assert [e.logprobs for e in said] == [
        {"logprob": -0.1},
        {"logprob": -0.2, "top_tokens": top},
    ]


def test_a_whole_text_without_a_token(wire):
    said = wire.said("tgi", token("a"), {"generated_text": "ab"})
    assert wire.meaning(said).text == "ab"


def test_a_token_without_an_id(wire):
    assert wire.said("tgi", {"token": {"text": "a"}}) == [TextDelta("a", 0, 1)]


def test_a_body_that_just_ends_has_not_ended(wire):
    assert wire.said("tgi", token("a"))[-1] == TextDelta("a", 0, 1, (7,))


@pytest.mark.parametrize(
    ("message", "kind", "cls"),
    [
        ("Input validation error: `seed` must be > 0", "validation", BadRequest),
        (
            "`inputs` tokens + `max_new_tokens` must be <= 40. Given: 9 and 99",
            "validation",
            ContextOverflow,
        ),
        (
            "`inputs` must have less than 1024 tokens. Given: 2000",
            "validation",
            ContextOverflow,
        ),
        ("Model is overloaded", "overloaded", Overloaded),
        ("Request failed during generation", "generation", ServerFailed),
        ("Incomplete generation stream", "incomplete_generation_stream", ServerFailed),
    ],
)
@pytest.mark.parametrize("status", [200, 422])
def test_errors_are_classed_by_their_type(wire, message, kind, cls, status):
    fault = {"error": message, "error_type": kind}
    if status == 200:
        *before, failure = wire.said("tgi", token("a"), fault)
        assert wire.meaning(before).text == "a"
        error = failure.error
    else:
        error = find("tgi").error(Reply(status, {}, json.dumps(fault).encode()))
    assert type(error) is cls
    assert (error.message, error.type) == (message, kind)
    assert error.retryable == (cls in (Overloaded, ServerFailed))


# -- asking and continuing -----------------------------------------------------------


def test_the_request(wire):
    call = wire.begin(
        wire.generation(
            "tgi@http://h/v1/",
            max_tokens=9,
            temperature=0.5,
            top_p=0.5,
            stop="x",
            seed=7,
            extra={"parameters": {"top_k": 3}},
        )
    )
    assert call.url == "http://h/generate_stream"
    assert wire.body(call) == {
        "inputs": "Hi",
        "parameters": {
            "details": True,
            "max_new_tokens": 9,
            "temperature": 0.5,
            "top_p": 0.5,
            "stop": ["x"],
            "seed": 7,
            "top_k": 3,
        },
    }


def test_values_that_mean_off_are_refused_by_the_server_and_not_sent(wire):
    call = wire.begin(wire.generation("tgi", temperature=0, top_p=1))
    assert wire.body(call)["parameters"] == {"details": True}


def test_a_continuation_is_prompt_and_text(wire):
    received = Received(text="One \n", tokens=2, left=7)
    going = wire.go_on(wire.generation("tgi", max_tokens=9), "text", received)
    assert (going.sent, going.echo) == ("One \n", "none")
    assert wire.body(going.call)["inputs"] == "HiOne \n"
    assert wire.body(going.call)["parameters"]["max_new_tokens"] == 7


def test_what_it_cannot_say(wire):
    with pytest.raises(UsageError, match="use tgi-chat"):
        wire.begin(wire.generation("tgi", tools=[{}]))
    with pytest.raises(UsageError, match="template"):
        wire.begin(wire.generation("tgi", [{"role": "user", "content": "Hi"}]))


def test_a_grammar_is_not_continued(wire):
    def why(parameters):
        extra = {"parameters": parameters}
        return find("tgi").no_prefix(wire.generation("tgi", extra=extra).request)

    assert "grammar" in why({"grammar": {"type": "json"}})
    assert why({}) is None


# -- writing -------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
DELTAS = st.builds(
    TextDelta,
    TEXTS,
    tokens=st.integers(1, 3),
    logprobs=st.none() | st.just({"logprob": -0.5, "top_tokens": [1]}),
)


@given(st.lists(DELTAS, max_size=5), st.data())
def test_what_is_written_is_read(wire, deltas, data):
    tokens = sum(delta.tokens for delta in deltas)
    said = [*deltas, Finish("stop", "eos_token"), UsageReport(Usage(5, tokens)), End()]
    body = wire.written("tgi", said)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    read = wire.signals("tgi", body, cuts)
    meaning = wire.meaning(read)
    meaning.logprobs.remove({"logprob": 0.0})  # of the token that ends it
    assert meaning == wire.meaning(said)
    counted = [e.tokens for e in read if isinstance(e, TextDelta)]
    assert sum(counted) == tokens + 1


def test_ids_are_written_where_they_are_known(wire):
    said = [TextDelta("a", 0, 3, (5, 6, 7)), TextDelta("b", 0, None, (8,))]
    read = wire.signals("tgi", wire.written("tgi", said))
    assert [e.token_ids for e in read] == [(5,), (6,), (7,), (8,)]


def test_reasons_in_tgis_words(wire):
    for finish, word in (
        (Finish("stop", "stop"), "eos_token"),
        (Finish("length"), "length"),
    ):
        read = wire.signals("tgi", wire.written("tgi", [finish, End()]))
        assert [e.raw for e in read if isinstance(e, Finish)] == [word]


def test_errors_and_what_has_no_place(wire):
    failing = [ReasoningDelta("hm"), Failure(ServerError("gone"))]
    [failure] = wire.signals("tgi", wire.written("tgi", failing))
    assert type(failure.error) is ServerFailed
