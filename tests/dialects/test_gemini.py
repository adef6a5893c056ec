"""Gemini: parts of all kinds, ends and errors in all shapes, and who is continued."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._dialects import find
from midstream._dialects.asking import GO_ON
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
from midstream._values.usage import Usage

NAMED = {"responseId": "r1", "modelVersion": "gemini-2.5-flash"}
BEGUN = Started("r1", "gemini-2.5-flash")
FLASH = "gemini:gemini-2.5-flash"


def candidate(*parts, index=0, **fields):
    content = {"content": {"parts": list(parts), "role": "model"}} if parts else {}
    return {"candidates": [{**content, "index": index, **fields}], **NAMED}


def usage(prompt=None, answer=None, thoughts=None, **more):
    counts = {"promptTokenCount": prompt, "candidatesTokenCount": answer}
    counts |= {"thoughtsTokenCount": thoughts, **more}
    return {"usageMetadata": {k: v for k, v in counts.items() if v is not None}}


# -- reading -------------------------------------------------------------------------


def test_thoughts_text_and_counts(wire):
    said = wire.said(
        "gemini",
        candidate({"text": "hm", "thought": True}) | usage(5, thoughts=4),
        candidate({"text": "Y"}) | usage(5, 1, 4),
        candidate({"text": "es"}, {"text": "."}) | usage(5, 4, 4),
        candidate(finishReason="STOP")
        | usage(5, 4, 4, cachedContentTokenCount=2, totalTokenCount=13),
    )
    assert said == [
        BEGUN,
        ReasoningDelta("hm", tokens=4),
        UsageReport(Usage(5)),
        TextDelta("Y", tokens=1),
        TextDelta("es", tokens=3),
        TextDelta(".", tokens=0),
        Finish("stop", "STOP"),
        UsageReport(Usage(5, 8, 4, 2)),
    ]


def test_usage_may_come_after_the_reason(wire):
    said = wire.said(
        "gemini", candidate({"text": "a"}, finishReason="STOP"), usage(5, 1)
    )
    assert said[1:] == [
        TextDelta("a"),
        Finish("stop", "STOP"),
        UsageReport(Usage(5, 1)),
    ]
    assert wire.said("gemini", {"usageMetadata": {}}) == [Started()]


def test_an_untold_part_counts_as_one(wire):
    said = wire.said(
        "gemini",
        candidate({"text": "a"}),
        candidate({"text": "b"}) | usage(5, 3),
        candidate({"text": "c"}) | usage(5, 2),
    )
    assert [e.tokens for e in said if isinstance(e, TextDelta)] == [None, 2, 0]


def test_signatures_are_kept(wire):
    said = wire.said(
        "gemini",
        candidate({"text": "hm", "thought": True, "thoughtSignature": "s1"}),
        candidate({"text": "", "thoughtSignature": "s2"}),
        candidate({"functionCall": {"name": "f"}, "thoughtSignature": "s3"}),
        candidate({"text": "", "thought": True}),
    )
    assert said == [
        BEGUN,
        ReasoningDelta("hm", signature="s1"),
        ReasoningDelta("", tokens=0, signature="s2"),
        ToolCallDelta(0, None, "f", "{}", closed=True),
        ReasoningDelta("", tokens=0, signature="s3"),
        ReasoningDelta("", tokens=0),
    ]


def test_function_calls_come_whole_and_end_as_calls(wire):
    first = {"id": "c1", "name": "f", "args": {"a": "é"}}
    said = wire.said(
        "gemini",
        candidate({"functionCall": first}, {"functionCall": {"name": "g"}}),
        candidate(finishReason="STOP"),
    )
    assert said[1:] == [
        ToolCallDelta(0, "c1", "f", '{"a":"é"}', closed=True),
        ToolCallDelta(1, None, "g", "{}", closed=True),
        Finish("tool_calls", "STOP"),
    ]


def test_candidates_have_calls_of_their_own(wire):
    call = {"functionCall": {"name": "f"}}
    said = wire.said(
        "gemini",
        candidate(call),
        candidate({"text": "x"}, call, index=1, finishReason="STOP"),
    )
    assert said[1:] == [
        ToolCallDelta(0, None, "f", "{}", closed=True),
        TextDelta("x", 1),
        ToolCallDelta(0, None, "f", "{}", choice=1, closed=True),
        Finish("tool_calls", "STOP", 1),
    ]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "MALFORMED_FUNCTION_CALL"),
    ],
)
def test_reasons(wire, raw, reason):
    assert wire.said("gemini", candidate(finishReason=raw)) == [
        BEGUN,
        Finish(reason, raw),
    ]


def test_a_body_that_ends_without_a_reason_has_not_ended(wire):
    unspecified = candidate({"text": "a"}, finishReason="FINISH_REASON_UNSPECIFIED")
    assert wire.said("gemini", unspecified) == [BEGUN, TextDelta("a")]
    assert find("gemini").reader().eof() == []


def test_a_blocked_prompt_is_an_end_of_its_own(wire):
    told = {"blockReason": "SAFETY", "blockReasonMessage": "No."}
    assert wire.said("gemini", {"promptFeedback": told, **usage(5)}) == [
        Started(),
        RefusalDelta("No.", tokens=0),
        Finish("content_filter", "SAFETY"),
        UsageReport(Usage(5)),
    ]
    silent = {"promptFeedback": {"blockReason": "OTHER"}}
    assert wire.said("gemini", silent)[1:] == [Finish("content_filter", "OTHER")]


def test_probabilities_are_the_candidates(wire):
    logprobs = {"chosenCandidates": [{"token": "a", "logProbability": -0.1}]}
    parts = [{"text": "a"}, {"text": "b"}]
    said = wire.said("gemini", candidate(*parts, logprobsResult=logprobs))
    assert said[1:] == [TextDelta("a", logprobs=logprobs), TextDelta("b")]


ARRAY = b'[{"candidates":[{"content":{"parts":[{"text":"{[\\""}]}}]}\n,\r\n'


def test_the_array_form_is_the_same_answer(wire):
    body = ARRAY + json.dumps(candidate({"text": "b"}, finishReason="STOP")).encode()
    whole = wire.signals("gemini", body + b"\n]")
    assert wire.meaning(whole).text == '{["b'
    assert wire.meaning(whole).finish == ("stop", "STOP")
    for cut in range(1, len(body)):
        assert wire.signals("gemini", body + b"\n]", [cut]) == whole


def test_half_a_record_is_not_shown(wire):
    said = wire.signals("gemini", ARRAY + b'{"candidates":[{"content":{"par')
    assert said == [Started(), TextDelta('{["')]


# -- errors --------------------------------------------------------------------------

ERROR = {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}
SHAPES = {
    "event": b"data: " + json.dumps({"error": ERROR}).encode() + b"\n\n",
    "raw": json.dumps({"error": ERROR}, indent=2).encode(),
    "raw array": json.dumps([{"error": ERROR}], indent=2).encode() + b"\n",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_late_error_in_each_of_its_shapes(wire, shape):
    event = json.dumps(candidate({"text": "Hi"})).encode()
    body = b"data: " + event + b"\r\n\r\n" + SHAPES[shape]
    *before, failure = wire.signals("gemini", body)
    assert before == [BEGUN, TextDelta("Hi")]
    assert type(failure.error) is Overloaded
    assert failure.error.message == "overloaded"
    assert failure.error.retryable


@pytest.mark.parametrize("records", [b'data: "a"\n\n', b"data: {\n\n", b"data: 1\n\n"])
def test_what_is_no_response(wire, records):
    [failure] = wire.signals("gemini", records)
    assert isinstance(failure.error, WireError)


def test_an_empty_array_says_nothing(wire):
    assert wire.signals("gemini", b"data: []\n\n") == [Started()]


@pytest.mark.parametrize(
    ("status", "word", "message", "cls"),
    [
        (400, "INVALID_ARGUMENT", "bad", BadRequest),
        (400, "INVALID_ARGUMENT", "exceeds the context window", ContextOverflow),
        (401, "UNAUTHENTICATED", "key", AuthenticationFailed),
        (403, "PERMISSION_DENIED", "key", AuthenticationFailed),
        (404, "NOT_FOUND", "model", NotFound),
        (429, "RESOURCE_EXHAUSTED", "quota", RateLimited),
        (503, "UNAVAILABLE", "busy", Overloaded),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_statuses(status, word, message, cls, wrapped):
    fault = {"error": {"code": status, "message": message, "status": word}}
    content = json.dumps([fault] if wrapped else fault).encode()
    error = find("gemini").error(Reply(status, {"retry-after": "2"}, content))
    assert type(error) is cls
    assert (error.message, error.status, error.type) == (message, status, word)
    assert error.retry_after == 2


# -- asking --------------------------------------------------------------------------


def test_the_request(wire):
    call = wire.begin(
        wire.generation(
            FLASH,
            [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Yes?"},
                {"role": "user", "content": [{"text": "Look: "}, {"fileData": {}}]},
                {"role": "user", "parts": [{"functionResponse": {}}]},
            ],
            max_tokens=9,
            temperature=0,
            top_p=0.5,
            stop="x",
            seed=7,
            tools=[{"functionDeclarations": []}],
            extra={"generationConfig": {"topK": 3}, "safetySettings": []},
        )
    )
    base = "https://generativelanguage.googleapis.com/v1beta/models/"
    assert call.url == base + "gemini-2.5-flash:streamGenerateContent?alt=sse"
    assert wire.body(call) == {
        "contents": [
            {"role": "user", "parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"text": "Yes?"}]},
            {"role": "user", "parts": [{"text": "Look: "}, {"fileData": {}}]},
            {"role": "user", "parts": [{"functionResponse": {}}]},
        ],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "generationConfig": {
            "maxOutputTokens": 9,
            "temperature": 0.0,
            "topP": 0.5,
            "stopSequences": ["x"],
            "seed": 7,
            "topK": 3,
        },
        "tools": [{"functionDeclarations": []}],
        "safetySettings": [],
    }


def test_the_least_request(wire):
    call = wire.begin(wire.generation(FLASH))
    assert wire.body(call) == {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}]
    }


def test_the_key_travels_in_a_header(wire):
    endpoint = Endpoint("gemini", model="m", base_url="http://h", api_key="secret")
    call = wire.begin(wire.generation(endpoint))
    assert call.secrets == {"x-goog-api-key": "secret"}
    assert "secret" not in call.url


@pytest.mark.parametrize(
    ("model", "base", "path"),
    [
        ("m", "http://h", "/v1beta/models/m"),
        ("m", "http://h/v1beta/", "/v1beta/models/m"),
        ("m", "http://h/v1", "/v1/models/m"),
        ("m", "http://h/proxy", "/proxy/v1beta/models/m"),
        ("models/m", "http://h", "/v1beta/models/m"),
        ("tunedModels/a b", "http://h", "/v1beta/tunedModels/a%20b"),
    ],
)
def test_routes(wire, model, base, path):
    call = wire.begin(wire.generation(Endpoint("gemini", model=model, base_url=base)))
    assert call.url == f"http://h{path}:streamGenerateContent?alt=sse"


def test_a_model_is_needed(wire):
    with pytest.raises(UsageError, match="Gemini needs a model"):
        wire.begin(wire.generation("gemini"))


# -- continuing ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    ["gemini-2.0-flash", "gemini-3-pro", "gemini-3.1-pro", "models/gemini-pro-latest"],
)
def test_an_open_model_turn(wire, model):
    generation = wire.generation(f"gemini:{model}", max_tokens=9)
    received = Received(text="One \n", reasoning="hm", tokens=2, left=7)
    going = wire.go_on(generation, "text", received)
    assert (going.sent, going.echo) == ("One", "none")
    body = wire.body(going.call)
    assert body["contents"][1:] == [{"role": "model", "parts": [{"text": "One"}]}]
    assert body["generationConfig"] == {"maxOutputTokens": 7}


def test_a_turn_that_the_caller_left_open_goes_on(wire):
    turns = [
        {"role": "user", "content": "Count."},
        {"role": "assistant", "content": "One"},
    ]
    going = wire.go_on(wire.generation(FLASH, turns), "text", Received(text=", two"))
    last = wire.body(going.call)["contents"][-1]
    assert last == {"role": "model", "parts": [{"text": "One"}, {"text": ", two"}]}


def test_whitespace_alone_is_no_turn(wire):
    going = wire.go_on(wire.generation(FLASH), "text", Received(text="\n"))
    assert going.sent == ""
    assert len(wire.body(going.call)["contents"]) == 1


@pytest.mark.parametrize("model", ["gemini-3.6-flash", "gemini-30-x", "other"])
def test_later_models_are_not_asked(wire, model):
    generation = wire.generation(f"gemini:{model}")
    with pytest.raises(ResumeUnsupported, match=f"{model} is not known to continue"):
        wire.go_on(generation, "text", Received(text="One"))


def test_an_open_thought_is_not_continued(wire):
    with pytest.raises(ResumeUnsupported, match="thought"):
        wire.go_on(wire.generation(FLASH), "text", Received(reasoning="hm"))


def test_the_plea_to_go_on(wire):
    generation = wire.generation("gemini:gemini-3.6-flash")
    going = wire.go_on(generation, "ask", Received(text="One \n"))
    assert (going.sent, going.echo) == ("One \n", "tail")
    assert wire.body(going.call)["contents"][1:] == [
        {"role": "model", "parts": [{"text": "One \n"}]},
        {"role": "user", "parts": [{"text": GO_ON}]},
    ]
    anew = wire.go_on(generation, "ask", Received(reasoning="hm"))
    assert len(wire.body(anew.call)["contents"]) == 1


def test_a_refusal_is_known_by_its_words():
    gemini = find("gemini")
    error = BadRequest("Requests ending with a model turn are not supported.")
    assert gemini.refuses("text", error)
    assert not gemini.refuses("ask", error)
    assert not gemini.refuses("text", BadRequest("API key not valid"))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"responseSchema": {}}, "grammar"),
        ({"responseJsonSchema": {}}, "grammar"),
        ({"candidateCount": 2}, "candidate"),
        ({"candidateCount": 1}, None),
    ],
)
def test_what_no_prefix_continues(wire, config, why):
    extra = {"generationConfig": config}
    found = find("gemini").no_prefix(wire.generation(FLASH, extra=extra).request)
    assert found is None if why is None else why in found


def test_nothing_stops_the_service(wire):
    assert wire.leave(wire.generation(FLASH), Received()) == []


# -- writing -------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
DELTAS = st.lists(
    st.one_of(
        st.builds(TextDelta, TEXTS),
        st.builds(ReasoningDelta, TEXTS),
        st.builds(ReasoningDelta, st.just(""), signature=TEXTS),
    ),
    max_size=5,
)


@given(
    DELTAS,
    st.booleans(),
    st.none() | st.builds(Usage, st.just(5), st.just(3)),
    st.data(),
)
def test_what_is_written_is_read(wire, deltas, calls, told, data):
    said = [BEGUN, *deltas]
    if calls:
        said += [
            ToolCallDelta(0, "c1", "f", '{"a"'),
            ToolCallDelta(0, arguments=":1}"),
            ToolCallDelta(1, "c2", "g", "{}", closed=True),
        ]
    reason = "tool_calls" if calls else "stop"
    said.append(Finish(reason, "STOP"))
    said += [UsageReport(told)] if told else []
    body = wire.written("gemini", [*said, End()])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    read = wire.meaning(wire.signals("gemini", body, cuts))
    want = wire.meaning(said)
    for call in want.calls:
        call.complete = True
    assert read == want


@pytest.mark.parametrize(
    ("finish", "word"),
    [
        (Finish("length", "length"), "MAX_TOKENS"),
        (Finish("stop", "eos"), "STOP"),
        (Finish("tool_calls"), "STOP"),
        (Finish("odd", "odd"), "OTHER"),
        (Finish("content_filter", "SPII"), "SPII"),
    ],
)
def test_reasons_of_others_in_googles_words(wire, finish, word):
    said = wire.signals("gemini", wire.written("gemini", [finish, End()]))
    assert [e.raw for e in said if isinstance(e, Finish)] == [word]


def test_an_end_without_a_reason_is_none(wire):
    said = wire.signals("gemini", wire.written("gemini", [Finish(None), End()]))
    assert said == [Started("midstream", "midstream")]


def test_errors_refusals_and_what_has_no_place(wire):
    failing = [
        Started(),
        RefusalDelta("No."),
        Failure(ServerError("gone", type="UNAVAILABLE")),
    ]
    *before, failure = wire.signals("gemini", wire.written("gemini", failing))
    assert before[1:] == [TextDelta("No.")]
    assert type(failure.error) is Overloaded
    assert wire.written("gemini", [Resumed(None)]) == b""


def test_usage_keeps_its_parts(wire):
    told = UsageReport(Usage(5, 8, 3, 2))
    body = wire.written("gemini", [told, Finish("stop", "STOP"), End()])
    assert told in wire.signals("gemini", body)
    only_input = [UsageReport(Usage(5)), Finish("stop", "STOP"), End()]
    assert UsageReport(Usage(5)) in wire.signals(
        "gemini", wire.written("gemini", only_input)
    )
