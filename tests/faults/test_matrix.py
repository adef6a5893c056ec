"""A thousand streams of the fault matrix; `make test-faults` runs all of it."""

import os
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
        env={**os.environ, "COLUMNS": "200", "PYTHONUTF8": "1"},
    )


def test_every_dialect_and_every_kind_of_fault():
    done = matrix(
        "--streams", "1056", "--seed", "4"
    )  # a little more than there are cells
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Not a character lost" in done.stdout


@pytest.mark.parametrize("words", [("--only", "137"), ("--seconds", "0")])
def test_one_stream_can_be_repeated_and_time_can_be_limited(words):
    done = matrix(*words)
    assert done.returncode == 0, done.stdout + done.stderr
