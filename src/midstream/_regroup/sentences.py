"""Sentences: up to their stop, its closing marks and the white space after it.

A sentence ends

- at ``. ! ? …`` and closing quotes, if white space follows. A full stop does not end
  it when a small letter comes next, after an abbreviation or an initial (``Mr.``,
  ``e.g.``, ``J.``, ``z. B.``), after a number that opens a line (``1.``) or is an
  ordinal (``Der 3. Oktober``, ``am 3. 10.``); in ``3.14`` and ``example.com`` no white
  space follows;
- at the full-width stops of Chinese and Japanese and the closing brackets after
  them, at once, and so at ``! ? …`` that follow a character of those scripts;
- at a blank line.

Each is decided by the first character of the next sentence, or where a name of a month
or a second letter would change it, by the first word; so any split of a text gives the
same pieces. The text is searched once: only a run of stops, closing marks and white
space at its end, or a stop that the next word decides, is looked at again.
"""

import re
from typing import Self

from midstream._regroup.abbreviations import ABBREVIATIONS
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
_elided = re.compile("['\u2019]")
_initial = re.compile(r"[^\W\d_]\.").fullmatch
_short_form = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]|[A-HJ-ZÀ-ÖØ-ÞА-Я]").fullmatch
_BEFORE_DIGITS = frozenset(
    {"abb", "art", "bd", "ch", "kap", "no", "nr", "p", "par", "s", "tab"}
)
# What makes the number before it an ordinal in German, which writes them with a stop.
_MONTHS = (
    *("Januar", "Jänner", "Februar", "März", "April", "Mai", "Juni", "Juli"),
    *("August", "September", "Oktober", "November", "Dezember"),
)
_AGES = ("Jahrhundert", "Jh.", "Weltkrieg")
_dated = re.compile(rf"(?:{'|'.join(_MONTHS)})(?!\w)|{'|'.join(_AGES)}").match
_article = re.compile(
    r"""(?ix) (?: (?<!\bI\ )\b am | \b (?: d(?:er|ie|as|en|em|es) | i[mn]s? | [vz]om
        | zu[mr] | beim | bis | ab | seit | jede[rsnm] | [msd]?eine?[rsnm]?
        | ihre?[rsnm]? | unsere?[rsnm]? ) ) \s+ \Z"""
).search
_day = re.compile(r"\d{1,2}\.").match
_after_day = re.compile(r"(?<!\d)\d{1,2}\.\s*\Z").search
_SECOND = ("Chr.", "Zt.")  # of v. Chr. and z. Zt.; others are one letter: z. B.
_FOLLOW = 1 + max(map(len, _MONTHS + _AGES))  # characters that decide what follows
_OPENING = "\"'“‘«‹([{*_`>#-+ \t"  # noqa: RUF001 - quotation marks are the subject
_LONGEST = 32  # characters in which an abbreviation and its opening marks fit


class Sentences:
    """Re-aggregator that gives sentences, for reading aloud or translating.

    Args:
        max_wait: Seconds that text may be held back for its sentence to end; None
            for as long as it takes. Once they are over, it is given as it is, but for
            a grapheme cluster that is visibly unfinished (👩 with a joiner).

    Raises:
        UsageError: If `max_wait` is no number of seconds, 0 or more.
    """

    __slots__ = ("_held", "_open", "_scan")

    def __init__(self, max_wait: float | None = None) -> None:
        self._held = Holdback(max_wait, "Sentences(max_wait=0.5)")
        self._scan = 0  # before this index of the held text no sentence ends
        self._open = False  # whether one ends there, the word that comes will tell

    def fresh(self) -> Self:
        """Give one with the same settings that has seen no text."""
        return type(self)(self._held.max_wait)

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
            self._open = False
            pieces.append(overdue)
        return pieces

    def flush(self) -> list[str]:
        """Give the last sentence.

        Returns:
            Mostly one piece; none if nothing is left.
        """
        pieces: list[str] = []
        if self._open:  # no word comes that could go on
            pieces, self._held.text = self._cut("", self._held.text, last=True)
        self._scan = 0
        return pieces + self._held.flush()

    @property
    def deadline(self) -> float | None:
        """When `feed` must be called with ``""``, in seconds; None for never."""
        return self._held.deadline

    def _cut(
        self, held: str, text: str, *, last: bool = False
    ) -> tuple[list[str], str]:
        buffer = held + text
        if len(buffer) <= LIMIT and not self._open:
            if not _candidate(buffer, self._scan):
                self._scan = len(buffer.rstrip())
                return [], buffer
            if held and _only_prolongs(held[-1], text):
                return [], buffer
        pieces: list[str] = []
        start, scan = 0, self._scan
        # A window, so that a piece is cut the same however much came with it.
        window = buffer[: LIMIT + 1]
        self._open = False
        while True:
            match = _stop(window, scan)
            if match:
                ends = _ends(window, match)
                if ends is None and not last:
                    self._open = True
                    self._scan = match.start()
                    return pieces, window
                cut = scan = match.end()
                if ends is False:
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


