"""How long text waits."""

import math

import pytest

from midstream._regroup.holdback import Holdback
from midstream._values.errors import UsageError


def test_the_deadline_is_that_of_the_oldest_text():
    held = Holdback(0.5)
    assert held.deadline is None
    assert held.keep("ab", 2, 10.0) == ""
    assert held.deadline == 10.5
    assert held.keep("abc", 1, 10.2) == ""
    assert held.deadline == 10.5
    assert held.release(10.4) == ""
    assert held.release(10.5) == "ab"
    assert held.text == "c"


def test_a_growing_cluster_stays_without_a_deadline_until_it_is_proven():
    held = Holdback(0.5)
    held.keep("a👩", 2, 10.0)
    assert held.release(10.5) == "a"
    assert held.deadline is None
    assert held.keep("👩\u200d", 1, 11.0) == ""
    assert held.deadline is None
    assert held.keep("👩\u200d👩b", 2, 12.0) == "👩\u200d👩"
    assert held.deadline is None
    assert held.keep("bc", 1, 12.1) == ""
    assert held.deadline == 12.5
    assert held.flush() == ["bc"]
    assert held.flush() == []


def test_what_is_overdue_when_text_comes_goes_at_once():
    held = Holdback(0.5)
    held.keep("a", 1, 10.0)
    assert held.keep("ab\n", 2, 20.0) == "ab\n"
    assert held.deadline is None


def test_none_waits_for_ever():
    held = Holdback(None)
    held.keep("ab", 2, 10.0)
    assert held.deadline is None
    assert held.release(1e9) == ""


@pytest.mark.parametrize("wait", [-1, math.nan])
def test_wrong_waits_are_refused(wait):
    with pytest.raises(UsageError):
        Holdback(wait)
