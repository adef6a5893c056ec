"""One thread a transport that ends blocked reads whose deadline has passed.

gRPC's own deadlines are fixed when a call starts, ours move with every token. A read
says when it is due; the thread sleeps until the earliest, looks again, and mostly finds
that it has moved. It lives only while bodies are open and holds none of them.
"""

from __future__ import annotations

from math import inf
from threading import Condition, Thread
from time import monotonic
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import MutableSet

_LONGEST = 3600.0  # seconds; a lock's own limit is finite


class Watched(Protocol):
    """What can be watched."""

    @property
    def due(self) -> float:
        """Until when its read may block, in monotonic seconds; ``inf`` for none."""
        ...

    def expire(self) -> None:
        """End the read."""
        ...


class Watchdog:
    """The thread and what it watches."""

    __slots__ = ("_changed", "_thread", "_wakes", "_watched")

    def __init__(self) -> None:
        # Reentrant, since a body may be collected while its thread holds the lock.
        self._changed = Condition()
        self._watched: MutableSet[Watched] = WeakSet()
        self._thread: Thread | None = None
        self._wakes = inf

    def add(self, body: Watched) -> None:
        """Watch a body; the first one starts the thread."""
        with self._changed:
            self._watched.add(body)
            if self._thread is None:
                self._thread = Thread(
                    target=self._run, name="midstream-grpc-watchdog", daemon=True
                )
                self._thread.start()

    def remove(self, body: Watched) -> None:
        """Watch it no more; after the last one the thread ends."""
        with self._changed:
            self._watched.discard(body)
            if not self._watched:
                self._changed.notify()

    def look(self, due: float) -> None:
        """A read begins that may block until ``due``."""
        with self._changed:
            if due < self._wakes:
                self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while self._watched:
                self._wakes = self._expire_late()
                left = self._wakes - monotonic()
                self._changed.wait(min(max(left, 0), _LONGEST))
            self._thread, self._wakes = None, inf

    def _expire_late(self) -> float:
        """End the reads that are late; when the next one will be."""
        earliest, now = inf, monotonic()
        for body in tuple(self._watched):
            due = body.due
            if due <= now:
                body.expire()
            else:
                earliest = min(earliest, due)
        return earliest
