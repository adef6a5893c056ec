"""Triton over HTTP: the real server's bytes, its signatures, its errors."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._dialects import find
from midstream._dialects.base import Received, Reply
from midstream._values.endpoint import Endpoint
from midstream._values.errors import (
    BadRequest,
    ContextOverflow,
    NotFound,
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
from midstream._values.usage import Usage


def about(inputs, outputs=("text_output",)):
    """The answer that tells a model's signature."""
    return Reply(
        200,
        {},
        json.dumps(
            {
                "name": "llm",
                "inputs": [
                    {"name": name, "datatype": kind, "shape": [1]}
                    for name, kind in inputs.items()
                ],
                "outputs": [
                    {"name": name, "datatype": "BYTES", "shape": [-1]}
                    for name in outputs
                ],
            }
        ).encode(),
    )


VLLM = about(
    {
        "text_input": "BYTES",
        "stream": "BOOL",
        "sampling_parameters": "BYTES",
        "exclude_input_in_output": "BOOL",
        "return_finish_reason": "BOOL",
    }
)
BLS = about(
    {
        "text_input": "BYTES",
        "max_tokens": "INT32",
        "stream": "BOOL",
        "bad_words": "BYTES",
        "stop_words": "BYTES",
    }
)
OWN = about({"text_input": "BYTES"})
LLM_API = about({"text_input": "BYTES", "sampling_param_max_tokens": "INT32"})
FULL = {"max_tokens": 9, "temperature": 0, "stop": ["a", "b"]}


def ask(wire, generation, *replies):
    return wire.run(find("triton").begin(generation), *replies)


# -- reading -------------------------------------------------------------------------

STREAMS = ["http_generate_stream_8", "http_finish_reason", "http_midstream_error"]


def texts(events):
    return "".join(e.text for e in events if isinstance(e, TextDelta))


@pytest.mark.parametrize("name", STREAMS)
def test_captured_bytes_under_any_split(wire, name):
    status, body = wire.captured(f"triton/{name}.raw")
    assert status == 200
    whole = wire.signals("triton", body)
    for cut in range(1, len(body)):
        assert str(wire.signals("triton", body, [cut])) == str(whole)
    assert str(wire.signals("triton", body, range(1, len(body)))) == str(whole)


def test_half_characters_are_joined(wire):
    _, body = wire.captured("triton/http_generate_stream_8.raw")
    assert b'"text_output":"\xe6"' in body
    said = wire.signals("triton", body)
    assert said[0] == Started("42", "llm")
    assert texts(said) == "東京タワ"
    assert [e.text for e in said if isinstance(e, TextDelta)][:3] == ["", "東", "京"]
    assert said[-1] == End()


def test_a_reason_and_counts(wire):
    _, body = wire.captured("triton/http_finish_reason.raw")
    said = wire.signals("triton", body)
    assert said[-3:] == [
        Finish("length", "length"),
        UsageReport(Usage(None, 3)),
        End(),
    ]
    assert texts(said) == "東京"


def test_a_model_that_gives_reasons_has_not_ended_without_one(wire):
    _, body = wire.captured("triton/http_finish_reason.raw")
    events = body.split(b"\n\n")
    for size in range(1, len(events) - 1):
        cut = b"\n\n".join(events[:size]) + b"\n\n"
        assert End() not in wire.signals("triton", cut)


def test_a_killed_server_leaves_a_text_that_may_go_on(wire):
    _, body = wire.captured("triton/http_sigkill_server.raw")
    said = wire.signals("triton", body)
    assert texts(said).startswith("東京")
    assert "\ufffd" not in texts(said[:-2])


def test_an_error_in_mid_stream(wire):
    _, body = wire.captured("triton/http_midstream_error.raw")
    *before, failure = wire.signals("triton", body)
    assert texts(before).startswith("東京")
    assert type(failure.error) is ServerFailed
    assert "CUDA out of memory" in failure.error.message
    assert not failure.error.retryable


def test_a_reader_without_a_generation():
    assert find("triton").reader().eof() == [End()]


def test_no_token_is_an_answer_too(wire):
    assert wire.signals("triton", b"") == [End()]


def event(**fields):
    return {"model_name": "llm", "model_version": "1", **fields}


def test_several_elements_are_arrays(wire):
    said = wire.said(
        "triton",
        event(text_output=["a", "x"], finish_reason=["None", "None"]),
        event(text_output=["", "y"], finish_reason=["stop", "None"]),
        event(text_output=["", ""], finish_reason=["stop", "length"]),
    )
    assert said == [
        Started(None, "llm"),
        TextDelta("a"),
        TextDelta("x", 1),
        TextDelta("y", 1),
        Finish("stop", "stop"),
        Finish("length", "length", 1),
        End(),
    ]


def test_an_aborted_answer_is_no_end(wire):
    said = wire.said("triton", event(text_output="a", finish_reason="abort"))
    assert isinstance(said[-1], Failure)
    assert said[-1].error.retryable


def test_what_is_no_event(wire):
    [failure] = wire.said("triton", b"[]")
    assert isinstance(failure.error, WireError)


