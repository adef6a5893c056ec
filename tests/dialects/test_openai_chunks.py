"""Chunks of chat and completions: the bytes of real servers, and each one's own way."""

import json
import re
from pathlib import Path

import pytest

from midstream._dialects import find
from midstream._dialects.base import Reply
from midstream._dialects.chat_chunks import ChatReader, ChatWriter
from midstream._dialects.completion_chunks import CompletionReader, CompletionWriter
from midstream._dialects.openai_chunks import Accent, counted
from midstream._frames.sse import SSEFramer
from midstream._values.endpoint import Endpoint
from midstream._values.errors import (
    BadRequest,
    ContextOverflow,
    NotFound,
    Overloaded,
    ServerError,
    ServerFailed,
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
from midstream._values.exactness import Exactness
from midstream._values.resumption import Resumption
from midstream._values.usage import Usage

CAPTURES = Path(__file__).parents[1] / "captures"
FILES = sorted([*CAPTURES.glob("vllm/*.raw"), *CAPTURES.glob("llama/*.http")])
OURS = re.compile(rb'"object": ?"(chat.completion.chunk|text_completion)"')
BODIES = [f for f in FILES if OURS.search(f.read_bytes())]
REFUSALS = {
    "err_contboth": (BadRequest, 400),
    "err_len": (BadRequest, 400),
    "err_model": (NotFound, 404),
    "err_type": (BadRequest, 400),
}
NAMES = [
    "openai",
    "vllm",
    "sglang-chat",
    "tgi-chat",
    "lmstudio",
    "deepseek",
    "mistral",
    "openrouter",
    "groq",
]


def body_of(file):
    """The body, out of its chunked coding where the capture has that."""
    wire = file.read_bytes()
    head, _, body = wire.partition(b"\r\n\r\n")
    if not re.match(rb"[0-9a-f]+\r\n", body):
        return head, body
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return head, whole


def reader_for(body):
    return CompletionReader() if b'"text_completion"' in body else ChatReader()


def read(pieces, reader):
    framer, events = SSEFramer(), []
    for piece in pieces:
        for data, name in framer.decode(piece):
            events += reader.read(data, name)
    for data, name in framer.flush():
        events += reader.read(data, name)
    return events + reader.eof()


def plain(events):
    """The events; of a failure what it says, since errors are equal to no other."""
    return [
        (type(e.error), e.error.message) if isinstance(e, Failure) else e
        for e in events
    ]


def one(reader, chunk, name=""):
    return reader.read(json.dumps(chunk).encode(), name)


def delta(index=0, finish=None, **fields):
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


def said(events, kind=TextDelta):
    return "".join(event.text for event in events if isinstance(event, kind))


@pytest.mark.parametrize("file", BODIES, ids=lambda file: file.stem)
def test_captured_bodies_under_any_split(file):
    _, body = body_of(file)
    whole = plain(read([body], reader_for(body)))
    assert len(whole) > 3
    single = [body[at : at + 1] for at in range(len(body))]
    assert whole == plain(read(single, reader_for(body)))
    for size in (2, 7, 61, 1021):
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        assert whole == plain(read(pieces, reader_for(body)))


@pytest.mark.parametrize("file", BODIES, ids=lambda file: file.stem)
def test_captured_bodies_written_and_read_again(file):
    _, body = body_of(file)
    events = read([body], reader_for(body))
    accent = Accent(thought="reasoning")
    completion = isinstance(reader_for(body), CompletionReader)
    writer = CompletionWriter(accent) if completion else ChatWriter(accent)
    again = read(
        [record for event in events for record in writer.write(event)],
        reader_for(body),
    )
    assert plain(again) == plain(events)


def test_every_token_of_vllm_has_its_id():
    _, body = body_of(CAPTURES / "vllm" / "stop.raw")
    events = read([body], CompletionReader())
    texts = [event for event in events if isinstance(event, TextDelta)]
    assert events[0].prompt_ids == (166, 116, 116, 165, 247, 232, 311, 324, 227)
    assert [event.token_ids for event in texts[:3]] == [(277,), (259,), (240,)]
    assert [event.text for event in texts[:3]] == ["", "", "た"]
    assert all(event.tokens == len(event.token_ids) for event in texts)
    assert events[-2:] == [Finish("stop", "stop"), End()]


def test_chat_of_vllm_tells_the_prompts_ids_beside_its_choices():
    _, body = body_of(CAPTURES / "vllm" / "chat_full.raw")
    events = read([body], ChatReader())
    assert events[0].prompt_ids[:2] == (1, 1245)
    texts = [event for event in events if isinstance(event, TextDelta)]
    assert [event.token_ids for event in texts][:2] == [(1700,), (1083,)]
    assert texts[0].logprobs["content"][0]["token"] == " strings"
    assert events[-2] == UsageReport(Usage(14, 6))


def test_several_tokens_in_one_chunk_of_vllm():
    _, body = body_of(CAPTURES / "vllm" / "interval.raw")
    events = read([body], reader_for(body))
    texts = [event for event in events if isinstance(event, TextDelta)]
    assert [event.text for event in texts][:3] == ["た", "くさん", "使います "]
    assert max(event.tokens for event in texts) == 5


def test_a_dying_engine_is_a_failure_and_done_after_it_no_success():
    _, body = body_of(CAPTURES / "vllm" / "midstream_enginedeath.raw")
    events = read([body], CompletionReader())
    (failure,) = [event for event in events if isinstance(event, Failure)]
    assert isinstance(failure.error, ServerFailed)
    assert failure.error.retryable
    assert "EngineCore" in failure.error.message
    assert events.index(failure) < events.index(End())


def test_abort_at_sigterm_is_a_failure():
    _, body = body_of(CAPTURES / "vllm" / "midstream_sigterm.raw")
    events = read([body], CompletionReader())
    assert not [event for event in events if isinstance(event, Finish)]
    (failure,) = [event for event in events if isinstance(event, Failure)]
    assert failure.error.type == "abort"
    assert failure.error.retryable


@pytest.mark.parametrize("name", sorted(REFUSALS))
def test_refusals_of_vllm(name):
    head, body = body_of(CAPTURES / "vllm" / f"{name}.raw")
    cls, status = REFUSALS[name]
    error = find("vllm").error(Reply(int(head.split()[1]), {}, body))
    assert type(error) is cls
    assert error.status == status
    assert not error.retryable
    assert find("vllm").refuses("text", error) is (name == "err_contboth")
    assert not find("vllm").refuses("tokens", error)


# -- shapes ------------------------------------------------------------------------


def test_odd_chunks_are_harmless():
    reader, events = ChatReader(), []
    for chunk in (
        {"choices": []},
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": [{"delta": {"role": "assistant", "content": None}}]},
        {"choices": [{"delta": {"reasoning_content": "r"}}]},
        {"choices": [{"delta": {"content": "t"}}]},
        {"choices": [], "usage": {"completion_tokens": 2}},
        {},
    ):
        events += one(reader, chunk)
    assert events == [
        Started(None, None),
        ReasoningDelta("r"),
        TextDelta("t"),
        UsageReport(Usage(None, 2)),
    ]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_in_either_field(field):
    events = one(ChatReader(), delta(**{field: "hm", "content": "ok"}))
    assert events[1:] == [ReasoningDelta("hm"), TextDelta("ok", tokens=0)]


def test_parts_of_mistral():
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "so "}, {}]},
        {"type": "text", "text": "it is"},
        {"type": "reference", "reference_ids": [1]},
    ]
    events = one(ChatReader(), delta(content=content))
    assert said(events, ReasoningDelta) == "so "
    assert said(events) == "it is"


