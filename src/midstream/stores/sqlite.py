"""A store in one file, for processes of one machine.

SQLite in WAL mode: readers do not wait for writers, and a process that is killed at any
moment leaves a whole database. The file is its owner's alone, since it holds what was
said; SQLite gives its ``-wal`` and ``-shm`` files the same mode.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from midstream._values.errors import UsageError
from midstream.stores.format import dump, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from midstream._values.checkpoint import Checkpoint

_SCHEMA = """
CREATE TABLE IF NOT EXISTS streams (
    key TEXT PRIMARY KEY, checkpoint TEXT NOT NULL, changed REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (
    key TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL,
    process TEXT NOT NULL
) WITHOUT ROWID;
"""
_BUSY = 10.0  # seconds to wait for another process that writes


class SQLiteStore:
    """Keeps checkpoints in an SQLite file.

    Args:
        path: The file; it and its folder are made when they are not there.

    Raises:
        UsageError: The file cannot be opened or is no such store.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._process = _process_mark(os.getpid())
        with self._faults():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self.path.chmod(0o600)
            self._database = sqlite3.connect(
                self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False
            )
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.executescript(_SCHEMA)

    def save(self, key: str, checkpoint: Checkpoint) -> None:
        """See `Store.save`."""
        with self._faults(), self._lock:
            self._database.execute(
                "INSERT OR REPLACE INTO streams VALUES (?, ?, ?)",
                (key, dump(checkpoint), time.time()),
            )

    def load(self, key: str) -> Checkpoint | None:
        """See `Store.load`."""
        with self._faults(), self._lock:
            row = self._database.execute(
                "SELECT checkpoint FROM streams WHERE key = ?", (key,)
            ).fetchone()
        return parse(row[0], key) if row else None

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        with self._faults(), self._lock:
            self._database.execute("DELETE FROM streams WHERE key = ?", (key,))
            self._database.execute("DELETE FROM leases WHERE key = ?", (key,))

    def keys(self) -> list[str]:
        """See `Store.keys`."""
        with self._faults(), self._lock:
            rows = self._database.execute("SELECT key FROM streams ORDER BY changed")
            return [key for (key,) in rows]

    def expire(self, older_than: float) -> int:
        """See `Store.expire`."""
        limit = time.time() - older_than
        with self._faults(), self._lock:
            return self._database.execute(
                "DELETE FROM streams WHERE changed <= ?", (limit,)
            ).rowcount

    def acquire(self, key: str, owner: str, seconds: float) -> bool:
        """See `Store.acquire`; a dead process of this machine holds no lease."""
        now = time.time()
        with self._faults(), self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                row = self._database.execute(
                    "SELECT owner, until, process FROM leases WHERE key = ?", (key,)
                ).fetchone()
                free = row is None or row[0] == owner or row[1] <= now or _dead(row[2])
                if free:
                    self._database.execute(
                        "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?)",
                        (key, owner, now + seconds, self._process),
                    )
            finally:
                self._database.execute("COMMIT")
        return free

    def release(self, key: str, owner: str) -> None:
        """See `Store.release`."""
        with self._faults(), self._lock:
            self._database.execute(
                "DELETE FROM leases WHERE key = ? AND owner = ?", (key, owner)
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise UsageError(
                f"the store {self.path} cannot be used: {error}"
            ) from error


def _process_mark(pid: int) -> str:
    """Machine, process and when it began: a number alone is soon used again."""
    return f"{platform.node()} {pid} {_began(pid)}"


def _began(pid: int) -> str:
    """The process's start in clock ticks, as Linux tells it; ``?`` elsewhere."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "?"
    return stat.rpartition(")")[2].split()[19]


def _dead(mark: str) -> bool:
    """Whether the process that wrote ``mark`` is known to be gone."""
    node, pid, began = mark.rsplit(" ", 2)
    if node != platform.node() or sys.platform == "win32":
        return False  # another machine's; and no signal 0 on Windows
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return began != _began(int(pid))
