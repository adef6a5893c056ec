"""What was received, in the form that a continuation needs."""

import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._resume.ledger import Choice, Ledger, Text
from midstream._values.checkpoint import Checkpoint
from midstream._values.events import (
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolCallDelta,
)
from midstream._values.usage import Usage


def ledger_of(*deltas, limit=None):
    """Deltas as (text, tokens, ids), each whole."""
    ledger = Ledger(0, limit)
    for text, tokens, ids in deltas:
        ledger.add_text(TextDelta(text, tokens=tokens, token_ids=ids))
    return ledger


def received(ledger):
    ledger.forget_open()
    got = ledger.received(0, None)
    return list(got.token_ids), got.tokens, list(got.gaps)


# -- text ------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=3), max_size=600), st.integers(1, 600))
def test_text_is_its_pieces_whenever_it_is_asked(pieces, every):
    text = Text()
    for at, piece in enumerate(pieces):
        text.add(piece)
        if at % every == 0:
            assert str(text) == "".join(pieces[: at + 1])
    assert str(text) == "".join(pieces)
    assert text.length == len("".join(pieces))


def test_text_keeps_no_object_for_each_piece():
    text = Text("begin ")
    for at in range(10_000):
        text.add(f"{at} ")
    assert len(text._parts) < 256
    assert len(text._blocks) < 50
    assert str(text) == "begin " + "".join(f"{at} " for at in range(10_000))


# -- tokens and ids --------------------------------------------------------------------


def test_a_delta_is_as_many_tokens_as_the_server_says_else_one():
    ledger = ledger_of(("a", None, ()), ("b", 3, ()), ("c", 0, ()))
    assert ledger.tokens == 4


def test_ids_are_kept_in_order():
    ledger = ledger_of(("a", 1, (5,)), ("bc", 2, (6, 7)))
    assert received(ledger) == ([5, 6, 7], 3, [])


def test_ids_that_the_server_kept_to_itself_are_gaps():
    ledger = ledger_of(("a", 1, (5,)), ("日", 3, (115,)), ("本", 2, (122,)))
    ids, tokens, gaps = received(ledger)
    assert ids == [5, -1, -1, 115, -1, 122]
    assert tokens == 6
    assert gaps == [(1, 3, "日"), (4, 2, "本")]


def test_tokens_whose_text_is_held_back_come_again_after_a_drop():
    ledger = ledger_of(("a", 1, (5,)))
    ledger.add_text(TextDelta("", tokens=1, token_ids=(30,)))
    assert ledger.tokens == 1
    assert received(ledger) == ([5], 1, [])


def test_tokens_that_were_held_back_count_when_their_text_comes():
    ledger = ledger_of(("a", 1, (5,)))
    ledger.add_text(TextDelta("", tokens=1, token_ids=(30,)))
    ledger.add_text(TextDelta("bc", tokens=1, token_ids=(31,)))
    assert received(ledger) == ([5, 30, 31], 3, [])


def test_a_token_that_ends_inside_a_character_stays_open():
    ledger = ledger_of(("a", 1, (5,)))
    ledger.add_text(TextDelta("b", tokens=0))
    ledger.add_text(TextDelta("", tokens=1, token_ids=(6,)))
    assert received(ledger) == ([5], 1, [])


def test_an_open_gap_is_forgotten_with_its_ids():
    ledger = ledger_of(("日", 3, (115,)))
    ledger.add_text(TextDelta("x", tokens=0))
    ledger.add_text(TextDelta("", tokens=2, token_ids=(7,)))
    assert received(ledger) == ([-1, -1, 115], 3, [(0, 3, "日")])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "a", "bc"]),
            st.integers(0, 3),
            st.integers(0, 3),
        ),
        max_size=20,
    )
)
def test_ids_and_tokens_agree_and_gaps_say_where_ids_are_missing(deltas):
    """Where the server tells all its ids, there are as many as tokens."""
    ledger = Ledger(0, None)
    for text, tokens, known in deltas:
        ids = tuple(range(100, 100 + min(known, tokens)))
        ledger.add_text(TextDelta(text, tokens=tokens, token_ids=ids))
    ids, tokens, gaps = received(ledger)
    assert len(ids) <= tokens
    for start, count, _ in gaps:
        assert 0 <= start < start + count <= len(ids)
        assert ids[start] == -1
        assert ids[start + count - 1] >= 100
    assert all(a[0] + a[1] <= b[0] for a, b in pairwise(gaps))
    inside = {at for start, count, _ in gaps for at in range(start, start + count)}
    assert {at for at, id_ in enumerate(ids) if id_ == -1} <= inside