def test_refusal_and_choices_and_logprobs():
    reader = ChatReader()
    events = one(reader, delta(refusal="no"))
    chunk = delta(1, content="b")
    chunk["choices"][0]["logprobs"] = {"content": []}
    events += one(reader, chunk)
    events += one(reader, delta(1, "content_filter"))
    assert events[1:] == [
        RefusalDelta("no"),
        TextDelta("b", 1, None, (), {"content": []}),
        Finish("content_filter", "content_filter", 1),
    ]


def test_ids_without_text_are_tokens_that_are_held_back():
    reader = ChatReader()
    chunk = delta(content="")
    chunk["choices"][0]["token_ids"] = [5]
    assert one(reader, chunk)[1:] == [TextDelta("", 0, 1, (5,))]
    chunk = delta(reasoning="a")
    chunk["choices"][0]["token_ids"] = [6, 7]
    assert one(reader, chunk) == [ReasoningDelta("a", 0, 2, (6, 7))]
    chunk = delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f"}}])
    chunk["choices"][0]["token_ids"] = [8]
    assert one(reader, chunk) == [ToolCallDelta(0, "c", "f", tokens=1)]


def test_running_counts_are_taken_apart():
    reader = ChatReader(counted)
    totals = [1, 4, None, 3]
    chunks = [
        {**delta(content="x"), "usage": total and {"completion_tokens": total}}
        for total in totals
    ]
    events = [event for chunk in chunks for event in one(reader, chunk)]
    texts = [event.tokens for event in events if isinstance(event, TextDelta)]
    assert texts == [1, 3, None, 0]


