"""What the server saw and did, request by request, for tests to wait for and see."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from midstream.testing._fake.recorded import Recorded

if TYPE_CHECKING:
    from collections.abc import Callable

    from midstream.testing._fake.recorded import Ended
    from midstream.testing._fake.script import Record


class Ledger:
    """The last requests, and the condition that announces each change to them.

    Args:
        keep: How many are kept.
    """

    def __init__(self, keep: int) -> None:
        self._entries: deque[Recorded] = deque(maxlen=keep)
        self._next = 0
        self._changed = threading.Condition()

    @property
    def entries(self) -> list[Recorded]:
        """Those that are kept, in order."""
        with self._changed:
            return list(self._entries)

    def add(self, **facts: Any) -> Recorded:
        """Record a request that was read."""
        with self._changed:
            entry = Recorded(number=self._next, **facts)
            self._next += 1
            self._entries.append(entry)
            self._changed.notify_all()
        return entry

    def sent(self, entry: Recorded, record: Record) -> None:
        """Count a record that was sent."""
        with self._changed:
            entry.deltas += record.deltas
            entry.parts.append(record.text)
            entry.tokens += record.tokens
            self._changed.notify_all()

    def end(self, entry: Recorded, how: Ended) -> None:
        """Record how a request ended; the first word counts."""
        with self._changed:
            entry.ended = entry.ended or how
            self._changed.notify_all()

    def wait(
        self, what: str, nth: int, wanted: Callable[[Recorded], bool], timeout: float
    ) -> Recorded:
        """The `nth` (from 1) entry that is `wanted`, waited for.

        Raises:
            TimeoutError: There was none in `timeout` seconds.
        """
        with self._changed:
            if self._changed.wait_for(
                lambda: len(self._all(wanted)) >= nth, timeout=timeout
            ):
                return self._all(wanted)[nth - 1]
            seen = [(e.method, e.path, e.ended) for e in self._entries]
        raise TimeoutError(f"no {what} number {nth} within {timeout:g} s; saw {seen}")

    def _all(self, wanted: Callable[[Recorded], bool]) -> list[Recorded]:
        return [entry for entry in self._entries if wanted(entry)]
