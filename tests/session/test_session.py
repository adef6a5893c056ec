"""One generation over many connections: what is decided, and how it ends."""

import json
from dataclasses import dataclass, replace
from math import inf

import pytest

from midstream._dialects import find
from midstream._dialects.llama import LlamaCompletion
from midstream._dialects.ollama import OllamaChat
from midstream._resume.policy import Backoff, Resume
from midstream._values.checkpoint import Checkpoint
from midstream._values.errors import (
    AuthenticationFailed,
    BadRequest,
    ConnectFailed,
    ContextOverflow,
    Dropped,
    NotFound,
    Overloaded,
    RateLimited,
    ServerFailed,
    TimedOut,
    UsageError,
    WireError,
)
from midstream._values.events import (
    End,
    Finish,
    RefusalDelta,
    Resumed,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream._values.exactness import Exactness
from midstream._values.interruptions import (
    ResumeDiverged,
    ResumeExhausted,
    ResumeUnsupported,
    StreamInterrupted,
    ToolCallInterrupted,
)
from midstream._values.timeouts import Timeouts
from midstream._values.usage import Usage

TEXT = "The quick brown fox"
STEADY = Backoff(initial=1, maximum=8, jitter=False)
BUSY = b'{"error": {"message": "busy", "type": "overloaded_error"}}'


def sse(*chunks):
    """A body of chat chunks; strings stand for themselves."""
    return b"".join(
        b"data: " + (c if isinstance(c, bytes) else json.dumps(c).encode()) + b"\n\n"
        for c in chunks
    )


def says(text=None, finish=None, index=0, **more):
    delta = {} if text is None else {"content": text}
    choice = {"index": index, "delta": {**delta, **more}, "finish_reason": finish}
    return {"choices": [choice]}


DONE = b"[DONE]"


@pytest.fixture
def start(world):
    """A run that was not begun, at a llama.cpp unless another dialect is named."""

    def make(breaks=(), *, name="llama.cpp", text=TEXT, **more):
        more.setdefault("resume", world.only("text", backoff=STEADY, attempts=5))
        return world.Run(name, world.Model(text, range(0, 99, 4)), breaks, **more)

    return make


@pytest.fixture
def opened(start):
    """A session with an open stream, for tests that read by hand."""

    def make(**more):
        run = start(**more)
        run.drive(run.session.connect(run.now))
        run.session.opened(200, {})
        return run

    return make


# -- the end ---------------------------------------------------------------------------


def ended(world, *chunks, how="eof", **more):
    more.setdefault("resume", None)
    body = sse(*chunks)
    return world.Run("openai", world.Model("x"), [world.Said(body, how)], **more).run()


def test_a_web_page_is_no_stream(start):
    run = start()
    run.drive(run.session.connect(run.now))
    with pytest.raises(NotFound, match="an HTML page in place of a stream"):
        run.session.opened(200, {"content-type": "text/html; charset=utf-8"})


def test_an_answer_that_was_not_streamed_is_whole(world):
    document = {
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "all at once"},
                "finish_reason": "stop",
            }
        ],
    }
    said = world.Said(json.dumps(document).encode())
    run = world.Run("openai", world.Model("x"), [said]).run()
    assert (run.text, run.session.complete) == ("all at once", True)


@pytest.mark.parametrize("how", ["eof", "reset", "stall"])
def test_a_finish_reason_without_done_is_complete(how, world):
    run = ended(world, says("a"), says(finish="stop"), how=how)
    assert run.error is None
    assert run.session.complete
    assert run.events[-1] == Finish("stop", "stop")


def test_done_without_a_finish_reason_is_complete_and_none_is_made_up(world):
    run = ended(world, says("a"), DONE)
    assert run.events == [TextDelta("a"), Finish(None)]
    assert run.session.ledger.main.finish_reason is None


def test_the_end_marker_ends_it_though_the_socket_stays_open(opened):
    run = opened()
    run.session.receive(sse(says("a"), DONE, says("never")), 1.0)
    assert run.session.ended
    assert run.session.ledger.main.text == "a"


def test_the_first_finish_reason_wins_and_later_text_counts(world):
    run = ended(world, says("a", "stop"), says("b", "length"), DONE)
    assert run.text == "ab"
    assert [e for e in run.events if type(e) is Finish] == [Finish("stop", "stop")]


@pytest.mark.parametrize(
    "fault",
    [
        b'data: {"error": {"message": "late"}}\n\n',
        b"data: no JSON\n\n",
        b"data: 5\n\n",
    ],
)
def test_what_breaks_after_the_end_is_a_note(fault, world):
    body = sse(says("a"), says(finish="stop")) + fault
    run = world.Run("openai", world.Model("x"), [world.Said(body)]).run()
    assert run.error is None
    assert run.session.complete
    assert any(note.startswith("after the end: ") for note in run.session.history.notes)


def test_an_unterminated_tail_is_delivered_and_noted(world):
    body = sse(says("a")) + sse(says("b", "stop")).rstrip()
    run = world.Run("openai", world.Model("x"), [world.Said(body)]).run()
    assert (run.text, run.session.complete) == ("ab", True)
    assert run.session.history.notes == ["unterminated_tail"]


@pytest.mark.parametrize("body", [b"\x00\x01\n\n", b"no stream", b": ping\n\n"])
def test_bytes_without_a_record_are_no_answer(body, world):
    """Triton says the end of its answers by the proper end of the body alone."""
    run = world.Run("triton", world.Model("x"), [world.Said(body)]).run()
    assert not run.session.complete
    assert type(run.error) is StreamInterrupted
    again = [world.Said(body)]
    run = world.Run("triton", world.Model(TEXT, [9]), again, resume=world.only("text"))
    assert run.run().text == TEXT


def test_no_bytes_are_an_answer_of_no_tokens(world):
    run = world.Run("triton", world.Model("x"), [world.Said(b"")]).run()
    assert (run.text, run.session.complete, run.error) == ("", True, None)


def test_half_a_tail_is_never_shown(world):
    body = sse(says("a")) + sse(says("b", "stop")).rstrip()[:-3]
    run = world.Run("openai", world.Model("x"), [world.Said(body)]).run()
    assert run.text == "a"
    assert isinstance(run.error.__cause__, Dropped)


def test_half_a_character_at_the_end_is_one_replacement(world):
    body = b'data: {"choices":[{"delta":{"content":"a\xe6\x97"}}]}\n\n' + sse(DONE)
    run = world.Run("openai", world.Model("x"), [world.Said(body)]).run()
    assert run.text == "a\ufffd"
    assert run.session.metrics.replaced == 1


@pytest.mark.parametrize("body", [b"a\xffb", b"a\xe6\x97"])
def test_strict_raises_for_bytes_that_are_no_text(body, world):
    chunk = b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n' % body
    said = world.Said(chunk + sse(says(finish="stop"), DONE))
    strict = {"errors": "strict"}
    run = world.Run("openai", world.Model("x"), [said], endpoint=strict).run()
    assert isinstance(run.error, WireError)
    assert isinstance(run.error.__cause__, UnicodeDecodeError)


def test_an_error_before_done_is_no_success(world):
    run = ended(world, {"error": {"message": "gw", "code": 504}}, DONE)
    assert type(run.error) is ServerFailed
    assert (run.error.message, run.error.status) == ("gw", 504)


@pytest.mark.parametrize("fault", ["cap", {"message": "cap"}])
def test_an_error_beside_empty_choices_is_an_error(fault, world):
    run = ended(world, says("A"), {"choices": [], "error": fault})
    assert run.error.message == "cap"
    assert run.error.text == "A"


def test_a_usage_chunk_is_harmless(world):
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    chunk = {"choices": [], "usage": usage}
    run = ended(world, says("a"), chunk, says("b", "stop"), chunk, DONE)
    assert run.text == "ab"
    assert UsageReport(Usage(3, 2)) in run.events
    assert run.session.metrics.tokens == 2


