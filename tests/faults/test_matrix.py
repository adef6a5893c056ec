"""Some hundred streams of the fault matrix; `make test-faults` runs all of it."""

import subprocess
import sys
from pathlib import Path

import pytest

MATRIX = Path(__file__).with_name("matrix.py")


def matrix(*words):
    return subprocess.run(
        [sys.executable, str(MATRIX), "--processes", "2", *words],
        capture_output=True,
        text=True,
        check=False,
        env={"COLUMNS": "200", "PATH": "/usr/bin:/bin", "PYTHONUTF8": "1"},
    )


def test_every_dialect_and_every_kind_of_fault():
    done = matrix("--streams", "864", "--seed", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Not a character lost" in done.stdout


@pytest.mark.parametrize("words", [("--only", "137"), ("--seconds", "0")])
def test_one_stream_can_be_repeated_and_time_can_be_limited(words):
    done = matrix("--streams", "300", *words)
    assert done.returncode == 0, done.stdout + done.stderr
