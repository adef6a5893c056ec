"""What can happen to a process that keeps a stream, and what must be true afterwards.

Each scenario is a function of a `Stage`: a server that answers slowly, a store, and
processes on them. Whatever happens, a `Watch` reads the store all the time and holds it
to this: what is stored is a beginning of the answer, never gets shorter, and a writer
that was followed by another never writes again.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from process_child import KEY
from redis_server import RedisServer

from midstream import MidstreamError, RedisStore, SQLiteStore
from midstream.testing import FakeServer, Slow, Stall

CHILD = Path(__file__).with_name("process_child.py")
LINE = "吾輩は猫である。 Names? None yet 👩‍👩‍👧 — ha ha!"
TEXT = "".join(f"{number}. {LINE}\n" for number in range(12))
PACE = 0.012  # seconds a delta
UNHURRIED = 0.05  # the same, where the stream must outlast what happens
STALLS = 60  # deltas after which the first process waits for ever, in some
SECONDS = 60.0  # for one process
LEASE = 0.8  # seconds, as the processes have it


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        number: Its own.
        name: Which scenario.
        store: ``"sqlite"`` or ``"redis"``.
        seed: What else is random in it.
    """

    number: int
    name: str
    store: str
    seed: str

    def __str__(self) -> str:
        return f"{self.name}-{self.store}"


def draw(seed: int, number: int) -> Case:
    """The case of a number: every scenario on every store in turn."""
    kinds = [
        (name, store) for name, (_, stores) in SCENARIOS.items() for store in stores
    ]
    name, store = kinds[number % len(kinds)]
    return Case(number, name, store, f"{seed}/{number}")


def kinds() -> int:
    """How many different ones there are."""
    return sum(len(stores) for _, stores in SCENARIOS.values())


def run(case: Case) -> list[str]:
    """Run one; gives what was wrong."""
    with tempfile.TemporaryDirectory() as folder, closing(Stage(case, folder)) as stage:
        try:
            SCENARIOS[case.name][0](stage)
        except (AssertionError, TimeoutError, subprocess.TimeoutExpired) as error:
            stage.faults.append(f"{type(error).__name__}: {error}")
        stage.watch.end()
        return stage.faults + stage.watch.faults


class Stage:
    """The server, the store, and the processes of one case."""

    def __init__(self, case: Case, folder: str) -> None:
        self.random = random.Random(case.seed)
        self.redis = RedisServer(folder) if case.store == "redis" else None
        self.path = Path(folder) / "streams.db"
        self.address = self.redis.url if self.redis else str(self.path)
        scenario = SCENARIOS[case.name][0]
        pace = UNHURRIED if scenario in OUTLASTING else PACE
        first = [Stall(after=STALLS)] if scenario in STALLING else ()
        self.server = FakeServer(TEXT, faults=first, always=Slow(pace))
        self.server.start()
        self.processes: list[Process] = []
        self.faults: list[str] = []
        self.store = RedisStore(self.address) if self.redis else SQLiteStore(self.path)
        self.watch = Watch(self.store)

    def begin(self, **more) -> Process:
        """A process that begins the stream."""
        return self._start(more)

    def go_on(self, have: str, **more) -> Process:
        """A process that goes on behind what was shown."""
        return self._start({"have": have, **more})

    def _start(self, more) -> Process:
        endpoint = self.server.endpoint("llama.cpp")
        process = Process({"endpoint": endpoint, "store": self.address, **more})
        self.processes.append(process)
        return process

    def place(self) -> int:
        """Somewhere in the text, but not near its end, nor behind where it stalls."""
        return self.random.randint(1, STALLS)

    def check(self, holds: object, words: str) -> None:
        if not holds:
            self.faults.append(words)

    def finished(self, process: Process, before: str = "") -> dict:
        """It comes to a good end, and all that was shown is the text."""
        facts = process.facts()
        self.check(not facts["error"], f"{facts['error']}: {facts['words']}")
        self.check(facts["complete"], "not complete")
        self.check(facts["text"] == TEXT, f"wrong text: {facts['text']!r}")
        self.check(before + process.shown == TEXT, "what was shown is not the text")
        return facts

    def is_free(self) -> None:
        """A dead process's lease is over; only one machine's store knows at once."""
        if self.redis:
            time.sleep(LEASE + 0.1)

    def stored_whole(self) -> None:
        """The store has all of it."""
        stored = self.store.load(KEY)
        self.check(stored is not None, "nothing is stored")
        if stored is not None:
            self.check(stored.text == TEXT, f"stored: {len(stored.text)} characters")
            self.check(stored.complete, "stored as not complete")

    def others_go_on(self, shown: str) -> None:
        """Another process brings the rest."""
        self.is_free()
        self.check(TEXT.startswith(shown), f"shown: {shown!r}")
        self.finished(self.go_on(shown), shown)
        self.stored_whole()

    def close(self) -> None:
        for process in self.processes:
            process.end()
        self.server.close()
        self.store.close()
        if self.redis:
            self.redis.end()


