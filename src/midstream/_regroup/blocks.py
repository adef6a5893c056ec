r"""Which Markdown block a line begins, as soon as what came of it tells.

``Items:\n-`` is a heading until the list item comes, ``#`` one until ``#5``, ``***`` a
rule until ``***all***``, ``<b>`` alone a block of HTML, and a row of dashes under a
table's head decides only when it ends. The patterns give nothing back once they took
it (``*+``), so that a line of any length costs its length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

IN_CODE = -1
"""The line is code."""

_FENCE = 3  # markers that begin or end a block of code
_TAB = 4

_indent = re.compile(r"[ \t>]*+").match
_prefix = re.compile(
    r"(?:[ \t]*+(?:>|(?:[-+*]|\d{1,9}[.)])(?=[ \t\r\n])))*+[ \t]*+"
).match
_run = re.compile(r"(.)\1*+").match
_undecided = re.compile(
    r"""(?x) [ \t]*+ (?: (?: > | (?:[-+*]|\d{1,9}[.)])[ \t] ) [ \t]*+ )*+
    (?: [-*_\ \t]*+ \r?\Z        # a list item, an underline, a rule or emphasis
      | =*+ [ \t]*+ \r?\Z
      | [|:\-\ \t]*+ \r?\Z      # the row under the head of a table
      | (?: \+ | \#{1,6} | \d{1,9}[.)]? ) \r?\Z
    )"""
).match
_lone_tag = re.compile(
    r"[ \t>]*+(?:(?:[-+*]|\d{1,9}[.)])[ \t>]++)*+<[^<>]*+>[ \t]*+\Z"
).match
_rule = re.compile(
    r"(?:=++[ \t]*+|-++[ \t]*+|(?:-[ \t]*+){3,}+|(?:\*[ \t]*+){3,}+|(?:_[ \t]*+){3,}+)"
    r"\r?\n"
).match
_block = re.compile(r"(?:[-+*]|#{1,6}|\d{1,9}[.)])\s|\|").match
_delimiter = re.compile(
    r"[ \t>]*+\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*+\r?\n"
).match
_delimiter_begun = re.compile(r"[ \t>|:\-]*+\r?\Z").match


def _end(match: re.Match[str] | None) -> int:
    """Give where a pattern that always matches has matched up to."""
    assert match  # noqa: S101 - the patterns match any text at their place
    return match.end()


def run_end(text: str, at: int) -> int:
    """Find where the run of one character ends that begins at an index."""
    return _end(_run(text, at))


def content(text: str, at: int) -> int:
    """Find what stands behind the quotes, list markers and blanks of a line."""
    return _end(_prefix(text, at))


def undecided(text: str, at: int) -> bool:
    """Tell whether a line that is not whole may yet begin one block or another."""
    return _undecided(text, at) is not None


def is_lone_tag(line: str) -> bool:
    """Tell whether a line is one tag so far: HTML, unless more follows."""
    return _lone_tag(line) is not None


def begins_block(text: str, at: int, start: int) -> bool:
    """Tell whether a line ends the paragraph before it.

    Args:
        text: What came.
        at: Where the line begins.
        start: Where its content does.

    Returns:
        Whether it is a list item, a heading or its underline, a rule or a row.
    """
    listed = text[at:start].strip(" \t>") != ""
    return listed or bool(_block(text, start) or _rule(text, start))


def heads_table(text: str, start: int) -> bool | None:
    """Tell whether a line is the head of a table; None if the next will tell."""
    newline = text.find("\n", start)
    if newline < 0:
        return None
    if _delimiter(text, newline + 1):
        return True
    return None if _delimiter_begun(text, newline + 1) else False


@dataclass(frozen=True, slots=True)
class Fence:
    """What a block of code began with.

    Attributes:
        marks: The markers.
        quoted: Whether it stands in a quote.
        column: Where the content of the list item begins that it opened in.
    """

    marks: str
    quoted: bool
    column: int

    @classmethod
    def opened(cls, text: str, at: int, start: int) -> tuple[int, Fence | None] | None:
        """Parse a line that may open a block of code.

        Returns:
            The index after it and the fence, if it is one; None if what came of the
            line does not tell.
        """
        end = run_end(text, start)
        newline = text.find("\n", end)
        rest = text[end : newline if newline >= 0 else None]
        opens = end - start >= _FENCE and not (text[start] == "`" and "`" in rest)
        if newline < 0 and (opens or end == len(text)):
            return None
        if not opens:
            return start, None
        prefix = text[at:start]
        column = len(prefix.expandtabs(_TAB)) if prefix.strip(" \t>") else 0
        return newline + 1, cls(text[start:end], ">" in prefix, column)

    def left(self, text: str, at: int) -> int | None:
        """Tell where the code is over, if this line ends it.

        Returns:
            The index after the closing fence, or of the line that left the quote or
            list item; `IN_CODE`, or None if what came of the line does not tell.
        """
        start = _end(_indent(text, at))
        if start == len(text):
            return None
        prefix, blank = text[at:start], text[start] in "\r\n"
        outside = not blank and len(prefix.expandtabs(_TAB)) < self.column
        if outside or (self.quoted and ">" not in prefix):
            return at
        if text[start] not in "`~":
            return IN_CODE
        end = run_end(text, start)
        newline = text.find("\n", end)
        rest = text[end : newline if newline >= 0 else None]
        closes = text[start:end].startswith(self.marks) and not rest.strip()
        if newline < 0 and (closes or end == len(text)):
            return None
        return newline + 1 if closes else IN_CODE
