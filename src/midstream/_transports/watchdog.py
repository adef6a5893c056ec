"""Deadlines over a blocking client that is not ours: one thread for each open body.

A stock network stream takes one number for all reads of a body. So it gets none, and
this thread sleeps until the deadline of the moment; when that has passed while a read
is pending, it breaks the line under it. A deadline that passes while nobody reads is
the reader's own slowness: the next read gets `GRACE` to find what has come meanwhile.
"""

from __future__ import annotations

from math import inf
from threading import Condition, Thread
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from midstream._transports.exchange import Exchange

GRACE = 0.05
"""Seconds that a read may take although the deadline had passed before it began."""


class Watchdog:
    """Watches the reads of one body.

    Args:
        exchange: What to break when its deadline has passed.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._changed = Condition()
        self._reads = 0
        self._reading = False
        self._wakes_at = inf
        self._ended = False
        self._thread = Thread(target=self._run, name="midstream-watchdog", daemon=True)
        self._thread.start()

    def watch(self) -> None:
        """A read begins."""
        self._reads += 1
        self._reading = True
        if self._exchange.deadline.at < self._wakes_at:
            with self._changed:
                self._changed.notify()

    def rest(self) -> None:
        """The read has ended."""
        self._reading = False

    def stop(self) -> None:
        """The body has ended."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        with self._changed:
            while not self._ended:
                # Forget the old hour before looking at the new one: who moves the
                # deadline in between then finds that this thread must be told.
                self._wakes_at = inf
                at = self._exchange.deadline.at
                if at > monotonic():
                    self._sleep_until(at)
                elif not self._reading:
                    self._sleep_until(inf)
                elif self._still_pending():
                    self._exchange.expire()
                    self._ended = True

    def _sleep_until(self, at: float) -> None:
        self._wakes_at = at
        self._changed.wait(None if at == inf else at - monotonic())

    def _still_pending(self) -> bool:
        """Whether the read that is pending now is so after `GRACE`, and still late."""
        read = self._reads
        self._changed.wait(GRACE)
        late = self._exchange.deadline.at <= monotonic()
        return late and self._reading and self._reads == read and not self._ended
