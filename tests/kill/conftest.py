"""Processes that stream, are killed at a random moment, and are continued by others."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from midstream import SQLiteStore

CHILD = Path(__file__).with_name("child.py")
SECONDS = 60.0  # for one process


class Killing:
    """Begins a stream in one process, kills it, and goes on in another.

    Args:
        endpoint: Who answers.
        folder: For the store.
        ways: Strategies.
        prompt: What is asked.
        tokens: The most tokens of answer; None for no limit.
    """

    def __init__(self, endpoint, folder, *, ways, prompt="Tell me.", tokens=None):
        self.endpoint = endpoint
        self.path = folder / "streams.db"
        self.ways = ",".join(ways)
        self.asked = {"PROMPT": prompt, "TOKENS": str(tokens or "")}

    def start(self, key, *after):
        """A process that begins, or goes on after so many characters."""
        words = [self.endpoint, str(self.path), key, self.ways, *map(str, after)]
        return subprocess.Popen(
            [sys.executable, str(CHILD), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # what was read by us is not read ahead
            env={**os.environ, **self.asked},
        )

    def whole(self, key):
        """The text of an answer that nobody disturbs."""
        shown, facts = self.finish(self.start(key))
        assert shown == facts["text"]
        return shown

    def finish(self, child):
        """What a process shows that is left alone, and what became of its stream."""
        out, err = child.communicate(timeout=SECONDS)
        assert child.returncode == 0, err.decode()
        return out.decode(), json.loads(err.splitlines()[-1])

    def kill(self, key, characters, seconds):
        """Kill one that has shown so many characters, after some more seconds.

        Returns:
            What it had shown: whole characters, as its reader saw them.
        """
        child = self.start(key)
        shown = b""
        while len(shown.decode("utf-8", "ignore")) < characters:
            if not (piece := os.read(child.stdout.fileno(), 65536)):
                break
            shown += piece
        time.sleep(seconds)
        child.kill()
        shown += child.stdout.read()
        child.stdout.close()
        child.stderr.close()
        assert child.wait(timeout=SECONDS) in (-9, 0)
        return shown.decode("utf-8", "ignore")

    def kill_and_go_on(self, key, source, length):
        """One round.

        Args:
            key: Of the stream.
            source: Random numbers.
            length: Of the whole answer, in characters.

        Returns:
            What the killed process showed, all that was shown, and what became of it.
        """
        place = source.randint(0, max(length * 9 // 10, 1))
        shown = self.kill(key, place, source.choice((0, 0, source.uniform(0, 0.6))))
        stored = SQLiteStore(self.path)
        if stored.load(key) is None:  # killed before anything was stored
            stored.close()
            assert len(shown) < length
            rest, facts = self.finish(self.start(key))
            return shown, rest, facts
        stored.close()
        rest, facts = self.finish(self.start(key, f"={shown}"))
        return shown, shown + rest, facts


@pytest.fixture
def killing(tmp_path):
    """Makes a `Killing` in a folder of its own."""

    def make(endpoint, **options):
        return Killing(endpoint, tmp_path, **options)

    return make


@pytest.fixture
def source():
    """Random numbers, always the same."""
    return random.Random(9)
