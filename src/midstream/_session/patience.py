"""Every limit of a stream: until when it waits, and whether it is over.

One `Deadline` a stream, which network reads look at; this moves it as things come.
Whatever the caller sees grow starts the idle time anew; keep-alives only stretch it, as
far as the caller lets them. After the finish reason a stream lingers a moment for usage
and the closing marker. An interrupt ends all waiting, for good.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from midstream._values.timeouts import Deadline

if TYPE_CHECKING:
    from midstream._values.errors import TimedOut, TimeoutKind
    from midstream._values.timeouts import Timeouts

_GRACE = 0.1  # seconds for a reader who comes late to find what has arrived
_LINGER = 2.0  # seconds to wait for usage and the closing marker after the finish


class Patience:
    """The limits of one stream.

    Args:
        timeouts: As the caller set them.

    Attributes:
        timeouts: The same.
        deadline: Until when the next byte is waited for.
        ends_at: When the total time is over, monotonic seconds.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self.deadline = Deadline()
        self.deadline.connect = inf if timeouts.connect is None else timeouts.connect
        self.ends_at = inf
        self._progress = 0
        self._grew_at = 0.0
        self._finished_at = inf
        self._late = inf, inf  # which deadline had passed, and when it was noticed

    def begin(self, now: float) -> None:
        """The first request goes out: the total time runs."""
        if self.timeouts.total is not None:
            self.ends_at = now + self.timeouts.total

    def ask(self, now: float) -> None:
        """A request goes out."""
        self._wait("first_token", self.timeouts.first_token, now)

    def came(self, now: float, progress: int) -> None:
        """Bytes came.

        Args:
            now: Monotonic seconds.
            progress: Characters so far, those included that came again.
        """
        if progress != self._progress:
            self._progress, self._grew_at = progress, now
            self._wait("idle", self.timeouts.idle, now)
        else:
            self._pinged(now)

    def _pinged(self, now: float) -> None:
        """Bytes that say nothing stretch the idle time, as far as they may."""
        stretch, idle = self.timeouts.idle_with_pings, self.timeouts.idle
        if self.deadline.kind == "idle" and stretch is not None and idle is not None:
            until = min(now + idle, self._grew_at + max(stretch, idle))
            self._wait("idle", max(until - now, 0), now)

    def finished(self, now: float) -> None:
        """The answer's text is known to have ended."""
        self._finished_at = min(self._finished_at, now)
        if self.deadline.at > self._finished_at + _LINGER:
            self._wait("idle", _LINGER, self._finished_at)

    def overdue(self, now: float) -> TimedOut | None:
        """What to raise on a line that is never silent for long, yet over its limit."""
        deadline = self.deadline
        if now < deadline.at or deadline.interrupted:
            return None
        if self._late[0] != deadline.at:
            self._late = deadline.at, now
        elif now >= self._late[1] + _GRACE:
            return deadline.error()
        return None

    def interrupt(self) -> None:
        """Nothing is waited for any more; from any thread."""
        self.deadline.interrupt()

    def _wait(self, kind: TimeoutKind, seconds: float | None, now: float) -> None:
        at = inf if seconds is None else now + seconds
        if self.ends_at < at:
            kind, seconds, at = "total", self.timeouts.total, self.ends_at
        self.deadline.move(kind, seconds, at)
