"""Words, and the marks and spaces that go with them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._regroup import Words
from midstream._regroup import words as module


def _words(text):
    by = Words(max_wait=None)
    return by.feed(text, 0.0) + by.flush()


@pytest.mark.parametrize(
    "pieces",
    [
        ["hello, ", "world"],
        ["  ", "two  ", "spaces "],
        ["can't ", "won\u2019t ", "3.14 ", "1,000 ", "e.g. ", "a_b"],
        ['"Yes," ', "(he ", "said) ", "[so]"],
        ["well-", "known ", "f", "(x) ", "$5 ", "-1"],
        ["東", "京", "は", "晴", "れ", "で", "す", "👨\u200d👩\u200d👧。"],
        ["カタカナ", "と", "「引", "用」、", "コーヒー"],
        ["“Déjà ", "vu” ", "¿qué? ", "— ", "no…"],
        ["ทำ", "ง", "า", "น"],
        ["한국어 ", "각\u1100\u1161"],
        ["क\u094dष ", "है।"],
        ["🇯🇵", "🇺🇸 ", "👍🏽", "❤\ufe0f ", "1\ufe0f\u20e3"],
        ["line\r\n", "next\n\n", "end"],
        ["a‼\u200d👩 ", "b"],
    ],
)
def test_words(pieces):
    assert _words("".join(pieces)) == pieces


def test_a_word_goes_when_the_next_one_begins():
    by = Words()
    assert by.feed("hello", 0.0) == []
    assert by.feed(",", 0.0) == []
    assert by.feed(" ", 0.0) == []
    assert by.feed("wor", 0.0) == ["hello, "]
    assert by.flush() == ["wor"]


def test_max_wait_bounds_the_delay():
    by = Words(max_wait=0.2)
    assert by.feed("东hel", 1.0) == ["东"]
    assert by.deadline == 1.2
    assert by.feed("", 1.1) == []
    assert by.feed("", 1.2) == ["hel"]
    assert by.deadline is None
    assert by.feed("lo", 5.0) == []
    assert by.deadline == 5.2
    assert by.flush() == ["lo"]


@given(st.text(st.characters(codec="ascii"), max_size=40))
def test_the_ascii_pattern_is_the_same_grammar(text):
    assert _words(text) == module._cut(text)


def test_an_endless_word_is_cut_at_its_limit():
    assert [len(piece) for piece in _words("a" * 600)] == [256, 256, 88]
    marks = _words("e" + "\u0301" * 400)
    assert [len(piece) for piece in marks] == [256, 145]
    family = _words("a" * 255 + "👩\u200d👩 b")
    assert [len(piece) for piece in family] == [255, 4, 1]


@pytest.mark.parametrize("unit", ["a", ".", " ", "é", "\u0301", "👩\u200d", "ำ"])
def test_what_is_looked_at_again_is_bounded(unit):
    by = Words(max_wait=None)
    for _ in range(2000):
        by.feed(unit, 0.0)
        assert len(by._held.text) <= module.LIMIT
