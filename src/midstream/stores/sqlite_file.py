"""The file of an `SQLiteStore`: opened with care, brought up to date, and its faults.

The file is its owner's alone, since it holds what was said; SQLite gives its ``-wal``
and ``-shm`` files the mode that it had. Nothing is changed, its mode neither, before it
is known to be a store of ours or new. No file descriptor of it is opened and closed
beside SQLite's own: closing one drops the locks of all of them.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from midstream._values.errors import StoreFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUSY = 4.0  # seconds to wait for another process that writes
_VERSION = 2
_PRIVATE = 0o600
_SCHEMA = """
CREATE TABLE checkpoints (
    key TEXT PRIMARY KEY, checkpoint TEXT NOT NULL, changed REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE growths (
    key TEXT NOT NULL, number INTEGER NOT NULL, growth TEXT NOT NULL,
    PRIMARY KEY (key, number)
) WITHOUT ROWID;
CREATE TABLE owners (key TEXT PRIMARY KEY, owner TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE holders (
    holder TEXT PRIMARY KEY, until REAL NOT NULL, wall_until REAL NOT NULL,
    process TEXT NOT NULL
) WITHOUT ROWID;
"""
_TABLES = {"checkpoints", "growths", "owners", "holders"}
# The first version could not fence: its processes must not write here any more.
_FROM_FIRST = """
INSERT INTO checkpoints SELECT key, checkpoint, changed FROM streams;
DROP TABLE streams;
DROP TABLE leases;
"""
_FIRST_TABLES = {"streams", "leases"}
# What the caller can mend; all else is the store's own trouble.
_USAGE = {
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_TOOBIG,
}
_MENDABLE = (PermissionError, FileExistsError, NotADirectoryError, IsADirectoryError)


def connect(path: Path) -> sqlite3.Connection:
    """The file's connection; the file and its folder are made when they are not there.

    Raises:
        UsageError: It is no store, or may not be used.
        StoreFailed: It cannot be used now.
    """
    with faults(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _make_or_check(path)
        database = sqlite3.connect(
            path, timeout=BUSY, isolation_level=None, check_same_thread=False
        )
        try:
            version = _version(database, path)
            _make_private(path)
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=NORMAL")
            if version != _VERSION:
                _bring_up_to_date(database, path)
            _make_private(path)
        except BaseException:
            database.close()
            raise
    return database


def _make_or_check(path: Path) -> None:
    try:
        known = path.lstat()
    except FileNotFoundError:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        os.close(os.open(path, flags, _PRIVATE))  # nobody can hold a lock on it yet
        return
    if not stat.S_ISREG(known.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(known.st_mode) else "no file"
        raise UsageError(f"the store {path} cannot be used: it is {kind}; name a file")


def _version(database: sqlite3.Connection, path: Path) -> int:
    """Which version wrote it; 0 for a new file.

    Raises:
        UsageError: It is a database of something else, or of a later version.
    """
    [(version,)] = database.execute("PRAGMA user_version")
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    tables = {name for (name,) in rows}
    if version == _VERSION and tables >= _TABLES:
        return _VERSION
    if version > _VERSION and tables >= {"checkpoints"}:
        raise UsageError(
            f"the store {path} was written by a later version of midstream; use that"
        )
    if version != 0 or tables not in (set(), _FIRST_TABLES):
        raise UsageError(
            f"the store {path} cannot be used: it is a database of another program; "
            "name another file"
        )
    return 1 if tables else 0


def _bring_up_to_date(database: sqlite3.Connection, path: Path) -> None:
    database.execute("BEGIN IMMEDIATE")
    try:
        version = _version(database, path)  # another process may have been quicker
        steps = {0: _SCHEMA, 1: _SCHEMA + _FROM_FIRST}.get(version, "")
        for step in filter(str.strip, steps.split(";")):
            database.execute(step)
        database.execute(f"PRAGMA user_version = {_VERSION}")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _make_private(path: Path) -> None:
    for suffix in "", "-wal", "-shm":
        file = path.with_name(path.name + suffix)
        try:
            mode = file.lstat().st_mode
        except FileNotFoundError:
            continue
        if stat.S_ISREG(mode) and stat.S_IMODE(mode) != _PRIVATE:
            file.chmod(_PRIVATE)


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """What SQLite and the system raise, in midstream's words."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise UsageError(f"the store {path} is closed: {error}") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        kind = UsageError if code in _USAGE else StoreFailed
        raise kind(f"the store {path} cannot be used: {error}") from error
    except OSError as error:
        mendable = isinstance(error, _MENDABLE) or error.errno == errno.EROFS
        kind = UsageError if mendable else StoreFailed
        raise kind(f"the store {path} cannot be used: {error}") from error
    except (OverflowError, UnicodeError) as error:
        raise UsageError(f"the store {path} cannot keep this: {error}") from error
