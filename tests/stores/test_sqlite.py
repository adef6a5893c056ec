"""The SQLite file: who may read it, and what a killed process leaves."""

import sqlite3
import stat
import subprocess
import sys

import pytest

import midstream
from midstream import Checkpoint, SQLiteStore

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


def test_a_lease_of_another_machine_holds(tmp_path):
    path = tmp_path / "streams.db"
    store = SQLiteStore(path)
    assert store.acquire("k", "there", 3600)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE leases SET process = 'elsewhere 1 99'")
    database.close()
    assert not store.acquire("k", "here", 30)
    store.close()


def test_a_number_that_is_used_again_is_another_process(tmp_path):
    path = tmp_path / "streams.db"
    store = SQLiteStore(path)
    assert store.acquire("k", "before", 3600)
    with sqlite3.connect(path) as database:
        ((mark,),) = database.execute("SELECT process FROM leases")
        older = f"{mark.rpartition(' ')[0]} 1"
        database.execute("UPDATE leases SET process = ?", (older,))
    database.close()
    assert store.acquire("k", "now", 30)
    store.close()


def test_what_is_no_store_is_told_so(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(midstream.UsageError, match="cannot be used"):
        SQLiteStore(folder)
    text = tmp_path / "notes.txt"
    text.write_text("no database, just notes that are long enough " * 40)
    with pytest.raises(midstream.UsageError, match="cannot be used"):
        SQLiteStore(text)


def test_a_format_of_the_future_is_told_so(tmp_path):
    path = tmp_path / "streams.db"
    store = SQLiteStore(path)
    store.save("k", CHECKPOINT)
    with sqlite3.connect(path) as database:
        database.execute(
            "UPDATE streams SET checkpoint = replace(checkpoint, ?, ?)",
            ('"version":1', '"version":9'),
        )
    database.close()
    with pytest.raises(midstream.UsageError, match="this version"):
        store.load("k")
    store.close()


def test_the_first_format_stays_readable(tmp_path):
    stored = (
        '{"version":1,"endpoint":"ollama:m@http://h","request":{"prompt":"hi"},'
        '"text":"so far","reasoning":"","tokens":2,"token_ids":[],"gaps":[],'
        '"prompt_ids":[],"response_id":null,"handle":"","offset":120,"cursor":null,'
        '"usage":null,"finish_reason":null,"complete":false}'
    )
    store = SQLiteStore(tmp_path / "streams.db")
    store.save("k", CHECKPOINT)
    with sqlite3.connect(store.path) as database:
        database.execute("UPDATE streams SET checkpoint = ?", (stored,))
    database.close()
    assert store.load("k").text == "so far"
    assert store.load("k").tokens == 2
    store.close()
