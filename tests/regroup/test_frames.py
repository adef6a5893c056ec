"""Even pieces on the frames of a screen."""

import itertools
import math

import pytest

from midstream._regroup import Frames
from midstream._regroup.frames import LIMIT
from midstream._values.errors import UsageError

FRAME = 1 / 60


def _show(by, until, now):
    """Call at each deadline up to a time; give the pieces with their times."""
    out = []
    while (due := by.deadline) is not None and due <= until:
        assert due > now
        now = due
        out += [(now, piece) for piece in by.feed("", now)]
    return out


def test_a_burst_is_spread_evenly_and_not_too_late():
    by = Frames(fps=60, max_lag=0.4)
    out = []
    for second in range(10, 20):
        out += [(second, piece) for piece in by.feed("x" * 240, float(second))]
        out += _show(by, second + 1.0, float(second))
    late = out[len(out) // 2 :]
    sizes = [len(piece) for _, piece in late]
    assert max(sizes) <= 12
    assert sum(sizes) > 900
    times = [time for time, _ in out]
    assert all(b - a >= FRAME - 1e-6 for a, b in itertools.pairwise(times))
    assert all(time % 1 <= 0.4 + 1e-6 for time in times)


def test_an_even_stream_passes_almost_untouched():
    by = Frames()
    lags, fed, shown, now = [], 0, 0, 5.0
    for _ in range(300):
        fed += 4
        shown += sum(len(piece) for piece in by.feed("abcd", now))
        now += 0.02
        shown += sum(len(piece) for _, piece in _show(by, now, now - 0.02))
        lags.append(fed - shown)
    assert max(lags[100:]) <= 12


def test_japanese_and_a_family_come_at_once_and_whole():
    text = "東京は晴れです👨\u200d👩\u200d👧。"
    by = Frames(fps=60)
    now, out = 1.0, []
    for char in text:
        out += [(now, piece) for piece in by.feed(char, now)]
        out += _show(by, now + 0.015, now)
        now += 0.015
    out += [(now, piece) for piece in by.flush()]
    assert out[0][0] <= 1.0 + 2 * FRAME
    assert "".join(piece for _, piece in out) == text
    assert [piece for _, piece in out][-2:] == ["👨\u200d👩\u200d👧", "。"]


def test_slow_frames_do_not_break_the_lag():
    by = Frames(fps=1, max_lag=0.1)
    assert by.feed("ab", 1.0) == ["a"]
    assert by.feed("cd", 1.05) == []
    assert by.deadline == pytest.approx(1.1)
    assert by.feed("", 1.1) == ["bcd"]
    assert by.deadline is None


def test_the_last_character_of_a_burst_goes_out_in_time():
    by = Frames(fps=60, max_lag=0.4)
    shown = [(5.0, piece) for piece in by.feed("one two thr", 5.0)]
    shown += _show(by, 60.0, 5.0)
    assert "".join(piece for _, piece in shown) == "one two thr"
    assert shown[-1][0] <= 5.4 + 1e-6
    assert by.deadline is None
    assert by.flush() == []


@pytest.mark.parametrize(
    "begun", ["👩\u200d", "🇯", "\u1100", "क\u094d", "\u0600", "\r"]
)
def test_only_what_is_visibly_unfinished_stays(begun):
    by = Frames(fps=60, max_lag=0.4)
    shown = [(5.0, piece) for piece in by.feed("ab" + begun, 5.0)]
    shown += _show(by, 60.0, 5.0)
    assert "".join(piece for _, piece in shown) == "ab"
    assert by.deadline is None
    assert by.flush() == [begun]


@pytest.mark.parametrize("whole", ["é", "👩", "🇯🇵", "각", "か", "👍🏽", "1", "\n"])
def test_what_could_grow_but_is_whole_does_not_stay(whole):
    by = Frames(fps=60, max_lag=0.4)
    shown = [(5.0, piece) for piece in by.feed("ab" + whole, 5.0)]
    shown += _show(by, 60.0, 5.0)
    assert "".join(piece for _, piece in shown) == "ab" + whole


def test_a_flag_goes_when_its_second_half_comes_late():
    by = Frames(fps=60, max_lag=0.4)
    assert by.feed("🇯", 5.0) == []
    assert by.deadline is None
    assert by.feed("🇵", 7.0) == ["🇯🇵"]


def test_too_great_a_backlog_goes_before_its_frame():
    by = Frames()
    text = "x" * (3 * LIMIT)
    first = by.feed(text, 1.0)
    assert len(first[0]) == 2 * LIMIT - 1
    early = by.feed("y" * 10, 1.0)
    assert len(early[0]) == LIMIT // 2 + 10
    assert "".join(first + early + by.flush()) == text + "y" * 10


def test_ages_are_few_numbers_however_much_comes():
    by = Frames()
    for i in range(20_000):
        by.feed("ab", 1.0 + i * 1e-5)
    assert len(by._backlog._due) <= 40


@pytest.mark.parametrize("fps", [0, -1, math.nan, math.inf, "60", None, True, 10**400])
def test_wrong_rates_are_refused(fps):
    with pytest.raises(UsageError, match=r"frames per second.*Frames\(fps=60\)"):
        Frames(fps=fps)


@pytest.mark.parametrize("lag", [-0.1, math.nan, math.inf, "x", None, False])
def test_wrong_lags_are_refused(lag):
    with pytest.raises(UsageError, match=r"seconds.*Frames\(max_lag=0.4\)"):
        Frames(max_lag=lag)
