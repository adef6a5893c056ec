"""The oracle finds what it should: a judge that acquits everybody proves nothing."""

import importlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

import midstream
from midstream import Exactness, Finish, TextDelta


@pytest.fixture
def judge(program):
    cases = importlib.import_module("cases")
    judging = importlib.import_module("judging")
    case = cases.Case(
        number=0,
        dialect="openai",
        kind="cut: FIN",
        colour="sync",
        model=cases.Model("日本語 text"),
        text="日本語 text",
        connects=1,
    )

    def judged(
        text,
        error=None,
        /,
        *,
        complete=True,
        pieces=None,
        way="",
        connects=1,
        checkpoint=...,
        **changes,
    ):
        stream = SimpleNamespace(
            text=text,
            reasoning="",
            tool_calls=[],
            complete=complete,
            finish_reason="stop",
            resumes=[],
            exactness=Exactness.UNBROKEN,
            notes=[],
            metrics=SimpleNamespace(
                characters=len(text), connects=connects, ttft=0.1, resumes=0, gap=0
            ),
        )
        seen = judging.Seen(stream=stream, error=error)
        for piece in [text] if pieces is None else pieces:
            seen.note(TextDelta(piece))
        if error is None:
            seen.note(Finish("stop", "stop"))
        else:
            error.text = text
            error.checkpoint = checkpoint
            if checkpoint is ...:
                error.checkpoint = SimpleNamespace(text=text, complete=False)
        legs = [cases.Leg(way)] if way else []
        return judging.wrong(replace(case, legs=legs, **changes), seen)

    return judged


def test_a_whole_text_is_well(judge):
    assert judge("日本語 text") == []
    assert judge("日本語 text", pieces=["日本", "語 text"]) == []


def test_an_honest_error_is_well_where_nothing_else_could_be(judge):
    error = midstream.StreamInterrupted("broke")
    assert judge("日本", error, complete=False, must="honest") == []
    assert judge("日本", error, complete=False, must=midstream.StreamInterrupted) == []


def test_a_text_that_reads_as_begun_three_times_may_be_stopped(judge):
    error = midstream.ResumeDiverged("it begins anew")
    assert judge("ha ha ha ", error, complete=False, text="ha ha ha ha!") == []
    for came in "", "ha ha ", "日本語 t":
        found = judge(came, error, complete=False, text=came + "!")
        assert any("not whole" in fault for fault in found)


@pytest.mark.parametrize("text", ["日本語 tex", "日本語 ttext", "日本語日本語 text"])
def test_lost_and_repeated_characters_are_found(judge, text):
    assert any("complete with other text" in fault for fault in judge(text))


def test_a_cut_answer_that_is_passed_off_as_whole_is_found(judge):
    assert judge("日本")
    assert judge("日本", complete=False)


def test_giving_up_too_early_is_found(judge):
    error = midstream.StreamInterrupted("broke")
    assert any("not whole" in fault for fault in judge("日本", error, complete=False))


def test_a_false_prefix_under_an_error_is_found(judge):
    error = midstream.StreamInterrupted("broke")
    assert judge("日木", error, complete=False, must="honest")


@pytest.mark.parametrize(
    "pieces", [["日本語", "", " text"], ["日本語 te"], ["日本語 \ud83d", "text"]]
)
def test_bad_pieces_are_found(judge, pieces):
    assert judge("日本語 text", pieces=pieces)


def test_foreign_and_wrong_errors_are_found(judge):
    assert judge("日本", KeyError("x"), complete=False, must="honest")
    error = midstream.StreamInterrupted("broke")
    wanted = midstream.ResumeDiverged
    assert judge("日本", error, complete=False, must=wanted)
    assert judge("日本語 text", must=wanted)


@pytest.mark.parametrize("way", ["left", "cancelled", "killed"])
def test_several_readers_see_the_text_once(judge, way):
    text = "日本語 text"
    assert judge(text, way=way, pieces=["日本", "語 text"]) == []
    for pieces in (
        ["日本", "本語 text"],
        ["日本", " text"],
        ["日本", "語 "],
        ["日本", text],
    ):
        assert any("together" in fault for fault in judge(text, way=way, pieces=pieces))


def test_readers_together_may_be_cut_short_only_with_an_error(judge):
    error = midstream.StreamInterrupted("broke")
    cut = {"complete": False, "must": "honest", "way": "killed"}
    assert judge("", error, pieces=["日本"], **cut) == []
    error = midstream.StreamInterrupted("broke")
    assert judge("", error, pieces=["日木"], **cut)


def test_a_connection_for_each_cancelled_read_is_found(judge):
    assert judge("日本語 text", connects=1) == []
    faults = judge("日本語 text", connects=2)
    assert faults == ["2 connects where 1 are enough"]


def test_an_error_on_entering_is_no_end_of_the_trial(judge):
    error = midstream.UsageError("the key is being read elsewhere")
    faults = judge("", error, complete=False, checkpoint=None, must="honest")
    assert any("the caller is blamed" in fault for fault in faults)
    assert any("without a checkpoint" in fault for fault in faults)