def test_cumulative_texts(wire):
    events = [event(text_output=text) for text in ("ha", "haha\ufffd", "haha東")]
    endpoint = Endpoint("triton", model="m", base_url="http://h", text="cumulative")
    body = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events)
    said = wire.signals("triton", body, generation=wire.generation(endpoint))
    assert texts(said) == "haha東"
    ended = event(text_output="haha\ufffd", finish_reason="stop")
    body = b"data: " + json.dumps(ended).encode() + b"\n\n"
    said = wire.signals("triton", body, generation=wire.generation(endpoint))
    assert texts(said) == "haha\ufffd"


@pytest.mark.parametrize(
    ("signature", "config", "text"),
    [
        (VLLM, None, "hahaha"),
        (LLM_API, None, "haha"),
        (BLS, {"accumulate_tokens": {"string_value": "true"}}, "haha"),
        (BLS, {"accumulate_tokens": {"string_value": "False"}}, "hahaha"),
        (BLS, {}, "hahaha"),
    ],
)
def test_the_model_tells_whether_it_is(wire, signature, config, text):
    generation = wire.generation("triton:llm@http://h")
    told = Reply(200, {}, json.dumps({"parameters": config}).encode())
    calls, _ = ask(wire, generation, signature, told)
    assert len(calls) == (1 if config is None else 2)
    reader = find("triton").reader(generation)
    deltas = [
        delta
        for whole in ("ha", "haha")
        for delta in reader.read(json.dumps(event(text_output=whole)).encode(), "")
    ]
    assert texts(deltas) == text


# -- errors before the stream ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status", "cls"),
    [
        ("http_error_before", 400, BadRequest),
        ("http_missing_input", 400, BadRequest),
        ("http_unknown_model", 404, NotFound),
        ("http_badjson", 500, BadRequest),
    ],
)
def test_captured_errors(wire, name, status, cls):
    found, body = wire.captured(f"triton/{name}.raw")
    assert found == status
    error = find("triton").error(Reply(status, {}, body))
    assert type(error) is cls
    assert not error.retryable
    assert error.status == status


@pytest.mark.parametrize(
    ("status", "words", "cls"),
    [
        (503, "[request id: h0] Exceeds maximum queue size", Overloaded),
        (400, "Stub process 'llm_0_0' is not healthy.", Overloaded),
        (400, "prompt is too long", ContextOverflow),
        (400, "parameter 'stop' has invalid type.", BadRequest),
        (500, "Unable to parse 'data': attempt to access JSON", BadRequest),
        (405, "Method Not Allowed", NotFound),
        (500, "boom", ServerFailed),
    ],
)
def test_the_words_say_more_than_the_status(status, words, cls):
    content = json.dumps({"error": words}).encode()
    error = find("triton").error(Reply(status, {"retry-after": "3"}, content))
    assert (type(error), error.message, error.status) == (cls, words, status)
    assert error.retryable == (cls in (Overloaded, ServerFailed))
    assert error.retry_after == 3


# -- asking --------------------------------------------------------------------------


def test_vllm_gets_its_document_and_no_id(wire):
    generation = wire.generation("triton:llm@http://h/v1", **FULL, extra={"top_k": 5})
    [about_it], call = ask(wire, generation, VLLM)
    assert (about_it.method, about_it.url) == ("GET", "http://h/v2/models/llm")
    assert call.url == "http://h/v2/models/llm/generate_stream"
    document = wire.body(call)
    sampling = json.loads(document.pop("sampling_parameters"))
    assert sampling == {
        "max_tokens": 9,
        "temperature": 0,
        "stop": ["a", "b"],
        "top_k": 5,
    }
    assert document == {
        "text_input": "Hi",
        "stream": True,
        "exclude_input_in_output": True,
        "return_finish_reason": True,
    }


def test_bls_gets_tensors_and_the_rest_as_parameters(wire):
    generation = wire.generation("triton:llm@http://h", **FULL)
    config = Reply(200, {}, b"{}")
    _, call = ask(wire, generation, BLS, config)
    assert wire.body(call) == {
        "text_input": "Hi",
        "stream": True,
        "max_tokens": 9,
        "stop_words": ["a", "b"],
        "parameters": {"temperature": 0.0},
    }


def test_parameters_hold_one_value_each(wire):
    generation = wire.generation("triton:llm@http://h", stop=["a", "b"])
    with pytest.raises(UsageError, match=r"stop=.*no input of this name"):
        ask(wire, generation, OWN)
    one = wire.generation(
        "triton:llm@http://h", stop="a", extra={"parameters": {"x": 1}}
    )
    _, call = ask(wire, one, OWN)
    assert wire.body(call)["parameters"] == {"stop": "a", "x": 1}


def test_the_signature_is_asked_once_and_forgotten_when_it_is_outdated(wire):
    generation = wire.generation("triton:llm@http://h")
    assert len(ask(wire, generation, VLLM)[0]) == 1
    assert len(ask(wire, generation)[0]) == 0
    reader = find("triton").reader(generation)
    reader.read(b'{"error": "Request timeout expired"}', "")
    assert generation.memory
    reader.read(b'{"error": "unexpected inference input \'stream\'"}', "")
    assert not generation.memory


