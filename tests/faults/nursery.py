"""Other processes: each begins a keyed stream, shows some of it, and is killed.

The nursery is one process that has imported all that a stream needs. It forks a process
for each order, so that a new one costs milliseconds. The line to whoever ordered is
closed when that process is dead, and not before: its lease is a dead one's then.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Any

import anyio

import midstream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

PRELOADED = (
    "httpx",
    "trio",
    "midstream._transports.http",
    "midstream._transports.grpc",
)
STARTS_WITHIN = 60.0  # seconds, importing included


@dataclass(frozen=True)
class Order:
    """What a process has to do before it dies.

    Attributes:
        path: Of the SQLite store.
        key: Of its stream.
        endpoints: Who is asked.
        options: For the client.
        prompt: What is asked.
        ask: For ``client.stream``.
        colour: sync, asyncio or trio.
        pieces: How many it shows.
        lingers: Seconds from the last of them to its end.
    """

    path: Path
    key: str
    endpoints: Sequence[midstream.Endpoint]
    options: Mapping[str, Any]
    prompt: str
    ask: Mapping[str, Any]
    colour: str
    pieces: int
    lingers: float


class Nursery:
    """The process that forks others.

    Args:
        folder: For its socket.
    """

    def __init__(self, folder: Path) -> None:
        self._address = str(folder / "nursery")
        self._process: Any = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def run(self, order: Order) -> tuple[list[str], str]:
        """Let a process do it, and die.

        Returns:
            The pieces that it showed, and what went wrong in it, if anything.
        """
        with self._lock:
            self._start()
        shown: list[str] = []
        wrong = ""
        with Client(self._address) as line:
            line.send(order)
            while True:
                try:
                    kind, word = line.recv()
                except EOFError:
                    return shown, wrong
                if kind == "piece":
                    shown.append(word)
                else:
                    wrong = word

    def _start(self) -> None:
        if self._process is not None:
            return
        context = multiprocessing.get_context("spawn")
        ready, told = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_serve, args=(self._address, told), daemon=True
        )
        self._process.start()
        told.close()
        if not ready.poll(STARTS_WITHIN):
            raise RuntimeError("the process that forks others did not start")
        ready.recv()


def _serve(address: str, told: Connection) -> None:
    """Fork for each caller one that waits, which forks the one that dies."""
    for name in PRELOADED:
        __import__(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    with Listener(address, backlog=64) as listener:
        told.send("ready")
        while True:
            with listener.accept() as line:
                if os.fork() == 0:
                    listener.close()
                    _wait_for_one(line)


def _wait_for_one(line: Connection) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        _stream(line.recv(), line)
    os.waitpid(child, 0)
    os._exit(0)


def _stream(order: Order, line: Connection) -> None:
    """Show pieces; then die as by ``kill -9``, whatever happened."""
    left = order.pieces

    def show(piece: str) -> None:
        nonlocal left
        line.send(("piece", piece))
        left -= 1
        if left <= 0:
            time.sleep(order.lingers)
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        if order.colour == "sync":
            _read(order, show)
        else:
            anyio.run(_aread, order, show, backend=order.colour)
    except midstream.MidstreamError as error:
        if isinstance(error, midstream.UsageError):
            line.send(("wrong", f"the other process is blamed: {error!r}"))
    except Exception as error:  # noqa: BLE001 - foreign ones are found wrong
        line.send(("wrong", f"a foreign error in the other process: {error!r}"))
    finally:
        os.kill(os.getpid(), signal.SIGKILL)


def _read(order: Order, show: Callable[[str], None]) -> None:
    store = midstream.SQLiteStore(order.path)
    client = midstream.Client(*order.endpoints, store=store, **order.options)
    stream = client.stream(order.prompt, key=order.key, **order.ask)
    with client, stream:
        for piece in stream:
            show(piece)


async def _aread(order: Order, show: Callable[[str], None]) -> None:
    store = midstream.SQLiteStore(order.path)
    client = midstream.AsyncClient(*order.endpoints, store=store, **order.options)
    stream = client.stream(order.prompt, key=order.key, **order.ask)
    async with client, stream:
        async for piece in stream:
            show(piece)