def test_a_count_that_no_text_can_have_takes_no_memory_and_no_ids():
    ledger = ledger_of(("a", 1, (5,)), ("b", 2**62, (6,)), ("c", 1, (7,)))
    got = ledger.received(0, None)
    assert list(got.token_ids) == [5, 6, 7]
    assert len(got.token_ids) < got.tokens
    assert got.gaps == []


def test_tokens_whose_text_is_held_back_count_when_reasoning_comes():
    ledger = Ledger(0, 10)
    ledger.add_text(TextDelta("", tokens=2))
    ledger.add_side(ReasoningDelta("日"))
    assert ledger.left == 7


def test_ids_weigh_eight_bytes():
    ledger = ledger_of(*[("a", 1, (at,)) for at in range(5000)])
    assert sys.getsizeof(ledger._tokens.ids) < 5000 * 8 * 1.3


# -- budget ----------------------------------------------------------------------------


def test_the_budget_shrinks_by_what_came_in_every_channel():
    ledger = ledger_of(("a", 2, ()), limit=10)
    ledger.add_side(ReasoningDelta("r", tokens=3))
    ledger.add_side(RefusalDelta("n"))
    ledger.add_tool(ToolCallDelta(0, "c", "f", tokens=1))
    assert ledger.tokens == 7
    assert ledger.left == 3
    assert ledger_of(("a", 11, ()), limit=10).left == 0
    assert ledger_of(("a", 11, ())).left is None


def test_the_budget_is_used_up_when_the_only_answer_has_it_all():
    assert ledger_of(("a", 10, ()), limit=10).used_up
    assert not ledger_of(("a", 9, ()), limit=10).used_up
    assert not ledger_of(("a", 10, ())).used_up
    assert not Ledger(0, None).used_up


def test_other_answers_may_still_have_tokens_to_come():
    two = Ledger(0, 1, choices=2)
    two.add_text(TextDelta("a"))
    assert not two.used_up
    unasked = ledger_of(("a", 1, ()), limit=1)
    unasked.choice(1).add_text("b")
    assert not unasked.used_up


def test_tokens_of_other_answers_are_not_of_the_budget():
    ledger = Ledger(0, 5, choices=2)
    ledger.add_side(ReasoningDelta("hm", choice=1))
    ledger.add_tool(ToolCallDelta(0, "c", "f", choice=1))
    assert (ledger.tokens, ledger.left) == (0, 5)


# -- usage -----------------------------------------------------------------------------


def test_usage_is_unknown_until_a_server_says():
    assert ledger_of(("a", 1, ())).usage is None


def test_the_last_report_of_a_connection_counts():
    ledger = ledger_of(("a", 1, ()))
    ledger.report(Usage(5, 1))
    assert ledger.report(Usage(5, 2)) == Usage(5, 2)
    assert ledger.usage == Usage(5, 2)


def test_usage_adds_up_over_connections():
    ledger = ledger_of(("a", 6, ()))
    ledger.next_leg()
    ledger.add_text(TextDelta("b", tokens=4))
    assert ledger.usage == Usage(None, 10, estimated=True)
    assert ledger.report(Usage(9, 4)) == Usage(9, 10, estimated=True)
    ledger.next_leg()
    assert ledger.usage == Usage(9, 10, estimated=True)
    assert ledger.report(Usage(13, 0)) == Usage(22, 10, estimated=True)


def test_a_prompt_that_was_told_before_its_answer_leaves_that_to_be_estimated():
    ledger = ledger_of(("a", 6, ()))
    ledger.report(Usage(5))
    ledger.next_leg()
    ledger.report(Usage(11, 4))
    assert ledger.usage == Usage(16, 10, estimated=True)


def test_usage_that_every_connection_told_is_not_estimated():
    ledger = ledger_of(("a", 6, ()))
    ledger.report(Usage(5, 6))
    ledger.next_leg()
    ledger.report(Usage(11, 4))
    assert ledger.usage == Usage(16, 10)


# -- choices ---------------------------------------------------------------------------


def test_the_first_finish_reason_wins_and_text_may_follow():
    choice = Choice()
    choice.finish(Finish("stop", "eos"))
    choice.finish(Finish("length", "limit"))
    choice.add_text("late")
    assert (choice.finish_reason, choice.raw_finish_reason) == ("stop", "eos")
    assert choice.text == "late"


