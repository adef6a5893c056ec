"""Frames: text released evenly, at most one piece a frame of the screen.

Models and networks deliver in bursts; shown as they come, they stutter. Here a burst
is spread over about the time until the next one is due (the usual gap between
arrivals, learned as they come), and never over more than ``max_lag``: what has
waited that long is out. So a fast, even stream passes almost untouched, and a burst
every half second reads as a steady flow.

The last cluster may still grow, so it waits for the character after it, but no longer
than ``max_lag`` either; only one that is visibly unfinished (half a flag, a joiner with
nothing to join) stays, as `Holdback` has it.
"""

from math import ceil, inf
from typing import Self

from midstream._regroup.arguments import number, refused
from midstream._regroup.backlog import Backlog
from midstream._regroup.segmentation import edge_from, presentable, tail
from midstream._values.timeouts import LONGEST

LIMIT = 65_536
"""Characters of backlog above which text goes out before its frame."""

_SLOTS = 32  # how finely the age of the backlog is known, per max_lag
_LEARN = 0.25  # weight of the latest gap between arrivals
_SLACK = 1e-9  # seconds by which sums of frames may miss each other


class Frames:
    """Re-aggregator that gives at most one piece a frame, of even sizes.

    Args:
        fps: Frames per second of what shows the text.
        max_lag: Seconds that text may lag behind its arrival.

    Raises:
        UsageError: If `fps` is not above 0, or `max_lag` is no number of seconds, 0
            or more.
    """

    __slots__ = (
        "_arrived",
        "_backlog",
        "_began",
        "_fps",
        "_frame",
        "_gap",
        "_growing",
        "_lag",
        "_last_due",
        "_next",
    )

    def __init__(self, fps: float = 60, max_lag: float = 0.4) -> None:
        wanted = "fps is frames per second, above 0"
        self._fps = number(fps, wanted, "Frames(fps=60)")
        if not self._fps:
            raise refused(fps, wanted, "Frames(fps=60)")
        wanted = "max_lag is seconds, 0 or more"
        self._lag = number(max_lag, wanted, "Frames(max_lag=0.4)")
        if self._lag > LONGEST:
            raise refused(max_lag, wanted, "Frames(max_lag=0.4)")
        self._frame = min(1 / self._fps, self._lag)  # slow frames may not break max_lag
        self._gap = self._lag / 4  # between arrivals; a guess until some have come
        self._arrived: float | None = None
        self._next = -inf  # the next frame
        self._backlog = Backlog(self._lag / _SLOTS)
        self._growing = ""  # the last cluster, not yet proven finished
        self._began = 0.0  # when its first character came
        self._last_due = inf  # when it must be out for all that; inf if it need not be

    def fresh(self) -> Self:
        """Give one with the same settings that has seen no text."""
        return type(self)(self._fps, self._lag)

    def feed(self, text: str, now: float) -> list[str]:
        """Take text and give the piece for this frame.

        Args:
            text: What came, or ``""`` at the deadline.
            now: The caller's monotonic clock, in seconds.

        Returns:
            One piece if a frame is due and text is there, else none.
        """
        if text:
            self._take(text, now)
        if now >= self._next - _SLACK:
            last = now >= self._last_due or now + self._frame > self._last_due + _SLACK
            if last:  # and so all that came before it
                self._next = now + self._frame
                return self.flush()
            size = max(self._share(now), len(self._backlog) - LIMIT)
        elif len(self._backlog) > LIMIT:
            size = len(self._backlog) - LIMIT // 2
        else:
            return []
        if size <= 0:
            return []
        self._next = now + self._frame
        return [self._backlog.give(size)]

    def flush(self) -> list[str]:
        """Give all that is left.

        Returns:
            One piece, or none.
        """
        rest = self._backlog.clear() + self._growing
        self._growing = ""
        self._last_due = inf
        return [rest] if rest else []

    @property
    def deadline(self) -> float | None:
        """The next frame in which something must go, in seconds; None for never."""
        if self._backlog:
            return self._next
        return None if self._last_due == inf else max(self._next, self._last_due)

    def _take(self, text: str, now: float) -> None:
        if self._arrived is not None and now > self._arrived:
            gap = min(now - self._arrived, self._lag)
            self._gap += _LEARN * (gap - self._gap)
        self._arrived = now
        old = self._growing
        growing = old + text
        cut = tail(growing)
        if cut:
            first = min(edge_from(growing, len(old)), cut) if old else 0
            if first:
                self._backlog.add(growing[:first], self._began + self._lag)
            if cut > first:
                self._backlog.add(growing[first:cut], now + self._lag)
        if cut or not old:
            self._began = now
        self._growing = growing = growing[cut:]
        whole = growing and presentable(growing) == len(growing)
        self._last_due = self._began + self._lag if whole else inf

    def _share(self, now: float) -> int:
        """Tell how many characters this frame must show, at least."""
        waiting = len(self._backlog)
        left = (self._arrived or 0.0) + self._gap - now  # until more is expected
        share = waiting * self._frame / left if left > self._frame else float(waiting)
        share = max(share, self._backlog.urgent(now, self._frame))
        return min(ceil(share - _SLACK), waiting)