def test_usage_of_groq_and_details():
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    events = one(ChatReader(), {**delta(finish="stop"), "x_groq": {"usage": usage}})
    assert events[-1] == UsageReport(Usage(3, 4, 1, 2))


@pytest.mark.parametrize(
    ("chunk", "name", "cls", "retryable"),
    [
        ({"error": "plain words"}, "", ServerFailed, True),
        ({"choices": [], "error": {"message": "cap"}}, "", ServerFailed, True),
        ({"error": {"message": "gw", "code": 504}}, "", ServerFailed, True),
        ({"message": "bare"}, "error", ServerFailed, True),
        ({"error": {"message": "m", "code": 400}}, "", BadRequest, False),
        (
            {"error": {"message": "m", "http_status_code": 422}},
            "",
            BadRequest,
            False,
        ),
        (
            {"error": {"message": "m", "type": "overloaded", "retryable": False}},
            "",
            Overloaded,
            False,
        ),
        (
            {"error": {"code": 502, "message": "up"}, **delta(finish="error")},
            "",
            ServerFailed,
            True,
        ),
        ({**delta(), "x_groq": {"error": "over capacity"}}, "", ServerFailed, True),
        (delta(finish="error"), "", ServerFailed, True),
        (delta(finish="abort"), "", ServerFailed, True),
        (delta(finish="insufficient_system_resource"), "", ServerFailed, True),
    ],
)
def test_errors_in_mid_stream(chunk, name, cls, retryable):
    events = one(ChatReader(), chunk, name)
    (failure,) = [event for event in events if isinstance(event, Failure)]
    assert type(failure.error) is cls
    assert failure.error.retryable is retryable
    assert not [event for event in events if isinstance(event, Finish)]


@pytest.mark.parametrize(
    "fields",
    [
        {"native_finish_reason": "error"},
        {"error": {"code": 502, "message": "provider went away"}},
    ],
)
def test_a_provider_that_fails_under_a_stop(fields):
    chunk = delta(finish="stop", content="so far")
    chunk["choices"][0] |= fields
    events = one(ChatReader(), chunk)
    assert said(events) == "so far"
    assert isinstance(events[-1], Failure)
    assert events[-1].error.retryable


@pytest.mark.parametrize("native", ["stop", "end_turn", None])
def test_a_providers_own_word_for_a_good_end(native):
    chunk = delta(finish="stop")
    chunk["choices"][0]["native_finish_reason"] = native
    assert one(ChatReader(), chunk)[-1] == Finish("stop", "stop")


def test_a_context_overflow_in_words():
    error = {"message": "This model's maximum context length is 9", "code": 400}
    (failure,) = one(ChatReader(), {"error": error})
    assert isinstance(failure.error, ContextOverflow)


# -- tool calls --------------------------------------------------------------------


def fragment(arguments="", **fields):
    name = fields.pop("name", None)
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return delta(tool_calls=[{**fields, "function": function}])


TWO = {"f": '{"a":1}', "g": "{}"}


