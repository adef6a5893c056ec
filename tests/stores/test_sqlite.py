"""The SQLite file: who may read it, and what a killed process leaves."""

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest

import midstream
from midstream import Checkpoint, SQLiteStore
from midstream.stores import processes

CHECKPOINT = Checkpoint(endpoint="ollama:m", request={"prompt": "hi"}, text="so far")


def test_all_its_files_are_their_owners_alone(tmp_path):
    path = tmp_path / "deep" / "er" / "streams.db"
    store = SQLiteStore(path)
    store.save("k", CHECKPOINT)
    files = sorted(path.parent.iterdir())
    assert len(files) == 3
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    store.close()


def test_another_process_sees_what_was_saved(tmp_path):
    path = tmp_path / "streams.db"
    program = (
        "import sys, midstream\n"
        "print(midstream.SQLiteStore(sys.argv[1]).load('k').text)\n"
    )
    store = SQLiteStore(path)
    store.save("k", CHECKPOINT)
    seen = subprocess.run(
        [sys.executable, "-c", program, path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert seen.stdout.strip() == "so far"
    store.close()


def test_a_dead_process_holds_no_lease(tmp_path):
    path = tmp_path / "streams.db"
    program = (
        "import os, signal, sys, midstream\n"
        "assert midstream.SQLiteStore(sys.argv[1]).acquire('k', 'dead', 3600)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.run([sys.executable, "-c", program, path], check=False)
    assert child.returncode == -9
    store = SQLiteStore(path)
    assert store.acquire("k", "living", 30)
    store.close()


@contextmanager
def tampered(path):
    """The file in the hands of another program."""
    with closing(sqlite3.connect(path)) as database, database:
        yield database


@pytest.fixture
def store(tmp_path):
    made = SQLiteStore(tmp_path / "streams.db")
    yield made
    made.close()


def marked(store, change):
    """Change the mark of the process that holds a lease."""
    assert store.acquire("k", "before", 3600)
    with tampered(store.path) as database:
        [(mark,)] = database.execute("SELECT process FROM holders")
        words = change(mark.split(" "))
        database.execute("UPDATE holders SET process = ?", (" ".join(words),))


def test_a_lease_of_another_machine_holds_by_the_wall_clock(store, monkeypatch):
    marked(store, lambda words: ["elsewhere", "its-boot", *words[2:]])
    assert not store.acquire("k", "here", 30)
    later = processes.wall() + 3601
    monkeypatch.setattr(processes, "wall", lambda: later)
    assert store.acquire("k", "here", 30)


def test_a_lease_of_another_boot_is_dead(store):
    marked(store, lambda words: [words[0], "earlier-boot", *words[2:]])
    assert store.acquire("k", "now", 30)


def test_a_number_that_is_used_again_is_another_process(store):
    marked(store, lambda words: [*words[:-1], "1"])
    assert store.acquire("k", "now", 30)


def test_a_number_of_another_container_says_nothing(store):
    marked(store, lambda words: [*words[:2], "pid:[1]", "4194305", "1"])
    assert not store.acquire("k", "now", 30)


@pytest.mark.parametrize("step", [3600, -3600])
def test_a_step_of_the_wall_clock_moves_no_lease(store, monkeypatch, step):
    assert store.acquire("k", "me", 30)
    jumped = processes.wall() + step
    monkeypatch.setattr(processes, "wall", lambda: jumped)
    assert not store.acquire("k", "you", 30)
    later = processes.now() + 31
    monkeypatch.setattr(processes, "now", lambda: later)
    assert store.acquire("k", "you", 30)


def test_a_suspend_counts(store, monkeypatch):
    """The clock of leases goes on while the machine sleeps."""
    assert store.acquire("k", "me", 5)
    awake = processes.now() + 3600
    monkeypatch.setattr(processes, "now", lambda: awake)
    assert store.acquire("k", "you", 5)


@pytest.mark.parametrize(
    "junk", ["", "a b", "x" * 5000, "n b s -1 1", "n b s 99999999999999999999 1"]
)
@pytest.mark.parametrize("until", [9e18, "soon", b"\xff", -1])
def test_a_corrupt_lease_is_no_foreign_error(store, junk, until):
    assert store.acquire("k", "me", 30)
    with tampered(store.path) as database:
        database.execute("UPDATE holders SET process = ?, until = ?", (junk, until))
    assert store.acquire("k", "you", 30) in (True, False)


@pytest.mark.parametrize("pid", ["99999999999999999999", "0x1", "-5", "٣"])
def test_a_corrupt_number_of_this_boot_is_no_foreign_error(store, pid):
    marked(store, lambda words: [*words[:3], pid, "1"])
    assert store.acquire("k", "you", 30) in (True, False)


JUNK = [
    "",
    "no json",
    "[]",
    "null",
    "[" * 100_000,
    7,
    1.5,
    b"\xff",
    '{"version":2}',
    '{"version":9,"endpoint":"e","request":{"prompt":"p"}}',
    '{"endpoint":"e","request":{"prompt":"p","later":1}}',
    '{"endpoint":"e","request":{}}',
    '{"endpoint":"e","request":{"prompt":"p"},"usage":{"x":1}}',
    '{"endpoint":"e","request":{"prompt":"p"},"usage":{"output_tokens":"many"}}',
    '{"endpoint":"e","request":{"prompt":"p"},"tokens":1000000000000000000000}',
    '{"endpoint":"e","request":{"prompt":"p"},"tokens":-1}',
    '{"endpoint":"e","request":{"prompt":"p"},"token_ids":[9223372036854775808]}',
    '{"endpoint":"e","request":{"prompt":"p"},"token_ids":[-2]}',
    '{"endpoint":"e","request":{"prompt":"p"},"prompt_ids":[1e300]}',
    '{"endpoint":"e","request":{"prompt":"p"},"gaps":[[0,-1,"x"]]}',
    '{"endpoint":"e","request":{"prompt":"p"},"token_ids":[1e30]}',
    '{"endpoint":"e","request":{"prompt":"p"},"token_ids":[%s]}' % ("9" * 5000),
    '{"endpoint":"e","request":{"prompt":"p"},"text":"\\ud800"}',
]


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: repr(junk)[:20])
def test_a_corrupt_checkpoint_is_a_usage_error(store, junk):
    store.save("k", CHECKPOINT)
    with tampered(store.path) as database:
        database.execute("UPDATE checkpoints SET checkpoint = ?", (junk,))
    with pytest.raises(midstream.UsageError, match="no checkpoint"):
        store.load("k")
    store.save("k", CHECKPOINT)
    assert store.load("k") == CHECKPOINT


@pytest.mark.parametrize(
    "junk", ["x", 7, b"\xff", '{"text":1}', '{"version":2}', '{"tokens":-1}']
)
def test_a_corrupt_growth_is_a_usage_error(store, junk):
    store.save("k", CHECKPOINT)
    with tampered(store.path) as database:
        database.execute("INSERT INTO growths VALUES ('k', 1, ?)", (junk,))
    with pytest.raises(midstream.UsageError, match="no checkpoint"):
        store.load("k")


def test_a_key_that_cannot_be_written_is_a_usage_error(store):
    with pytest.raises(midstream.UsageError):
        store.save("\ud800", CHECKPOINT)


def test_a_closed_store_says_so(store):
    store.close()
    for call in (lambda: store.load("k"), lambda: store.acquire("k", "me", 1)):
        with pytest.raises(midstream.UsageError, match="closed"):
            call()


def test_a_full_disk_is_the_stores_trouble_and_loses_nothing(store):
    store.save("k", CHECKPOINT)
    assert store.acquire("k", "me", 30)
    [(pages,)] = store._database.execute("PRAGMA page_count")
    store._database.execute(f"PRAGMA max_page_count = {pages}")
    more = CHECKPOINT.model_copy(update={"text": "x" * 100_000})
    with pytest.raises(midstream.StoreFailed, match="full"):
        store.save("k", more, owner="me")
    assert store.load("k") == CHECKPOINT
    store._database.execute("PRAGMA max_page_count = 100000")
    store.save("k", more, owner="me")
    assert store.load("k") == more


def test_a_locked_database_is_the_stores_trouble(store):
    store._database.execute("PRAGMA busy_timeout = 1")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(midstream.StoreFailed, match="locked"):
            store.save("k", CHECKPOINT)
        other.execute("ROLLBACK")
    store.save("k", CHECKPOINT)


def test_a_forked_child_has_a_connection_of_its_own(store):
    store.save("k", CHECKPOINT)
    mine = store._database
    with store._lock:  # another thread's, in the moment of the fork
        child = os.fork()
        if child == 0:
            same = store.load("k") == CHECKPOINT and store._database is not mine
            store.save("child", CHECKPOINT)
            os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert store.keys() == ["k", "child"]


def test_what_is_no_store_is_told_so(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(midstream.UsageError, match="cannot be used"):
        SQLiteStore(folder)
    text = tmp_path / "notes.txt"
    text.write_text("no database, just notes that are long enough " * 40)
    with pytest.raises(midstream.UsageError, match="cannot be used"):
        SQLiteStore(text)


def test_nothing_is_done_through_a_symbolic_link(tmp_path):
    real = tmp_path / "real.db"
    real.write_bytes(b"")
    real.chmod(0o644)
    link = tmp_path / "link.db"
    link.symlink_to(real)
    with pytest.raises(midstream.UsageError, match="symbolic link"):
        SQLiteStore(link)
    assert stat.S_IMODE(real.stat().st_mode) == 0o644
    dangling = tmp_path / "dangling.db"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(midstream.UsageError, match="symbolic link"):
        SQLiteStore(dangling)
    assert not (tmp_path / "nowhere").exists()


def test_a_file_of_something_else_is_left_as_it_is(tmp_path):
    text = tmp_path / "passwd"
    text.write_text("root:x:0:0:root:/root:/bin/bash\n" * 200)
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as database, database:
        database.execute("CREATE TABLE accounts (id INTEGER)")
    later = tmp_path / "later.db"
    SQLiteStore(later).close()
    with tampered(later) as database:
        database.execute("PRAGMA user_version = 9")
    for file in text, foreign, later:
        file.chmod(0o644)
        before = file.read_bytes()
        with pytest.raises(midstream.UsageError):
            SQLiteStore(file)
        assert file.read_bytes() == before
        assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_database_that_all_could_read_is_made_private_with_its_companions(tmp_path):
    path = tmp_path / "streams.db"
    first = SQLiteStore(path)
    first.save("k", CHECKPOINT)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    for file in files:
        file.chmod(0o644)
    second = SQLiteStore(path)
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    second.close()
    first.close()


FIRST_FORMAT = (
    '{"version":1,"endpoint":"ollama:m@http://h","request":{"prompt":"hi"},'
    '"text":"so far","reasoning":"","tokens":2,"token_ids":[],"gaps":[],'
    '"prompt_ids":[],"response_id":null,"handle":"","offset":120,"cursor":null,'
    '"usage":null,"finish_reason":null,"complete":false}'
)


def test_a_file_of_the_first_version_is_read_and_closed_to_its_writers(tmp_path):
    path = tmp_path / "streams.db"
    with tampered(path) as database:
        database.execute(
            "CREATE TABLE streams (key TEXT PRIMARY KEY, checkpoint TEXT NOT NULL, "
            "changed REAL NOT NULL) WITHOUT ROWID"
        )
        database.execute(
            "CREATE TABLE leases (key TEXT PRIMARY KEY, owner TEXT NOT NULL, "
            "until REAL NOT NULL, process TEXT NOT NULL) WITHOUT ROWID"
        )
        database.execute("INSERT INTO streams VALUES ('k', ?, 5.0)", (FIRST_FORMAT,))
        database.execute("INSERT INTO leases VALUES ('k', 'o', 9e9, 'here 1 1')")
    store = SQLiteStore(path)
    stored = store.load("k")
    assert (stored.text, stored.tokens, stored.version) == ("so far", 2, 1)
    assert store.acquire("k", "me", 30)
    store.close()
    with tampered(path) as database, pytest.raises(sqlite3.OperationalError):
        database.execute("INSERT OR REPLACE INTO streams VALUES ('k', '', 6.0)")
    SQLiteStore(path).close()
