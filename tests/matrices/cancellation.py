"""The cancellation matrix: a stream's life, cancelled at every point where it waits.

    python tests/matrices/cancellation.py
    python tests/matrices/cancellation.py --sample 150 --seed 4
    python tests/matrices/cancellation.py --only asyncio-native-2-own-whole --at 17

A run steps the consumer by hand and cancels it at its n-th suspension: natively or by
scope, once, or again in the next tick. Blocking streams get a KeyboardInterrupt before
or behind their n-th call of the line. n grows until a run ends without being reached.
After each: what came is in order, and with what the next reader gets it is the whole
text, from one request; the server has seen the line close; no task, no thread and no
lease is left. The exit status is 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import threading
import time
import types
import warnings
from dataclasses import dataclass
from functools import partial
from itertools import count, product

import anyio
import httpx
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import midstream
from midstream import Backoff, MemoryStore, Resume
from midstream._transports.body import HttpBody
from midstream._transports.grpc import GrpcTransport
from midstream._transports.grpc_body import GrpcBody
from midstream._transports.http import HttpTransport
from midstream.testing import FakeServer, Slow

TEXT = "An answer that takes its time, word by word. "
EARLY = 3  # pieces after which a consumer leaves
WAIT = 5.0  # seconds for a server, a task or a thread to end
FARTHEST = 400  # suspensions that no such life has
LIKELY = 30  # suspensions among which a sample draws
ASYNC = [("asyncio", "native"), ("asyncio", "scope"), ("trio", "scope")]
WIRES = {"own": "ollama", "user": "ollama", "grpc": "triton-grpc"}
LIVES = ("whole", "early", "next", "keyed")
QUICK = Resume(backoff=Backoff(initial=0, maximum=0))

console = Console()


@dataclass(frozen=True)
class Row:
    """One way of cancelling one kind of life."""

    loop: str
    how: str
    times: int
    wire: str
    life: str

    def __str__(self):
        return f"{self.loop}-{self.how}-{self.times}-{self.wire}-{self.life}"


ROWS = [
    *(
        Row(*way, times, wire, life)
        for way, times, wire, life in product(ASYNC, (1, 2), WIRES, LIVES)
    ),
    *(
        Row("sync", how, 1, wire, life)
        for how, wire, life in product(("before", "behind"), WIRES, LIVES)
    ),
]


class Wrong(Exception):
    """What a run left behind."""


def main():
    """Run it; see the module's docstring."""
    options = arguments()
    warnings.simplefilter("error")
    logging.getLogger("midstream").addHandler(logging.NullHandler())
    unraised = []
    sys.unraisablehook = lambda told: unraised.append(repr(told.exc_value))
    failures, runs = [], 0
    shown = (
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*shown, console=console) as progress:
        plan = planned(options)
        task = progress.add_task("rows", total=len(plan))
        for row, points in plan:
            progress.update(task, description=str(row))
            done, wrong = run(row, points)
            wrong += [f"{row}: unraisable {told}" for told in unraised]
            unraised.clear()
            runs, failures = runs + done, failures + wrong
            progress.advance(task)
    for failure in failures:
        console.print(f"[red]{failure}", markup=True, highlight=False)
    console.print(f"{runs} lives cancelled, {len(failures)} wrong.")
    return 1 if failures else 0


def planned(options):
    """Rows, and at which suspensions each is cancelled: an iterable of numbers."""
    rows = [row for row in ROWS if options.only in {None, str(row)}]
    if not rows:
        sys.exit("\n  ".join(["no such row; there are", *map(str, ROWS)]))
    if options.at is not None:
        return [(row, [options.at]) for row in rows]
    if options.sample is None:
        return [(row, count()) for row in rows]
    draw = random.Random(options.seed)
    points = {row: [] for row in rows}
    for _ in range(options.sample):
        points[draw.choice(rows)].append(draw.randrange(LIKELY))
    return [(row, sorted(at)) for row, at in points.items() if at]