def test_all_known_choices_must_finish():
    ledger = Ledger(1, None)
    ledger.choice(0).add_text("other")
    ledger.main.finish(Finish("stop"))
    assert not ledger.finished
    ledger.choice(0).finish(Finish(None))
    assert ledger.finished
    assert ledger.choice(1) is ledger.main


def test_all_choices_that_were_asked_for_must_finish():
    """One that has not said a word yet may still come."""
    ledger = Ledger(0, None, choices=2)
    ledger.main.finish(Finish("stop"))
    assert not ledger.finished
    ledger.choice(1).finish(Finish("stop"))
    assert ledger.finished


def test_progress_is_of_all_channels_and_choices():
    ledger = ledger_of(("abc", 1, ()))
    assert ledger.progress == 3
    ledger.add_side(ReasoningDelta("de"))
    ledger.add_side(RefusalDelta("f", choice=1))
    ledger.add_tool(ToolCallDelta(0, "c", "f", "{}"))
    assert ledger.progress == 3 + 2 + 1 + 3
    assert ledger.main.reasoning == "de"
    assert ledger.choice(1).refusal == "f"
    assert ledger.main.characters == 3


# -- tool calls ------------------------------------------------------------------------


def called(*arguments):
    """A choice with one call for each list of fragments."""
    choice = Choice()
    for index, fragments in enumerate(arguments):
        for fragment in fragments:
            choice.tool(ToolCallDelta(index, f"c{index}", "f", fragment))
    return choice


def test_fragments_are_joined_by_index_whatever_their_order():
    choice = Choice()
    choice.tool(ToolCallDelta(1, "c2", "g", "{"))
    choice.tool(ToolCallDelta(0, "c1", "f", '{"a":'))
    choice.tool(ToolCallDelta(1, None, None, "}"))
    choice.tool(ToolCallDelta(0, "ignored", "ignored", "1}"))
    calls = choice.tool_calls
    assert [(c.id, c.name, c.arguments) for c in calls] == [
        ("c1", "f", '{"a":1}'),
        ("c2", "g", "{}"),
    ]
    assert not any(call.complete for call in calls)
    assert calls[0].parsed() == {"a": 1}


def test_a_call_is_whole_when_its_answer_ended():
    choice = called(['{"a":1}'], ["{}"])
    choice.finish(Finish("tool_calls"))
    assert [call.complete for call in choice.tool_calls] == [True, True]


def test_a_limit_cuts_the_last_call():
    choice = called(['{"a":1}'], ['{"path":"/x","body":"line'])
    choice.finish(Finish("length"))
    assert [call.complete for call in choice.tool_calls] == [True, False]
    assert choice.tool_calls[1].arguments == '{"path":"/x","body":"line'


def test_a_call_that_the_server_closed_is_whole_at_once():
    choice = Choice()
    choice.tool(ToolCallDelta(0, "c", "f", "{}", closed=True))
    choice.tool(ToolCallDelta(1, "d", "g", "{"))
    assert [call.complete for call in choice.tool_calls] == [True, False]
    choice.finish(Finish("length"))
    assert [call.complete for call in choice.tool_calls] == [True, False]


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        ("{}", True),
        ('{"a": [1, 2]}', True),
        ("", False),
        ("1", False),
        ('{"a": 1', False),
        ('{"a": "li', False),
        ("{}x", False),
    ],
)
def test_at_a_cut_a_call_is_whole_only_if_its_json_is(arguments, whole):
    [call] = called([arguments]).settled_calls()
    assert call.complete is whole
    assert call.arguments == arguments


# -- what goes on elsewhere ------------------------------------------------------------


def test_what_the_server_said_of_itself():
    ledger = Ledger(0, None)
    ledger.start(Started("r1", "m", (1, 2)))
    ledger.start(Started(None, None))
    got = ledger.received(7, {"seq": 3})
    assert (got.response_id, got.prompt_ids) == ("r1", (1, 2))
    assert (got.offset, got.cursor) == (7, {"seq": 3})
    assert ledger.model == "m"


def test_received_is_all_that_came():
    ledger = ledger_of(("text", 2, (1, 2)), limit=5)
    ledger.add_side(ReasoningDelta("why"))
    got = ledger.received(0, None)
    assert (got.text, got.reasoning, got.tokens, got.left) == ("text", "why", 3, 2)