def test_after_the_finish_it_waits_two_seconds_for_the_rest(opened):
    run = opened()
    session = run.session
    session.receive(sse(says("a")), 10.0)
    assert session.deadline.at == 40.0
    session.receive(sse(says(finish="stop")), 11.0)
    assert session.deadline.at == 13.0
    session.receive(b": ping\n\n", 12.0)
    session.receive(sse({"choices": [], "usage": {"completion_tokens": 1}}), 12.5)
    assert session.deadline.at == 13.0
    assert [type(e) for e in session.dropped(session.deadline.error(), 13.0)] == [
        Finish
    ]
    assert session.complete


def test_pings_do_not_make_that_longer(opened):
    session = opened(timeouts=Timeouts(idle_with_pings=600)).session
    session.receive(sse(says("a", "stop")), 10.0)
    for now in 11.0, 11.5, 11.9:
        session.receive(b": ping\n\n", now)
    assert session.deadline.at == 12.0


# -- n answers -------------------------------------------------------------------------


def test_the_text_is_of_the_choice_that_was_asked_for(world):
    chunks = [says("a", index=0), says("b", index=1), says("c", index=1)]
    chunks += [says(finish="length", index=0), says(finish="stop", index=1), DONE]
    run = ended(world, *chunks, choice=1, extra={"n": 2})
    assert run.session.ledger.main.text == "bc"
    assert run.events[-1] == Finish("stop", "stop", 1)
    assert run.session.ledger.choices[0].text == "a"
    assert run.session.ledger.choices[0].finish_reason == "length"


def test_one_finished_answer_of_two_is_not_the_end(world):
    run = ended(world, says("a", "stop", index=0), extra={"n": 2})
    assert isinstance(run.error, StreamInterrupted)
    run = ended(world, says("a", "stop"), says("b", "stop", index=1), extra={"n": 2})
    assert run.error is None


def test_half_characters_of_other_answers_and_channels_are_joined(world):
    halves = [b'"\\ud83d"', b'"\\ude00"']
    body = b""
    for half in halves:
        for field in b"content", b"reasoning_content", b"refusal":
            for index in b"0", b"1":
                body += b'data: {"choices":[{"index":%s,"delta":{"%s":%s}}]}\n\n' % (
                    (index, field, half)
                )
    run = world.Run("openai", world.Model("x"), [world.Said(body + sse(DONE))]).run()
    for choice in run.session.ledger.choices.values():
        assert (choice.text, choice.reasoning, choice.refusal) == ("😀", "😀", "😀")


def test_a_cut_stream_of_two_answers_is_refused(world, start):
    run = start([world.Cut(600)], extra={"n": 2}).run()
    assert type(run.error) is ResumeUnsupported
    assert "n > 1" in str(run.error)


# -- resuming --------------------------------------------------------------------------


def test_a_resumption_says_where_why_how_and_by_whom(start, world):
    run = start([world.Cut(600, "stall")], timeouts=Timeouts(idle=7)).run()
    [resumption] = run.session.history.resumes
    assert resumption.strategy == "text"
    assert resumption.exactness is Exactness.TEXT
    assert str(resumption.endpoint) == "llama.cpp:m@http://host:1"
    assert "Timeouts.idle" in resumption.reason
    assert resumption.gap == pytest.approx(0.01)
    assert run.session.metrics.gap == resumption.gap
    assert run.session.metrics.resumes == 1
    at = next(at for at, e in enumerate(run.events) if type(e) is Resumed)
    before = "".join(e.text for e in run.events[:at] if type(e) is TextDelta)
    assert resumption.at == len(before) > 0


def test_before_anything_came_the_request_is_sent_again(start, world):
    breaks = [world.Refused(503, BUSY), world.Unreachable(), world.Cut(0), world.Cut(9)]
    run = start(breaks).run()
    assert run.strategies == ["begin"] * 5
    assert run.text == TEXT
    assert run.session.history.exactness is Exactness.UNBROKEN


def test_a_request_that_was_only_refused_is_no_resumption(start, world):
    run = start([world.Refused(503, BUSY), world.Unreachable()]).run()
    assert run.session.history.resumes == []


def test_the_weakest_connection_is_the_streams_exactness(start, world):
    breaks = [world.Cut(500), world.Refused(404), world.Cut(400)]
    run = start(breaks, resume=world.only("replay", "text")).run()
    assert run.strategies == ["begin", "replay", "text", "replay"]
    kinds = [one.exactness for one in run.session.history.resumes]
    assert kinds == [Exactness.TEXT, Exactness.REPLAYED]
    assert run.session.history.exactness is Exactness.TEXT


def test_a_stream_no_longer_kept_is_not_cancelled(start, world):
    breaks = [world.Cut(500), world.Refused(404)]
    run = start(breaks, resume=world.only("replay", "text")).run()
    assert run.text == TEXT
    assert not [call for call in run.calls if call.method == "DELETE"]


def test_an_abandoned_stream_that_is_kept_is_cancelled(start, world):
    breaks = [world.Cut(500), world.Refused(400)]
    run = start(breaks, resume=world.only("replay", "text")).run()
    assert run.text == TEXT
    [call] = [call for call in run.calls if call.method == "DELETE"]
    assert "handle-1" in call.url


def test_a_cancel_that_fails_is_a_note(start, world):
    run = start(
        [world.Cut(500), world.Refused(400)], resume=world.only("replay", "text")
    )

    def fails(generation, received):
        raise ConnectFailed("gone")
        yield

    object.__setattr__(run.session.server.dialect, "leave", fails)
    assert run.run().text == TEXT
    assert "leave: gone" in run.session.history.notes


def test_each_generation_has_a_name_of_its_own_and_a_replay_keeps_it(start, world):
    breaks = [world.Cut(500), world.Cut(300), world.Refused(404)]
    run = start(breaks, resume=world.only("replay", "text")).run()
    tags = [dict(call.headers).get("x-conversation-id") for call in run.opens]
    assert tags == ["handle-1", None, None, "handle-2"]
    assert "conv_id=handle-1" in run.opens[1].url


def test_a_replay_asks_for_the_first_byte_that_did_not_come(start, world):
    run = start([world.Cut(500), world.Cut(123)], resume=world.only("replay")).run()
    assert [r.offset for _, r in run.asked[1:]] == [500, 623]
    assert "from=500" in run.opens[1].url
    assert run.text == TEXT


def test_a_token_held_back_before_a_replay_keeps_its_place(world):
    """Its id comes before the drop, its text after it, and a later leg needs both."""

    def record(text, ids, total):
        chunk = {"content": text, "tokens": ids, "tokens_predicted": total}
        return sse({**chunk, "index": 0, "stop": False})

    first = record("A", [1], 1) + record("", [2], 2)
    rest = record("BC", [3], 3)
    breaks = [world.Said(first, "reset"), world.Said(rest, "reset"), world.Refused(404)]
    resume = world.only("replay", "tokens")
    run = world.Run("llama.cpp-completion", world.Model("x"), breaks, resume=resume)
    run.run()
    tokens = next(r for strategy, r in run.asked if strategy == "tokens")
    assert (list(tokens.token_ids), tokens.tokens) == ([1, 2, 3], 3)


def test_half_a_character_before_a_replay_is_joined_to_its_rest(world):
    first = b'data: {"content":"a\\ud83d","stop":false}\n\n'
    rest = b'data: {"content":"\\ude00b","stop":true}\n\n'
    breaks = [world.Said(first, "reset"), world.Said(rest)]
    run = world.Run(
        "llama.cpp-completion",
        world.Model("x"),
        breaks,
        resume=world.only("replay"),
    ).run()
    assert (run.text, run.session.metrics.replaced) == ("a😀b", 0)


# -- seams -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Seamed(OllamaChat):
    """A server with a seam of its own."""

    strips: bool = False
    echo: str = "none"

    def continuation(self, generation, strategy, received):
        plain = yield from super().continuation(generation, strategy, received)
        sent = received.text.rstrip() if self.strips else received.text
        return replace(plain, sent=sent, echo=self.echo)