@pytest.mark.parametrize(
    "chunks",
    [
        [
            fragment('{"a":', id="c1", name="f"),
            fragment("1}"),
            fragment("{}", id="c2", name="g"),
        ],
        [
            fragment('{"a":', index=0, id="c1", name="f"),
            fragment("1}", index=0),
            fragment("{}", index=0, id="c2", name="g"),
        ],
        [
            fragment(index=0, id="c1", name="f"),
            fragment(index=1, id="c2", name="g"),
            fragment('{"a"', index=0),
            fragment("{", index=1),
            fragment(":1}", index=0),
            fragment("}", index=1),
        ],
        [
            fragment(index=0, id="c1", name="f"),
            fragment('{"a":1}', index=7, id="c1"),
            fragment("{}", index=1, id="c2", name="g"),
        ],
    ],
    ids=["no index", "all 0", "interleaved", "index changes"],
)
def test_tool_calls_whatever_their_index(chunks):
    reader, calls, names = ChatReader(), {}, {}
    for chunk in chunks:
        for event in one(reader, chunk):
            if isinstance(event, ToolCallDelta):
                calls[event.index] = calls.get(event.index, "") + event.arguments
                names[event.index] = names.get(event.index) or event.name
    assert {names[index]: calls[index] for index in sorted(calls)} == TWO
    assert list(names.values()) == ["f", "g"]


def test_legacy_function_call():
    reader = ChatReader()
    first = one(reader, delta(function_call={"name": "f", "arguments": ""}))
    rest = one(reader, delta(function_call={"arguments": "{}"}))
    assert first[1:] == [ToolCallDelta(0, None, "f")]
    assert rest == [ToolCallDelta(0, None, None, "{}")]


def test_arguments_as_an_object_are_whole():
    chunk = delta(tool_calls=[{"function": {"name": "f", "arguments": {"a": "é"}}}])
    assert one(ChatReader(), chunk)[1:] == [
        ToolCallDelta(0, None, "f", '{"a":"é"}', closed=True)
    ]


# -- writing -----------------------------------------------------------------------

SCRIPT = [
    Started("id-1", "m"),
    ReasoningDelta("hm "),
    TextDelta("a "),
    TextDelta("日本"),
    RefusalDelta("no"),
    ToolCallDelta(0, "c1", "f", '{"a":'),
    ToolCallDelta(0, None, None, "1}"),
    Finish("tool_calls", "tool_calls"),
    UsageReport(Usage(3, 4)),
    End(),
]


@pytest.mark.parametrize("name", NAMES)
def test_written_and_read_again(name):
    dialect = find(name)
    writer = dialect.writer()
    records = [record for event in SCRIPT for record in writer.write(event)]
    assert records[-1] == b"data: [DONE]\n\n"
    assert read(records, dialect.reader()) == SCRIPT


@pytest.mark.parametrize("name", NAMES)
def test_written_errors_are_read_as_such(name):
    dialect = find(name)
    error = ServerError("boom", status=503, type="overloaded_error", retryable=True)
    records = dialect.writer().write(Failure(error))
    (failure,) = [
        event for event in read(records, dialect.reader()) if isinstance(event, Failure)
    ]
    assert isinstance(failure.error, Overloaded)
    assert failure.error.message == "boom"


def document(record):
    return json.loads(record.removeprefix(b"data: "))


def test_each_server_writes_in_its_own_way():
    def written(name, *events):
        writer = find(name).writer()
        return [document(r) for event in events for r in writer.write(event)]

    thought, text = ReasoningDelta("hm"), TextDelta("a")
    end = [Finish("stop", "stop"), UsageReport(Usage(1, 2))]
    assert written("vllm", thought)[0]["choices"][0]["delta"] == {"reasoning": "hm"}
    parts = written("mistral", thought)[0]["choices"][0]["delta"]["content"]
    assert parts[0]["thinking"][0]["text"] == "hm"
    assert written("tgi-chat", text)[0]["id"] == ""
    assert written("tgi-chat", text)[0]["choices"][0]["delta"]["role"] == "assistant"
    (last,) = written("groq", *end)
    assert last["x_groq"]["usage"]["completion_tokens"] == 2
    (last,) = written("deepseek", *end)
    assert last["usage"]["prompt_tokens"] == 1
    first, last = written("openai", *end)
    assert "usage" not in first
    assert last["choices"] == []
    (failed,) = written("openrouter", Failure(ServerError("m", status=502)))
    assert failed["choices"][0]["finish_reason"] == "error"
    assert failed["error"] == {"code": 502, "message": "m"}
    (failed,) = written("sglang-chat", Failure(ServerError("m", retryable=True)))
    assert failed["error"]["retryable"] is True


