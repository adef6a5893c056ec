"""How long text waits."""

import math

import pytest

from midstream._regroup.holdback import Holdback
from midstream._values.errors import UsageError


def test_the_deadline_is_that_of_the_oldest_text():
    held = Holdback(0.5, "F")
    assert held.deadline is None
    assert held.keep("ab", 2, 10.0) == ""
    assert held.deadline == 10.5
    assert held.keep("abc", 1, 10.2) == ""
    assert held.deadline == 10.5
    assert held.release(10.4) == ""
    assert held.release(10.5) == "abc"
    assert held.text == ""


def test_an_unfinished_cluster_stays_without_a_deadline_until_it_is_whole():
    held = Holdback(0.5, "F")
    held.keep("a👩\u200d", 3, 10.0)
    assert held.release(10.5) == "a"
    assert held.deadline is None
    assert held.keep("👩\u200d\u200d", 1, 11.0) == ""
    assert held.deadline is None
    assert held.keep("👩\u200d\u200d👩b", 2, 12.0) == "👩\u200d\u200d👩"
    assert held.deadline == 12.5
    assert held.release(12.5) == "b"
    assert held.flush() == []


def test_what_is_overdue_when_text_comes_goes_at_once():
    held = Holdback(0.5, "F")
    held.keep("a", 1, 10.0)
    assert held.keep("ab\n", 2, 20.0) == "ab\n"
    assert held.deadline is None


def test_what_came_just_now_has_its_own_wait():
    held = Holdback(0.5, "F")
    held.keep("a", 1, 10.0)
    assert held.keep("abe", 2, 20.0) == "ab"
    assert held.deadline == 20.5
    assert held.keep("e\u0301", 1, 20.1) == ""
    assert held.release(20.5) == "e\u0301"


def test_none_waits_for_ever():
    held = Holdback(None, "F")
    held.keep("ab", 2, 10.0)
    assert held.deadline is None
    assert held.release(1e9) == ""


@pytest.mark.parametrize("wait", [-1, math.nan, "0.5", True])
def test_wrong_waits_are_refused(wait):
    with pytest.raises(UsageError, match=r"seconds, 0 or more, or None: Words\(1\)"):
        Holdback(wait, "Words(1)")


def test_the_wait_is_told():
    assert Holdback(2, "F").max_wait == 2.0
    assert Holdback(None, "F").max_wait is None
    assert Holdback(math.inf, "F").max_wait is None


def test_without_a_wait_nothing_is_ever_due_later():
    held = Holdback(0, "F")
    assert held.keep("\u200d", 1, 10.0) == ""
    assert held.keep("\u200d👩", 1, 11.0) == "\u200d👩"
    assert held.deadline is None
