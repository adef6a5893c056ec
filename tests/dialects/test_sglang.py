"""SGLang's own route: cumulative or not, ids that run ahead, errors before [DONE]."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._dialects import find
from midstream._dialects.base import Received, Reply
from midstream._values.endpoint import Endpoint
from midstream._values.errors import (
    BadRequest,
    Overloaded,
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
    Started,
    TextDelta,
    UsageReport,
)
from midstream._values.interruptions import ResumeUnsupported
from midstream._values.usage import Usage


def so_far(text, ids=(), count=None, reason=None, **more):
    meta = {"id": "r1", "finish_reason": reason, "prompt_tokens": 5}
    meta |= {"completion_tokens": len(ids) if count is None else count}
    return {"text": text, "output_ids": list(ids), "meta_info": meta | more}


STOP = {"type": "stop", "matched": 2}
DONE = b"[DONE]"


# -- reading -------------------------------------------------------------------------


def test_texts_are_all_so_far(wire):
    said = wire.said(
        "sglang",
        so_far("I", [1]),
        so_far("I like", [1, 2]),
        so_far("I like tea", [1, 2, 3, 4]),  # a record was left out
        so_far("I like tea", [1, 2, 3, 4], reason=STOP, cached_tokens=3),
        DONE,
    )
    assert said == [
        Started("r1"),
        TextDelta("I", 0, 1, (1,)),
        TextDelta(" like", 0, 1, (2,)),
        TextDelta(" tea", 0, 2, (3, 4)),
        Finish("stop", "stop"),
        UsageReport(Usage(5, 4, None, 3)),
        End(),
    ]


def test_texts_are_what_is_new_where_the_count_says_so(wire):
    said = wire.said(
        "sglang",
        so_far("ha", [1]),
        so_far("ha", [1], 2),
        so_far("ha", [1], 3, {"type": "length", "length": 3}),
        DONE,
    )
    assert said[1:] == [
        *[TextDelta("ha", 0, 1, (1,))] * 3,
        Finish("length", "length"),
        UsageReport(Usage(5, 3)),
        End(),
    ]


@pytest.mark.parametrize(("mode", "text"), [("delta", "haha"), ("cumulative", "ha")])
def test_the_endpoint_may_say_which(wire, mode, text):
    endpoint = Endpoint("sglang", base_url="http://h", text=mode)
    records = [so_far("ha", []), so_far("ha", [])]
    body = b"".join(b"data: " + json.dumps(r).encode() + b"\n\n" for r in records)
    said = wire.signals("sglang", body, generation=wire.generation(endpoint))
    assert wire.meaning(said).text == text


def test_ids_of_half_a_character_come_before_it(wire):
    said = wire.said("sglang", so_far("", [1]), so_far("日", [1, 2]))
    assert said[1:] == [TextDelta("", 0, 1, (1,)), TextDelta("日", 0, 1, (2,))]


def test_a_stop_string_that_was_cut_off_is_nothing_new(wire):
    said = wire.said(
        "sglang", so_far("a ST", [1, 2]), so_far("a ", [1, 2], reason=STOP)
    )
    assert wire.meaning(said).text == "a ST"
    assert wire.meaning(said).finish == ("stop", "stop")


def test_half_a_character_at_the_end_is_given_out(wire):
    ended = so_far("a\ufffd", [1, 2], reason={"type": "length"})
    said = wire.said("sglang", so_far("a", [1]), ended)
    assert wire.meaning(said).text == "a\ufffd"


def test_a_text_that_is_taken_back_is_no_answer(wire):
    [*_, failure] = wire.said("sglang", so_far("ab", [1]), so_far("ax", [1, 2]))
    assert isinstance(failure.error, WireError)


def test_what_may_be_missing(wire):
    assert wire.said("sglang", {"text": "a"}) == [Started(), TextDelta("a", 0, 0)]
    bare = {"text": None, "meta_info": {"finish_reason": "length"}}
    assert wire.said("sglang", bare) == [Started(), Finish("length", "length")]


def test_probabilities_and_prompt_ids(wire):
    told = so_far("a", [1], output_token_logprobs=[[-0.1, 1, "a"]])
    started, delta = wire.said("sglang", told | {"prompt_token_ids": [8, 9]})
    assert started.prompt_ids == (8, 9)
    assert delta.logprobs == [[-0.1, 1, "a"]]


def fault(**fields):
    return {"error": {"message": "no", "type": "t", "code": 400, **fields}}


@pytest.mark.parametrize(
    ("record", "cls", "retryable"),
    [
        (fault(type="invalid_request_error", retryable=False), BadRequest, False),
        (fault(code=503, retryable=True), Overloaded, True),
        (fault(code=500, retryable=False), ServerFailed, False),
        (
            so_far("ab", [1], reason={"type": "abort", "message": "no"}),
            ServerFailed,
            True,
        ),
        (
            so_far(
                "ab",
                [1],
                reason={"type": "abort", "message": "no", "status_code": 400},
            ),
            BadRequest,
            False,
        ),
        (
            so_far(
                "ab",
                [1],
                reason={"type": "abort", "message": "no", "status_code": 503},
            ),
            Overloaded,
            True,
        ),
    ],
)
def test_an_error_and_then_done_is_no_end(wire, record, cls, retryable):
    said = wire.said("sglang", so_far("ab", [1]), record, DONE)
    failure = said[-1]
    assert wire.meaning(said).text == "ab"
    assert End() not in said
    assert type(failure.error) is cls
    assert failure.error.retryable is retryable


def test_a_body_that_just_ends_has_not_ended(wire):
    assert wire.said("sglang", so_far("a", [1]))[-1] == TextDelta("a", 0, 1, (1,))


# -- asking --------------------------------------------------------------------------


def test_the_request(wire):
    call = wire.begin(
        wire.generation(
            "sglang@http://h/v1",
            max_tokens=9,
            temperature=0,
            top_p=0.5,
            stop="x",
            seed=7,
            extra={"sampling_params": {"top_k": 3}, "return_logprob": True},
        )
    )
    assert call.url == "http://h/generate"
    assert wire.body(call) == {
        "text": "Hi",
        "sampling_params": {
            "max_new_tokens": 9,
            "temperature": 0.0,
            "top_p": 0.5,
            "stop": ["x"],
            "sampling_seed": 7,
            "top_k": 3,
        },
        "stream": True,
        "return_logprob": True,
    }
    with pytest.raises(UsageError, match="use sglang-chat"):
        wire.begin(wire.generation("sglang", tools=[{}]))


def test_a_grammar_is_not_continued(wire):
    def why(**extra):
        return find("sglang").no_prefix(wire.generation("sglang", extra=extra).request)

    assert "regex" in why(sampling_params={"regex": "a+"})
    assert why(sampling_params={"top_k": 1}) is None
    assert "json_schema" in why(json_schema={})


# -- continuing ----------------------------------------------------------------------


def answers(document, status=200):
    return Reply(status, {}, json.dumps(document).encode())


def continued(wire, received, *replies, **asked):
    generation = wire.generation("sglang:m@http://h", **asked)
    flow = find("sglang").continuation(generation, "tokens", received)
    return wire.run(flow, *replies)


RECEIVED = Received(text="One two", tokens=2, left=7, token_ids=[1, 2])


def test_ids_after_ids(wire):
    prompt, spelled = answers({"tokens": [8, 9]}), answers({"text": "One two"})
    calls, going = continued(wire, RECEIVED, prompt, spelled, max_tokens=9)
    assert [call.url for call in calls] == [
        "http://h/v1/tokenize",
        "http://h/v1/detokenize",
    ]
    assert wire.body(calls[0]) == {"model": "m", "prompt": "Hi"}
    assert wire.body(calls[1]) == {"model": "m", "tokens": [1, 2]}
    body = wire.body(going.call)
    assert body["input_ids"] == [8, 9, 1, 2]
    assert "text" not in body
    assert body["sampling_params"] == {"max_new_tokens": 7}
    assert (going.sent, going.expect, going.again) == ("One two", "", 0)


def test_prompt_ids_that_the_server_told_are_used(wire):
    received = Received(text="a", tokens=1, token_ids=[1], prompt_ids=[8])
    calls, going = continued(wire, received, answers({"text": "a"}))
    assert len(calls) == 1
    assert wire.body(going.call)["input_ids"] == [8, 1]
    assert wire.body(going.call)["sampling_params"] == {}


def test_ids_that_run_ahead_of_the_text_are_cut_back(wire):
    """The last token held a whole character and half of the next."""
    replies = answers({"tokens": []}), answers({"text": "One tw\ufffd"})
    calls, going = continued(
        wire, RECEIVED, *replies, answers({"text": "One"}), max_tokens=9
    )
    assert wire.body(calls[-1])["tokens"] == [1]
    assert wire.body(going.call)["input_ids"] == [1]
    assert wire.body(going.call)["sampling_params"] == {"max_new_tokens": 8}
    assert (going.sent, going.expect, going.again) == ("One", " two", 1)


@pytest.mark.parametrize(
    ("received", "replies", "why"),
    [
        (Received(text="ab", tokens=2, token_ids=[1]), (), "not all ids"),
        (Received(text="ab", tokens=2, token_ids=[1, -1]), (), "not all ids"),
        (RECEIVED, (answers({"detail": "Not Found"}, 404),), "tokenize: Not Found"),
        (RECEIVED, (answers({"tokens": [8]}), *[answers({"text": "x"})] * 2), "spell"),
    ],
)
def test_where_ids_do_not_help(wire, received, replies, why):
    with pytest.raises(ResumeUnsupported, match=why):
        continued(wire, received, *replies)


def test_a_busy_tokenizer_is_no_reason_to_give_up(wire):
    with pytest.raises(Overloaded):
        continued(wire, RECEIVED, answers({"detail": "busy"}, 503))


def test_text_after_text(wire):
    generation = wire.generation("sglang@http://h", max_tokens=9)
    going = wire.go_on(generation, "text", RECEIVED)
    assert going.sent == "One two"
    body = wire.body(going.call)
    assert body["text"] == "HiOne two"
    assert body["sampling_params"] == {"max_new_tokens": 7}


# -- writing -------------------------------------------------------------------------

TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=4
)
DELTAS = st.builds(TextDelta, TEXTS, token_ids=st.tuples(st.integers(0, 9)))


@given(st.lists(DELTAS, max_size=5), st.none() | st.just((8, 9)), st.data())
def test_what_is_written_is_read(wire, deltas, prompt_ids, data):
    begun = Started("r1", prompt_ids=prompt_ids or ())
    usage = Usage(5, len(deltas), 0, 2)
    said = [begun, *deltas, Finish("stop", "stop"), UsageReport(usage), End()]
    body = wire.written("sglang", said)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    read = wire.signals("sglang", body, cuts)
    assert wire.meaning(read) == wire.meaning(said)
    assert read[0] == begun
    ids = [e.token_ids for e in read if isinstance(e, TextDelta)]
    assert sum(ids, ()) == sum((d.token_ids for d in deltas), ())


def test_what_else_is_written(wire):
    bare = [TextDelta("a", tokens=2, logprobs=[1]), ReasoningDelta("hm"), End()]
    read = wire.signals("sglang", wire.written("sglang", bare))
    assert read == [Started("midstream"), TextDelta("a", 0, 2, (), [1]), End()]
    nameless = [Finish(None), End()]
    assert End() in wire.signals("sglang", wire.written("sglang", nameless))
    gone = Failure(ServerError("gone", retryable=True))
    [failure] = wire.signals("sglang", wire.written("sglang", [gone, End()]))
    assert failure.error.retryable