class Process:
    """A child, and what it shows."""

    def __init__(self, options: dict) -> None:
        self._child = subprocess.Popen(
            [sys.executable, str(CHILD), json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._seen = b""
        self._facts: dict | None = None

    @property
    def shown(self) -> str:
        """What it showed, in whole characters."""
        return self._seen.decode("utf-8", "ignore")

    def shows(self, characters: int) -> None:
        """Wait until it has shown so many."""
        deadline = time.monotonic() + SECONDS
        out = self._child.stdout.fileno()
        while len(self.shown) < characters:
            ready, _, _ = select.select([out], [], [], deadline - time.monotonic())
            piece = os.read(out, 65536) if ready else b""
            if not piece:
                words = self._child.stderr.read().decode() if ready else "too slow"
                raise AssertionError(f"ended at {len(self.shown)}: {words}")
            self._seen += piece

    def signal(self, number: int) -> None:
        os.kill(self._child.pid, number)

    def kill(self) -> str:
        """Kill it; gives all that it had shown."""
        self._child.kill()
        self._drain()
        return self.shown

    def facts(self) -> dict:
        """What became of it, once it ended."""
        if self._facts is None:
            errors = self._drain()
            assert self._child.returncode == 0, errors[-2000:]
            self._facts = json.loads(errors.splitlines()[-1])
        return self._facts

    def _drain(self) -> str:
        out, errors = self._child.communicate(timeout=SECONDS)
        self._seen += out
        return errors.decode()

    def end(self) -> None:
        if self._child.poll() is None:
            self._child.kill()
            self._child.communicate()
        self._child.stdout.close()
        self._child.stderr.close()


class Watch:
    """Reads the store all the time, and remembers what must not be."""

    def __init__(self, store) -> None:
        self.faults: list[str] = []
        self.writers: list[str] = []
        self._store = store
        self._length = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def forget(self) -> None:
        """The store was emptied on purpose."""
        self._length = 0

    def end(self) -> None:
        self._stop.set()
        self._thread.join(10)
        self._look()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self._look()

    def _look(self) -> None:
        before = self._length
        try:
            stored = self._store.load(KEY)
        except MidstreamError:  # it is away on purpose
            return
        if stored is None or before != self._length:
            return
        if not TEXT.startswith(stored.text):
            self._fault(f"stored is no beginning of the text: {stored.text!r}")
        if len(stored.text) < before:
            self._fault(f"stored got shorter: {before} → {len(stored.text)}")
        if stored.writer not in self.writers:
            self.writers.append(stored.writer)
        elif stored.writer != self.writers[-1]:
            self._fault("two owners write in turn")
        self._length = max(before, len(stored.text))

    def _fault(self, words: str) -> None:
        if words not in self.faults:
            self.faults.append(words)


# -- scenarios -------------------------------------------------------------------------


def killed_before_the_first_token(stage: Stage) -> None:
    first = stage.begin()
    stage.server.wait_for_stream(timeout=SECONDS)
    stage.others_go_on(first.kill())


def killed_in_the_first_interval(stage: Stage) -> None:
    first = stage.begin()
    first.shows(1)
    stage.others_go_on(first.kill())


def killed_in_the_middle(stage: Stage) -> None:
    first = stage.begin()
    first.shows(stage.place())
    time.sleep(stage.random.uniform(0, 0.1))
    stage.others_go_on(first.kill())


def killed_after_the_end(stage: Stage) -> None:
    first = stage.begin()
    stage.finished(first)
    requests = len(stage.server.streams)
    stage.others_go_on(TEXT[: stage.place()])
    stage.check(len(stage.server.streams) == requests, "it was asked again")


def stopped_while_another_finishes(stage: Stage) -> None:
    first = stage.begin()
    first.shows(stage.place())
    first.signal(signal.SIGSTOP)
    shown = first.shown
    time.sleep(LEASE + 0.1)
    stage.finished(stage.go_on(shown), shown)
    first.signal(signal.SIGCONT)
    _lost(stage, first)
    stage.stored_whole()


def stopped_while_another_reads(stage: Stage) -> None:
    first = stage.begin()
    first.shows(stage.place())
    first.signal(signal.SIGSTOP)
    shown = first.shown
    time.sleep(LEASE + 0.1)
    second = stage.go_on(shown)
    second.shows(1)
    first.signal(signal.SIGCONT)
    _lost(stage, first)
    stage.finished(second, shown)
    stage.stored_whole()


def _lost(stage: Stage, first: Process) -> None:
    facts = first.facts()
    stage.check(facts["error"] == "LeaseLost", f"not lost: {facts}")
    stage.check(TEXT.startswith(facts["text"]), "a wrong text in the error")
    stage.check(TEXT.startswith(first.shown), "a wrong text was shown")


def stopped_and_nobody_came(stage: Stage) -> None:
    first = stage.begin()
    first.shows(stage.place())
    first.signal(signal.SIGSTOP)
    time.sleep(LEASE * 2)
    first.signal(signal.SIGCONT)
    stage.finished(first)
    stage.stored_whole()


def taken_over(stage: Stage) -> None:
    first = stage.begin()
    first.shows(stage.place())
    shown = first.shown
    second = stage.go_on(shown, take_over=True)
    _lost(stage, first)
    stage.finished(second, shown)
    stage.stored_whole()


def read_by_one_alone(stage: Stage) -> None:
    first = stage.begin()
    first.shows(1)
    facts = stage.go_on("").facts()
    stage.check(facts["error"] == "StreamBusy", f"not busy: {facts}")
    stage.finished(first)
    stage.stored_whole()


def forked(stage: Stage) -> None:
    first = stage.begin(at=stage.place(), do="fork")
    facts = stage.finished(first)
    stage.check(facts["fork"] == "LeaseLost", f"the child got {facts['fork']!r}")
    stage.stored_whole()


def forked_and_the_parent_ended(stage: Stage) -> None:
    first = stage.begin(at=stage.place(), do="fork_and_end")
    facts = first.facts()
    stage.check(facts["fork"] == "LeaseLost", f"the child got {facts['fork']!r}")
    stage.others_go_on(first.shown)


def _jumped(stage: Stage, do: str) -> None:
    at = stage.place()
    first = stage.begin(at=at, do=do)
    first.shows(at + 20)
    intruder = stage.store.acquire(KEY, "intruder/1", 1)
    stage.check(not intruder, "the clock jumped, and the key was free")
    stage.finished(first)
    stage.stored_whole()


def the_clock_jumped_ahead(stage: Stage) -> None:
    _jumped(stage, "jump")


def the_clock_jumped_back(stage: Stage) -> None:
    _jumped(stage, "jump_back")


def the_disk_was_full(stage: Stage) -> None:
    first = stage.begin(at=stage.place(), do="fill_and_free")
    facts = stage.finished(first)
    _said_once(stage, facts)
    stage.stored_whole()


def the_disk_stayed_full(stage: Stage) -> None:
    first = stage.begin(at=stage.place(), do="fill")
    facts = stage.finished(first)
    levels = [line.split()[0] for line in facts["logs"]]
    stage.check("INFO" not in levels, f"logs: {facts['logs']}")
    stage.check(levels.count("WARNING") <= 2, f"logs: {facts['logs']}")
    stage.others_go_on(TEXT[: stage.place()])


def _said_once(stage: Stage, facts: dict) -> None:
    levels = [line.split()[0] for line in facts["logs"]]
    stage.check(levels in ([], ["WARNING", "INFO"]), f"logs: {facts['logs']}")


def the_database_was_locked(stage: Stage) -> None:
    first = stage.begin()
    first.shows(stage.place())
    with closing(sqlite3.connect(stage.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        time.sleep(LEASE * stage.random.uniform(0.5, 2))
        other.execute("ROLLBACK")
    stage.finished(first)
    stage.stored_whole()


def redis_hung_and_came_back(stage: Stage) -> None:
    first = stage.begin()
    first.shows(stage.place())
    with stage.redis.stopped():
        time.sleep(LEASE * stage.random.uniform(1, 2))
    facts = stage.finished(first)
    _said_once(stage, facts)
    stage.stored_whole()


def redis_hung_at_the_end(stage: Stage) -> None:
    first = stage.begin()
    first.shows(len(TEXT) * 9 // 10)
    with stage.redis.stopped():
        stage.finished(first)
    stored = stage.store.load(KEY)
    stage.others_go_on(stored.text if stored else "")


def redis_restarted_empty(stage: Stage) -> None:
    first = stage.begin()
    first.shows(stage.place())
    stage.redis.restart()
    stage.watch.forget()
    stage.finished(first)
    stage.stored_whole()


def killed_again_and_again(stage: Stage) -> None:
    shown = ""
    process = stage.begin()
    for _ in range(3):
        process.shows(stage.random.randint(1, len(TEXT) // 6))
        shown += process.kill()
        stage.check(TEXT.startswith(shown), f"shown: {shown!r}")
        stage.is_free()
        process = stage.go_on(shown)
    stage.finished(process, shown)
    stage.stored_whole()


STALLING = (stopped_while_another_finishes, stopped_while_another_reads, taken_over)
OUTLASTING = (read_by_one_alone, redis_hung_and_came_back)
BOTH = ("sqlite", "redis")
SCENARIOS = {
    "killed before the first token": (killed_before_the_first_token, BOTH),
    "killed in the first interval": (killed_in_the_first_interval, BOTH),
    "killed in the middle": (killed_in_the_middle, BOTH),
    "killed after the end": (killed_after_the_end, BOTH),
    "killed again and again": (killed_again_and_again, BOTH),
    "stopped while another finishes": (stopped_while_another_finishes, BOTH),
    "stopped while another reads": (stopped_while_another_reads, BOTH),
    "stopped and nobody came": (stopped_and_nobody_came, BOTH),
    "taken over": (taken_over, BOTH),
    "read by one alone": (read_by_one_alone, BOTH),
    "forked": (forked, BOTH),
    "forked and the parent ended": (forked_and_the_parent_ended, BOTH),
    "the clock jumped ahead": (the_clock_jumped_ahead, BOTH),
    "the clock jumped back": (the_clock_jumped_back, BOTH),
    "the disk was full": (the_disk_was_full, ("sqlite",)),
    "the disk stayed full": (the_disk_stayed_full, ("sqlite",)),
    "the database was locked": (the_database_was_locked, ("sqlite",)),
    "Redis hung and came back": (redis_hung_and_came_back, ("redis",)),
    "Redis hung at the end": (redis_hung_at_the_end, ("redis",)),
    "Redis restarted empty": (redis_restarted_empty, ("redis",)),
}