def test_an_unknown_model_is_told_at_once(wire):
    generation = wire.generation("triton:no pe/1@http://h/v2")
    unknown = Reply(404, {}, b'{"error":"Request for unknown model: \'nope\'"}')
    flow = find("triton").begin(generation)
    call = next(flow)
    assert call.url == "http://h/v2/models/no%20pe%2F1"
    with pytest.raises(NotFound):
        flow.send(unknown)


def test_the_key_and_headers(wire):
    endpoint = Endpoint(
        "triton", model="m", base_url="http://h", api_key="k", headers={"X-Team": "a"}
    )
    [about_it], call = ask(wire, wire.generation(endpoint), OWN)
    want = {"authorization": "Bearer k", "x-team": "a"}
    assert about_it.secrets == call.secrets == want


def test_what_it_cannot_say(wire):
    with pytest.raises(UsageError, match='"triton:llm"'):
        ask(wire, wire.generation("triton@http://h"))
    with pytest.raises(UsageError, match="no tools"):
        ask(wire, wire.generation("triton:llm", tools=[{}]))
    with pytest.raises(UsageError, match="template"):
        ask(wire, wire.generation("triton:llm", [{"role": "user", "content": "Hi"}]))
    with pytest.raises(UsageError, match="no text_output"):
        ask(wire, wire.generation("triton:llm"), about({"text_input": "BYTES"}, ()))


def test_a_continuation_appends_the_text_and_counts_down(wire):
    generation = wire.generation("triton:llm@http://h", max_tokens=9)
    received = Received(text=" 東京\n", tokens=4, left=5)
    flow = find("triton").continuation(generation, "text", received)
    _, going = wire.run(flow, OWN)
    assert (going.sent, going.echo) == (" 東京\n", "none")
    document = wire.body(going.call)
    assert document["text_input"] == "Hi 東京\n"
    assert document["parameters"] == {"max_tokens": 5}


def test_half_a_character_in_a_prompt_travels_as_its_byte(wire):
    template = "Q: \udce6\udc9d".format
    endpoint = Endpoint("triton", model="m", base_url="http://h", template=template)
    generation = wire.generation(endpoint, [{"role": "user", "content": "Q"}])
    _, call = ask(wire, generation, OWN)
    assert b'"Q: \xe6\x9d"' in call.content


def test_constraints_refuse_a_prefix(wire):
    def why(**extra):
        request = wire.generation("triton:llm", extra=extra).request
        return find("triton").no_prefix(request)

    assert why() is None
    assert "guided_json" in why(guided_json={})
    assert "guided_decoding" in why(sampling_parameters='{"guided_decoding": {}}')
    with pytest.raises(UsageError, match="no JSON object"):
        why(sampling_parameters="[]")


# -- writing -------------------------------------------------------------------------


@pytest.mark.parametrize("name", STREAMS)
def test_captured_streams_written_again_mean_the_same(wire, name):
    _, body = wire.captured(f"triton/{name}.raw")
    said = wire.signals("triton", body)
    again = wire.signals("triton", wire.written("triton", said))
    meant, written = wire.meaning(said), wire.meaning(again)
    if meant.usage is None:  # what was counted here is written as told
        written.usage = None
    assert written == meant


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
DELTAS = st.lists(st.builds(TextDelta, TEXTS, tokens=st.integers(1, 3)), max_size=5)


@given(DELTAS, st.none() | st.sampled_from(["stop", "length"]), st.data())
def test_what_is_written_is_read(wire, deltas, reason, data):
    tokens = sum(delta.tokens for delta in deltas)
    told = [Started("r1", "m"), *deltas]
    told += [Finish(reason, reason)] if reason else []
    told += [UsageReport(Usage(5, tokens)), End()]
    body = wire.written("triton", told)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    assert wire.meaning(wire.signals("triton", body, cuts)) == wire.meaning(told)


def test_raw_bytes_under_any_split_are_the_same_text(wire):
    raw = "日本👩".encode()
    pieces = [raw[:1], raw[1:4], raw[4:7], raw[7:]]
    told = [TextDelta(p.decode("utf-8", "surrogateescape")) for p in pieces]
    body = wire.written("triton", [*told, End()])
    for first, second in itertools.combinations(range(0, len(body), 7), 2):
        assert texts(wire.signals("triton", body, [first, second])) == "日本👩"


def test_several_choices_and_what_has_no_place(wire):
    told = [TextDelta("a", 1), ReasoningDelta("hm"), Finish("stop", "stop", 1), End()]
    said = wire.signals("triton", wire.written("triton", told))
    assert TextDelta("a", 1, 1) in said
    assert Finish("stop", "stop", 1) in said
    failing = [Failure(ServerError("Exceeds maximum queue size"))]
    [failure] = wire.signals("triton", wire.written("triton", failing))
    assert type(failure.error) is Overloaded
