"""A store within the process: for tests, and to continue after an error."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from midstream._values.checkpoint import Checkpoint


class MemoryStore:
    """Keeps checkpoints in memory; they end with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Checkpoint]] = {}
        self._leases: dict[str, tuple[str, float]] = {}

    def save(self, key: str, checkpoint: Checkpoint) -> None:
        """See `Store.save`."""
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = time.monotonic(), checkpoint

    def load(self, key: str) -> Checkpoint | None:
        """See `Store.load`."""
        with self._lock:
            kept = self._kept.get(key)
        return kept[1] if kept else None

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        with self._lock:
            self._kept.pop(key, None)
            self._leases.pop(key, None)

    def keys(self) -> list[str]:
        """See `Store.keys`."""
        with self._lock:
            return list(self._kept)

    def expire(self, older_than: float) -> int:
        """See `Store.expire`."""
        limit = time.monotonic() - older_than
        with self._lock:
            old = [key for key, (changed, _) in self._kept.items() if changed <= limit]
        for key in old:
            self.delete(key)
        return len(old)

    def acquire(self, key: str, owner: str, seconds: float) -> bool:
        """See `Store.acquire`."""
        now = time.monotonic()
        with self._lock:
            holder, until = self._leases.get(key, (owner, now))
            if holder != owner and until > now:
                return False
            self._leases[key] = owner, now + seconds
            return True

    def release(self, key: str, owner: str) -> None:
        """See `Store.release`."""
        with self._lock:
            if self._leases.get(key, ("", 0))[0] == owner:
                del self._leases[key]

    def close(self) -> None:
        """Nothing is open."""