def test_a_last_chunk_is_not_lost_without_usage():
    writer = find("mistral").writer()
    assert writer.write(Finish("stop", "stop")) == []
    assert writer.write(Finish("length", "length", 1)) != []
    finish, done = writer.write(End())
    assert document(finish)["choices"][0]["index"] == 1
    assert done == b"data: [DONE]\n\n"
    assert writer.write(UsageReport(Usage(1, 1, 1, 1))) != []


def test_ids_are_written_where_vllm_has_them():
    started = Started("i", "m", (1, 2))
    held, whole = TextDelta("", 0, 1, (5,)), TextDelta("た", 0, 1, (6,), {"tokens": []})
    for name in ("vllm", "vllm-completions"):
        dialect = find(name)
        writer = dialect.writer()
        script = [started, held, whole, Finish("stop", "stop"), End()]
        records = [record for event in script for record in writer.write(event)]
        assert read(records, dialect.reader()) == script
    thought = ReasoningDelta("a", 0, 1, (7,))
    (record,) = find("vllm").writer().write(thought)
    assert read([record], find("vllm").reader())[1:] == [thought]


def test_a_completion_has_text_and_nothing_else():
    writer = CompletionWriter(Accent())
    assert writer.write(ReasoningDelta("hm")) == []
    assert writer.write(ToolCallDelta(0, "c", "f")) == []


def test_a_chat_has_no_place_for_signals_of_ours():
    resumed = Resumed(Resumption(0, "", "text", Exactness.TEXT, Endpoint("x"), 0.0))
    assert ChatWriter().write(resumed) == []


def test_half_pairs_come_out_whole():
    """B23: the shared decoder joins them; readers hand the halves on."""
    events = [
        *ChatReader().read(rb'{"choices":[{"delta":{"content":"x\ud83d"}}]}', ""),
        *ChatReader().read(rb'{"choices":[{"delta":{"content":"\ude00y"}}]}', ""),
    ]
    assert said(events) == "x\ud83d\ude00y"


# -- records with an empty text --------------------------------------------------------


def chat_deltas(wire, dialect, *deltas):
    bodies = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return [
        (one.text, one.tokens)
        for one in wire.said(dialect, *bodies)
        if isinstance(one, TextDelta)
    ]


def test_a_record_inside_a_character_is_a_token(wire):
    empty = {"content": ""}
    said = chat_deltas(wire, "openai", empty, {"content": "日"})
    assert said == [("", None), ("日", None)]


def test_a_record_that_carries_the_role_alone_is_none(wire):
    opening = {"role": "assistant", "content": ""}
    assert chat_deltas(wire, "openai", opening, {"content": "a"}) == [("a", None)]
    assert chat_deltas(wire, "openrouter", opening, opening) == []


def test_where_every_record_carries_the_role_it_is_one(wire):
    inside = {"role": "assistant", "content": ""}
    assert chat_deltas(wire, "tgi-chat", inside, inside) == [("", None)] * 2


def test_tokens_told_with_an_empty_text_are_not_lost(wire):
    said = wire.said(
        "sglang-chat",
        {"choices": [{"delta": {"content": ""}}], "usage": {"completion_tokens": 2}},
        {"choices": [{"delta": {"content": "日"}}], "usage": {"completion_tokens": 3}},
    )
    told = [(one.text, one.tokens) for one in said if isinstance(one, TextDelta)]
    assert told == [("", 2), ("日", 1)]


def test_the_end_of_an_answer_is_no_token(wire):
    end = {"choices": [{"delta": {"content": ""}, "finish_reason": "stop"}]}
    assert not [s for s in wire.said("openai", end) if isinstance(s, TextDelta)]
    end = {"choices": [{"text": "", "finish_reason": "stop"}]}
    said = wire.said("openai-completions", {"choices": [{"text": ""}]}, end)
    assert [s.text for s in said if isinstance(s, TextDelta)] == [""]
