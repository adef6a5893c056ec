"""Runs a block of cases in one colour, many streams at a time, and judges them.

A server is made for each model that the block has, and plays all dialects. Which fault
comes next is decided by a header that tells the case, so streams do not get into each
other's way.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import socket
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import anyio
from cases import BLOCK, MODELS, PROMPT, Case, Model
from judging import wrong
from lives import run_async, run_sync
from nursery import Nursery

from midstream import Endpoint, SQLiteStore
from midstream.testing import FakeServer
from midstream.testing._fake.sides import GRPC_DIALECTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judging import Seen

    from midstream.testing import Fault, Recorded

AT_ONCE = {"sync": 16, "asyncio": 48, "trio": 48}
HEADER = "x-case"
LEFT = 5.0  # seconds in which a server must have lost all connections


@dataclass
class Verdict:
    """What came of a case.

    Attributes:
        case: Its number.
        dialect: Who began.
        kind: What went wrong.
        colour: Who read.
        outcome: ``"complete"``, or the error's name.
        resumes: How many drops were survived.
        faults: What is wrong with it.
    """

    case: int
    dialect: str
    kind: str
    colour: str
    outcome: str
    resumes: int
    faults: list[str] = field(default_factory=list)


class Stage:
    """The servers of one block."""

    def __init__(self) -> None:
        self._plans: dict[str, Iterator[Sequence[Fault]]] = {}
        self._servers: dict[Model, FakeServer] = {}
        self._taken: socket.socket | None = None
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory("", "faults-"))
        self.path = Path(folder) / "streams.db"
        self.store = SQLiteStore(self.path)
        self._stack.callback(self.store.close)
        self.nursery = nursery()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def endpoints(self, case: Case) -> list[Endpoint]:
        """The endpoints of a case, in order."""
        with self._lock:
            return self._endpoints(case)

    def _endpoints(self, case: Case) -> list[Endpoint]:
        first = self._server(case.model)
        url = self._dead(case.dialect) if case.down else first.url(case.dialect)
        found = [self._endpoint(case, case.dialect, url, "a", case.plan)]
        if case.down == "port":  # dead ones on the way are passed by
            found.insert(0, found[0])
            url = first.url(case.dialect)
            found[1] = self._endpoint(case, case.dialect, url, "a", case.plan)
        if case.second is not None:
            dialect, model, plan = case.second
            url = self._server(model).url(dialect)
            found.append(self._endpoint(case, dialect, url, "b", plan))
        return found

    def left(self) -> list[str]:
        """What was left behind when all streams were closed."""
        until = time.monotonic() + LEFT
        while open_ := [s for s in self._servers.values() if s.open_connections]:
            if time.monotonic() > until:
                streams = [e for s in open_ for e in s.requests if e.ended is None]
                return [f"{len(open_)} servers with open connections: {streams[:3]}"]
            time.sleep(0.01)
        return []

    def _endpoint(
        self, case: Case, dialect: str, url: str, role: str, plan: Any
    ) -> Endpoint:
        name = f"{case.number}{role}"
        self._plans[name] = iter(plan)
        return Endpoint(
            dialect,
            model=MODELS.get(dialect, "fake"),
            base_url=url,
            headers={HEADER: name},
            **case.endpoint,
        )

    def _server(self, model: Model) -> FakeServer:
        server = self._servers.get(model)
        if server is None:
            server = self._servers[model] = self._stack.enter_context(
                FakeServer(
                    model.text,
                    events=model.events,
                    split=model.split,
                    seed=model.seed,
                    prompt=PROMPT,
                    faults=self._next,
                    **dict(model.habits),
                )
            )
        return server

    def _next(self, entry: Recorded) -> Sequence[Fault]:
        return next(self._plans[entry.headers[HEADER]], ())

    def _dead(self, dialect: str) -> str:
        """Where nobody listens: a port that is taken, so that nobody will."""
        if self._taken is None:
            self._taken = self._stack.enter_context(socket.socket())
            self._taken.bind(("127.0.0.1", 0))
        scheme = "grpc" if dialect in GRPC_DIALECTS else "http"
        return f"{scheme}://127.0.0.1:{self._taken.getsockname()[1]}"


@functools.cache
def nursery() -> Nursery:
    """The one of this process; it starts when it is first needed."""
    folder = tempfile.TemporaryDirectory("", "faults-")
    made = Nursery(Path(folder.name))
    atexit.register(folder.cleanup)
    atexit.register(made.close)
    return made


def run(cases: Sequence[Case]) -> list[Verdict]:
    """All cases of a block; they have one colour."""
    strays = _strays()
    with Stage() as stage:
        colour = cases[0].colour
        if colour == "sync":
            with ThreadPoolExecutor(AT_ONCE[colour]) as pool:
                verdicts = list(pool.map(lambda case: _sync(case, stage), cases))
        else:
            verdicts = anyio.run(_all, cases, stage, AT_ONCE[colour], backend=colour)
        left = stage.left()
    gc.collect()
    if left or strays:
        block = f"block {cases[0].number // BLOCK}"
        verdicts.append(Verdict(cases[0].number, "", block, colour, "strays", 0))
        verdicts[-1].faults += [*left, *strays]
        strays.clear()
    return verdicts


def _sync(case: Case, stage: Stage) -> Verdict:
    return _verdict(case, run_sync(case, stage))


async def _all(cases: Sequence[Case], stage: Stage, at_once: int) -> list[Verdict]:
    verdicts: list[Verdict] = []
    limiter = anyio.CapacityLimiter(at_once)

    async def one(case: Case) -> None:
        async with limiter:
            seen = await run_async(case, stage)
            verdicts.append(_verdict(case, seen))

    async with anyio.create_task_group() as tasks:
        for case in cases:
            tasks.start_soon(one, case)
    return verdicts


def _verdict(case: Case, seen: Seen) -> Verdict:
    if seen.stream is None:
        raise RuntimeError(f"{case} was not played") from seen.error
    return Verdict(
        case.number,
        case.dialect,
        case.kind,
        case.colour,
        "complete" if seen.error is None else type(seen.error).__name__,
        len(seen.stream.resumes),
        wrong(case, seen),
    )


_STRAYS: list[str] = []


def _strays() -> list[str]:
    """Exceptions that nobody catches: in threads, in finalizers, as warnings."""

    def stray(what: Any) -> None:
        _STRAYS.append(f"nobody caught {what.exc_value!r}")

    sys.unraisablehook = stray
    threading.excepthook = stray
    return _STRAYS
