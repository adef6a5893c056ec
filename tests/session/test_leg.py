"""One connection's way from bytes to signals."""

import json

import pytest

from midstream._dialects import find
from midstream._dialects.base import Call, Continuation, Generation
from midstream._session.leg import Leg
from midstream._values.endpoint import Endpoint
from midstream._values.errors import Overloaded, WireError
from midstream._values.events import (
    End,
    Finish,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream._values.interruptions import ResumeDiverged
from midstream._values.request import Request
from midstream._values.usage import Usage


def leg_of(name="llama.cpp-completion", continuation=None, text="", **request):
    endpoint = Endpoint(name, model=request.pop("model", "m"), base_url="http://h")
    asked = Request.of(prompt="p", **request)
    leg = Leg(find(name), Generation(endpoint=endpoint, request=asked))
    leg.open()
    if continuation is not None:
        leg.join(Continuation(call=Call(url="http://h"), **continuation), text)
    return leg


def records(*documents):
    return b"".join(b"data: " + json.dumps(d).encode() + b"\n\n" for d in documents)


def tokens(*texts, first=1):
    """Native records, one token each."""
    return records(
        *(
            {"content": text, "tokens": [100 + at], "tokens_predicted": at}
            for at, text in enumerate(texts, first)
        )
    )


def deltas(signals):
    return [s for s in signals if isinstance(s, TextDelta)]


def heard(leg, *pieces):
    return deltas([signal for piece in pieces for signal in leg.receive(piece)])


# -- tokens that come again ------------------------------------------------------------


def total(said):
    ids = tuple(id_ for delta in said for id_ in delta.token_ids)
    return "".join(d.text for d in said), sum(d.tokens for d in said), ids


def test_tokens_that_come_again_count_for_nothing():
    leg = leg_of(continuation={"expect": "abc"}, text="abc")
    said = heard(leg, tokens("a", "bc", "d", "e"))
    assert total(said) == ("de", 2, (103, 104))


def test_ids_ahead_of_their_text_are_counted_off():
    """Three tokens come again, in other pieces than before."""
    leg = leg_of(continuation={"sent": "ab", "expect": "c", "again": 3}, text="abc")
    assert total(heard(leg, tokens("c", "d", "e", "f"))) == ("def", 1, (104,))


def test_tokens_come_again_over_several_records():
    leg = leg_of(continuation={"sent": "ab", "expect": "c", "again": 2}, text="abc")
    said = heard(leg, tokens("cd"), tokens("e", "f", first=2))
    assert total(said) == ("def", 1, (103,))


def test_tokens_that_were_held_for_an_echo_that_did_not_come_count():
    leg = leg_of(continuation={"sent": "ha ha", "echo": "whole"}, text="ha ha")
    assert total(heard(leg, tokens("ha", " x", "y"))) == ("ha xy", 3, (101, 102, 103))


def test_an_echo_counts_for_nothing():
    leg = leg_of(continuation={"sent": "ha ha", "echo": "whole"}, text="ha ha")
    assert total(heard(leg, tokens("ha", " ha", "!"))) == ("!", 1, (103,))


def test_other_text_than_expected_ends_the_leg_behind_what_was_new():
    leg = leg_of(continuation={"expect": "ab"}, text="ab")
    assert heard(leg, tokens("a", "x", "never")) == [TextDelta("", tokens=0)]
    assert isinstance(leg.fault, ResumeDiverged)


def test_a_stop_string_over_the_seam_is_the_end():
    leg = leg_of(continuation={"sent": "so E"}, text="so E", stop="END")
    said = leg.receive(tokens("N", "D", "never"))
    assert said[-2:] == [Finish("stop", "stop"), End()]
    assert leg.stopped
    assert leg.flush() == ""


def test_text_held_at_the_end_is_let_go():
    leg = leg_of(continuation={"sent": "so E"}, text="so E", stop="END")
    assert total(heard(leg, tokens("N")))[0] == ""
    assert leg.flush() == "N"


# -- tokens inside characters ----------------------------------------------------------


def raw(*pieces):
    """Triton's records, in which a token may end inside a character."""
    return b"".join(b'data: {"text_output":"%s"}\n\n' % piece for piece in pieces)


def counted(said):
    return [(d.text, 1 if d.tokens is None else d.tokens) for d in said]


def test_a_token_inside_a_character_waits_for_the_text_that_settles_it():
    body = raw(b"a", b"\xe6", b"\x97", b"\xa5\xe6", b"\x9c\xac")
    said = counted(heard(leg_of("triton"), body))
    assert said == [("a", 1), ("", 0), ("", 0), ("日", 2), ("本", 2)]


@pytest.mark.parametrize("together", [True, False])
def test_one_read_or_many_leave_the_same_token_open(together):
    pieces = [raw(b"a"), raw(b"b"), raw(b"c\xe6")]
    said = heard(leg_of("triton"), *([b"".join(pieces)] if together else pieces))
    assert counted(said) == [("a", 1), ("b", 1), ("c", 0)]


def test_ids_stay_with_the_character_that_they_spell():
    leg = leg_of("tgi")
    body = b"".join(
        b'data:{"token":{"id":%d,"text":"%s"}}\n\n' % record
        for record in [(1, b"a"), (2, b"b\xe6\x97"), (3, b"\xa5"), (4, b"x\xe6")]
    )
    said = heard(leg, body)
    assert [(d.text, d.tokens, d.token_ids) for d in said] == [
        ("a", 1, (1,)),
        ("b", 0, ()),
        ("日", 2, (2, 3)),
        ("x", 0, ()),
    ]


# -- what servers send -----------------------------------------------------------------


def test_names_and_counts_are_made_what_they_should_be():
    usage = {"prompt_tokens": 3.0, "completion_tokens": "x"}
    call = {"index": 0, "id": 5, "function": {"name": "f", "arguments": "{}"}}
    body = records(
        {"id": 7, "model": ["m"], "choices": [{"delta": {"tool_calls": [call]}}]},
        {"choices": [], "usage": usage},
    )
    said = leg_of("openai").receive(body)
    assert said[0] == Started("7", "['m']")
    assert said[1] == ToolCallDelta(0, "5", "f", "{}")
    assert said[2] == UsageReport(Usage(3, None))


@pytest.mark.parametrize(
    "record",
    [
        {"content": 5},
        {"content": "x", "tokens": ["7"]},
        {"content": "x", "tokens": [2**70]},
        {"content": "x", "tokens_predicted": 1.5},
        {"content": "x", "index": "0"},
        {"content": ["x"]},
        {"stop": True, "stop_type": ["eos"]},
    ],
)
def test_a_field_of_the_wrong_type_is_a_wire_error_behind_what_was_good(record):
    leg = leg_of()
    good = records({"content": "ok"})
    assert [d.text for d in heard(leg, good + records(record) + good)] == ["ok"]
    assert type(leg.fault) is WireError
    assert leg.fault.offset == leg.offset
    assert leg.fault.__cause__ is not None


def test_bytes_of_other_choices_have_decoders_of_their_own():
    half = b'data: {"choices":[{"index":%s,"delta":{"content":"%s"}}]}\n\n'
    pairs = [(b"0", b"\\ud83d"), (b"1", b"\\ud83d"), (b"0", b"\\ude00"), (b"1", b"x")]
    said = heard(leg_of("openai"), *(half % pair for pair in pairs))
    assert [(d.choice, d.text) for d in said if d.text] == [(0, "😀"), (1, "\ufffdx")]


# -- what a kept stream still has ------------------------------------------------------


def test_a_stream_that_failed_at_its_server_has_nothing_more():
    leg = leg_of("llama.cpp")
    assert leg.spent(Overloaded("x"))
    leg.replay(Continuation(call=Call(url="http://h"), keeps="body"))
    assert not leg.spent(Overloaded("x"))  # no room for the replay; it is kept


def test_a_replay_that_ends_without_a_byte_has_nothing_more():
    leg = leg_of("llama.cpp")
    leg.receive(b": ping\n\n")
    leg.eof()
    assert not leg.spent(WireError("x"))
    leg.replay(Continuation(call=Call(url="http://h"), keeps="body"))
    assert leg.offset == 8
    leg.open()
    leg.eof()
    assert leg.spent(WireError("x"))
    leg.replay(Continuation(call=Call(url="http://h"), keeps="reader"))
    assert leg.offset == 0
    leg.open()
    leg.receive(b"\n")
    leg.eof()
    assert not leg.spent(WireError("x"))


@pytest.mark.parametrize("at", range(1, 30))
def test_a_clean_end_in_mid_line_loses_nothing_for_a_replay_of_the_body(at):
    leg = leg_of()
    body = tokens("A", "B")
    cut = len(body) // 2 - 10 + at
    first = deltas(leg.receive(body[:cut]))
    first += deltas(leg.eof()[0])
    leg.replay(Continuation(call=Call(url="http://h"), keeps="body"))
    assert total(first + heard(leg, body[cut:])) == ("AB", 2, (101, 102))


# -- a last record without its end -----------------------------------------------------


def test_the_end_marker_is_heard_though_its_record_was_cut():
    leg = leg_of("ollama")
    leg.receive(b'{"message":{"content":"a"}}\n{"done":true,"done_reason":"stop"}')
    assert leg.last_words()[-1] == End()


def test_half_a_record_and_what_ends_nothing_stay_for_a_replay():
    leg = leg_of("ollama")
    for half, rest in [
        (b'{"message":{"content":"\xe6\x97', b'\xa5"}}\n'),
        (b'{"message":{"content":"b"}}', b"\n"),
        (b'{"done":tr', b"ue}\n"),
    ]:
        assert leg.receive(half) == []
        assert leg.last_words() == []
        assert leg.fault is None
        assert leg.receive(rest) != []
