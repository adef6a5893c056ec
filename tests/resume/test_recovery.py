"""How a broken stream may go on, and what no prefix may continue."""

import random
from dataclasses import dataclass, replace
from math import inf

import pytest

from midstream._dialects import find
from midstream._resume.ledger import Ledger
from midstream._resume.policy import Resume
from midstream._resume.recovery import Drop, Facts, Recovery, Seen
from midstream._resume.server import Server
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
from midstream._values.timeouts import Timeouts

PREFILL = BadRequest("the model does not support assistant message prefill")
TOOLS = [{"type": "function", "function": {"name": "f"}}]


@dataclass
class Case:
    """A break at a llama.cpp server, which knows every exact way but tokens."""

    server: Server
    plan: Recovery
    ledger: Ledger

    def restrict(self, *, tools=True, tools_asked=None, **request):
        asked = Request.of(prompt="p", tools=tools_asked, **request)
        self.plan.resume = replace(self.plan.resume, tools=tools)
        return self.plan.restrict(facts(asked, self.ledger))

    def refused(self, strategy, fault):
        return self.plan._refuses(Seen(strategy, opened=True), fault)

    def no_replay(self, fault):
        self.plan._drop_way("replay", fault)


def facts(request, ledger, seen=None):
    return Facts(request, ledger, seen, 0, inf, Timeouts())


def recovery_of(server, ways, resume):
    recovery = Recovery([server], resume, random.Random(7), [], server)
    recovery.ways, recovery.drop = ways, Drop(Dropped("x"), 0.0)
    return recovery


def withdrawn_by(recovery, strategies, fault):
    return recovery._withdraws(Seen("begin", strategies), fault)


@pytest.fixture
def case():
    server = Server(Endpoint("llama.cpp", model="m"), find("llama.cpp"))
    resume = Resume(strategies=("replay", "tokens", "text", "rerun"))
    plan = recovery_of(server, server.ways(resume), resume)
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
        assert not withdrawn_by(case.plan, strategies, fault)
    assert withdrawn_by(case.plan, ["replay", "text"], refusal)
    assert case.server.refused == {("m", "replay")}
    assert case.plan.ways == ["text", "rerun"]
    assert "store" in case.plan.notes[0]


def test_a_refused_way_is_remembered_for_the_model(case):
    case.plan.ways = ["text", "rerun"]
    assert case.refused("text", PREFILL)
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
    assert not case.refused(strategy, fault)
    assert case.server.refused == set()


def test_nothing_is_refused_when_no_way_is_left(case):
    case.plan.ways = []
    assert not case.refused("text", PREFILL)


@pytest.mark.parametrize(
    ("fault", "refused", "lost"),
    [
        (NotFound("File Not Found"), True, True),
        (BadRequest("Stream offset lost, please restart"), True, False),
        (Overloaded("loading", retryable=True), False, False),
    ],
)
def test_a_stream_that_is_no_longer_kept_is_lost_for_replay(case, fault, refused, lost):
    assert case.refused("replay", fault) is refused
    assert case.plan.lost is lost
    assert case.server.refused == set()


def test_skipped_ways_are_noted(case):
    case.plan.skip(NotFound("gone"))
    case.no_replay(NotFound("gone"))
    assert case.plan.ways == ["text", "rerun"]
    assert case.plan.notes == ["replay: gone"]


def test_what_the_server_keeps_may_be_broken_itself(case):
    case.no_replay(Overloaded("half"))
    assert case.plan.ways == ["text", "rerun"]
    assert case.plan.notes == ["replay: half"]


# -- what no prefix may continue -------------------------------------------------------


def test_plain_text_may_be_continued_in_every_way(case):
    assert case.restrict() is None
    assert case.plan.ways == ["replay", "text", "rerun"]


def test_text_of_a_request_with_tools_only_if_the_policy_allows(case):
    assert case.restrict(tools=False) is None
    assert case.restrict(tools=True, tools_asked=TOOLS) is None
    assert case.plan.ways == ["replay", "text", "rerun"]
    assert case.restrict(tools=False, tools_asked=TOOLS) is None
    assert case.plan.ways == ["replay", "rerun"]
    case.plan.ways = ["text"]
    error = case.restrict(tools=False, tools_asked=TOOLS)
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
    case.no_replay(NotFound("gone"))
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
    plan = recovery_of(server, ["replay", "text"], Resume())
    assert withdrawn_by(plan, strategies, fault) is withdrawn
    assert plan.ways == (["text"] if withdrawn else ["replay", "text"])
    assert bool(server.refused) is withdrawn
    assert server.ways(Resume()) == (["text"] if withdrawn else ["replay", "text"])
