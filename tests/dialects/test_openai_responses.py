"""OpenAI responses: captured servers, every event, and how an answer goes on."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream._dialects import find
from midstream._dialects.asking import GO_ON
from midstream._dialects.base import Received, Reply
from midstream._values.endpoint import Endpoint
from midstream._values.errors import (
    BadRequest,
    ContextOverflow,
    Overloaded,
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

NAME = "openai-responses"
SEA = "The sea is a vast and mysterious realm, teeming with life"
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f"}


def event(kind, **fields):
    return {"type": f"response.{kind}", **fields}


def text(piece, number=None, **fields):
    numbered = {} if number is None else {"sequence_number": number}
    return event("output_text.delta", delta=piece, **numbered, **fields)


def response(kind, **fields):
    return event(kind, response={"id": "resp_1", "model": "gpt-x", **fields})


# -- reading -------------------------------------------------------------------------


def test_llama_says_the_sea(wire):
    _, body = wire.captured("llama/v1_responses.http")
    said = wire.meaning(wire.signals(NAME, body))
    assert (said.text, said.ended, said.model) == (SEA, True, "smol")
    assert said.finish == ("stop", "completed")  # it says so at a limit, too
    assert said.usage == Usage(38, 12, None, 37)
    assert said.id.startswith("resp_")


def test_vllm_names_the_limit_though_it_completed(wire):
    _, body = wire.captured("vllm/resp.raw")
    said = wire.meaning(wire.signals(NAME, body))
    assert said.text.endswith("fullnameho mean")
    assert said.finish == ("length", "max_output_tokens")
    assert said.usage == Usage(14, 5, 0, 0)


@pytest.mark.parametrize(
    "name",
    ["llama/v1_responses.http", "llama/utf8_smol_responses.http", "vllm/resp.raw"],
)
def test_captured_bytes_say_the_same_however_they_are_cut(wire, name):
    _, body = wire.captured(name)
    whole = wire.signals(NAME, body)
    assert wire.signals(NAME, body, range(1, len(body))) == whole
    for cut in range(0, len(body), 11):
        assert wire.signals(NAME, body, [cut]) == whole


def test_whole_characters_of_many_tokens(wire):
    _, body = wire.captured("llama/utf8_smol_responses.http")
    assert wire.meaning(wire.signals(NAME, body)).text == "日本語🎉👩‍👩‍👧éok"


@pytest.mark.parametrize("name", ["llama/v1_responses.http", "vllm/resp.raw"])
def test_captured_bytes_survive_being_written_again(wire, name):
    _, body = wire.captured(name)
    signals = wire.signals(NAME, body)
    said = wire.meaning(signals)
    again = wire.meaning(wire.signals(NAME, wire.written(NAME, signals)))
    if name.startswith("llama"):  # it names its model at the end
        assert again.model == "midstream"
        again.model = said.model
    said.usage = Usage(said.usage.input_tokens, said.usage.output_tokens, 0, 0)
    again.usage = Usage(again.usage.input_tokens, again.usage.output_tokens, 0, 0)
    assert again == said


def test_a_body_that_ends_in_mid_answer_ends_nothing(wire):
    _, body = wire.captured("vllm/resp.raw")
    last = body.index(b"event: response.completed")
    for cut in range(last + 30):
        said = wire.meaning(wire.signals(NAME, body[:cut]))
        assert not said.ended
        assert said.finish is None


def test_the_response_is_named_once(wire):
    said = wire.said(
        NAME, response("queued"), response("created"), response("in_progress")
    )
    assert said == [Started("resp_1", "gpt-x")]


def test_text_with_the_probabilities_of_its_tokens(wire):
    logprobs = [{"token": "a", "logprob": -0.1, "top_logprobs": []}]
    said = wire.said(NAME, text("a", logprobs=logprobs), text("b", logprobs=[]))
    assert said == [TextDelta("a", logprobs=logprobs), TextDelta("b")]


def test_reasoning_its_seal_and_refusals(wire):
    sealed = {"type": "reasoning", "id": "rs_1", "encrypted_content": "c2VhbA"}
    said = wire.said(
        NAME,
        event("output_item.added", output_index=0, item={"type": "reasoning"}),
        event("reasoning_text.delta", delta="hm"),
        event("reasoning_summary_text.delta", delta=" so"),
        event("reasoning_text.delta", delta=""),
        event("output_item.done", output_index=0, item=sealed),
        event("output_item.done", output_index=0, item={"type": "reasoning"}),
        event("refusal.delta", delta="I cannot."),
        event("refusal.delta", delta=""),
    )
    assert said == [
        ReasoningDelta("hm"),
        ReasoningDelta(" so"),
        ReasoningDelta("", tokens=0, signature="c2VhbA"),
        RefusalDelta("I cannot."),
    ]


def test_calls_are_told_apart_by_their_place(wire):
    other = {**CALL, "id": "fc_2", "call_id": "c2", "name": "g"}
    arguments = "function_call_arguments"
    said = wire.said(
        NAME,
        event("output_item.added", output_index=1, item=CALL),
        event("output_item.added", output_index=2, item=other),
        event(f"{arguments}.delta", output_index=1, item_id="fc_1", delta='{"a"'),
        event(f"{arguments}.delta", output_index=2, item_id="fc_2", delta="{}"),
        event(f"{arguments}.delta", output_index=1, item_id="changed", delta=":1}"),
        event(f"{arguments}.done", output_index=1, arguments='{"a":1}'),
        event(f"{arguments}.done", output_index=2, arguments="{}"),
        event("output_item.done", output_index=1, item=CALL),
        response("completed", status="completed"),
    )
    calls = wire.meaning(said).calls
    assert [(c.id, c.name, c.arguments, c.complete) for c in calls] == [
        ("c1", "f", '{"a":1}', True),
        ("c2", "g", "{}", True),
    ]
    assert said[-2:] == [Finish("tool_calls", "completed"), End()]


def test_calls_without_places_are_known_by_their_ids(wire):
    arguments = "function_call_arguments.delta"
    said = wire.said(
        NAME,
        event("output_item.added", item=CALL),
        event(arguments, item_id="fc_1", delta="{"),
        event(arguments, item_id="another", delta="}"),
    )
    assert wire.meaning(said).calls[0].arguments == "{}"
    assert wire.said(NAME, event(arguments, delta="{}")) == []


def test_arguments_that_come_only_at_the_end(wire):
    custom = {"type": "custom_tool_call", "id": "ct_1", "name": "h", "input": ""}
    done = {**CALL, "arguments": '{"z":0}'}
    said = wire.said(
        NAME,
        event("output_item.added", output_index=0, item=CALL),
        event("function_call_arguments.done", output_index=0, arguments='{"a":1}'),
        event("output_item.added", output_index=1, item=custom),
        event("custom_tool_call_input.delta", output_index=1, delta="x"),
        event("custom_tool_call_input.done", output_index=1, input="x"),
        event("output_item.done", output_index=2, item=done),
        event("output_item.added", output_index=3, item={"type": "message"}),
    )
    calls = wire.meaning(said).calls
    assert [(c.id, c.arguments, c.complete) for c in calls] == [
        ("c1", '{"a":1}', True),
        ("ct_1", "x", True),
        ("c1", '{"z":0}', True),
    ]


def test_a_call_that_a_limit_cut_is_never_whole(wire):
    said = wire.said(
        NAME,
        event("output_item.added", output_index=0, item=CALL),
        event("function_call_arguments.delta", output_index=0, delta='{"a":"lo'),
        event("function_call_arguments.done", output_index=0, arguments='{"a":"lo'),
        event("output_item.done", output_index=0, item=CALL),
        response(
            "incomplete",
            status="incomplete",
            incomplete_details={"reason": "max_output_tokens"},
        ),
    )
    assert not wire.meaning(said).calls[0].complete
    assert said[-2:] == [Finish("length", "max_output_tokens"), End()]


def test_a_filter_and_usage_at_the_end(wire):
    usage = {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
    }
    said = wire.said(
        NAME,
        response(
            "incomplete", incomplete_details={"reason": "content_filter"}, usage=usage
        ),
    )
    assert said == [
        Started("resp_1", "gpt-x"),
        Finish("content_filter", "content_filter"),
        UsageReport(Usage(5, 9, 4, 2)),
        End(),
    ]


def test_what_is_unknown_says_nothing(wire):
    said = wire.said(
        NAME,
        event("web_search_call.searching", output_index=0),
        event("mcp_call_arguments.delta", output_index=0, delta="{}"),
        event("output_item.done", item={"type": "mcp_call"}),
        event("output_item.added"),
        event("output_text.done", text="all of it"),
        text(""),
        {"type": "keepalive", "sequence_number": 1},
        {},
        b"[DONE]",
    )
    assert said == []


@pytest.mark.parametrize(
    ("code", "cls", "retryable"),
    [
        ("server_error", ServerFailed, True),
        ("rate_limit_exceeded", RateLimited, True),
        ("vector_store_timeout", ServerFailed, True),
        ("invalid_prompt", BadRequest, False),
        ("image_too_large", BadRequest, False),
        ("context_length_exceeded", ContextOverflow, False),
        (None, ServerFailed, True),
    ],
)
def test_failures_flat_nested_and_as_a_response(wire, code, cls, retryable):
    flat = {"type": "error", "code": code, "message": "m", "sequence_number": 3}
    nested = {"type": "error", "error": {"code": code, "message": "m"}}
    bare = {"error": {"code": code, "message": "m"}}
    failed = response("failed", status="failed", error={"code": code, "message": "m"})
    for last in flat, nested, bare, failed:
        said = wire.meaning(wire.said(NAME, text("A"), last))
        assert said.text == "A"
        assert said.failure == (cls, "m", retryable)
        assert not said.ended


def test_a_failure_without_words_and_a_cancelled_response(wire):
    [failure] = wire.said(NAME, response("failed", error=None))
    assert "failed" in failure.error.message
    [failure] = wire.said(NAME, response("completed", status="cancelled"))
    assert (failure.error.type, failure.error.retryable) == ("cancelled", False)
    [failure] = wire.said(NAME, response("cancelled", status=None))
    assert failure.error.type == "cancelled"


def test_captured_refusals(wire):
    status, body = wire.captured("llama/err_ctx_before_responses.http")
    error = find(NAME).error(Reply(status, {}, body))
    assert type(error) is ContextOverflow


def test_halves_of_a_character_in_two_deltas_are_joined(wire):
    said = wire.said(
        NAME,
        rb'{"type":"response.output_text.delta","delta":"x\ud83d"}',
        rb'{"type":"response.output_text.delta","delta":"\ude00y"}',
    )
    assert [s.text for s in said] == ["x", "😀y"]


def test_events_that_come_again_are_skipped(wire):
    said = wire.said(NAME, text("a", 4), text("b", 5), text("b", 5), text("c", 6))
    assert wire.meaning(said).text == "abc"


def test_a_server_that_numbers_everything_zero_is_read_all_the_same(wire):
    said = wire.said(NAME, text("a", 0), text("b", 0))
    assert wire.meaning(said).text == "ab"


# -- writing -------------------------------------------------------------------------

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
sides = st.one_of(
    st.builds(TextDelta, words),
    st.builds(TextDelta, words, logprobs=st.just([{"token": "a", "logprob": -1}])),
    st.builds(ReasoningDelta, words),
    st.builds(ReasoningDelta, words, signature=st.just("c2ln")),
    st.just(ReasoningDelta("", tokens=0, signature="b3BhcXVl")),
    st.builds(RefusalDelta, words),
)
counts = st.integers(0, 10_000)
usages = st.builds(Usage, counts, counts, counts, counts)


@st.composite
def answers(draw):
    events = [Started("resp_9", "gpt-y"), *draw(st.lists(sides, max_size=8))]
    finish = draw(
        st.sampled_from(
            [
                Finish("stop", "completed"),
                Finish("length", "max_output_tokens"),
                Finish("content_filter", "content_filter"),
            ]
        )
    )
    calls = draw(st.lists(words, max_size=3))
    for index, name in enumerate(calls):
        events.append(ToolCallDelta(index, f"t{index}", name))
        pieces = draw(st.lists(words, max_size=3))
        events += [ToolCallDelta(index, arguments=piece) for piece in pieces]
        events.append(ToolCallDelta(index, tokens=0, closed=True))
        finish = Finish("tool_calls", "completed")
    return [*events, finish, UsageReport(draw(usages)), End()]


@settings(deadline=None)
@given(answers(), st.data())
def test_what_is_written_is_read_the_same(wire, events, data):
    body = wire.written(NAME, events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    assert wire.meaning(wire.signals(NAME, body, cuts)) == wire.meaning(events)


def test_every_event_is_numbered(wire):
    events = [Started(), TextDelta("a"), ToolCallDelta(0, "t", "f", "{}"), End()]
    body = wire.written(NAME, events)
    numbers = [
        json.loads(line.removeprefix("data: "))["sequence_number"]
        for line in body.decode().splitlines()
        if line.startswith("data: ")
    ]
    assert numbers == list(range(len(numbers)))


def test_failures_are_written_flat(wire):
    for error, cls in [
        (Overloaded("m", type="overloaded_error"), Overloaded),
        (ServerError("m"), ServerFailed),
    ]:
        said = wire.signals(NAME, wire.written(NAME, [Failure(error)]))
        assert isinstance(said[0].error, cls)


def test_calls_left_open_are_ended_with_the_answer(wire):
    cut = [ToolCallDelta(0, "t", "f", '{"a'), Finish("length", "length"), End()]
    said = wire.meaning(wire.signals(NAME, wire.written(NAME, cut)))
    assert (said.calls[0].arguments, said.calls[0].complete) == ('{"a', False)


def test_a_resumption_leaves_no_trace_on_the_wire():
    resumed = Resumed(Resumption(0, "", "text", 3, None, 0.0))
    assert find(NAME).writer().write(resumed) == []


# -- asking --------------------------------------------------------------------------


def test_parameters_go_by_their_own_names(wire):
    tools = [{"type": "function", "name": "f", "parameters": {}}]
    prompt = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "system", "content": "Now in French."},
        {"role": "user", "content": [{"type": "input_text", "text": "Go"}]},
    ]
    asked = wire.generation(
        f"{NAME}:gpt-x",
        prompt,
        max_tokens=50,
        temperature=0,
        top_p=0.5,
        seed=7,
        tools=tools,
        extra={"reasoning": {"effort": "low"}},
    )
    call = wire.begin(asked)
    assert call.url == "https://api.openai.com/v1/responses"
    assert wire.body(call) == {
        "model": "gpt-x",
        "instructions": "Be brief.\n\nBe kind.",
        "input": [prompt[2], {"type": "message", **prompt[3]}, *prompt[4:]],
        "stream": True,
        "max_output_tokens": 50,
        "temperature": 0,
        "top_p": 0.5,
        "tools": tools,
        "reasoning": {"effort": "low"},
    }


def test_openai_has_no_stop_strings_and_others_may(wire):
    with pytest.raises(UsageError, match="stop"):
        wire.begin(wire.generation(f"{NAME}:gpt-x", stop="END"))
    call = wire.begin(wire.generation("vllm-responses", stop="END", seed=7))
    body = wire.body(call)
    assert (body["stop"], body["seed"]) == (["END"], 7)
    assert "model" not in body


def test_only_instructions(wire):
    prompt = [{"role": "system", "content": "Say something."}]
    body = wire.body(wire.begin(wire.generation(f"{NAME}:m", prompt)))
    assert (body["instructions"], body["input"]) == ("Say something.", [])


def test_the_key_is_a_bearer(wire):
    endpoint = Endpoint(NAME, model="m", base_url="http://h:1", api_key="sk-1")
    assert wire.begin(wire.generation(endpoint)).secrets == {
        "authorization": "Bearer sk-1"
    }


# -- replay --------------------------------------------------------------------------

REPLAY = {"strategies": ("replay", "text")}


def test_a_response_runs_in_the_background_only_if_replay_is_wanted(wire):
    body = wire.body(wire.begin(wire.generation(f"{NAME}:m", **REPLAY)))
    assert (body["background"], body["store"]) == (True, True)
    for how in (
        {},
        {**REPLAY, "memory": {"responses: keeps": False}},
        {**REPLAY, "extra": {"store": False}},
        {**REPLAY, "extra": {"background": False}},
    ):
        body = wire.body(wire.begin(wire.generation(f"{NAME}:m", **how)))
        assert not body.get("background")
        assert body.get("store", True) is how.get("extra", {}).get("store", True)


def test_a_stored_response_is_read_on_from_its_last_event(wire):
    asked = wire.generation(f"{NAME}:m@http://h:1/v1", **REPLAY)
    received = Received(text="a", response_id="resp_1/x", cursor=14)
    continuation = wire.go_on(asked, "replay", received)
    call = continuation.call
    assert call.method == "GET"
    assert (
        call.url == "http://h:1/v1/responses/resp_1%2Fx?stream=true&starting_after=14"
    )
    assert continuation.keeps == "reader"


def test_another_process_reads_it_from_its_begin(wire):
    asked = wire.generation(f"{NAME}:m@http://h:1", **REPLAY)
    call = wire.go_on(asked, "replay", Received(response_id="resp_1")).call
    assert call.url == "http://h:1/v1/responses/resp_1?stream=true"


@pytest.mark.parametrize(
    "received",
    [
        Received(),
        Received(text="a", cursor=3),
        Received(text="of the connection before", response_id="resp_old"),
    ],
)
def test_a_response_without_its_id_is_lost(wire, received):
    asked = wire.generation(f"{NAME}:m", **REPLAY)
    with pytest.raises(ResumeUnsupported, match="id"):
        wire.go_on(asked, "replay", received)


def test_a_response_in_the_foreground_is_not_kept(wire):
    asked = wire.generation(f"{NAME}:m")
    received = Received(text="a", response_id="resp_1", cursor=3)
    with pytest.raises(ResumeUnsupported, match="keeps no"):
        wire.go_on(asked, "replay", received)
    assert wire.leave(asked, received) == []


def test_leaving_cancels_what_runs_in_the_background(wire):
    asked = wire.generation(f"{NAME}:m@http://h:1", **REPLAY)
    [call] = wire.leave(asked, Received(response_id="resp_1"))
    assert (call.method, call.url) == ("POST", "http://h:1/v1/responses/resp_1/cancel")
    assert call.patience is not None
    assert wire.leave(asked, Received()) == []


def test_a_server_that_stores_nothing_is_told_by_its_answer(wire):
    for first in (
        {**response("created", background=False), "sequence_number": 0},
        response("created"),
    ):
        asked = wire.generation(f"{NAME}:m@http://h:1", **REPLAY)
        wire.signals(NAME, json_record(first), generation=asked)
        with pytest.raises(ResumeUnsupported, match="keeps no"):
            wire.go_on(asked, "replay", Received(response_id="resp_1", cursor=3))
        assert wire.leave(asked, Received(response_id="resp_1")) == []


def test_a_response_that_was_asked_for_in_the_foreground_tells_nothing(wire):
    first = {**response("created", background=False), "sequence_number": 0}
    asked = wire.generation(f"{NAME}:m@http://h:1")
    wire.signals(NAME, json_record(first), generation=asked)
    assert asked.memory == {}
    assert find(NAME).reader().read(json_record(first)[6:], "") != []


def test_a_refusal_to_store_is_known_by_its_words(wire):
    lines = wire.captured_text("vllm/responses_background.txt").splitlines()
    refusal = next(line for line in lines if line.startswith("no store env"))
    content = refusal.partition("400 ")[2].encode()
    dialect = find(NAME)
    error = dialect.error(Reply(400, {}, content))
    assert dialect.refuses("replay", error)
    assert not dialect.refuses("text", error)
    assert not dialect.refuses("replay", BadRequest("model is required"))
    assert not dialect.refuses("replay", Overloaded("the store is busy"))


def test_what_llama_keeps_is_fetched_by_its_bytes_and_stopped_by_name(wire):
    asked = wire.generation("llama.cpp-responses@http://h:1", **REPLAY)
    call = wire.begin(asked)
    assert call.headers["x-conversation-id"] == "h1"
    assert "background" not in wire.body(call)
    continuation = wire.go_on(asked, "replay", Received(offset=99))
    assert continuation.call.url == "http://h:1/v1/stream?conv_id=h1&from=99"
    [call] = wire.leave(asked, Received())
    assert call.method == "DELETE"
    unkept = wire.generation("llama.cpp-responses@http://h:1")
    assert wire.leave(unkept, Received()) == []


# -- going on ------------------------------------------------------------------------


def test_an_open_item_is_continued_where_the_server_does(wire):
    asked = wire.generation("vllm-responses", max_tokens=9)
    continuation = wire.go_on(asked, "text", Received(text="One,\n", left=7))
    body = wire.body(continuation.call)
    assert continuation.sent == "One,"
    assert body["max_output_tokens"] == 7
    part = {"type": "output_text", "text": "One,", "annotations": []}
    assert body["input"][1:] == [
        {
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": [part],
        }
    ]
    kept = wire.go_on(
        wire.generation("llama.cpp-responses"), "text", Received(text="One, ")
    )
    assert kept.sent == "One, "
    asked = wire.generation("llama.cpp-responses", stop="two")
    assert wire.go_on(asked, "text", Received(text="One, ")).sent == "One,"


def test_an_item_that_the_caller_left_open_is_gone_on_with(wire):
    prompt = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Sure:"},
    ]
    asked = wire.generation("vllm-responses", prompt)
    items = wire.body(wire.go_on(asked, "text", Received(text=" ok")).call)["input"]
    assert len(items) == 2
    assert items[1]["content"][0]["text"] == "Sure: ok"


def test_an_empty_item_is_never_sent(wire):
    asked = wire.generation("vllm-responses")
    continuation = wire.go_on(asked, "text", Received(text="\n"))
    assert (continuation.sent, len(wire.body(continuation.call)["input"])) == ("", 1)


def test_a_server_is_known_by_what_only_it_says(wire):
    received = Received(text="a")
    for name in "llama/v1_responses.http", "vllm/resp.raw":
        asked = wire.generation(f"{NAME}:m@http://h:1")
        with pytest.raises(ResumeUnsupported, match="not known"):
            wire.go_on(asked, "text", received)
        _, body = wire.captured(name)
        wire.signals(NAME, body, generation=asked)
        assert wire.go_on(asked, "text", received).sent == "a"
    asked = wire.generation(f"{NAME}:gpt-x", memory={})
    wire.signals(NAME, json_record(response("created")), generation=asked)
    with pytest.raises(ResumeUnsupported, match="not known"):
        wire.go_on(asked, "text", received)


def test_reasoning_is_not_continued_as_text(wire):
    with pytest.raises(ResumeUnsupported, match="reasoning"):
        wire.go_on(
            wire.generation("vllm-responses"), "text", Received(text="a", reasoning="h")
        )


def test_asking_is_a_turn_of_the_user(wire):
    asked = wire.generation(f"{NAME}:gpt-x", max_tokens=9)
    continuation = wire.go_on(asked, "ask", Received(text="Hello wo", left=7))
    items = wire.body(continuation.call)["input"]
    assert [item["role"] for item in items] == ["user", "assistant", "user"]
    assert items[1]["content"][0]["text"] == "Hello wo"
    assert items[2]["content"] == GO_ON
    assert (continuation.sent, continuation.echo) == ("Hello wo", "tail")
    nothing = wire.go_on(asked, "ask", Received(reasoning="hm"))
    assert len(wire.body(nothing.call)["input"]) == 1


def test_structured_outputs_are_not_continued(wire):
    dialect = find(NAME)
    for extra, refused in [
        ({"text": {"format": {"type": "json_schema"}}}, True),
        ({"text": {"format": {"type": "text"}}}, False),
        ({"text": {"verbosity": "low"}}, False),
        ({"grammar": "root ::= x"}, True),
        ({}, False),
    ]:
        request = wire.generation(f"{NAME}:m", extra=extra).request
        assert bool(dialect.no_prefix(request)) is refused


def json_record(document):
    return b"data: " + json.dumps(document).encode() + b"\n\n"