def seamed(world, text, came, body, *, how="reset", **seam):
    """A stream cut after ``came``, continued by the given texts."""
    lines = [{"message": {"content": one}, "done": False} for one in body]
    lines.append({"message": {"content": ""}, "done": True, "done_reason": "stop"})
    first = json.dumps({"message": {"content": came}, "done": False}) + "\n"
    rest = "".join(json.dumps(line) + "\n" for line in lines)
    stop = seam.pop("stop", None)
    breaks = [world.Said(first.encode(), how), world.Said(rest.encode())]
    return world.Run(
        Seamed(**seam),
        world.Model(text),
        breaks,
        resume=world.only("text"),
        stop=stop,
    ).run()


@pytest.mark.parametrize(
    ("echo", "body", "text"),
    [
        ("whole", [*"ha ha ", "ha!"], "ha ha ha!"),
        ("none", ["ha!"], "ha ha ha!"),
        ("none", ["ha ha ", "ha!"], "ha ha ha ha ha!"),
        ("tail", ["ha ", "ok"], "ha ha ok"),
        ("tail", [*"ha ok"], "ha ha ok"),
        ("whole", ["x"], "ha ha x"),
    ],
)
def test_echoes_are_dropped_where_they_are_declared(echo, body, text, world):
    assert seamed(world, text, "ha ha ", body, echo=echo).text == text


@pytest.mark.parametrize("body", ["\n\nLine two", "Line two", "\nLine two"])
@pytest.mark.parametrize("split", [list, lambda text: [text]])
def test_white_space_held_off_comes_once(body, split, world):
    whole = "Line one.\n\nLine two"
    run = seamed(world, whole, "Line one.\n\n", split(body), strips=True)
    assert run.text == whole


def test_a_stop_string_over_the_seam_stops_and_the_server_is_told(world):
    run = seamed(world, "", "so E", ["N", "D never"], stop="END")
    assert run.text == "so E"
    assert run.events[-1] == Finish("stop", "stop")
    assert run.session.complete
    breaks = [world.Said(sse(says("so E")), "reset"), world.Said(sse(says("ND")))]
    resume = Resume(strategies=("replay", "text"))
    run = world.Run("llama.cpp", world.Model("x"), [], resume=resume, stop="END")
    run.breaks = [breaks[0], world.Refused(404), breaks[1]]
    run.run()
    assert run.session.complete
    assert [call.method for call in run.calls] == ["DELETE"]


def test_nothing_comes_after_a_stop_string_not_even_half_a_character(world):
    half = b'data: {"choices":[{"delta":{"content":"ND\xe6"}}]}\n\n'
    breaks = [world.Said(sse(says("so E")), "reset"), world.Said(half)]
    run = world.Run(
        "llama.cpp", world.Model("x"), breaks, resume=world.only("text"), stop="END"
    ).run()
    assert (run.text, run.session.complete) == ("so E", True)


def test_an_echo_does_not_count_for_the_budget(world):
    """Five tokens, echoed token by token, leave five of ten."""
    body = [says(char) for char in "abcde"]

    @dataclass(frozen=True, kw_only=True)
    class Echoing(type(find("llama.cpp"))):
        def continuation(self, generation, strategy, received):
            plain = yield from super().continuation(generation, strategy, received)
            return replace(plain, echo="whole")

    dialect = Echoing(**{**vars(find("llama.cpp")), "total": None})
    breaks = [
        world.Said(sse(*body), "reset"),
        world.Said(sse(*body, says("f")), "reset"),
        world.Said(sse(says("x"), says("y")), "reset"),
        world.Said(sse(*[says(char) for char in "abcdefxyg"], DONE)),
    ]
    resume = world.only("text")
    model = world.Model("x")
    run = world.Run(dialect, model, breaks, resume=resume, max_tokens=10).run()
    lefts = [received.left for _, received in run.asked[1:]]
    assert lefts == [5, 4, 2]
    assert run.text == "abcdefxyg"


# -- rerun -----------------------------------------------------------------------------


def rerun(world, first, second, **more):
    breaks = [world.Said(sse(*first), "reset"), world.Said(sse(*second))]
    resume = world.only("rerun", "text")
    model = world.Model("x")
    return world.Run("llama.cpp", model, breaks, resume=resume, **more)


def test_a_rerun_skips_what_came_and_counts_it_once(world):
    first = [says("a"), says("b")]
    run = rerun(world, first, [says("a"), says("b"), says("c")], max_tokens=9)
    run.breaks.append(world.Said(sse(says("d"), DONE)))
    run.run()
    assert run.text[:3] == "abc"
    assert run.asked[2][1] is None  # again a rerun: its budget is the whole one
    assert run.session.ledger.tokens >= 3


def test_tokens_of_a_cut_rerun_stay_counted(world):
    run = rerun(world, [says("a"), says("b"), says("c")], [says("a")], max_tokens=9)
    run.run()
    assert run.session.ledger.tokens >= 3


def test_a_rerun_that_says_something_else_diverges(world):
    run = rerun(world, [says("abc")], [says("abX", "stop"), DONE]).run()
    assert type(run.error) is ResumeDiverged
    assert run.error.text == "abc"
    assert isinstance(run.error.__cause__, Dropped)


def test_a_rerun_that_ends_early_diverges(world):
    run = rerun(world, [says("abc")], [says("ab", "stop"), DONE]).run()
    assert type(run.error) is ResumeDiverged
    assert not run.session.complete
    assert isinstance(run.error.__cause__, Dropped)


# -- budget ----------------------------------------------------------------------------


def test_a_continuation_asks_for_what_is_left(world):
    six = [says(char) for char in "abcdef"]
    rest = [says(char) for char in "ghij"] + [says(finish="length"), DONE]
    breaks = [world.Said(sse(*six), "reset"), world.Said(sse(*rest))]
    run = world.Run(
        "llama.cpp",
        world.Model("x"),
        breaks,
        resume=world.only("text"),
        max_tokens=10,
    ).run()
    assert json.loads(run.opens[0].content)["max_tokens"] == 10
    assert json.loads(run.opens[1].content)["max_tokens"] == 4
    assert run.text == "abcdefghij"


def test_with_nothing_left_no_request_is_sent(world):
    ten = [says(char) for char in "abcdefghij"]
    run = world.Run(
        "llama.cpp",
        world.Model("x"),
        [world.Said(sse(*ten), "reset")],
        resume=world.only("text"),
        max_tokens=10,
    ).run()
    assert run.error is None
    assert len(run.opens) == 1
    assert run.events[-1] == Finish("length", "length")
    assert run.session.complete


# -- tools -----------------------------------------------------------------------------

CALL = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a": '}}


def with_tools(world, body, resume, **more):
    breaks = [world.Said(body, "reset")]
    model = world.Model("Let me check it", range(9))
    return world.Run(
        "llama.cpp", model, breaks, resume=resume, tools=[{}], **more
    ).run()


def test_text_of_a_request_with_tools_goes_on_if_the_policy_allows(world):
    body = sse(says("Let me check"))
    assert with_tools(world, body, world.only("text")).text == "Let me check it"
    refused = with_tools(world, body, world.only("text", tools=False))
    assert type(refused.error) is ResumeUnsupported


@pytest.mark.parametrize(("more", "whole"), [("1", False), ("1}", True)])
def test_a_cut_tool_call_is_an_error_with_its_raw_arguments(more, whole, world):
    rest = {"index": 0, "function": {"arguments": more}}
    body = sse(says(tool_calls=[CALL]), says(tool_calls=[rest]))
    error = with_tools(world, body, world.only("text")).error
    assert type(error) is ToolCallInterrupted
    [call] = error.tool_calls
    assert (call.arguments, call.complete) == ('{"a": ' + more, whole)
    assert isinstance(error.__cause__, Dropped)


def test_a_whole_call_is_kept_once(world):
    rest = {"index": 0, "function": {"arguments": "1}"}}
    body = sse(says(tool_calls=[CALL]), says(tool_calls=[rest]), says(finish="stop"))
    run = with_tools(world, body, world.only("text", "rerun"))
    assert run.error is None
    [call] = run.session.ledger.main.tool_calls
    assert (call.complete, call.parsed()) == (True, {"a": 1})
    assert len([e for e in run.events if type(e) is ToolCallDelta]) == 2


