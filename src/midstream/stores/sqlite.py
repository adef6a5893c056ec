"""A store in one file, for processes of one machine.

SQLite in WAL mode: readers do not wait for writers, and a process that is killed at any
moment leaves a whole database. A stream is one row with a whole checkpoint and one row
for each growth; whoever writes asks for the owner in the same transaction.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from midstream.stores import processes
from midstream.stores.forking import tell
from midstream.stores.format import dump, fold
from midstream.stores.owners import holder_of, lost
from midstream.stores.processes import Hold
from midstream.stores.sqlite_file import connect, faults

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from midstream._values.checkpoint import Checkpoint, Growth

_PARENTS: list[sqlite3.Connection | None] = []
"""Connections of the processes that this one was forked from: not even closed here."""


class SQLiteStore:
    """Keeps checkpoints in an SQLite file.

    Args:
        path: The file; it and its folder are made when they are not there. A symbolic
            link is refused.

    Raises:
        UsageError: The file is no such store, or may not be used.
        StoreFailed: It cannot be used now: the disk is full, another process holds it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._process = processes.mark()
        self._database: sqlite3.Connection | None = connect(self.path)
        tell(self)

    def __repr__(self) -> str:
        """With its file."""
        return f"SQLiteStore({str(self.path)!r})"

    def forked(self) -> None:
        """A child makes a connection of its own when it needs one."""
        _PARENTS.append(self._database)
        self._lock = threading.Lock()
        self._database = None
        self._process = processes.mark()

    def save(
        self, key: str, checkpoint: Checkpoint, *, owner: str | None = None
    ) -> None:
        """See `Store.save`."""
        text = dump(checkpoint)
        with self._transaction() as database:
            if owner is None:
                database.execute("DELETE FROM owners WHERE key = ?", (key,))
            else:
                _check(database, key, owner)
            database.execute("DELETE FROM growths WHERE key = ?", (key,))
            database.execute(
                "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)",
                (key, text, processes.wall()),
            )

    def append(self, key: str, growth: Growth, *, owner: str) -> None:
        """See `Store.append`."""
        if not growth.model_fields_set:
            with self._connection() as database:
                _check(database, key, owner)
            return
        text = dump(growth)
        with self._transaction() as database:
            _check(database, key, owner)
            touched = database.execute(
                "UPDATE checkpoints SET changed = ? WHERE key = ?",
                (processes.wall(), key),
            )
            if not touched.rowcount:
                raise lost(key)
            database.execute(
                "INSERT INTO growths SELECT ?1, COALESCE(MAX(number), 0) + 1, ?2 "
                "FROM growths WHERE key = ?1",
                (key, text),
            )

    def load(self, key: str) -> Checkpoint | None:
        """See `Store.load`."""
        with self._connection() as database:
            rows = database.execute(
                "SELECT 0 AS number, checkpoint FROM checkpoints WHERE key = ?1 "
                "UNION ALL SELECT number, growth FROM growths WHERE key = ?1 "
                "ORDER BY number",
                (key,),
            ).fetchall()
        if not rows or rows[0][0] != 0:
            return None
        (_, checkpoint), *growths = rows
        return fold(checkpoint, (growth for _, growth in growths), key)

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        with self._transaction() as database:
            _forget(database, key)
            database.execute("DELETE FROM owners WHERE key = ?", (key,))

    def keys(self) -> list[str]:
        """See `Store.keys`."""
        with self._connection() as database:
            rows = database.execute("SELECT key FROM checkpoints ORDER BY changed, key")
            return [str(key) for (key,) in rows]

    def expire(self, older_than: float) -> int:
        """See `Store.expire`."""
        limit = processes.wall() - older_than
        with self._transaction() as database:
            rows = database.execute(
                "SELECT key FROM checkpoints WHERE changed <= ?", (limit,)
            )
            old = [key for (key,) in rows if not _held(database, key)]
            for key in old:
                _forget(database, key)
            for holder, *hold in database.execute("SELECT * FROM holders").fetchall():
                if not Hold(*hold).living():  # of a process that was killed
                    database.execute("DELETE FROM holders WHERE holder = ?", (holder,))
        return len(old)

    def acquire(
        self, key: str, owner: str, seconds: float, *, take_over: bool = False
    ) -> bool:
        """See `Store.acquire`; a dead process of this machine holds no lease."""
        with self._transaction() as database:
            mine = _owner(database, key) == owner
            if not mine and not take_over and _held(database, key):
                return False
            database.execute(
                "INSERT OR REPLACE INTO owners VALUES (?, ?)", (key, owner)
            )
            self._hold(database, holder_of(owner), seconds)
        return True

    def renew(self, holder: str, seconds: float) -> None:
        """See `Store.renew`."""
        with self._transaction() as database:
            self._hold(database, holder, seconds)

    def release(self, key: str, owner: str) -> None:
        """See `Store.release`."""
        with self._transaction() as database:
            database.execute(
                "DELETE FROM owners WHERE key = ? AND owner = ?", (key, owner)
            )
            holder = holder_of(owner)
            mine = owner, f"{holder}/", f"{holder}0"  # "0" is behind "/"
            left = database.execute(
                "SELECT 1 FROM owners WHERE owner = ? OR owner > ? AND owner < ?", mine
            ).fetchone()
            if left is None:
                database.execute("DELETE FROM holders WHERE holder = ?", (holder,))

    def close(self) -> None:
        """Close the file; every later call is a `UsageError`."""
        with self._lock:
            if self._database is None:  # a child that never used it
                self._database = sqlite3.connect(":memory:")
            self._database.close()

    def _hold(self, database: sqlite3.Connection, holder: str, seconds: float) -> None:
        hold = Hold.of(seconds, self._process)
        database.execute(
            "INSERT OR REPLACE INTO holders VALUES (?, ?, ?, ?)",
            (holder, hold.until, hold.wall_until, hold.process),
        )

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with faults(self.path), self._lock:
            if self._database is None:
                self._database = connect(self.path)
            yield self._database

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            finally:
                if database.in_transaction:
                    with suppress(sqlite3.Error):
                        database.execute("ROLLBACK")


def _owner(database: sqlite3.Connection, key: str) -> str | None:
    row = database.execute("SELECT owner FROM owners WHERE key = ?", (key,)).fetchone()
    return str(row[0]) if row else None


def _held(database: sqlite3.Connection, key: str) -> bool:
    """Whether somebody has the key whose time is not over."""
    owner = _owner(database, key)
    if owner is None:
        return False
    row = database.execute(
        "SELECT until, wall_until, process FROM holders WHERE holder = ?",
        (holder_of(owner),),
    ).fetchone()
    return row is not None and Hold(*row).living()


def _check(database: sqlite3.Connection, key: str, owner: str) -> None:
    if _owner(database, key) != owner:
        raise lost(key)


def _forget(database: sqlite3.Connection, key: str) -> None:
    database.execute("DELETE FROM checkpoints WHERE key = ?", (key,))
    database.execute("DELETE FROM growths WHERE key = ?", (key,))
