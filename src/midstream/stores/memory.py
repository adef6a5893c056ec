"""A store within the process: for tests, and to continue after an error."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from midstream.stores.forking import tell
from midstream.stores.owners import holder_of, lost

if TYPE_CHECKING:
    from midstream._values.checkpoint import Checkpoint, Growth


class MemoryStore:
    """Keeps checkpoints in memory; they end with the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._kept: dict[str, tuple[Checkpoint, list[Growth]]] = {}
        self._changed: dict[str, float] = {}
        self._owners: dict[str, str] = {}
        self._until: dict[str, float] = {}
        tell(self)

    def forked(self) -> None:
        """A child goes on with a copy of its own."""
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        """Its kind: it has no name."""
        return "MemoryStore()"

    def save(
        self, key: str, checkpoint: Checkpoint, *, owner: str | None = None
    ) -> None:
        """See `Store.save`."""
        with self._lock:
            if owner is None:
                self._owners.pop(key, None)
            else:
                self._check(key, owner)
            self._kept[key] = checkpoint, []
            self._touch(key)

    def append(self, key: str, growth: Growth, *, owner: str) -> None:
        """See `Store.append`."""
        with self._lock:
            self._check(key, owner)
            if key not in self._kept:
                raise lost(key)
            if growth.model_fields_set:
                self._kept[key][1].append(growth)
                self._touch(key)

    def load(self, key: str) -> Checkpoint | None:
        """See `Store.load`."""
        with self._lock:
            if key not in self._kept:
                return None
            checkpoint, growths = self._kept[key]
            whole = checkpoint.grown(*growths)
            self._kept[key] = whole, []
            return whole

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        with self._lock:
            for table in self._kept, self._changed, self._owners:
                table.pop(key, None)

    def keys(self) -> list[str]:
        """See `Store.keys`."""
        with self._lock:
            return list(self._changed)

    def expire(self, older_than: float) -> int:
        """See `Store.expire`."""
        limit = time.monotonic() - older_than
        with self._lock:
            old = [
                key
                for key, changed in self._changed.items()
                if changed <= limit and not self._held(key)
            ]
            for key in old:
                self.delete(key)
        return len(old)

    def acquire(
        self, key: str, owner: str, seconds: float, *, take_over: bool = False
    ) -> bool:
        """See `Store.acquire`."""
        with self._lock:
            mine = self._owners.get(key) == owner
            if not mine and not take_over and self._held(key):
                return False
            self._owners[key] = owner
            self.renew(holder_of(owner), seconds)
            return True

    def renew(self, holder: str, seconds: float) -> None:
        """See `Store.renew`."""
        now = time.monotonic()
        with self._lock:
            self._until = {h: until for h, until in self._until.items() if until > now}
            self._until[holder] = now + seconds

    def release(self, key: str, owner: str) -> None:
        """See `Store.release`."""
        with self._lock:
            if self._owners.get(key) == owner:
                del self._owners[key]

    def close(self) -> None:
        """Nothing is open."""

    def _touch(self, key: str) -> None:
        self._changed.pop(key, None)  # the newest comes last
        self._changed[key] = time.monotonic()

    def _held(self, key: str) -> bool:
        owner = self._owners.get(key)
        if owner is None:
            return False
        return self._until.get(holder_of(owner), 0.0) > time.monotonic()

    def _check(self, key: str, owner: str) -> None:
        if self._owners.get(key) != owner:
            raise lost(key)
