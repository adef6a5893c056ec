"""Lines and their endings."""

import pytest

from midstream._regroup import Lines
from midstream._regroup.lines import LIMIT


def test_lines_keep_their_endings():
    by = Lines()
    assert by.feed("a\nb\r\nc\rd\u2028e\x0cf", 0.0) == ["a\n", "b\r\n", "c\r"]
    assert by.feed("", 0.0) == []
    assert by.feed("g", 0.0) == []
    assert by.deadline is None
    assert by.flush() == ["d\u2028e\x0cfg"]
    assert by.flush() == []


@pytest.mark.parametrize(
    ("then", "pieces"),
    [("\nb", ["a\r\n"]), ("b", ["a\r"]), ("\r", ["a\r"]), ("\u0301", ["a\r"])],
)
def test_a_carriage_return_waits_for_its_line_feed(then, pieces):
    by = Lines()
    assert by.feed("a\r", 0.0) == []
    assert by.feed(then, 0.0) == pieces


def test_a_line_without_an_end_is_cut_at_its_limit():
    text = "é" * (2 * LIMIT) + "x\n"
    whole = Lines()
    pieces = whole.feed(text, 0.0) + whole.flush()
    assert [len(piece) for piece in pieces] == [LIMIT, LIMIT, 2]
    parts = Lines()
    split = [
        p for i in range(0, len(text), 999) for p in parts.feed(text[i : i + 999], 0)
    ]
    assert split + parts.flush() == pieces


def test_the_limit_does_not_cut_a_line_ending():
    by = Lines()
    assert by.feed("a" * (LIMIT - 1) + "\r\nb", 0.0) == ["a" * (LIMIT - 1), "\r\n"]


def test_parts_of_a_long_line_are_joined_once():
    by = Lines()
    for _ in range(10_000):
        assert by.feed("abcd", 0.0) == []
    assert len(by._parts) == 10_000
    assert by.feed("\n", 0.0) == ["abcd" * 10_000 + "\n"]
