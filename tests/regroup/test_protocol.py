"""A fresh regrouper for each run."""

import threading

import pytest

from midstream._regroup import (
    Frames,
    Graphemes,
    Lines,
    Markdown,
    Sentences,
    Tokens,
    Words,
)
from midstream._regroup.protocol import fresh
from midstream._values.errors import UsageError

ALL = [
    Frames(fps=30, max_lag=0.2),
    Graphemes(),
    Lines(),
    Markdown(),
    Sentences(max_wait=2),
    Tokens(4, max_wait=1, encoding="o200k_base"),
    Words(max_wait=None),
]


class Own:
    """A regrouper of a user's, without fresh()."""

    deadline = None

    def __init__(self, *others):
        self.others = others
        self.held = []

    def feed(self, text, now):
        self.held.append(text)
        return []

    def flush(self):
        held, self.held = "".join(self.held), []
        return [held] if held else []


@pytest.mark.parametrize("by", ALL, ids=lambda by: type(by).__name__)
def test_a_fresh_one_has_the_settings_and_no_text(by):
    begun = by.fresh()
    begun.feed("```\nopen **left", 1.0, **({"tokens": 1} if "Tok" in str(by) else {}))
    made = begun.fresh()
    assert type(made) is type(by)
    assert made is not begun
    assert made.deadline is None
    assert made.flush() == []
    assert _settings(made) == _settings(by)


def _settings(by):
    names = ("_fps", "_lag", "_n", "_encoding")
    held = getattr(by, "_held", None)
    wait = getattr(held, "max_wait", None)
    return [getattr(by, name, None) for name in names], wait


def test_a_subclass_stays_one():
    class Louder(Words):
        pass

    assert type(Louder().fresh()) is Louder


def test_a_users_own_is_copied_in_depth():
    own = Own()
    own.feed("left", 0.0)
    made = fresh(own)
    made.feed("more", 0.0)
    assert own.flush() == ["left"]


def test_what_cannot_be_copied_is_told_with_the_cure():
    with pytest.raises(UsageError, match=r"Own.*method fresh\(\)") as caught:
        fresh(Own(threading.Lock()))
    assert isinstance(caught.value.__cause__, TypeError)


@pytest.mark.parametrize("wrong", [Words, "words", None, 3])
def test_what_is_no_regrouper_is_answered_by_the_right_form(wrong):
    with pytest.raises(UsageError, match=r"Words\(\)"):
        fresh(wrong)