def test_ids_of_one_server_mean_nothing_to_the_next():
    ledger = ledger_of(("日", 3, (115,)))
    ledger.start(Started("r", "m", (1,)))
    ledger.forget_ids()
    got = ledger.received(0, None)
    assert (list(got.token_ids), list(got.gaps), got.prompt_ids) == ([], [], ())
    assert (got.text, got.tokens) == ("日", 3)


def test_a_stored_stream_is_loaded_whole():
    stored = Checkpoint(
        endpoint="e",
        request={"prompt": "p"},
        text="日本",
        reasoning="why",
        tokens=6,
        token_ids=[-1, -1, 115, 4],
        gaps=[(0, 3, "日")],
        prompt_ids=[9],
        response_id="r",
        usage={"output_tokens": 4, "input_tokens": 2, "estimated": True},
    )
    ledger = Ledger(0, 10)
    ledger.load(stored)
    got = ledger.received(0, None)
    assert (got.text, got.reasoning, got.tokens, got.left) == ("日本", "why", 6, 4)
    assert list(got.token_ids) == [-1, -1, 115, 4]
    assert list(got.gaps) == [(0, 3, "日")]
    assert (got.prompt_ids, got.response_id) == ((9,), "r")
    assert ledger.usage == Usage(2, 4, estimated=True)
    assert not ledger.finished


def test_a_stored_complete_stream_is_finished():
    stored = Checkpoint(
        endpoint="e", request={"prompt": "p"}, finish_reason="length", complete=True
    )
    ledger = Ledger(0, None)
    ledger.load(stored)
    assert ledger.finished
    assert ledger.main.finish_reason == "length"
    assert ledger.usage is None


# -- stored ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger: ledger.add_text(TextDelta("b")),
        lambda ledger: ledger.add_tool(ToolCallDelta(0, arguments="1", tokens=0)),
        lambda ledger: ledger.add_tool(ToolCallDelta(0, closed=True, tokens=0)),
        lambda ledger: ledger.choice(0).finish(Finish(None)),
        lambda ledger: ledger.report(Usage(1, 2)),
        lambda ledger: ledger.next_leg(),
        lambda ledger: ledger.forget_ids(),
    ],
)
def test_its_mark_differs_when_what_came_differs(change):
    ledger = ledger_of(("a", 1, (7,)))
    ledger.add_tool(ToolCallDelta(0, "c", "f"))
    before = ledger.mark
    assert ledger.mark == before
    change(ledger)
    assert ledger.mark != before


@pytest.mark.parametrize(
    ("stored", "more", "tokens"),
    [
        ("", "word " * 8, 10),  # four characters a token, where nobody told
        ("", "吾輩は猫である", 7),
        ("ab" * 40, "ab" * 20, 20),  # two characters a token, as before
    ],
)
def test_text_that_was_not_stored_counts_as_text_of_its_length_did(
    stored, more, tokens
):
    ledger = Ledger(0, 100)
    for at in range(0, len(stored), 2):
        ledger.add_text(TextDelta(stored[at : at + 2], token_ids=(at,)))
    before = ledger.tokens
    ledger.add_unstored(more)
    assert ledger.main.text == stored + more
    assert ledger.tokens == before + tokens
    assert ledger.left == 100 - ledger.tokens
    assert list(ledger.ids) == []  # of this text nobody knows them


def test_reasoning_is_of_the_text_that_tells_how_much_a_token_is():
    ledger = Ledger(0, 1000)
    for _ in range(100):
        ledger.add_side(ReasoningDelta("thought "))
    ledger.add_text(TextDelta("w" * 80, tokens=10))
    ledger.add_unstored("w" * 88)
    assert ledger.tokens == 110 + 11


def loaded(**fields):
    whole = {"endpoint": "ollama:m", "request": {"prompt": "hi"}, **fields}
    ledger = Ledger(0, None)
    ledger.load(Checkpoint(**whole))
    return ledger


def test_what_a_process_used_that_was_told_nothing_is_part_of_the_sum():
    ledger = loaded(text="abc", tokens=3)
    assert ledger.usage == Usage(output_tokens=3, estimated=True)
    ledger.add_unstored("defghijk")  # two tokens more, as far as one can tell
    ledger.report(Usage(input_tokens=9, output_tokens=4))
    assert ledger.usage == Usage(9, 3 + 2 + 4, estimated=True)


def test_the_usage_of_a_complete_stream_stays_what_was_told():
    told = {"input_tokens": 9, "output_tokens": 3}
    stored = loaded(text="abc", tokens=3, usage=told, complete=True)
    assert stored.usage == Usage(9, 3)
    assert loaded(text="abc", tokens=3, complete=True).usage is None
