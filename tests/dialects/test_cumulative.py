"""Whole answers so far become deltas; nothing given out is ever taken back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._dialects.cumulative import Cumulative
from midstream._values.errors import WireError


def fed(*texts):
    cumulative = Cumulative()
    return [cumulative.feed(text) for text in texts] + [cumulative.flush()]


def test_growing_texts():
    assert fed("ha", "haha", "haha", "hahaha!") == ["ha", "ha", "", "ha!", ""]


def test_an_unsure_tail_waits():
    assert fed("a\ufffd", "a東", "a東\udce4\udcba", "a東京") == [
        "a",
        "東",
        "",
        "京",
        "",
    ]


def test_a_tail_that_stays_unsure_comes_at_the_end():
    assert fed("a\ufffd") == ["a", "\ufffd"]


def test_u_fffd_inside_the_text_is_text():
    assert fed("a\ufffd", "a\ufffdb") == ["a", "\ufffdb", ""]


def test_a_stop_string_cut_off():
    assert fed("one STO", "one ") == ["one STO", "", ""]
    assert fed("one\ufffd", "o", "one!") == ["one", "", "!", ""]


def test_a_text_that_takes_something_back():
    with pytest.raises(WireError):
        fed("one", "two and more")


@given(st.lists(st.text()))
def test_deltas_join_to_the_text(parts):
    wholes = ["".join(parts[: n + 1]) for n in range(len(parts))]
    assert "".join(fed(*wholes)) == "".join(parts)


class Looked(str):
    """A text that counts how much of it is looked at character by character."""

    __slots__ = ()
    characters = 0

    def __getitem__(self, key):
        return Looked(super().__getitem__(key))

    def rstrip(self, chars=None):
        Looked.characters += len(self)
        return super().rstrip(chars)


def test_a_long_unsure_tail_is_looked_at_once(monkeypatch):
    monkeypatch.setattr(Looked, "characters", 0)
    cumulative = Cumulative()
    for n in range(1, 3001):
        assert cumulative.feed(Looked("\ufffd" * n)) == ""
    assert cumulative.feed(Looked("\ufffd" * 3000 + "x")) == "\ufffd" * 3000 + "x"
    assert 3000 <= Looked.characters <= 2 * 3001


def test_a_long_run_inside_a_text_costs_its_length():
    text = "\ufffd" * 300_000 + "x"  # a search from each of its places never ends
    assert fed(text) == [text, ""]


def test_what_follows_a_flushed_tail_is_new():
    cumulative = Cumulative()
    assert cumulative.feed("a\ufffd") + cumulative.flush() == "a\ufffd"
    assert cumulative.feed("a\ufffd\ufffd") + cumulative.flush() == "\ufffd"
