"""The laws every re-aggregator keeps, whatever the text and however it is split."""

import itertools
import math
import re
import subprocess
import sys

import pytest
import regex
import tiktoken
from hypothesis import example, given
from hypothesis import strategies as st

from midstream._regroup import (
    Frames,
    Graphemes,
    Lines,
    Markdown,
    Regrouper,
    Sentences,
    Tokens,
    Words,
)
from midstream._regroup.segmentation import CLUSTER_LIMIT

# Every byte a token, and a few longer ones: a vocabulary that needs no network.
_RANKS = {bytes([i]): i for i in range(256)}
_RANKS |= {b"th": 256, b"the": 257, b" a": 258, "東".encode(): 259, b"\xe6\x9d": 260}
ENCODING = tiktoken.Encoding(
    name="tiny",
    pat_str=r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    mergeable_ranks=_RANKS,
    special_tokens={},
)

MAKERS = {
    "tokens": lambda: Tokens(3, encoding=ENCODING),
    "token": lambda: Tokens(1, max_wait=0.3, encoding=ENCODING),
    "words": Words,
    "words-patient": lambda: Words(max_wait=None),
    "words-hasty": lambda: Words(max_wait=0),
    "sentences": Sentences,
    "sentences-timed": lambda: Sentences(max_wait=0.3),
    "lines": Lines,
    "graphemes": Graphemes,
    "markdown": Markdown,
    "frames": Frames,
    "frames-slow": lambda: Frames(fps=2, max_lag=3),
    "frames-now": lambda: Frames(max_lag=0),
}
# Time does not change these, so any split gives the same pieces.
TIMELESS = ["words-patient", "sentences", "lines", "graphemes"]
# These have no deadline.
WAITING = [*TIMELESS, "tokens", "markdown"]

BITS = [
    *"aZ 1.,!?;:'\"()[]<>-_*`#\n\r\t$",
    *"東京はゃカーン。、！？…「」』）　",
    *"กำาั้สวดี",
    *"각의\u1100\u1161\u11a8",
    *"क\u094dषत\u093f\u200d\u0d4e",
    *"👩👧👍🏽🇯🇵❤\ufe0f\u20e3‼",
    *"e\u0301\u0308\u3099\uff9e\u200b\u00ad\u0600\u2028\u0085\xa0\x1c\x00",
    *"א״אش؟é“”‘’«»¿",
    "\r\n",
    "\n\n",
    "👨\u200d👩\u200d👧",
    "```py\n",
    "**b**",
    "](u)",
    "e.g.",
    "Mr. ",
    "3.14",
    ". ",
    "the",
]
TEXTS = st.lists(st.sampled_from(BITS), max_size=24).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=12
)


