"""Sentences: up to their stop, its closing marks and the white space after it.

A sentence ends

- at ``. ! ? …`` and closing quotes, if white space follows. A full stop does not end
  it when a small letter comes next, after an abbreviation or an initial (``Mr.``,
  ``e.g.``, ``J.``) or after a number that opens a line (``1.``); in ``3.14`` and
  ``example.com`` no white space follows;
- at the full-width stops of Chinese and Japanese and the closing brackets after
  them, at once, and so at ``! ? …`` that follow a character of those scripts;
- at a blank line.

Each is decided by the first character of the next sentence, so any split of a text
gives the same pieces. The text is searched once: only a run of stops, closing marks
and white space at its end is looked at again.
"""

import re

from midstream._regroup.holdback import Holdback
from midstream._regroup.segmentation import edge_until, is_edge

LIMIT = 4096
"""Characters after which a sentence without an end is cut."""

_STRONG = "。！？︒｡．।॥။።"  # noqa: RUF001 - full-width stops are the subject
_WEAK = ".!?…؟۔‼⁇⁈⁉"  # noqa: RUF001 - as above
_CLOSING = "\"'”’»›)]}」』）】〕〉》〗〙〛｣＂＇］｝*_`~"  # noqa: RUF001 - as above

_MARKS = _STRONG + _WEAK + _CLOSING

_candidate = re.compile(rf"[\n{_STRONG}{_WEAK}]").search
# Each run is tried from its beginning only, or long runs would cost their square.
_stop = re.compile(
    rf"(?<![{_STRONG}{_WEAK}])(?P<stops>[{_STRONG}{_WEAK}]++)"
    rf"(?P<closing>[{re.escape(_MARKS)}]*+)(?P<space>\s*+)(?=\S)"
    r"|(?P<break>(?<!\s)[^\S\n]*+\n\s*+)(?=\S)"
).search

# e.g. and U.S., and the initials of names, but not the pronoun
_short_form = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]|[A-HJ-ZÀ-ÖØ-ÞА-Я]").fullmatch
_TITLES_AND_SUCH = """
    adm al approx apr assoc aug ave bldg brig ca capt cf cmdr col dec dept dr ed eds
    eq est feb fig figs ft gen gov hon jan jul jun lt maj messrs mr mrs ms mt nos nov
    oct op ph.d pl pp pres prof pt rep rev sec sen sept sgt st viz vol vols vs
"""
_ABBREVIATIONS = frozenset(_TITLES_AND_SUCH.split())
_BEFORE_DIGITS = frozenset({"art", "ch", "no", "nr", "p", "par"})
_OPENING = "\"'“‘«‹([{*_`>#-+ \t"  # noqa: RUF001 - quotation marks are the subject
_LONGEST = 16  # characters in which an abbreviation and its opening marks fit


class Sentences:
    """Re-aggregator that gives sentences, for reading aloud or translating.

    Args:
        max_wait: Seconds that text may be held back for its sentence to end; None
            for as long as it takes. Once they are over, all but the last grapheme
            cluster is given as it is.

    Raises:
        UsageError: If `max_wait` is no number of seconds, 0 or more.
    """

    __slots__ = ("_held", "_scan")

    def __init__(self, max_wait: float | None = None) -> None:
        self._held = Holdback(max_wait)
        self._scan = 0  # before this index of the held text no sentence ends

    def feed(self, text: str, now: float) -> list[str]:
        """Take text and give the sentences that have ended.

        Args:
            text: What came, or ``""`` at the deadline.
            now: The caller's monotonic clock, in seconds.

        Returns:
            The pieces, in order.
        """
        if text:
            pieces, rest = self._cut(self._held.text, text)
            overdue = self._held.keep(rest, len(text), now)
        else:
            pieces = []
            overdue = self._held.release(now)
        if overdue:
            self._scan = 0
            pieces.append(overdue)
        return pieces

    def flush(self) -> list[str]:
        """Give the last sentence.

        Returns:
            One piece, or none.
        """
        self._scan = 0
        return self._held.flush()

    @property
    def deadline(self) -> float | None:
        """When `feed` must be called with ``""``, in seconds; None for never."""
        return self._held.deadline

    def _cut(self, held: str, text: str) -> tuple[list[str], str]:
        buffer = held + text
        if len(buffer) <= LIMIT:
            if not _candidate(buffer, self._scan):
                self._scan = len(buffer.rstrip())
                return [], buffer
            if held and _only_prolongs(held[-1], text):
                return [], buffer
        pieces: list[str] = []
        start, scan = 0, self._scan
        # A window, so that a piece is cut the same however much came with it.
        window = buffer[: LIMIT + 1]
        while True:
            match = _stop(window, scan)
            if match:
                cut = scan = match.end()
                if not _ends(window, match):
                    continue
            elif len(window) > LIMIT:
                cut = _forced(window)
            else:
                break
            pieces.append(window[:cut])
            start += cut
            window = buffer[start : start + LIMIT + 1]
            scan = 0
        self._scan = max(scan, len(window.rstrip().rstrip(_MARKS)))
        return pieces, window


def _only_prolongs(last: str, text: str) -> bool:
    """Tell whether text only lengthens the stop or the space at the end of another.

    Such text decides nothing; a long run of it must not be searched each time.
    """
    return text.isspace() or not (text.strip(_MARKS) or last.isspace())


def _ends(text: str, stop: re.Match[str]) -> bool:
    """Tell whether the sentence that `text` begins with ends after this stop."""
    end = stop.end()
    if not is_edge(text, end):
        return False
    if (stop["break"] or stop["space"]).count("\n") > 1:
        return True  # a blank line
    if stop["break"]:
        return False
    stops, closing = stop["stops"], stop["closing"]
    before = text[: stop.start()]
    after = text[end]
    is_strong = any(mark in _STRONG for mark in stops + closing)
    if not stop["space"]:
        if is_strong:
            return not (before[-1:].isdecimal() and after.isdecimal())
        return stops[-1] != "." and _is_dense(before[-1:])
    if is_strong:
        return True
    if after.islower() and (closing or stops[-1] in ".…"):
        return False
    return stops != "." or not _is_abbreviated(before, after)


def _is_dense(char: str) -> bool:
    """Tell whether a character is of a script that is written without spaces."""
    return "\u2e80" <= char < "\ua000" or "\uf900" <= char < "\ufffe"


def _is_abbreviated(before: str, after: str) -> bool:
    """Tell whether a full stop shortens a word or counts an item of a list."""
    head = before[-_LONGEST:]
    word = head.split()[-1].lstrip(_OPENING) if head.strip() else ""
    if word.isdecimal():
        line = before[before.rfind("\n") + 1 :]
        return line.lstrip(_OPENING) == word
    word_lower = word.lower()
    return (
        word_lower in _ABBREVIATIONS
        or _short_form(word) is not None
        or (word_lower in _BEFORE_DIGITS and after.isdecimal())
    )


def _forced(window: str) -> int:
    """Find where to cut a sentence that is too long: at best between lines."""
    for gap in "\n ":
        cut = window.rfind(gap, LIMIT // 2, LIMIT) + 1
        if cut and is_edge(window, cut):
            return cut
    return edge_until(window, LIMIT)
