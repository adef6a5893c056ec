"""Markdown: text in which no marker is left open, so that a renderer never flickers.

From the opening marker on, text waits until the construct is whole: emphasis
(``**bold**``), code spans, links and images with their targets, tags. The line of a
fence waits for its end; the code inside passes at once. A marker that can no longer be
closed (a blank line or another block came) is plain text and goes, as a renderer
that sees all of the text will show it as such, too.

The grammar is CommonMark's as far as waiting needs it: flanking rules decide what may
open; what may close is judged leniently, since ``**「強調」**です`` is closed for any
reader. The text is parsed once, from `_at` on; the construct at the end of what came
is looked at again, and is bounded by ``LIMIT``.
"""

import re
from dataclasses import dataclass
from typing import Self

from midstream._regroup.segmentation import edge_until, tail

LIMIT = 2048
"""Characters that an open construct may hold back before all of it goes."""

_indent = re.compile(r"[ \t>]*+").match
_run = re.compile(r"(.)\1*+").match
_spaces = re.compile(r"[ \t]*+").match
_special = re.compile(r"[\\`*_~\[\]!<\n]").search
_blank_line = re.compile(r"\n[ \t]*\r?\n").search
_block = re.compile(r"(?:[-+*]|#{1,6}|\d{1,9}[.)])\s|\|").match
_block_begun = re.compile(r"(?:#{1,6}|\d{1,9}[.)]?)\Z").match
_tag = re.compile(r"<(?:!--(?s:.)*?--|(?!!--)[A-Za-z/!?][^<>]*+)>").match
_tag_begun = re.compile(r"<(?:\Z|!--|[A-Za-z/!?][^<>]*+\Z)").match
_target = re.compile(
    r"\((?:[^()\\]|\\(?s:.)|\((?:[^()\\]|\\(?s:.))*+\))*+\)|\[[^\[\]]*+\]"
).match

_FENCE = 3  # markers that begin or end a block of code


@dataclass(slots=True)
class _Opener:
    char: str
    at: int
    length: int


class Markdown:
    """Re-aggregator that never shows half a Markdown construct.

    Pieces are as long as what came allows; joined, they are exactly the text.
    """

    __slots__ = ("_at", "_before", "_fence", "_held", "_line", "_open")

    def __init__(self) -> None:
        self._held = ""
        self._at = 0  # index in the held text up to which it is parsed
        self._open: list[_Opener] = []  # markers that are not closed yet
        self._fence = ""  # the fence that the code block began with
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
        at = self._at
        start = _end(_indent(text, at))
        if start == len(text):
            return None
        char = text[start]
        if char in "`~":
            end = _end(_run(text, start))
            fence = text[start:end]
            newline = text.find("\n", end)
            rest = text[end : newline if newline >= 0 else None]
            if self._fence:
                closes = fence.startswith(self._fence) and not rest.strip()
            else:
                closes = len(fence) >= _FENCE and not (char == "`" and "`" in rest)
            if newline < 0 and (closes or end == len(text)):
                return None
            if closes:
                self._fence = "" if self._fence else fence
                self._open.clear()
                return newline + 1
        elif not self._fence and self._open:
            if char in "\r\n" or _block(text, start):
                self._open.clear()
            elif _block_begun(text, start):
                return None
        self._line = False
        return at

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
        end = _end(_run(text, at))
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
    begin = end = _end(_run(text, at))
    marker = text[at:begin]
    if end == len(text):
        return None
    blank = _blank_line(text, end)
    limit = blank.start() if blank else len(text)
    while (start := text.find("`", end, limit)) >= 0:
        end = _end(_run(text, start))
        if end == len(text):
            return None
        if end - start == len(marker):
            return end
    return begin if blank else None
