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
    assert all(time % 1 <= 0.4 for time in times)


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
    assert by.feed("", 1.1) == ["bc"]
    assert by.deadline is None


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
    assert len(by._due) <= 40


@pytest.mark.parametrize("fps", [0, -1, math.nan, math.inf])
def test_wrong_rates_are_refused(fps):
    with pytest.raises(UsageError):
        Frames(fps=fps)


@pytest.mark.parametrize("lag", [-0.1, math.nan, math.inf])
def test_wrong_lags_are_refused(lag):
    with pytest.raises(UsageError):
        Frames(max_lag=lag)
