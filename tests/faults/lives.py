"""How a stream is read: to its end, through cancelled reads, or by one after another.

A life has legs: readers that leave before the end (they break off, are cancelled, have
their stream closed by another thread, or are killed in another process), and a last one
that goes on to the end. What all of them saw, joined, is what is judged.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import sniffio
from cases import PROMPT, Case, Leg
from judging import Seen
from nursery import Order

import midstream
from midstream import Backoff, Graphemes, Resume, Timeouts, Words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

LIMITS = {"connect": 30, "first_token": 40, "idle": 40, "total": 60}
GONE = object()
"""In place of what a cancelled call would have given."""


class Stage(Protocol):
    """Where a case is played."""

    path: Path
    store: Any
    nursery: Any

    def endpoints(self, case: Case) -> list[midstream.Endpoint]:
        """The endpoints of a case, in order."""
        ...


def options(case: Case) -> dict[str, Any]:
    """The client's."""
    resume = None
    if case.resume is not None:
        backoff = Backoff(initial=0.002, maximum=0.02)
        resume = Resume(**{"backoff": backoff, "attempts": 12, **case.resume})
    return {"resume": resume, "timeouts": Timeouts(**{**LIMITS, **case.timeouts})}


def source(stream: Any, how: str) -> Any:
    """What is iterated."""
    match how:
        case "events":
            return stream.events()
        case "words":
            return stream.chunks(Words())
        case "graphemes":
            return stream.chunks(Graphemes())
        case _:
            return stream


class Life:
    """One case while it runs.

    Args:
        case: Which.
        stage: Where.
    """

    def __init__(self, case: Case, stage: Stage) -> None:
        self.case = case
        self.seen = Seen()
        self.stage = stage
        self.endpoints = stage.endpoints(case)
        self.options = options(case)
        self.begun = False
        if case.key:
            self.options["store"] = stage.store

    def open(self, client: Any) -> Any:
        """The next reader's stream, begun or continued."""
        case, shown = self.case, "".join(self.seen.pieces)
        if self.begun:
            self.seen.stream = client.resume(case.key, have=shown)
        else:
            key = {"key": case.key} if case.key else {}
            self.seen.stream = client.stream(PROMPT, **key, **case.ask)
        return self.seen.stream

    def elsewhere(self, leg: Leg) -> None:
        """Begin it in another process, which dies."""
        case = self.case
        given = {name: self.options[name] for name in ("resume", "timeouts")}
        order = Order(
            *(self.stage.path, case.key, self.endpoints, given, PROMPT, case.ask),
            *(case.colour, leg.items, leg.seconds),
        )
        shown, wrong = self.stage.nursery.run(order)
        self.begun = True
        self.seen.pieces += shown
        self.seen.faults += [wrong] if wrong else []

    def ended(self, *, left: bool) -> bool:
        """Whether the whole of it was read; a reader that was sent away never ends."""
        if left and not self.seen.stream.complete:
            self.seen.faults.append("a stream that was left ended without a word")
            return False
        return True


def run_sync(case: Case, stage: Stage) -> Seen:
    """One stream, blocking."""
    life = Life(case, stage)
    try:
        with midstream.Client(*life.endpoints, **life.options) as client:
            for leg in (*case.legs, None):
                if leg is not None and leg.way == "killed":
                    life.elsewhere(leg)
                elif _leg(life, life.open(client), leg):
                    break
    except Exception as error:  # noqa: BLE001 - foreign ones are found wrong
        life.seen.error = error
    return life.seen


def _leg(life: Life, opened: Any, leg: Leg | None) -> bool:
    """One reader; whether it read to the end."""
    closer: threading.Timer | None = None
    left = threading.Event()
    with opened as stream:
        life.begun = True
        if leg is not None and leg.way == "cancelled":

            def leave() -> None:
                left.set()
                stream.close()

            closer = threading.Timer(leg.seconds, leave)
            closer.start()
        try:
            return _read(life, stream, leg) and life.ended(left=left.is_set())
        except midstream.MidstreamError:
            if not left.is_set():
                raise
            return False
        finally:
            if closer is not None:
                closer.cancel()
                closer.join()


def _read(life: Life, stream: Any, leg: Leg | None) -> bool:
    """Read on; whether it came to an end."""
    case, seen = life.case, life.seen
    if case.how == "read" and leg is None:
        seen.pieces += [text] if (text := stream.read()) else []
        return True
    left = None if leg is None or leg.way == "cancelled" else leg.items
    items = iter(source(stream, case.how))
    while left is None or left > 0:
        if (item := next(items, GONE)) is GONE:
            return True
        seen.note(item)
        left = None if left is None else left - 1
    return False


async def run_async(case: Case, stage: Stage) -> Seen:
    """One stream, under asyncio or trio."""
    life = Life(case, stage)
    try:
        async with midstream.AsyncClient(*life.endpoints, **life.options) as client:
            for leg in (*case.legs, None):
                if leg is not None and leg.way == "killed":
                    await anyio.to_thread.run_sync(life.elsewhere, leg)
                elif await _aleg(life, life.open(client), leg):
                    break
    except Exception as error:  # noqa: BLE001 - as above
        life.seen.error = error
    return life.seen


async def _aleg(life: Life, opened: Any, leg: Leg | None) -> bool:
    """One reader; whether it read to the end."""

    async def reader() -> bool:
        async with opened as stream:
            life.begun = True
            return await _aread(life, stream, leg)

    if leg is None or leg.way == "left":
        return await reader()
    return await cancelled(leg.seconds, leg.scoped, reader) is True


async def _aread(life: Life, stream: Any, leg: Leg | None) -> bool:
    """Read on, through all cancellations; whether it came to an end."""
    case, seen = life.case, life.seen
    whole = case.how == "read" and leg is None
    items = aiter(source(stream, case.how))
    step = stream.read if whole else items.__anext__
    left = None if leg is None or leg.way == "cancelled" else leg.items
    moments = iter(case.moments)
    while left is None or left > 0:
        try:
            if (moment := next(moments, None)) is None:
                item = await step()
            else:
                item = await cancelled(*moment, step)
        except StopAsyncIteration:
            return True
        if item is GONE:
            continue
        if whole:
            seen.pieces += [item] if item else []
            return True
        seen.note(item)
        left = None if left is None else left - 1
    return False


async def cancelled(
    seconds: float, scoped: bool, work: Callable[[], Awaitable[Any]]
) -> Any:
    """Await something, but no longer than so many seconds; then `GONE`.

    Args:
        seconds: How long.
        scoped: Whether a cancel scope ends it; else asyncio cancels the task itself.
        work: What is awaited.
    """
    if scoped or sniffio.current_async_library() == "trio":
        with anyio.move_on_after(seconds):
            return await work()
        return GONE
    try:
        return await asyncio.wait_for(work(), seconds)
    except TimeoutError:
        return GONE