def test_a_replay_brings_the_rest_of_a_call(world):
    rest = {"index": 0, "function": {"arguments": "1}"}}
    breaks = [
        world.Said(sse(says(tool_calls=[CALL])), "reset"),
        world.Said(sse(says(tool_calls=[rest]), says(finish="tool_calls"), DONE)),
    ]
    resume = world.only("replay")
    run = world.Run("llama.cpp", world.Model("x"), breaks, resume=resume).run()
    [call] = run.session.ledger.main.tool_calls
    assert (call.complete, call.arguments) == (True, '{"a": 1}')


# -- refused ways ----------------------------------------------------------------------

PREFILL = b'{"error": {"message": "does not support assistant message prefill"}}'


def test_a_refused_prefill_is_remembered_and_the_next_way_tried(start, world):
    breaks = [world.Cut(600), world.Refused(400, PREFILL)]
    resume = world.only("text", approximate=True)
    run = start(breaks, resume=resume).run()
    assert run.strategies == ["begin", "text", "ask"]
    assert run.session.history.exactness is Exactness.APPROXIMATE
    assert run.session.server.refused == {("m", "text")}


def test_what_was_refused_for_replays_sake_is_asked_anew_and_not_cancelled(world):
    words = b'{"error": {"message": "this server does not support `store=True`"}}'
    run = world.Run(
        "openai-responses",
        world.Model(TEXT, range(9)),
        [world.Refused(400, words)],
        resume=world.only("replay", "text"),
    ).run()
    assert run.text == TEXT
    assert run.strategies == ["begin", "begin"]
    assert run.calls == []
    assert run.session.history.resumes == []


def test_without_another_way_the_cause_is_the_first_drop(start, world):
    run = start([world.Cut(600), world.Refused(400, PREFILL)]).run()
    assert type(run.error) is ResumeUnsupported
    assert isinstance(run.error.__cause__, Dropped)
    assert run.error.text == run.text != ""
    assert "prefill" in str(run.error)
    assert len(run.opens) == 2


def test_another_refusal_of_a_continuation_is_an_interruption_by_it(start, world):
    overflow = b'{"error": {"message": "too long for n_ctx", "code": 400}}'
    run = start([world.Cut(600), world.Refused(400, overflow)]).run()
    assert type(run.error) is StreamInterrupted
    assert type(run.error.__cause__) is ContextOverflow
    assert isinstance(run.error.__cause__.__cause__, Dropped)


# -- attempts and waits ----------------------------------------------------------------


def test_attempts_count_without_progress(start, world):
    run = start([world.Cut(600)] + [world.Cut(0)] * 9).run()
    assert type(run.error) is ResumeExhausted
    assert "5 attempts" in str(run.error)
    assert isinstance(run.error.__cause__, Dropped)
    assert run.pauses == [0, 0, 1, 2, 4, 8]


def test_enough_text_starts_the_count_anew(world):
    lines = [f"line {n} of the answer. " for n in range(9)]
    texts = [world.Said(sse(says(line)), "reset") for line in lines]
    resume = world.only("text", attempts=1)
    run = world.Run("llama.cpp", world.Model("x"), texts, resume=resume).run()
    assert run.error is None
    assert run.text.startswith("".join(lines))
    assert run.session.metrics.connects == 10


@pytest.mark.parametrize("size", [1, 15, 16])
def test_less_than_sixteen_characters_are_a_try_that_brought_nothing(size, world):
    texts = [chr(97 + n) * size for n in range(9)]
    breaks = [world.Said(sse(says(text)), "reset") for text in texts]
    resume = world.only("text", attempts=4, backoff=STEADY)
    run = world.Run("llama.cpp", world.Model("x"), breaks, resume=resume).run()
    if size < 16:
        assert type(run.error) is ResumeExhausted
        assert run.text == "".join(texts[:5])
        assert run.pauses == [0, 0, 1, 2, 4]
    else:
        assert run.text.startswith("".join(texts))
        assert not any(run.pauses)


@pytest.mark.parametrize("field", ["reasoning_content", "tool_calls"])
def test_reasoning_and_arguments_are_progress_too(field, world):
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "[" * 16}}
    piece = [call] if field == "tool_calls" else "hm " * 6
    breaks = [world.Said(sse(says(**{field: piece})), "reset")] * 9
    resume = world.only("replay", attempts=1)
    run = world.Run("llama.cpp", world.Model("x"), breaks, resume=resume).run()
    assert len(run.opens) >= 9


def test_a_server_that_starts_anew_again_and_again_is_stopped(world):
    """The same characters until the budget is spent are no continuation (K31)."""
    said = "The sea is deep and blue"
    for size in (3, 15, 24):
        breaks = [world.Said(sse(says(said[:size])), "reset")] * 9
        resume = world.only("text", attempts=30)
        run = world.Run("llama.cpp", world.Model("x"), breaks, resume=resume).run()
        assert type(run.error) is ResumeDiverged
        assert "anew" in str(run.error)
        assert len(run.opens) == 3
        assert type(run.error.__cause__) is Dropped


def test_a_second_beginning_is_not_given_out_as_whole(world):
    said = "The sea is deep and blue"
    breaks = [world.Said(sse(says(said)), "reset")] * 2
    breaks.append(world.Said(sse(says(said), says(finish="stop"), DONE)))
    run = world.Run(
        "llama.cpp", world.Model("x"), breaks, resume=world.only("text")
    ).run()
    assert type(run.error) is ResumeDiverged
    assert not run.session.complete


def test_an_answer_of_repetitions_is_not_taken_for_a_new_beginning(world):
    breaks = [world.Said(sse(says("ha "), says("ha ")), "reset")]
    breaks += [world.Said(sse(says("ha ")), "reset")] * 3
    breaks.append(world.Said(sse(says("ha!"), DONE)))
    run = world.Run(
        "llama.cpp", world.Model("x"), breaks, resume=world.only("text")
    ).run()
    assert run.error is None
    assert run.text == "ha " * 5 + "ha!"


def test_an_answer_that_repeats_a_line_once_goes_on(world):
    line = "Row, row, row your boat. "
    breaks = [
        world.Said(sse(says(line)), "reset"),
        world.Said(sse(says(line)), "reset"),
        world.Said(sse(says("Life is but a dream."), DONE)),
    ]
    run = world.Run(
        "llama.cpp", world.Model("x"), breaks, resume=world.only("text")
    ).run()
    assert run.text == line * 2 + "Life is but a dream."
    assert run.session.complete


def test_repeated_text_is_no_progress(world):
    first = world.Said(sse(says("abc")), "reset")
    again = [world.Said(sse(says("ab")), "reset")] * 9
    resume = world.only("rerun", attempts=3)
    run = world.Run("llama.cpp", world.Model("x"), [first, *again], resume=resume).run()
    assert type(run.error) is ResumeExhausted
    assert run.text == "abc"
    assert len(run.opens) == 4


def test_no_attempts_are_no_resuming(start, world):
    run = start([world.Cut(600)], resume=world.only("text", attempts=0)).run()
    assert isinstance(run.error, StreamInterrupted)
    assert len(run.opens) == 1


def test_it_waits_as_long_as_the_server_asks(start, world):
    busy = world.Refused(429, BUSY, {"retry-after": "7"})
    ms = world.Refused(503, BUSY, {"retry-after-ms": "1500", "retry-after": "9"})
    assert start([busy, ms]).run().pauses == [0, 7, 1.5]


@pytest.mark.parametrize("others", [(), ("ollama",)])
def test_a_longer_wait_than_is_allowed_is_not_waited_for(others, start, world):
    busy = world.Refused(429, b"{}", {"retry-after": "3600"})
    run = start([busy], others=others).run()
    if others:
        assert run.text == TEXT
        assert run.session.server.endpoint.dialect == "ollama"
    else:
        assert type(run.error) is RateLimited
        assert run.error.retry_after == 3600
        assert len(run.opens) == 1


def test_a_server_that_says_no_retry_gets_none(start, world):
    busy = world.Refused(503, BUSY, {"x-should-retry": "false"})
    run = start([busy]).run()
    assert type(run.error) is Overloaded
    assert len(run.opens) == 1


