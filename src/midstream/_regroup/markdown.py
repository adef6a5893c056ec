r"""Markdown: text in which no marker is left open, so that a renderer never flickers.

From the opening marker on, text waits until the construct is whole: emphasis
(``**bold**``), code spans, links and images with their targets, tags. The line of a
fence waits for its end; the code inside passes at once. A marker that can no longer be
closed (a blank line or another block came) is plain text and goes, as a renderer
that sees all of the text will show it as such, too.

The beginning of a line waits until it is sure which block it begins, and goes with
its first character of content: ``Items:\n-`` is a heading until the list item comes,
``#`` one until ``#5``, ``***`` a rule until ``***all***``, ``<b>`` alone a block of
HTML. Of tables, the head waits for the end of the row under it. What may still happen
is that plain text is promoted: by ``===`` under a paragraph that was shown long ago.

The grammar is CommonMark's as far as waiting needs it: flanking rules decide what may
open; what may close is judged leniently, since ``**「強調」**です`` is closed for any
reader. The text is parsed once, from `_at` on; the construct at the end of what came
is looked at again, and is bounded by ``LIMIT``.
"""

import re
from dataclasses import dataclass
from typing import Self

from midstream._regroup.blocks import (
    IN_CODE,
    Fence,
    begins_block,
    content,
    heads_table,
    is_lone_tag,
    run_end,
    undecided,
)
from midstream._regroup.segmentation import edge_until, tail

LIMIT = 2048
"""Characters that an open construct may hold back before all of it goes."""

_spaces = re.compile(r"[ \t]*+").match
_special = re.compile(r"[\\`*_~\[\]!<\n]").search
_blank_line = re.compile(r"\n[ \t]*\r?\n").search
_tag = re.compile(r"<(?:!--(?s:.)*?--|(?!!--)[A-Za-z/!?][^<>]*+)>").match
_tag_begun = re.compile(r"<(?:\Z|!--|[A-Za-z/!?][^<>]*+\Z)").match
_target = re.compile(
    r"\((?:[^()\\]|\\(?s:.)|\((?:[^()\\]|\\(?s:.))*+\))*+\)|\[[^\[\]]*+\]"
).match


@dataclass(slots=True)
class _Opener:
    char: str
    at: int
    length: int


