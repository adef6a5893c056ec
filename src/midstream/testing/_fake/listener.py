"""The port: accepts connections, one thread each, and can refuse them for a while."""

from __future__ import annotations

import select
import socket
import threading
import time
from typing import TYPE_CHECKING

from midstream.testing._fake.gate import Gate
from midstream.testing._fake.wire import Line

if TYPE_CHECKING:
    from collections.abc import Callable


class Listener:
    """A listening port on loopback.

    Args:
        serve: Called with each connection, in a thread of its own.
        died: Told what `serve` raised.

    Attributes:
        accepted: How many connections were accepted.
    """

    def __init__(
        self, serve: Callable[[Line], None], died: Callable[[Exception], None]
    ) -> None:
        self._serve = serve
        self._died = died
        self._lock = threading.Lock()
        self._gate = Gate()
        self._stop, self._stopper = socket.socketpair()
        self._lines: dict[Line, threading.Thread] = {}
        self.accepted = 0
        self._thread = threading.Thread(target=self._run, name="fake", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Its number."""
        return self._gate.port

    @property
    def open(self) -> int:
        """How many connections there are now."""
        with self._lock:
            return len(self._lines)

    def refuse(self, seconds: float | None = None) -> None:
        """Refuse new connections.

        Args:
            seconds: So long; None: until `accept`.
        """
        self._gate.set(None if seconds is None else time.monotonic() + seconds)

    def accept(self) -> None:
        """Accept connections again; harmless when it does."""
        self._gate.set(0.0)

    def close(self) -> None:
        """End all connections and all threads."""
        self._stopper.send(b"!")
        self._thread.join()
        with self._lock:
            lines = dict(self._lines)
        for line in lines:
            line.abort()
        for thread in lines.values():
            thread.join()
        self._gate.close()
        self._stop.close()
        self._stopper.close()

    def _run(self) -> None:
        while not select.select([self._stop], [], [], 0)[0]:
            sock = self._gate.wait(self._stop, self._gate.apply())
            if sock is not None:
                self._take(sock)
        self._gate.end()

    def _take(self, sock: socket.socket) -> None:
        sock.setblocking(True)  # noqa: FBT003 - its only form
        line = Line(sock, self._stop)
        thread = threading.Thread(
            target=self._work, args=(line,), name="fake connection", daemon=True
        )
        with self._lock:
            self.accepted += 1
            self._lines[line] = thread
        thread.start()

    def _work(self, line: Line) -> None:
        try:
            self._serve(line)
        except Exception as error:  # noqa: BLE001 - whoever closes the server raises it
            self._died(error)
        finally:
            line.close()
            with self._lock:
                self._lines.pop(line, None)