def test_a_server_that_says_retry_gets_one(start, world):
    wrong = world.Refused(400, b"{}", {"x-should-retry": "true"})
    assert start([wrong]).run().text == TEXT


# -- errors ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["reset", "eof", "stall"])
def test_without_resuming_a_drop_interrupts_and_no_second_request_is_sent(
    how, start, world
):
    run = start([world.Cut(600, how)], resume=None).run()
    assert type(run.error) is StreamInterrupted
    assert type(run.error.__cause__) is (TimedOut if how == "stall" else Dropped)
    assert run.error.text == run.text != ""
    assert run.error.checkpoint.text == run.text
    assert run.error.resumable
    assert len(run.opens) == 1


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (400, BadRequest),
        (401, AuthenticationFailed),
        (404, NotFound),
        (429, RateLimited),
        (500, ServerFailed),
        (503, Overloaded),
    ],
)
def test_an_error_the_server_reported_is_raised_as_itself(status, cls, start, world):
    run = start([world.Refused(status, b"{}")], resume=None).run()
    assert type(run.error) is cls
    assert run.error.text == ""
    assert run.error.checkpoint is not None


@pytest.mark.parametrize(
    ("type_", "cls", "retried"),
    [
        ("overloaded_error", Overloaded, True),
        ("server_error", ServerFailed, True),
        ("invalid_request_error", BadRequest, False),
        ("authentication_error", AuthenticationFailed, False),
    ],
)
def test_an_error_in_mid_stream_is_classed_by_its_type(
    type_, cls, retried, start, world
):
    fault = {"error": {"type": type_, "message": "m"}}
    body = sse(says("The quick "), fault)
    run = start([world.Said(body)], resume=None).run()
    assert type(run.error) is cls
    assert (run.error.text, run.error.retryable) == ("The quick ", retried)
    run = start([world.Said(body)]).run()
    assert (run.error is None) is retried
    assert run.text == (TEXT if retried else "The quick ")


def test_no_connection_at_all_is_raised_as_itself(start, world):
    for resume in None, world.only("text", attempts=3):
        run = start([world.Unreachable()] * 9, resume=resume).run()
        assert type(run.error) is ConnectFailed
        assert len(run.opens) == (1 if resume is None else 4)


def test_no_connection_after_a_drop_is_the_drop(start, world):
    run = start([world.Cut(600)] + [world.Unreachable()] * 9).run()
    assert type(run.error) is ResumeExhausted
    assert type(run.error.__cause__) is Dropped


def test_an_original_cause_is_not_replaced(start, world):
    run = start([world.Cut(0), *[world.Unreachable()] * 9])
    dropped = run.session.dropped

    def with_cause(fault, now):
        if isinstance(fault, ConnectFailed):
            fault.__cause__ = OSError("refused")
        return dropped(fault, now)

    run.session.dropped = with_cause
    run.run()
    assert type(run.error) is ConnectFailed
    assert isinstance(run.error.__cause__, OSError)


def test_the_first_drop_is_behind_a_cause_of_another_library(start, world):
    """As every refusal over gRPC has one (K25)."""
    run = start([world.Cut(600), world.Refused(401)], resume=world.only("text"))
    dropped, foreign = run.session.dropped, OSError("refused")

    def with_cause(fault, now):
        if isinstance(fault, AuthenticationFailed):
            fault.__cause__ = foreign
        return dropped(fault, now)

    run.session.dropped = with_cause
    run.run()
    assert type(run.error) is StreamInterrupted
    assert type(run.error.__cause__) is AuthenticationFailed
    assert run.error.__cause__.__cause__ is foreign
    assert type(foreign.__cause__) is Dropped


def test_malformed_bytes_are_a_drop_and_say_where_when_they_come_again(start, world):
    body = sse(says("ab")) + b"data: {no JSON}\n\n"
    again = sse(says("cd")) + b"data: {no JSON}\n\n"
    run = start([world.Said(body), world.Said(again)]).run()
    assert type(run.error) is WireError
    assert run.error.offset == len(again)
    assert run.error.text == "abcd"
    assert isinstance(run.error.__cause__, ValueError)
    assert len(run.opens) == 2
    run = start([world.Said(sse(says(TEXT[:9])) + b"data: {no JSON}\n\n")]).run()
    assert run.text == TEXT


def test_a_malformed_record_is_never_skipped_by_a_replay(world):
    body = sse(says("The q")) + b"data: {no JSON}\n\n"
    resume = world.only("replay", "text")
    model = world.Model(TEXT, range(99))
    run = world.Run("llama.cpp", model, [world.Said(body)], resume=resume).run()
    assert run.strategies == ["begin", "text"]
    assert run.text == TEXT


def test_events_before_a_fault_in_the_same_read_are_delivered(opened):
    session = opened().session
    events = session.receive(sse(says("ab"), b"no JSON"), 1.0)
    assert events == [TextDelta("ab")]
    with pytest.raises(WireError):
        session.check()
    session.check()


def test_an_error_ends_the_session_and_can_be_signed_twice(start, world):
    run = start([world.Refused(401, b"{}")], resume=None).run()
    assert run.session.ended
    assert run.session.signed(run.error) is run.error


def test_a_request_the_dialect_cannot_make_is_the_callers_mistake(world):
    run = world.Run("ollama", world.Model("x"), endpoint={"model": None}).run()
    assert type(run.error) is UsageError
    assert run.error.checkpoint is not None


def test_the_driver_must_connect_first(start):
    with pytest.raises(RuntimeError):
        start().session.receive(b"", 0.0)


# -- deadlines -------------------------------------------------------------------------


def test_each_limit_has_its_time(opened):
    limits = Timeouts(first_token=120, idle=30)
    run = opened(timeouts=limits)
    deadline = run.session.deadline
    assert (deadline.kind, deadline.at, deadline.seconds) == ("first_token", 220.0, 120)
    run.session.receive(sse(says("", role="assistant")), 110.0)
    run.session.receive(b": ping\n\n", 115.0)
    assert (deadline.kind, deadline.at) == ("first_token", 220.0)
    run.session.receive(sse(says("a")), 150.0)
    assert (deadline.kind, deadline.at) == ("idle", 180.0)
    run.session.receive(sse(says(reasoning_content="hm")), 160.0)
    assert deadline.at == 190.0
    assert run.session.deadline is deadline


def test_pings_are_no_progress(opened):
    session = opened(timeouts=Timeouts(idle=30)).session
    session.receive(sse(says("a")), 100.0)
    session.receive(b": ping\n\n", 120.0)
    session.receive(sse({"choices": [], "usage": None}), 125.0)
    assert session.deadline.at == 130.0


def test_pings_stretch_idle_as_far_as_the_caller_lets_them(opened):
    session = opened(timeouts=Timeouts(idle=30, idle_with_pings=50)).session
    session.receive(sse(says("a")), 100.0)
    session.receive(b": ping\n\n", 110.0)
    assert session.deadline.at == 140.0
    session.receive(b": ping\n\n", 135.0)
    assert (session.deadline.at, session.deadline.kind) == (150.0, "idle")
    session.receive(sse(says("b")), 149.0)
    assert session.deadline.at == 179.0


def test_pings_never_make_idle_shorter(opened):
    session = opened(timeouts=Timeouts(idle=30, idle_with_pings=5)).session
    session.receive(sse(says("a")), 100.0)
    session.receive(b": ping\n\n", 101.0)
    assert session.deadline.at == 130.0


def test_without_idle_pings_change_nothing(opened):
    session = opened(timeouts=Timeouts(idle=None, idle_with_pings=5)).session
    session.receive(sse(says("a")), 100.0)
    session.receive(b": ping\n\n", 101.0)
    assert session.deadline.at == inf