class Markdown:
    """Re-aggregator that never shows half a Markdown construct.

    Pieces are as long as what came allows; joined, they are exactly the text.
    """

    __slots__ = (
        "_at",
        "_before",
        "_fence",
        "_held",
        "_line",
        "_open",
        "_table",
    )

    def __init__(self) -> None:
        self._held = ""
        self._at = 0  # index in the held text up to which it is parsed
        self._open: list[_Opener] = []  # markers that are not closed yet
        self._fence: Fence | None = None  # what the block of code began with
        self._table = False  # the line before was of a table
        self._line = True  # the parser stands at the beginning of a line
        self._before = ""  # the last character that went out

    def fresh(self) -> Self:
        """Give one that has seen no text."""
        return type(self)()

    def feed(self, text: str, now: float) -> list[str]:
        """Take text and give what is not inside an open construct.

        Args:
            text: What came.
            now: Not used: a construct waits for its end.

        Returns:
            One piece, or none.
        """
        if not text:
            return []
        buffer = self._held + text
        # What ends with the last cluster may go only once that is proven finished.
        stop = tail(buffer)
        while self._at < stop:
            step = self._step(buffer, stop)
            if step is None or step > stop:  # no step beyond it changed anything
                break
            self._at = step
        cut = self._open[0].at if self._open else self._at
        cut = self._decided(buffer, cut)
        if len(buffer) - cut > LIMIT:
            self._open.clear()
            self._line = False
            self._at = cut = stop
        if cut < len(buffer):
            cut = edge_until(buffer, cut)
        self._held = buffer[cut:]
        if not cut:
            return []
        self._at -= cut
        for opener in self._open:
            opener.at -= cut
        self._before = buffer[cut - 1]
        return [buffer[:cut]]

    def flush(self) -> list[str]:
        """Give all that is left, open or not.

        Returns:
            One piece, or none.
        """
        held, self._held = self._held, ""
        self._at = 0
        self._open.clear()
        return [held] if held else []

    @property
    def deadline(self) -> None:
        """None: constructs wait for their end, up to the limit of their size."""
        return

    def _step(self, text: str, stop: int) -> int | None:
        """Parse one token.

        Returns:
            The index after it; None if what came so far does not decide it.
        """
        if self._line:
            return self._line_start(text)
        at = self._at
        if self._fence:
            end = text.find("\n", at, stop) + 1
            self._line = end > 0
            return end or stop
        special = _special(text, at, stop)
        if special is None:
            return stop
        if special.start() > at:
            return special.start()
        match text[at]:
            case "\n":
                self._line = True
                return at + 1
            case "\\":
                return at + 2
            case "!" | "[" as char:
                return self._bracket(text, char, stop)
            case "]":
                return self._link_end(text, stop)
            case "<":
                return _tag_end(text, at)
            case "`":
                return _code_end(text, at)
            case _:
                return self._emphasis(text, stop)

    def _line_start(self, text: str) -> int | None:
        """Parse what begins a line: a fence, a blank line or another block."""
        if self._fence:
            return self._code_line(text, self._fence)
        at = self._at
        if undecided(text, at):
            return None
        start = content(text, at)
        if start == len(text):
            return None
        char = text[start]
        if char in "`~":
            opened = Fence.opened(text, at, start)
            if opened is None:
                return None
            end, self._fence = opened
            if self._fence:
                self._open.clear()
                return end
        if char != "|":
            self._table = False
        elif not self._table:
            head = heads_table(text, start)
            if head is None:
                return None
            self._table = head
        if char in "\r\n" or begins_block(text, at, start):
            self._open.clear()
        self._line = False
        return start

    def _code_line(self, text: str, fence: Fence) -> int | None:
        """Parse the beginning of a line in a block of code."""
        at = self._at
        left = fence.left(text, at)
        if left is None:
            return None
        if left == IN_CODE:
            self._line = False
            return at
        self._fence = None
        return left

    def _decided(self, text: str, cut: int) -> int:
        """Keep back the beginning of a line that may yet begin another block."""
        if self._fence:
            return cut
        begin = text.rfind("\n", 0, cut) + 1
        if not begin and self._before not in ("", "\n"):
            return cut
        line = text[begin:cut]
        return begin if undecided(line, 0) or is_lone_tag(line) else cut

    def _bracket(self, text: str, char: str, stop: int) -> int | None:
        """Open a link or an image."""
        at = self._at
        if char == "!":
            if text[at + 1] != "[":
                return at + 1
            if at + 2 > stop:
                return None
        self._open.append(_Opener("[", at, 1))
        return at + (2 if char == "!" else 1)

    def _link_end(self, text: str, stop: int) -> int | None:
        """Close a link: with the target or label that follows, if any."""
        end = self._at + 1
        opened = self._find("[")
        if opened < 0:
            return end
        if text[end] in "([":
            target = _target(text, end)
            if target:
                end = target.end()
            elif not _blank_line(text, end):
                return None
        if end > stop:
            return None
        del self._open[opened:]
        return end

    def _emphasis(self, text: str, stop: int) -> int | None:
        """Open or close emphasis by a run of markers, or both."""
        at = self._at
        char = text[at]
        end = run_end(text, at)
        if end > stop:
            return None
        before = text[at - 1] if at else self._before
        opens, closes = _flanking(char, before or "\n", text[end])
        left = end - at
        if char == "~" and text[at:end] != "~~":
            return end  # one tilde is "about"
        while closes and left and (opened := self._find(char)) >= 0:
            opener = self._open[opened]
            del self._open[opened + 1 :]
            pairs = min(left, opener.length)
            left -= pairs
            opener.length -= pairs
            if not opener.length:
                self._open.pop()
        if opens and left:
            self._open.append(_Opener(char, end - left, left))
        return end

    def _find(self, char: str) -> int:
        """Find the innermost open marker of a kind, within the link we are in."""
        for index in range(len(self._open) - 1, -1, -1):
            if self._open[index].char == char:
                return index
            if self._open[index].char == "[":
                break
        return -1


def _end(match: re.Match[str] | None) -> int:
    """Give where a pattern that always matches has matched up to."""
    assert match  # noqa: S101 - the patterns match any text at their place
    return match.end()


def _flanking(char: str, before: str, after: str) -> tuple[bool, bool]:
    """Tell whether a run of markers may open and whether it may close emphasis."""
    marks_before = not (before.isalnum() or before.isspace())
    marks_after = not (after.isalnum() or after.isspace())
    left = not after.isspace() and (not marks_after or before.isspace() or marks_before)
    right = not before.isspace()
    if char == "_":  # inside a word it is part of a name
        return left and (not right or marks_before), right and not after.isalnum()
    return left, right


def _tag_end(text: str, at: int) -> int | None:
    """Find the end of a tag or an autolink; a lone ``<`` is text."""
    tag = _tag(text, at)
    if tag:
        return tag.end()
    if _tag_begun(text, at) and not _blank_line(text, at):
        return None
    return at + 1


def _code_end(text: str, at: int) -> int | None:
    """Find the end of a code span; without an end in its block it is text."""
    begin = end = run_end(text, at)
    marker = text[at:begin]
    if end == len(text):
        return None
    blank = _blank_line(text, end)
    limit = blank.start() if blank else len(text)
    while (start := text.find("`", end, limit)) >= 0:
        end = run_end(text, start)
        if end == len(text):
            return None
        if end - start == len(marker):
            return end
    return begin if blank else None
