"""Some hundred lives of the cancellation matrix; `cancellation.py` runs all of it."""

import os
import subprocess
import sys
from pathlib import Path

MATRIX = Path(__file__).with_name("cancellation.py")


def matrix(*words):
    return subprocess.run(
        [sys.executable, str(MATRIX), *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )


def test_lives_cancelled_at_drawn_points():
    done = matrix("--sample", "400", "--seed", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong" in done.stdout


def test_one_life_can_be_repeated():
    done = matrix("--only", "asyncio-native-2-own-early", "--at", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 lives cancelled, 0 wrong" in done.stdout


def test_a_row_that_does_not_exist_is_refused():
    done = matrix("--only", "asyncio-native-9")
    assert done.returncode == 1
    assert "asyncio-native-2-own-early" in done.stderr