@st.composite
def _deltas(draw):
    """Give a text in parts, each with the seconds that pass before it."""
    text = draw(TEXTS)
    cuts = sorted(draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    parts = [text[a:b] for a, b in itertools.pairwise(cuts)]
    waits = st.sampled_from([0.0, 0.001, 0.017, 0.1, 0.25, 1.0])
    return [(part, draw(waits)) for part in parts]


def _drive(by, deltas):
    """Feed as a driver does, keeping every deadline.

    Gives pieces, each with its time and the length of the text that had come by then.
    """
    now, come, out = 100.0, 0, []
    for text, wait in deltas:
        then = now + wait
        while (due := by.deadline) is not None and due <= then:
            assert due > now or now == 100.0
            now = max(now, due)
            out += [(piece, now, come) for piece in by.feed("", now)]
            assert by.deadline is None or by.deadline > now
        now = then
        come += len(text)
        out += [(piece, now, come) for piece in by.feed(text, now)]
    out += [(piece, now, come) for piece in by.flush()]
    return out


def _pieces(by, parts):
    return [piece for piece, *_ in _drive(by, [(part, 0.0) for part in parts])]


def _clusters(text):
    return regex.findall(r"\X", text)


def _edges(text, begin):
    return {*itertools.accumulate(map(len, _clusters(text[begin:])), initial=begin)}


def _unfinished(text):
    """Whether a reader sees that the last cluster lacks something (UAX #29)."""
    if re.search("[\u200d\u0600\u0d4e\u1100\u094d\r]$", text):
        return True
    cluster = _clusters(text)[-1] if text else ""
    return sum("\U0001f1e6" <= char <= "\U0001f1ff" for char in cluster) == 1 and (
        cluster[-1] > "\U0001f1e5"
    )


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@given(deltas=_deltas())
@example(deltas=[("👩", 0), ("\u200d", 1), ("👩", 1)])
@example(deltas=[("a\r", 0), ("\n", 1), ("b", 1)])
@example(deltas=[("🇯", 0), ("🇵", 1), ("🇺", 1), ("🇸", 1)])
@example(deltas=[("ท", 0), ("ำ", 1), ("ง", 1)])
@example(deltas=[("👨", 0), ("\u200d", 0), ("👩", 0.001), ("\u200d👧", 0)])
def test_pieces_are_the_text_in_whole_clusters(make, deltas):
    by = make()
    text = "".join(part for part, _ in deltas)
    shown, edges = "", _edges(text, 0)
    for piece, _, come in _drive(by, deltas):
        assert piece
        shown += piece
        if len(shown) not in edges:
            # Waiting was over, nothing more was there, and it looked whole.
            assert len(shown) == come
            assert not _unfinished(shown)
            edges = _edges(text, come)  # what grows on stands alone
    assert shown == text
    assert by.flush() == []
    assert by.deadline is None


@pytest.mark.parametrize("make", [MAKERS[name] for name in WAITING], ids=WAITING)
@given(deltas=_deltas())
def test_without_a_deadline_no_cluster_is_ever_cut(make, deltas):
    text = "".join(part for part, _ in deltas)
    pieces = [piece for piece, *_ in _drive(make(), deltas)]
    assert list(itertools.chain.from_iterable(map(_clusters, pieces))) == (
        _clusters(text)
    )


@pytest.mark.parametrize("make", [MAKERS[name] for name in TIMELESS], ids=TIMELESS)
@given(deltas=_deltas())
@example(deltas=[(char, 0) for char in "Dr. Wu (b. 1. May) won. 2. Why?\n\n1. So… no."])
@example(deltas=[(char, 0) for char in "「はい。」と\r\n\r\nカタカナ、ok!"])
def test_any_split_gives_the_same_pieces(make, deltas):
    parts = [part for part, _ in deltas]
    assert _pieces(make(), parts) == _pieces(make(), ["".join(parts)])


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (Words, 0.2),
        (lambda: Sentences(max_wait=0.5), 0.5),
        (lambda: Tokens(5, max_wait=0.1, encoding=ENCODING), 0.1),
        (Frames, 0.4),
        (lambda: Frames(fps=1, max_lag=0.1), 0.1),
        (lambda: Frames(fps=7, max_lag=1), 1.0),
    ],
)
@given(deltas=_deltas())
@example(deltas=[("aaa", 0.0), ("🇯", 0.0), ("a", 0.1)])
def test_all_but_an_unfinished_cluster_is_out_in_time(make, limit, deltas):
    deltas = [*deltas, ("", 10.0)]
    text = "".join(part for part, _ in deltas)
    arrivals, now = [], 100.0
    for part, wait in deltas:
        now += wait
        arrivals += [now] * len(part)
    shown = [t for piece, t, _ in _drive(make(), deltas) for _ in piece]
    frame = getattr(make(), "_frame", 0.0)
    for at, time in enumerate(shown):
        assert time <= _due(text, arrivals, at, limit, frame) + 1e-6


def _due(text, arrivals, at, limit, frame):
    """When a character must be out.

    What was visibly unfinished when it was due waits until it is whole, and then for
    its frame.
    """
    due = arrivals[at] + limit
    while True:
        before = sum(arrival < due - 1e-6 for arrival in arrivals)
        until = sum(arrival <= due + 1e-6 for arrival in arrivals)
        begun = [end for end in (max(before, at + 1), until) if _unfinished(text[:end])]
        if len(text) in begun:
            return math.inf
        later = max([due, *(arrivals[end] + frame for end in begun)])
        if later == due:
            return due
        due = later


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    "unit", ["a", ".", " ", "\u0301", "👩\u200d", "🇯", "👩", "ำ", "東", "\r", "क\u094d"]
)
def test_what_is_held_is_bounded(make, unit):
    by = make()
    held = 0
    longest = 0
    for size in [1] * 600 + [512] * (68_000 // 512):
        held += size * len(unit) - sum(map(len, by.feed(unit * size, 1.0)))
        longest = max(longest, held)
    assert longest <= 65_536 + CLUSTER_LIMIT


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_one_feed_of_any_size_holds_no_more_than_many(make):
    by = make()
    text = "東京a" * 30_000
    out = by.feed(text, 1.0)
    rest = by.flush()
    assert "".join(out + rest) == text
    assert sum(map(len, rest)) <= 65_536 + CLUSTER_LIMIT


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_each_is_a_regrouper(make):
    assert isinstance(make(), Regrouper)


def test_ascii_needs_neither_regex_nor_tiktoken():
    program = """
import sys
import midstream._regroup as r
for make in (r.Words, r.Sentences, r.Lines, r.Graphemes, r.Frames, r.Markdown):
    by = make()
    by.feed("Hello, world. It is 3.14\\r\\nBye", 1.0)
    by.feed("", 2.0)
    by.flush()
by = r.Tokens(2)
by.feed("Hello", 1.0, tokens=1), by.feed(" you", 1.0, tokens=1), by.flush()
assert not {"regex", "tiktoken"} & set(sys.modules), "loaded"
"""
    subprocess.run([sys.executable, "-c", program], check=True)