def run(row, points):
    """All runs of a row; how many there were, and what was wrong."""
    wrong = []
    store = MemoryStore()
    with FakeServer(TEXT, faults=Slows(), replay=False) as server:
        client = {"resume": QUICK, "store": store}
        case = Case(row, server, store, wrong)
        if row.loop == "sync":
            interrupted(case, points, client)
        else:
            anyio.run(partial(cancelled, case, points, client), backend=row.loop)
        case.settle("connections", lambda: not server.open_connections)
        case.settle("threads", lambda: not ours())
    return case.runs, wrong


class Slows(list):
    """Each answer takes its time, however many are asked for."""

    def __init__(self):
        super().__init__([Slow(0.001)] * 2000)


def ours():
    """Threads that midstream started."""
    names = (thread.name for thread in threading.enumerate())
    return [name for name in names if name.startswith("midstream")]


class Case:
    """A row with its server; collects what is wrong."""

    def __init__(self, row, server, store, wrong):
        self.row = row
        self.server = server
        self.store = store
        self.wrong = wrong
        self.runs = 0
        self.endpoint = server.endpoint(WIRES[row.wire])
        self._seen = 0

    def stream(self, client):
        """The next stream."""
        key = f"k{self.runs}" if self.row.life == "keyed" else None
        return client.stream("hi", key=key)

    def settle(self, what, over):
        """Note what is not over in time."""
        until = time.monotonic() + WAIT
        while not over():
            if time.monotonic() > until:
                self.wrong.append(f"{self.row}: {what} are left")
                return
            time.sleep(0.002)

    def judge(self, at, stream, pieces):
        """Look at what a run has left."""
        said = f"{self.row} --at {at}: "
        joined = "".join(pieces)
        if not stream.text.startswith(joined) or not TEXT.startswith(stream.text):
            self.wrong.append(f"{said}{joined!r} of {stream.text!r}")
        if self.row.life == "next" and joined != TEXT:
            self.wrong.append(f"{said}the next reader got {joined!r} in all")
        asked = self.server.streams[self._seen :]
        self._seen += len(asked)
        if len(asked) > 1 and self.row.loop != "sync":
            self.wrong.append(f"{said}{len(asked)} requests")
        self.settle(
            f"{at}: requests", lambda: all(entry.ended is not None for entry in asked)
        )
        if self.row.life == "keyed":
            key = f"k{self.runs}"
            self.settle(f"{at}: leases", lambda: self.store.acquire(key, "next", 60))
        self.runs += 1


async def cancelled(case, points, settings):
    """All runs of an async row, over one client."""
    row = case.row
    http = httpx.AsyncClient() if row.wire == "user" else None
    try:
        async with midstream.AsyncClient(
            case.endpoint, http_client=http, **settings
        ) as client:
            for at in points:
                stream, pieces = case.stream(client), []
                reached = await step(row, stream, pieces, at)
                if row.life == "next":
                    pieces += [piece async for piece in stream]
                    await stream.aclose()
                left = await tasks_left()
                if left:
                    case.wrong.append(f"{row} --at {at}: tasks are left: {left}")
                await anyio.to_thread.run_sync(case.judge, at, stream, pieces)
                if not reached or at > FARTHEST:
                    break
    finally:
        if http is not None:
            await http.aclose()


async def tasks_left():
    """Tasks of midstream's that do not end."""
    until = time.monotonic() + WAIT
    while left := [name for name in task_names() if "midstream" in name]:
        if time.monotonic() > until:
            return left
        await anyio.sleep(0.001)
    return []


def task_names():
    """Of all tasks that there are."""
    try:
        return [task.get_name() for task in asyncio.all_tasks()]
    except RuntimeError:
        import trio  # noqa: PLC0415 - it runs

        nursery = trio.lowlevel.current_root_task().child_nurseries[0]
        return [task.name for task in nursery.child_tasks]


