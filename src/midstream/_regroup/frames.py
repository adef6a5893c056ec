"""Frames: text released evenly, at most one piece a frame of the screen.

Models and networks deliver in bursts; shown as they come, they stutter. Here a burst
is spread over about the time until the next one is due (the usual gap between
arrivals, learned as they come), and never over more than ``max_lag``: what has
waited that long is out. So a fast, even stream passes almost untouched, and a burst
every half second reads as a steady flow.

A cluster counts as arrived when it is proven finished, as before that it cannot be
shown. How long text has waited is known by slots of time, not by characters: few
numbers however much comes, and never later than the truth.
"""

from collections import deque
from math import ceil, floor, inf

from midstream._regroup.segmentation import CLUSTER_LIMIT, edge_from, tail
from midstream._values.errors import UsageError
from midstream._values.timeouts import LONGEST, is_seconds

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
        "_due",
        "_finished",
        "_frame",
        "_gap",
        "_given",
        "_growing",
        "_lag",
        "_next",
        "_parts",
        "_read",
        "_slot",
    )

    def __init__(self, fps: float = 60, max_lag: float = 0.4) -> None:
        if not is_seconds(fps) or not 0 < fps < inf:
            raise UsageError(f"fps must be above 0, not {fps!r}")
        if not is_seconds(max_lag) or max_lag > LONGEST:
            raise UsageError(f"max_lag must be 0 seconds or more, not {max_lag!r}")
        self._frame = min(1 / fps, max_lag)  # slow frames may not break max_lag
        self._lag = max_lag
        self._slot = max_lag / _SLOTS
        self._gap = max_lag / 4  # between arrivals; a guess until some have come
        self._arrived: float | None = None
        self._next = -inf  # the next frame
        self._growing = ""  # the last cluster, not yet proven finished
        self._parts: list[str] = []  # finished text that is not in the backlog yet
        self._backlog = ""
        self._read = 0  # index in the backlog of what comes next
        self._finished = 0  # characters since the beginning: proven finished,
        self._given = 0  # and given out
        # When text must be out, and the count of characters up to its end.
        self._due: deque[tuple[float, int]] = deque()

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
        waiting = self._finished - self._given
        if not waiting:
            return []
        if now >= self._next - _SLACK:
            size = max(self._share(waiting, now), waiting - LIMIT)
        elif waiting > LIMIT:
            size = waiting - LIMIT // 2
        else:
            return []
        self._next = now + self._frame
        return [self._give(size)]

    def flush(self) -> list[str]:
        """Give all that is left.

        Returns:
            One piece, or none.
        """
        rest = self._backlog[self._read :] + "".join(self._parts) + self._growing
        self._backlog = self._growing = ""
        self._parts = []
        self._read = 0
        self._given = self._finished
        self._due.clear()
        return [rest] if rest else []

    @property
    def deadline(self) -> float | None:
        """The next frame, in seconds, while text waits for it; else None."""
        return self._next if self._finished > self._given else None

    def _take(self, text: str, now: float) -> None:
        if self._arrived is not None and now > self._arrived:
            gap = min(now - self._arrived, self._lag)
            self._gap += _LEARN * (gap - self._gap)
        self._arrived = now
        growing = self._growing + text
        cut = tail(growing)
        self._growing = growing[cut:]
        if not cut:
            return
        self._parts.append(growing[:cut])
        self._finished += cut
        due = now + self._lag
        if self._due and due - self._due[-1][0] <= self._slot:
            due = self._due.pop()[0]
        self._due.append((due, self._finished))

    def _share(self, waiting: int, now: float) -> int:
        """Tell how many characters this frame must show, at least."""
        frame = self._frame
        left = (self._arrived or 0.0) + self._gap - now  # until more is expected
        share = waiting * frame / left if left > frame else float(waiting)
        for due, end in self._due:
            # One frame is left in reserve, as no screen keeps its beat exactly.
            frames = floor((due - now) / frame) if due - now > frame else 1
            share = max(share, (end - self._given) / frames)
        return min(ceil(share - _SLACK), waiting)

    def _give(self, size: int) -> str:
        if self._read + size > len(self._backlog):
            self._backlog = self._backlog[self._read :] + "".join(self._parts)
            self._read = 0
            self._parts = []
        window = self._backlog[self._read : self._read + size + CLUSTER_LIMIT]
        piece = window[: edge_from(window, size)]
        self._read += len(piece)
        self._given += len(piece)
        while self._due and self._due[0][1] <= self._given:
            self._due.popleft()
        return piece