def test_the_total_time_runs_from_the_first_request(opened):
    run = opened(timeouts=Timeouts(first_token=120, idle=30, total=60))
    session = run.session
    assert (session.deadline.kind, session.deadline.at) == ("total", 160.0)
    session.receive(sse(says("a")), 110.0)
    assert (session.deadline.kind, session.deadline.at) == ("idle", 140.0)
    session.receive(sse(says("a")), 139.0)
    assert (session.deadline.kind, session.deadline.seconds) == ("total", 60)
    session.receive(b": ping\n\n", 140.0)
    assert session.deadline.at == 160.0


def test_the_total_time_is_raised_as_itself(start, world):
    stalled = [world.Cut(600, "stall")]
    limits = Timeouts(first_token=None, idle=None, total=5)
    run = start(stalled, timeouts=limits).run()
    assert type(run.error) is TimedOut
    assert (run.error.kind, run.error.seconds) == ("total", 5)
    assert run.error.text == run.text != ""


def test_the_total_time_after_a_drop_interrupts(start, world):
    breaks = [world.Cut(600), world.Cut(0, "stall")]
    limits = Timeouts(first_token=None, idle=None, total=5)
    run = start(breaks, timeouts=limits).run()
    assert type(run.error) is StreamInterrupted
    cause = run.error.__cause__
    assert (type(cause), cause.kind) == (TimedOut, "total")
    assert isinstance(cause.__cause__, Dropped)


def test_the_total_time_includes_the_waits(start, world):
    busy = world.Refused(503, BUSY, {"retry-after": "90"})
    run = start([busy], timeouts=Timeouts(total=60)).run()
    assert (type(run.error), run.error.kind) == (TimedOut, "total")
    assert type(run.error.__cause__) is Overloaded
    assert len(run.opens) == 1


def test_the_wait_for_a_connection_is_raised_as_itself(opened):
    session = opened(resume=None).session
    with pytest.raises(TimedOut, match="connect"):
        session.dropped(TimedOut("connect", 10), 110.0)


# -- failover --------------------------------------------------------------------------


def test_the_next_server_takes_over_in_mid_stream(start, world):
    breaks = [world.Cut(600), world.Unreachable()]
    run = start(breaks, others=["ollama"]).run()
    assert run.text == TEXT
    [resumption] = run.session.history.resumes
    assert resumption.endpoint.dialect == "ollama"
    assert run.servers[0].health.down_until > run.now - 60


def test_another_servers_answer_of_another_model_is_approximate(world):
    model = world.Model(TEXT, range(9))
    breaks = [world.Cut(600), world.Refused(401, b"{}")]
    resume = world.only("text")
    run = world.Run("llama.cpp", model, breaks, resume=resume, others=["ollama"])
    other = run.servers[1]
    other.endpoint = other.endpoint.model_copy(update={"model": "other"})
    run.run()
    assert run.text == TEXT
    assert run.session.history.exactness is Exactness.APPROXIMATE


def test_the_callers_mistake_is_not_asked_elsewhere(start, world):
    run = start([world.Refused(400, b"{}")], others=["ollama"]).run()
    assert type(run.error) is BadRequest
    assert len(run.opens) == 1


def test_keys_of_a_server_that_was_left_are_not_shown(world):
    key = "sk-of-the-first-server"
    fault = b'{"error": {"message": "no room for %s"}}' % key.encode()
    breaks = [world.Refused(503, fault), *[world.Unreachable()] * 9]
    run = world.Run(
        "llama.cpp",
        world.Model("x"),
        breaks,
        resume=world.only("text", attempts=0),
        endpoint={"api_key": key},
        others=["ollama"],
    )
    other = run.servers[1]
    other.endpoint = other.endpoint.model_copy(update={"api_key": None})
    run.run()
    error = run.error
    while error is not None:
        assert key not in f"{error} {error!r}"
        error = error.__cause__


# -- leaving and checkpoints -----------------------------------------------------------


def test_leaving_an_open_stream_that_is_kept_stops_it(opened, world):
    run = opened(resume=world.only("replay"))
    run.drive(run.session.leave())
    assert [call.method for call in run.calls] == ["DELETE"]


def test_leaving_a_complete_stream_says_nothing(start, world):
    run = start(resume=world.only("replay")).run()
    assert run.session.complete
    assert run.calls == []


def test_what_was_cancelled_before_its_headers_is_left_before_it_is_asked_anew(
    start, world
):
    run = start(resume=world.only("replay"))
    run.drive(run.session.connect(run.now))  # and no answer is waited for
    assert run.run().text == TEXT
    [call] = run.calls
    assert (call.method, "handle-1" in call.url) == ("DELETE", True)


def test_leaving_what_was_cancelled_may_fail(start, world):
    run = start(resume=world.only("replay"))
    run.drive(run.session.connect(run.now))
    flow = run.session.connect(run.now)
    assert next(flow).method == "DELETE"
    with pytest.raises(StopIteration):
        flow.throw(ConnectFailed("nobody there"))
    assert run.session.history.notes == ["leave: nobody there"]


def test_leaving_before_connecting_says_nothing(start):
    run = start()
    run.drive(run.session.leave())
    assert run.calls == []


def test_a_checkpoint_is_all_that_came(start, world):
    run = start([world.Cut(600)], resume=None, max_tokens=9, stop="x").run()
    stored = run.error.checkpoint
    assert stored.endpoint == "llama.cpp:m@http://host:1"
    assert stored.request == {"prompt": "why?", "max_tokens": 9, "stop": ["x"]}
    assert stored.text == run.text
    assert stored.tokens == run.session.ledger.tokens > 0
    assert (stored.handle, stored.offset) == ("handle-1", 600)
    assert not stored.complete


def test_before_connecting_a_checkpoint_is_empty(start):
    stored = start().session.checkpoint()
    assert (stored.text, stored.tokens) == ("", 0)
    assert stored.handle == "handle-1"  # its name is known before it is asked for


def continued(run, stored, after=0, have=None):
    """Another process goes on with what one left."""
    return run.restore(stored, after, have).run()


@pytest.mark.parametrize("way", ["replay", "text"])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_another_process_goes_on(way, after, start, world):
    broken = start([world.Cut(700)], resume=None).run()
    stored = broken.error.checkpoint
    run = start(resume=world.only(way))
    run.kept = broken.kept
    continued(run, stored, after)
    assert run.error is None
    assert run.text == TEXT[after:]
    assert run.session.ledger.main.text == TEXT
    assert run.strategies == [way]


@pytest.mark.parametrize("seen", [0, 1, 3, 10, 19])
@pytest.mark.parametrize("way", ["replay", "text"])
def test_another_process_goes_on_behind_the_text_that_the_caller_has(
    way, seen, start, world
):
    broken = start([world.Cut(700)], resume=None, max_tokens=99).run()
    run = start(resume=world.only(way))
    run.kept = broken.kept
    continued(run, broken.error.checkpoint, have=TEXT[:seen])
    assert run.error is None
    assert run.text == TEXT[seen:]
    assert run.session.ledger.main.text == TEXT


def test_a_gap_that_only_a_count_is_known_of_comes_by_replay_alone(start, world):
    broken = start([world.Cut(700)], resume=None).run()
    stored = broken.error.checkpoint
    run = start(resume=world.only("replay", "text"))
    run.kept = broken.kept
    continued(run, stored, 10)
    assert (run.text, run.strategies) == (TEXT[10:], ["replay"])
    lost = start([world.Refused(404)], resume=world.only("replay", "text"))
    continued(lost, stored, 10)
    assert type(lost.error) is ResumeUnsupported
    assert "have=" in str(lost.error)
    assert lost.text == ""
    assert lost.error.text == stored.text


def test_who_read_more_than_a_replay_brings_read_something_else(start, world):
    broken = start([world.Cut(700)], resume=None).run()
    run = start(resume=world.only("replay"))
    run.kept = broken.kept
    continued(run, broken.error.checkpoint, len(TEXT) + 1)
    assert type(run.error) is ResumeDiverged
    assert not run.session.complete
    assert run.text == ""


