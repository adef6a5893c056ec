"""How a broken stream may go on, and what no prefix may continue."""

from dataclasses import dataclass

import pytest

from midstream._dialects import find
from midstream._resume.ledger import Ledger
from midstream._resume.plan import Drop, Plan, Server
from midstream._resume.policy import Resume
from midstream._values.endpoint import Endpoint
from midstream._values.errors import BadRequest, Dropped, NotFound, Overloaded
from midstream._values.events import (
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from midstream._values.interruptions import ResumeUnsupported, ToolCallInterrupted
from midstream._values.request import Request

PREFILL = BadRequest("the model does not support assistant message prefill")
TOOLS = [{"type": "function", "function": {"name": "f"}}]


@dataclass
class Case:
    """A break at a llama.cpp server, which knows every exact way but tokens."""

    server: Server
    plan: Plan
    ledger: Ledger

    def restrict(self, *, tools=True, **request):
        asked = Request.of(prompt="p", **request)
        return self.plan.restrict(self.server, asked, self.ledger, tools=tools)


@pytest.fixture
def case():
    server = Server(Endpoint("llama.cpp", model="m"), find("llama.cpp"))
    resume = Resume(strategies=("replay", "tokens", "text", "rerun"))
    plan = Plan(ways=server.ways(resume), drop=Drop(Dropped("x"), 0.0))
    ledger = Ledger(0, None)
    ledger.add_text(TextDelta("Let me check"))
    return Case(server, plan, ledger)


# -- ways ------------------------------------------------------------------------------


def test_ways_are_what_policy_and_dialect_share_best_first(case):
    assert case.plan.ways == ["replay", "text", "rerun"]
    every = Resume(strategies=("text", "replay", "tokens"), approximate=True)
    assert case.server.ways(every) == ["text", "replay", "ask"]


def test_what_a_request_asked_for_replays_sake_is_withdrawn(case):
    case.server.dialect = find("openai-responses")
    refusal = BadRequest("this server does not support `store=True`")
    for strategies, fault in [
        (["text"], refusal),
        (["replay"], Dropped("x")),
        (["replay"], BadRequest("model is required")),
    ]:
        assert not case.plan.withdraw(case.server, strategies, fault)
    assert case.plan.withdraw(case.server, ["replay", "text"], refusal)
    assert case.server.refused == {("m", "replay")}
    assert case.plan.ways == ["text", "rerun"]
    assert "store" in case.plan.notes[0]


def test_a_refused_way_is_remembered_for_the_model(case):
    case.plan.ways = ["text", "rerun"]
    assert case.plan.refused(case.server, "text", PREFILL)
    assert case.server.refused == {("m", "text")}
    assert case.server.ways(Resume()) == ["replay"]


@pytest.mark.parametrize(
    ("strategy", "fault"),
    [
        ("text", BadRequest("max_tokens is too large")),
        ("text", Dropped("prefill")),
        ("rerun", PREFILL),
        ("begin", PREFILL),
    ],
)
def test_other_faults_refuse_the_request_not_the_way(case, strategy, fault):
    case.plan.ways = ["text", "rerun"]
    assert not case.plan.refused(case.server, strategy, fault)
    assert case.server.refused == set()


def test_nothing_is_refused_when_no_way_is_left(case):
    case.plan.ways = []
    assert not case.plan.refused(case.server, "text", PREFILL)


@pytest.mark.parametrize(
    ("fault", "refused", "lost"),
    [
        (NotFound("File Not Found"), True, True),
        (BadRequest("Stream offset lost, please restart"), True, False),
        (Overloaded("loading", retryable=True), False, False),
    ],
)
def test_a_stream_that_is_no_longer_kept_is_lost_for_replay(case, fault, refused, lost):
    assert case.plan.refused(case.server, "replay", fault) is refused
    assert case.plan.lost is lost
    assert case.server.refused == set()


def test_skipped_ways_are_noted(case):
    case.plan.skip(NotFound("gone"))
    case.plan.no_replay(NotFound("gone"))
    assert case.plan.ways == ["text", "rerun"]
    assert case.plan.notes == ["replay: gone"]


def test_what_the_server_keeps_may_be_broken_itself(case):
    case.plan.no_replay(Overloaded("half"))
    assert case.plan.ways == ["text", "rerun"]
    assert case.plan.notes == ["replay: half"]


# -- what no prefix may continue -------------------------------------------------------


def test_plain_text_may_be_continued_in_every_way(case):
    assert case.restrict() is None
    assert case.plan.ways == ["replay", "text", "rerun"]


def test_text_of_a_request_with_tools_only_if_the_policy_allows(case):
    assert case.restrict(tools=False) is None
    asked = Request.of(prompt="p", tools=TOOLS)
    assert case.plan.restrict(case.server, asked, case.ledger, tools=True) is None
    assert case.plan.ways == ["replay", "text", "rerun"]
    assert case.plan.restrict(case.server, asked, case.ledger, tools=False) is None
    assert case.plan.ways == ["replay", "rerun"]
    case.plan.ways = ["text"]
    error = case.plan.restrict(case.server, asked, case.ledger, tools=False)
    assert type(error) is ResumeUnsupported
    assert "Resume(tools=False)" in str(error)


@pytest.mark.parametrize(
    ("arguments", "closed", "whole"),
    [('{"a": 1', False, False), ('{"a": 1}', False, True), ("{}", True, True)],
)
def test_a_cut_tool_call_is_continued_by_replay_only(case, arguments, closed, whole):
    case.ledger.add_tool(ToolCallDelta(0, "c", "f", arguments, closed=closed))
    assert case.restrict() is None
    assert case.plan.ways == ["replay"]
    case.plan.no_replay(NotFound("gone"))
    error = case.restrict()
    assert type(error) is ToolCallInterrupted
    [call] = error.tool_calls
    assert (call.name, call.arguments, call.complete) == ("f", arguments, whole)
    assert not error.resumable


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"extra": {"n": 2}}, "n > 1"),
        ({"extra": {"grammar": "root"}}, "grammar"),
        ({"extra": {"response_format": {"type": "json_object"}}}, "response_format"),
        ({"extra": {"json_schema": {}, "grammar": ""}}, "grammar, json_schema"),
    ],
)
def test_requests_that_a_prefix_does_not_continue(case, request_, words):
    assert case.restrict(**request_) is None
    assert case.plan.ways == ["replay", "rerun"]
    case.plan.ways = ["text"]
    error = case.restrict(**request_)
    assert type(error) is ResumeUnsupported
    assert words in str(error)
    assert not error.resumable