def _ends(text: str, stop: re.Match[str]) -> bool | None:
    """Tell whether the sentence that `text` begins with ends after this stop.

    Returns:
        None if the rest of the next word decides it.
    """
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
    if stops != ".":
        return True
    shortens = _shortens(before, text[end : end + _FOLLOW])
    if shortens is None and (end + _FOLLOW <= len(text) or len(text) > LIMIT):
        return True
    return None if shortens is None else not shortens


def _is_dense(char: str) -> bool:
    """Tell whether a character is of a script that is written without spaces."""
    return "\u2e80" <= char < "\ua000" or "\uf900" <= char < "\ufffe"


def _shortens(before: str, follow: str) -> bool | None:
    """Tell whether a full stop shortens a word or counts, and so ends no sentence.

    Returns:
        None if what follows is too short to tell.
    """
    words = before[-_LONGEST:].split()[-2:]
    if not words or before[-1:].isspace():
        return False
    word = words[-1].lstrip(_OPENING)
    if word.isdecimal():
        return _counts(before, word, follow)
    previous = words[0].lstrip(_OPENING).lower() if len(words) > 1 else ""
    lower = _elided.split(word.lower())[-1]  # as in l'avv.
    if (
        lower in ABBREVIATIONS
        or (previous[-1:] == "." and f"{previous[:-1]}_{lower}" in ABBREVIATIONS)
        or _short_form(word) is not None
        or (lower in _BEFORE_DIGITS and follow[0].isdecimal())
    ):
        return True
    if len(word) > 1 or not word.islower():
        return False
    if _initial(previous):  # as of d. h. and i. d. R.
        return True
    return _goes_on(follow)


def _goes_on(follow: str) -> bool | None:
    """Tell whether the second half of an abbreviation follows, as in ``z. B.``."""
    if not follow[0].isupper():
        return False
    if follow[1:2] == "." or follow.startswith(_SECOND):
        return True
    return None if len(follow) == 1 or _may_become(follow, _SECOND) else False


def _may_become(text: str, words: tuple[str, ...]) -> bool:
    """Tell whether text is the beginning of one of these words."""
    return any(word.startswith(text) for word in words)


def _counts(before: str, number: str, follow: str) -> bool | None:
    """Tell whether a number with a full stop is an ordinal, a day, or opens an item."""
    line = before[before.rfind("\n") + 1 :]
    if line.lstrip(_OPENING) == number:
        return True
    if len(number) > len("31"):
        return False
    rest = before[-_LONGEST : -len(number)]
    if _article(rest):
        return True
    if follow[0].isdecimal():
        if _after_day(rest) or _day(follow):
            return True
        return None if follow.isdecimal() and len(follow) <= len("31") else False
    dated = _dated(follow)
    if dated and dated.end() < len(follow):
        return True
    return None if _may_become(follow, _MONTHS + _AGES) else False


def _forced(window: str) -> int:
    """Find where to cut a sentence that is too long: at best between lines."""
    for gap in "\n ":
        cut = window.rfind(gap, LIMIT // 2, LIMIT) + 1
        if cut and is_edge(window, cut):
            return cut
    return edge_until(window, LIMIT)
