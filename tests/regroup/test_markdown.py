"""No half construct is ever shown."""

import pytest

from midstream._regroup import Markdown
from midstream._regroup.markdown import LIMIT


def _steps(text):
    """Feed character by character; give what is shown each time it grows."""
    by = Markdown()
    pieces = [piece for char in text for piece in by.feed(char, 0.0)]
    return pieces + by.flush()


def _held(text):
    """Give what is not shown once all of a text has come."""
    by = Markdown()
    shown = "".join(piece for char in text for piece in by.feed(char, 0.0))
    whole = Markdown()
    assert "".join(whole.feed(text, 0.0)) == shown
    return text[len(shown) :]


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("a **bold** b", ["**bold**"]),
        ("text\n\n```py\nx=1\n```\nend", ["```py\n", "```\n"]),
        (
            "| a | b |\n|---|---|\n| [t](http://example.test/long) | 2 |",
            ["| a | b |\n|---|---|\n", "[t](http://example.test/long)"],
        ),
        ("a <b>c</b> d", ["<b>", "</b>"]),
        ("see ![a *b*](c(d)e) or [x][y], ok", ["![a *b*](c(d)e)", "[x][y]"]),
        ("use `a*b` and ``c`d`` now", ["`a*b`", "``c`d``"]),
        ("***all*** _one_ ~~gone~~ __two__ x", ["***all***", "_one_", "~~gone~~"]),
        ("**「強調」**です。", ["**「強調」**"]),
        ("~~~\n*a\n~~~\n<!-- a > b -->c", ["~~~\n", "<!-- a > b -->"]),
        ("**a *b* [c](d)** e", ["**a *b* [c](d)**"]),
        ("**👩\u200d👩** a", ["**👩\u200d👩**"]),
    ],
)
def test_constructs_come_whole(text, units):
    pieces = _steps(text)
    assert "".join(pieces) == text
    for unit in units:
        assert any(unit in piece for piece in pieces)
    outside = text
    for unit in units:
        outside = outside.replace(unit, "", 1)
    # What is outside the constructs comes with each character.
    assert len(pieces) >= len(outside) - 3 * len(units) - 3


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("5 < 6 and", "d"),
        ("5 < 6 and <b", "<b"),
        ("5 < 6 and <", "<"),
        ("a < b", "b"),
        ("a <b <c> d", "d"),
        ("a <b\n\nc", "c"),
        ("2 * 3 = 6", "6"),
        ("snake_case_name", "e"),
        ("a *b", "*b"),
        ("a *b\n\nc", "c"),
        ("a *b\n- c", "- c"),
        ("a *b\n-", "*b\n-"),
        ("a *b\n-c", "*b\n-c"),
        ("a *b\n12", "*b\n12"),
        ("a *b\n12) c", "12) c"),
        ("a *b\n| c", "*b\n| c"),
        ("a *b\n| c\nd", "d"),
        ("a **b*", "**b*"),
        ("a **b*c", "**b*c"),
        ("~5", "5"),
        ("~~5", "~~5"),
        ("a \\*b", "b"),
        ("a \\", "\\"),
        ("hi!", "!"),
        ("hi! a", "a"),
        ("hi![", "!["),
        ("hi![\u0301", "![\u0301"),
        ("a]b", "b"),
        ("a [b", "[b"),
        ("a [b]", "[b]"),
        ("a [b] ", " "),
        ("a [b](c", "[b](c"),
        ("a [b](c\n\nd", "d"),
        ("a [b](c)", "[b](c)"),
        ("a [b *c](d) e", "e"),
        ("a *b [c* d](e) f", "*b [c* d](e) f"),
        ("a `b", "`b"),
        ("a `", "`"),
        ("a `b`", "`b`"),
        ("a `b\n\nc", "c"),
        ("``", "``"),
        ("```p", "```p"),
        ("```p` q", "```p` q"),
        ("```p`\n\nq", "q"),
        ("  ", "  "),
        ("```\na", "a"),
        ("```\n*a *b\n", ""),
        ("```\n``", "``"),
        ("```\n```", "```"),
        ("```\n``` x", "x"),
        ("```\n~~~\nx\n", ""),
        ("```\na\n```\n*b", "*b"),
        ("`a`\n", ""),
        ("**\u0301", "**\u0301"),
    ],
)
def test_what_is_held(text, held):
    assert _held(text) == held


def test_an_endless_construct_is_let_go():
    by = Markdown()
    assert by.feed("a *" + "b" * (LIMIT - 1), 0.0) == ["a "]
    assert by.feed("c", 0.0) == ["*" + "b" * (LIMIT - 1)]
    assert by.feed("d **e** ", 0.0) == ["cd **e**"]
    assert by.deadline is None
    assert by.feed("", 0.0) == []
    assert by.flush() == [" "]
    assert by.flush() == []


@pytest.mark.parametrize(
    "unit", ["*", "`", "[", "<", "!", "\\", "*a", "`a ", "[a]", "("]
)
def test_what_is_looked_at_again_is_bounded(unit):
    by = Markdown()
    for _ in range(3000):
        by.feed(unit, 0.0)
        assert len(by._held) <= LIMIT
        assert len(by._open) <= LIMIT