def test_a_replay_tells_for_sure_whether_all_tokens_came(start, world):
    """Of text that was not stored they can only be guessed."""
    broken = start([world.Cut(700)], resume=None, max_tokens=7).run()
    stored = broken.error.checkpoint
    for breaks in [], [world.Cut(800)]:
        run = start(breaks, resume=world.only("replay", "text"))
        run.kept = broken.kept
        continued(run, stored, have=TEXT[:-1])
        assert run.session.ledger.used_up
        assert run.error is None
        assert run.text == TEXT[-1:]
    lost = start([world.Refused(404)], resume=world.only("replay", "text"))
    continued(lost, stored, have=TEXT[:-1])
    assert lost.strategies == ["replay"]  # no request for no tokens
    assert (lost.error, lost.text) == (None, "")
    assert lost.session.ledger.main.finish_reason == "length"


def test_a_text_that_is_not_the_stored_ones_is_the_callers_mistake(start, world):
    stored = start([world.Cut(700)], resume=None).run().error.checkpoint
    with pytest.raises(UsageError, match="differ at character 2"):
        start().restore(stored, have=stored.text[:2] + "!?")


@pytest.mark.parametrize("at", range(0, 1000, 90))
def test_what_is_stored_never_gets_shorter(at, start, world):
    """Whatever becomes of the server that kept the stream (K1)."""
    stored = start([world.Cut(700)], resume=None).run().error.checkpoint
    breaks = [world.Cut(at), world.Refused(404), *[world.Unreachable()] * 9]
    run = start(breaks, resume=world.only("replay", "text"))
    run.kept = {stored.handle: world.bodies("llama.cpp", run.model)}
    run.restore(stored)
    assert run.session.checkpoint().text == stored.text
    receive = run.session.receive

    def watched(piece, now):
        events = receive(piece, now)
        assert run.session.checkpoint().text.startswith(stored.text)
        return events

    run.session.receive = watched
    run.run()
    assert run.session.checkpoint().text.startswith(stored.text)
    assert TEXT.startswith(run.text)


def test_another_process_knows_how_the_text_came_about(start, world):
    resume = world.only("ask", approximate=True, attempts=3)
    breaks = [world.Cut(600), world.Cut(600), *[world.Unreachable()] * 9]
    broken = start(breaks, resume=resume, name="openai").run()
    stored = Checkpoint.model_validate_json(broken.error.checkpoint.model_dump_json())
    run = start(name="openai", resume=resume).restore(stored)
    history = run.session.history
    assert history.exactness is Exactness.APPROXIMATE
    assert history.resumes == broken.session.history.resumes != []


def test_a_complete_stream_is_given_from_the_store(start):
    done = start().run().session.checkpoint()
    run = continued(start(), done, 4)
    assert run.text == TEXT[4:]
    assert run.session.complete
    assert run.opens == []
    again = run.session.checkpoint()
    assert (again.text, again.complete) == (TEXT, True)


def test_a_complete_streams_usage_is_given_from_the_store(start):
    first = start().run()
    usage = first.session.ledger.usage
    run = continued(start(), first.session.checkpoint(), 0)
    assert usage is not None
    assert [type(event) for event in run.events] == [TextDelta, UsageReport, Finish]
    assert run.events[1] == UsageReport(usage)


def test_nobody_has_more_than_a_complete_stream(start):
    done = start().run().session.checkpoint()
    for more in {"have": TEXT + "!"}, {"after": len(TEXT) + 1}:
        with pytest.raises(UsageError, match=f"complete and has {len(TEXT)} char"):
            start().restore(done, **more)


def left(world, body, name="llama.cpp", **more):
    """What a process that could not resume left of a stream."""
    run = world.Run(name, world.Model("x"), [world.Said(body, "reset")], **more).run()
    return Checkpoint.model_validate_json(run.error.checkpoint.model_dump_json())


def test_a_complete_streams_calls_are_given_from_the_store(world):
    rest = {"index": 0, "function": {"arguments": "1}"}}
    body = sse(
        says("So:"),
        says(tool_calls=[CALL]),
        says(tool_calls=[rest]),
        says(finish="tool_calls"),
        DONE,
    )
    first = world.Run("llama.cpp", world.Model("x"), [world.Said(body)]).run()
    run = continued(
        world.Run("llama.cpp", world.Model("x")), first.session.checkpoint()
    )
    [call] = run.session.ledger.main.tool_calls
    assert (call.id, call.name, call.parsed(), call.complete) == (
        *("c", "f"),
        {"a": 1},
        True,
    )
    assert run.events == [
        TextDelta("So:", 0, 0),
        ToolCallDelta(0, "c", "f", '{"a": 1}', 0, 0, closed=True),
        Finish("tool_calls", "tool_calls"),
    ]
    assert run.opens == []
    assert run.session.checkpoint().tool_calls == [call]


def test_a_complete_refusal_is_given_from_the_store(world):
    body = sse(says(refusal="No."), says(finish="stop"), DONE)
    first = world.Run("openai", world.Model("x"), [world.Said(body)]).run()
    run = continued(world.Run("openai", world.Model("x")), first.session.checkpoint())
    assert run.events == [RefusalDelta("No.", 0, 0), Finish("stop", "stop")]
    assert run.session.ledger.main.refusal == "No."


@pytest.mark.parametrize(
    ("body", "more", "cls"),
    [
        (sse(says("So:"), says(tool_calls=[CALL])), {}, ToolCallInterrupted),
        (sse(says("So:"), says(refusal="I can")), {}, ResumeUnsupported),
        (sse(says("So:"), says("b", index=1)), {"extra": {"n": 2}}, ResumeUnsupported),
    ],
)
@pytest.mark.parametrize("kept", [False, True])
def test_what_no_prefix_continues_is_refused_in_another_process_too(
    kept, body, more, cls, world
):
    ways = ("replay", "text", "ask", "rerun") if kept else ("text", "ask", "rerun")
    stored = left(world, body, **more)
    gone = [world.Refused(404, b"{}")] if kept else []
    resume = world.only(*ways, approximate=True)
    run = world.Run("llama.cpp", world.Model("x"), gone, resume=resume)
    error = continued(run, stored).error
    assert type(error) is cls
    assert isinstance(error.__cause__, Dropped)
    assert error.text == "So:"
    assert error.checkpoint.text == "So:"
    assert error.checkpoint.tool_calls == stored.tool_calls
    assert error.checkpoint.others == stored.others
    assert run.strategies == (["replay"] if kept else [])


def test_a_replay_that_cannot_be_said_does_not_let_a_cut_call_go_on(world, monkeypatch):
    def unsaid(*_):
        raise ResumeUnsupported("no such route")
        yield

    stored = left(world, sse(says("So:"), says(tool_calls=[CALL])))
    resume = world.only("replay", "text")
    run = world.Run("llama.cpp", world.Model("x"), resume=resume)
    run.restore(stored)
    monkeypatch.setattr(run.session.server.dialect, "continuation", unsaid, False)
    error = run.run().error
    assert type(error) is ToolCallInterrupted
    assert isinstance(error.__cause__, Dropped)
    assert [call.arguments for call in error.tool_calls] == ['{"a": ']
    assert run.opens == []


def test_a_replay_in_another_process_brings_a_cut_call_once(world):
    rest = {"index": 0, "function": {"arguments": "1}"}}
    begun = [says("So:"), says(tool_calls=[CALL])]
    ended = [says(tool_calls=[rest]), says(finish="tool_calls"), DONE]
    again = [world.Said(sse(*begun, *ended))]
    resume = world.only("replay", "text")
    run = world.Run("llama.cpp", world.Model("x"), again, resume=resume)
    continued(run, left(world, sse(*begun)))
    [call] = run.session.ledger.main.tool_calls
    assert (call.complete, call.arguments) == (True, '{"a": 1}')
    assert run.strategies == ["replay"]


BEGUN = [
    says(reasoning_content="hm, "),
    says("So", reasoning_content=""),
    says("b", index=1),
    says(refusal="No"),
    says(tool_calls=[CALL]),
]
ENDED = [
    says(reasoning_content="ha"),
    says(": it is", index=0),
    says("c", "stop", index=1),
    says(refusal=", never"),
    says(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}]),
    says(finish="tool_calls"),
    DONE,
]


