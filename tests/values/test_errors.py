"""One tree of errors."""

import copy
import inspect
import traceback

import pytest

import midstream
from midstream._values import errors, interruptions
from midstream._values.errors import (
    EventTooLarge,
    MidstreamError,
    ServerError,
    TimedOut,
    WireError,
)
from midstream._values.interruptions import StreamInterrupted, ToolCallInterrupted

CLASSES = [
    cls
    for module in (errors, interruptions)
    for _, cls in inspect.getmembers(module, inspect.isclass)
    if issubclass(cls, Exception) and cls.__module__ == "midstream"
]


def drawn():
    """The tree as the module's docstring draws it: (name, parent)."""
    parents = {}
    path = []
    for line in (errors.__doc__ or "").splitlines():
        words = line.replace("├──", "").replace("└──", "").replace("│", " ")
        name = words.split()[0].partition("(")[0] if words.split() else ""
        if not line.startswith("    ") or not hasattr(midstream, name):
            continue
        depth = (len(words) - len(words.lstrip()) if words != line else 4) - 4
        if depth > 0:
            depth = line.index(name) - 4
        path = [*path[: depth // 4], name]
        parents[name] = path[-2] if len(path) > 1 else "Exception"
    return parents


def test_the_drawn_tree_is_the_tree():
    assert drawn() == {cls.__name__: cls.__bases__[0].__name__ for cls in CLASSES}


def test_each_class_has_one_parent_and_a_docstring():
    for cls in CLASSES:
        assert len(cls.__bases__) == 1
        assert cls.__doc__


def test_an_error_outside_a_stream_has_no_text_and_no_checkpoint():
    error = MidstreamError("x")
    assert error.text == ""
    assert error.checkpoint is None


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("connect", "no connection within 2.5 s (Timeouts.connect)"),
        ("first_token", "no first token within 2.5 s (Timeouts.first_token)"),
        ("idle", "no further token within 2.5 s (Timeouts.idle)"),
        ("total", "the answer did not end within 2.5 s (Timeouts.total)"),
    ],
)
def test_a_time_out_says_which_limit_ran_out(kind, words):
    error = TimedOut(kind, 2.5)
    assert str(error) == words
    assert error.kind == kind
    assert error.seconds == 2.5
    assert str(TimedOut(kind)) == words.replace(" within 2.5 s", "")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "busy"),
        ({"status": 503}, "busy [503]"),
        ({"type": "overloaded"}, "busy [overloaded]"),
        ({"status": 503, "type": "overloaded"}, "busy [503, overloaded]"),
    ],
)
def test_a_server_error_says_its_status_and_type(facts, words):
    error = ServerError("busy", **facts)
    assert str(error) == words
    assert error.message == "busy"
    assert error.retry_after is None
    assert error.retryable is False


def test_a_wire_error_says_where():
    error = WireError("no JSON", offset=12)
    assert str(error) == "no JSON (at byte 12 of the body)"
    assert (error.words, error.offset) == ("no JSON", 12)
    assert isinstance(EventTooLarge("big"), WireError)


@pytest.mark.parametrize(
    "cls", [c for c in CLASSES if issubclass(c, StreamInterrupted)]
)
def test_what_cannot_be_resumed_says_so(cls):
    final = cls.__name__ in {"ResumeUnsupported", "ToolCallInterrupted"}
    assert cls("x").resumable is not final
    assert cls("x").resumes == ()


def test_an_interrupted_call_has_its_calls():
    assert ToolCallInterrupted("x").tool_calls == ()


def test_errors_can_be_raised_and_copied():
    for error in (
        MidstreamError("a"),
        ServerError("b", status=1),
        StreamInterrupted("c"),
    ):
        again = copy.copy(error)
        assert str(again) == str(error)
        with pytest.raises(MidstreamError):
            raise again


def test_a_traceback_names_the_public_class():
    shown = "".join(traceback.format_exception_only(midstream.UsageError("no")))
    assert shown == "midstream.UsageError: no\n"