def test_one_answer_asked_for_by_name_is_one_answer(case):
    assert case.restrict(extra={"n": 1}) is None
    assert "text" in case.plan.ways


def test_a_second_answer_that_came_unasked_counts_too(case):
    case.ledger.choice(1).add_text("other")
    assert case.restrict() is None
    assert case.plan.ways == ["replay"]


def test_a_refusal_is_an_answer(case):
    case.ledger.add_side(RefusalDelta("I will not"))
    assert case.restrict() is None
    assert case.plan.ways == ["replay"]


def test_a_rerun_would_say_reasoning_twice(case):
    case.ledger.add_side(ReasoningDelta("hm"))
    assert case.restrict() is None
    assert case.plan.ways == ["replay", "text"]


def test_no_way_at_all_says_where_ways_are_allowed_and_what_was_tried(case):
    case.plan.skip(NotFound("gone"))
    case.plan.ways = []
    error = case.restrict()
    assert type(error) is ResumeUnsupported
    assert "llama.cpp" in str(error)
    assert "Resume.strategies" in str(error)
    assert "replay: gone" in str(error)


# -- a request that was refused for replay's sake --------------------------------------


class Keeping:
    """A dialect that is refused what it asks for replay's sake."""

    strategies = ("replay", "text")

    def refuses(self, strategy, error):
        return strategy == "replay" and "store" in error.message


@pytest.mark.parametrize(
    ("strategies", "fault", "withdrawn"),
    [
        (["replay", "text"], BadRequest("store is not allowed"), True),
        (["text"], BadRequest("store is not allowed"), False),
        (["replay"], BadRequest("other"), False),
        (["replay"], Dropped("store"), False),
    ],
)
def test_what_was_asked_for_replays_sake_is_withdrawn(strategies, fault, withdrawn):
    server = Server(Endpoint("openai", model="m"), Keeping())
    plan = Plan(ways=["replay", "text"])
    assert plan.withdraw(server, strategies, fault) is withdrawn
    assert plan.ways == (["text"] if withdrawn else ["replay", "text"])
    assert bool(server.refused) is withdrawn
    assert server.ways(Resume()) == (["text"] if withdrawn else ["replay", "text"])