@pytest.mark.parametrize("cut", [None, 150, 400, 700])
def test_a_replay_in_another_process_brings_no_channel_twice(cut, world):
    """Reasoning, refusals, calls and other answers have no prefix to be cut from."""
    body, extra = sse(*BEGUN, *ENDED), {"n": 2}
    whole = world.Run("llama.cpp", world.Model("x"), [world.Said(body)], extra=extra)
    want = whole.run().session.checkpoint()
    stored = left(world, sse(*BEGUN), extra=extra)
    breaks = [world.Said(body)]
    if cut is not None:  # and the replay breaks as well
        breaks = [world.Said(body[:cut], "reset"), world.Said(body[cut:])]
    run = world.Run("llama.cpp", world.Model("x"), breaks, resume=world.only("replay"))
    got = continued(run, stored).session.checkpoint()
    assert run.error is None
    for name in ("text", "reasoning", "refusal", "tool_calls", "others", "tokens"):
        assert getattr(got, name) == getattr(want, name), name
    said = "".join(e.text for e in run.events if type(e) is RefusalDelta)
    calls = [e.arguments for e in run.events if type(e) is ToolCallDelta]
    text = [e.text for e in run.events if type(e) is TextDelta and not e.choice]
    assert ("".join(text), run.reasoning) == ("So: it is", "hm, ha")
    others = [e.text for e in run.events if type(e) is TextDelta and e.choice]
    assert "".join(others) == want.others[1].text != ""
    assert said == "No, never"
    assert "".join(calls) == '{"a": 1}'
    assert got.complete


@pytest.mark.parametrize("channel", ["reasoning_content", "refusal"])
def test_a_replay_that_says_something_else_diverges(channel, world):
    stored = left(world, sse(says("So", **{channel: "hm, "})))
    other = world.Said(sse(says("So", **{channel: "no, "}), says(finish="stop"), DONE))
    run = world.Run("llama.cpp", world.Model("x"), [other], resume=world.only("replay"))
    assert type(continued(run, stored).error) is ResumeDiverged
    short = world.Said(sse(says("So"), says(finish="stop"), DONE))
    run = world.Run("llama.cpp", world.Model("x"), [short], resume=world.only("replay"))
    assert type(continued(run, stored).error) is ResumeDiverged
    assert not run.session.complete


def test_what_came_before_an_end_that_diverges_is_given(world):
    stored = left(world, sse(says("So", refusal="hm, ")))
    more = world.Said(sse(says("So, more"), says(finish="stop"), DONE))
    run = world.Run("llama.cpp", world.Model("x"), [more], resume=world.only("replay"))
    assert type(continued(run, stored).error) is ResumeDiverged
    assert run.text == run.error.text == "So, more"


def test_what_a_replay_used_is_counted_once(world):
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9}}
    body = sse(says("So"), says(": yes", "stop"), usage, DONE)
    stored = left(world, sse(says("So")))
    run = world.Run(
        "llama.cpp",
        world.Model("x"),
        [world.Said(body)],
        resume=world.only("replay"),
    )
    assert continued(run, stored).session.ledger.usage == Usage(3, 9)


@pytest.mark.parametrize(
    ("more", "chunks", "reason"),
    [
        ({}, [says("ab", finish="stop")], "stop"),
        ({"max_tokens": 2}, [says("a"), says("b")], "length"),
    ],
)
def test_a_process_that_ended_between_the_last_text_and_the_end(
    more, chunks, reason, opened, start
):
    first = opened(resume=None, **more)
    first.session.receive(sse(*chunks), first.now)
    stored = first.session.checkpoint()
    assert not stored.complete
    run = continued(start(), stored)
    assert (run.text, run.opens) == ("ab", [])
    assert run.session.complete
    assert run.session.ledger.main.finish_reason == reason


def test_all_answers_are_stored(world):
    body = sse(says("a"), says("b", index=1), says(finish="stop", index=1), says("c"))
    stored = left(world, body, extra={"n": 2})
    assert (stored.text, stored.finished) == ("ac", False)
    [(index, other)] = stored.others.items()
    assert (index, other.text, other.finish_reason) == (1, "b", "stop")


def test_a_checkpoint_does_not_change_with_its_stream(opened):
    run = opened()
    run.session.receive(sse(says(tool_calls=[CALL])), run.now)
    stored = run.session.checkpoint()
    rest = {"index": 0, "function": {"arguments": "1}"}}
    run.session.receive(sse(says(tool_calls=[rest])), run.now)
    assert stored.tool_calls[0].arguments == '{"a": '
    assert len(run.session.ledger.main.tool_calls[0].arguments) == 8


def test_a_stored_gap_that_was_open_is_not_stored(world):
    chunk = {"index": 0, "stop": False}
    body = sse({**chunk, "content": "A", "tokens": [1], "tokens_predicted": 1})
    body += sse({**chunk, "content": "", "tokens": [5], "tokens_predicted": 4})
    said = world.Said(body, "reset")
    run = world.Run("llama.cpp-completion", world.Model("x"), [said]).run()
    stored = run.error.checkpoint
    assert (stored.token_ids, stored.gaps, stored.tokens) == ([1], [], 1)


def test_a_session_has_no_clock_and_no_chance_of_its_own(start, world):
    def seen():
        run = start([world.Cut(600), world.Cut(0), world.Cut(9)]).run()
        return run.events, run.pauses, run.session.history.notes

    assert seen() == seen()


def test_the_native_dialect_without_tokenizer_goes_on_by_text(world):
    """A proxy may let only the streaming route through."""
    assert LlamaCompletion().strategies == ("replay", "tokens", "text")
    model = world.Model(TEXT, range(0, 99, 4))
    missing = {"/tokenize": world.reply(404)}
    run = world.Run(
        "llama.cpp-completion",
        model,
        [world.Cut(400)],
        resume=world.only("tokens", "text"),
        answers=missing,
    ).run()
    assert run.text == TEXT
    assert [one.strategy for one in run.session.history.resumes] == ["text"]


@pytest.mark.parametrize("content", [b"[]", b"{}", b"no JSON", b'{"tokens": 5}'])
def test_an_answer_that_makes_no_sense_is_ours(content, world):
    model = world.Model(TEXT, range(0, 99, 4))
    run = world.Run(
        "llama.cpp-completion",
        model,
        [world.Cut(400)],
        resume=world.only("tokens"),
        answers={"/tokenize": world.reply(200, content)},
    ).run()
    assert type(run.error) in {ResumeUnsupported, WireError, ServerFailed}
    assert run.error.text == run.text


def test_with_nothing_left_a_drop_is_the_end_though_no_way_is_allowed(opened, world):
    run = opened(name="openai", max_tokens=2, resume=world.only("text"))
    writer = run.session.server.dialect.writer()
    for text in ("one ", "two"):
        for piece in writer.write(TextDelta(text)):
            run.session.receive(piece, run.now)
    (finish,) = run.session.dropped(Dropped("cut"), run.now)
    assert finish.reason == "length"
    assert run.session.complete


def test_half_a_character_at_the_end_of_another_answer_is_told(opened):
    run = opened(name="openai", extra={"n": 2})
    writer = run.session.server.dialect.writer()
    says = [
        TextDelta("one"),
        TextDelta("two\udce6", 1),
        Finish("stop"),
        Finish("stop", choice=1),
        End(),
    ]
    for event in says:
        for piece in writer.write(event):
            run.session.receive(piece, run.now)
    assert run.session.ledger.choices[1].text == "two\ufffd"


def test_an_error_says_who_was_asked_and_notes_what_to_do(start, world):
    body = b'{"error": {"message": "no", "type": "authentication_error"}}'
    run = start([world.Refused(401, body)]).run()
    assert str(run.error).endswith(" (llama.cpp:m@http://host:1)")
    assert run.error.__notes__ == [
        "The key comes from LLAMA_API_KEY or Endpoint('llama.cpp', api_key=…)."
    ]
    run = start([world.Refused(404, b"{}")]).run()
    assert str(run.error).endswith(" (llama.cpp:m@http://host:1)")
    assert run.error.__notes__ == ["Check the model's name and the address."]
