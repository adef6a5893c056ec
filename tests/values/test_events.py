"""The values a stream is made of."""

import dataclasses
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

import midstream
from midstream._values import events
from midstream._values.events import End, Event, Failure, Finish, Signal, TextDelta
from midstream._values.exactness import Exactness
from midstream._values.tool_call import ToolCall
from midstream._values.usage import Usage


def test_the_union_holds_every_event_and_signal():
    unions = {*typing.get_args(Event), *typing.get_args(Signal)}
    classes = {
        cls
        for cls in vars(events).values()
        if isinstance(cls, type) and dataclasses.is_dataclass(cls)
    }
    assert classes == unions
    assert unions <= classes
    assert not set(typing.get_args(Event)) & set(typing.get_args(Signal))
    assert {End, Failure} <= set(typing.get_args(Signal))


@pytest.mark.parametrize("cls", [*typing.get_args(Event), *typing.get_args(Signal)])
def test_events_are_slotted_equal_by_value_and_hashable(cls):
    values = [f"value {field.name}" for field in dataclasses.fields(cls)]
    event, same = cls(*values), cls(*values)
    assert event == same
    assert hash(event) == hash(same)
    assert not hasattr(event, "__dict__")
    assert repr(event).startswith(cls.__name__)


def test_logprobs_of_any_kind_do_not_spoil_the_hash():
    event = TextDelta("a", logprobs={"content": []})
    assert hash(event) == hash(TextDelta("a", logprobs=[1]))
    assert event != TextDelta("a", logprobs=[1])


def test_the_weakest_exactness_is_the_largest():
    assert sorted(Exactness) == [
        Exactness.UNBROKEN,
        Exactness.REPLAYED,
        Exactness.TOKENS,
        Exactness.TEXT,
        Exactness.RERUN,
        Exactness.APPROXIMATE,
    ]
    assert max(Exactness.TEXT, Exactness.REPLAYED) is Exactness.TEXT


counts = st.none() | st.integers(0, 1000)
usages = st.builds(Usage, counts, counts, counts, counts, st.booleans())


@given(usages, usages, usages)
def test_usage_adds_up_and_what_nobody_knows_stays_unknown(a, b, c):
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Usage() == a
    total = a + b
    assert total.estimated == (a.estimated or b.estimated)
    for field in "input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens":
        known = [v for v in (getattr(a, field), getattr(b, field)) if v is not None]
        assert getattr(total, field) == (sum(known) if known else None)


def test_the_finish_of_a_silent_server_is_not_made_up():
    assert Finish(None) == Finish(reason=None, raw=None, choice=0)


def test_arguments_are_parsed_when_they_are_whole():
    assert ToolCall(0, arguments='{"a": [1]}').parsed() == {"a": [1]}
    assert ToolCall(0).parsed() == {}
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        ToolCall(0, arguments='{"a": "li').parsed()


def test_exactness_is_printed_by_its_name():
    assert str(midstream.Exactness.TEXT) == f"{midstream.Exactness.TEXT}" == "TEXT"
    assert max(midstream.Exactness.TOKENS, midstream.Exactness.TEXT) == 3
