"""Calls that an API sends whole, from fragments."""

import pytest

from midstream._dialects.whole_calls import (
    WholeCalls,
    arguments_object,
    arguments_text,
)
from midstream._values.errors import WireError
from midstream._values.events import ToolCallDelta


def test_fragments_of_a_call_are_one_when_another_begins():
    calls = WholeCalls()
    assert calls.add(ToolCallDelta(0, "a", "f", '{"x"')) == []
    assert calls.add(ToolCallDelta(0, arguments=":1}")) == []
    assert calls.add(ToolCallDelta(1, "b", "g")) == [
        ToolCallDelta(0, "a", "f", '{"x":1}')
    ]
    assert calls.add(ToolCallDelta(1, "c", "h", choice=1)) == [
        ToolCallDelta(1, "b", "g")
    ]
    assert calls.flush() == [ToolCallDelta(1, "c", "h", choice=1)]
    assert calls.flush() == []


def test_a_closed_call_waits_for_nothing():
    calls = WholeCalls()
    calls.add(ToolCallDelta(0, "a", "f"))
    closed = ToolCallDelta(0, "a", "f", "{}", closed=True)
    assert calls.add(ToolCallDelta(0, arguments="{}", closed=True)) == [closed]
    open_one = ToolCallDelta(1, "b", "g")
    calls.add(open_one)
    assert calls.add(ToolCallDelta(2, "c", closed=True)) == [
        open_one,
        ToolCallDelta(2, "c", closed=True),
    ]


def test_arguments_are_an_object_there_and_a_text_here():
    assert arguments_text({"a": ["é", "\ud83d"]}) == '{"a":["é","\ud83d"]}'
    assert arguments_text(None) == "{}"
    assert arguments_object(ToolCallDelta(0, arguments='{"a":1}')) == {"a": 1}
    assert arguments_object(ToolCallDelta(0)) == {}
    with pytest.raises(WireError):
        arguments_object(ToolCallDelta(0, arguments='{"a"'))