async def step(row, stream, pieces, at):
    """Live a life, cancelled at a suspension; whether that was reached."""
    if row.life == "next":
        await stream.__aenter__()
    if row.how == "native":
        return await natively(row, live(row, stream, pieces), at)
    reached = []
    with anyio.CancelScope() as outer, anyio.CancelScope() as inner:

        def hit():
            reached.append(at)
            inner.cancel()
            if row.times == 2:
                outer.cancel()

        await stepped(live(row, stream, pieces), at, hit)
    return bool(reached)


async def natively(row, coroutine, at):
    """The same by `asyncio.Task.cancel`."""
    reached = []

    def hit():
        reached.append(at)
        task.cancel()
        if row.times == 2:
            asyncio.get_running_loop().call_soon(task.cancel)

    async def wrapped():
        await stepped(coroutine, at, hit)

    task = asyncio.create_task(wrapped(), name="consumer")
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return bool(reached)


async def live(row, stream, pieces):
    """A consumer's life."""
    if row.life == "next":
        async for piece in stream:
            pieces.append(piece)
        return
    async with stream:
        async for piece in stream:
            pieces.append(piece)
            if row.life == "early" and len(pieces) == EARLY:
                break


@types.coroutine
def stepped(coroutine, at, hit):
    """Run a coroutine; call `hit` when it suspends for the time ``at``, from 0."""
    value = error = None
    for nth in count():
        try:
            trap = coroutine.send(value) if error is None else coroutine.throw(error)
        except StopIteration:
            return
        if nth == at:
            hit()
        value = error = None
        try:
            value = yield trap
        except BaseException as fault:  # noqa: BLE001 - thrown on
            error = fault


def interrupted(case, points, settings):
    """All runs of a blocking row."""
    row = case.row
    http = httpx.Client() if row.wire == "user" else None
    try:
        with midstream.Client(case.endpoint, http_client=http, **settings) as client:
            for at in points:
                stream, pieces = case.stream(client), []
                with Interrupts(row.how, at) as interrupts:
                    live_blocking(row, stream, pieces)
                case.judge(at, stream, pieces)
                if not interrupts.reached or at > FARTHEST:
                    break
    finally:
        if http is not None:
            http.close()


def live_blocking(row, stream, pieces):
    """A consumer's life; its next reader is itself."""
    if row.life != "next":
        try:
            with stream:
                for piece in stream:
                    pieces.append(piece)
                    if row.life == "early" and len(pieces) == EARLY:
                        break
        except KeyboardInterrupt:
            return
        return
    with stream:
        while not stream.complete:
            try:
                for piece in stream:
                    pieces.append(piece)
            except KeyboardInterrupt:
                continue
        pieces.extend(stream)


class Interrupts:
    """A KeyboardInterrupt before or behind the n-th call that touches the line."""

    CALLS = (
        (HttpTransport, "open"),
        (HttpBody, "read"),
        (HttpBody, "close"),
        (GrpcTransport, "open"),
        (GrpcBody, "read"),
        (GrpcBody, "close"),
    )

    def __init__(self, how, at):
        self._how = how
        self._at = at
        self._calls = 0
        self._kept = []
        self.reached = False

    def __enter__(self):
        for owner, name in self.CALLS:
            call = getattr(owner, name)
            self._kept.append((owner, name, call))
            setattr(owner, name, self._interrupted(call))
        return self

    def __exit__(self, *exc):
        for owner, name, call in self._kept:
            setattr(owner, name, call)

    def _interrupted(self, call):
        def interrupted(*args):
            nth, self._calls = self._calls, self._calls + 1
            hit = nth == self._at
            self.reached = self.reached or hit
            if hit and self._how == "before":
                raise KeyboardInterrupt
            result = call(*args)
            if hit:
                if hasattr(result, "close"):
                    result.close()  # nobody has it, as a signal may strike earlier
                raise KeyboardInterrupt
            return result

        return interrupted


def arguments():
    """What the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="ROW", help="one row, as failures name it")
    parser.add_argument("--at", type=int, help="one suspension, from 0; all rows")
    parser.add_argument("--sample", type=int, help="so many lives, drawn by the seed")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
