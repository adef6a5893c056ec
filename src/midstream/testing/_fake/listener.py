"""The port: accepts connections, one thread each, and can refuse them for a while."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from typing import TYPE_CHECKING

from midstream.testing._fake.wire import Line

if TYPE_CHECKING:
    from collections.abc import Callable

_HOST = "127.0.0.1"


class Listener:
    """A listening port on loopback.

    Args:
        serve: Called with each connection, in a thread of its own.
    """

    def __init__(self, serve: Callable[[Line], None]) -> None:
        self._serve = serve
        self._lock = threading.Lock()
        self._socket = _bound(0)
        self._socket.listen(128)
        self.port: int = self._socket.getsockname()[1]
        self._stop, self._stopper = socket.socketpair()
        self._wake, self._waker = socket.socketpair()
        self._open_at: float | None = 0.0
        self._lines: dict[Line, threading.Thread] = {}
        self._thread = threading.Thread(target=self._run, name="fake", daemon=True)
        self._thread.start()
        self.accepted = 0

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
        with self._lock:
            self._socket.close()
            self._socket = _bound(self.port)  # keeps the port, and does not listen
            self._open_at = None if seconds is None else time.monotonic() + seconds
            self._waker.send(b"!")

    def accept(self) -> None:
        """Accept connections again; harmless when it does."""
        with self._lock:
            self._open_at = 0.0
            self._socket.listen(128)
            self._waker.send(b"!")

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
        for sock in (
            self._socket,
            self._stop,
            self._stopper,
            self._wake,
            self._waker,
        ):
            sock.close()

    def _run(self) -> None:
        while True:
            with self._lock:
                listening, left = self._state()
                poll = select.poll()
                poll.register(self._stop, select.POLLIN)
                poll.register(self._wake, select.POLLIN)
                if listening:
                    poll.register(self._socket, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll(left)}
            if self._stop.fileno() in ready:
                return
            if self._wake.fileno() in ready:
                self._wake.recv(64)
            elif listening and ready:
                self._take()

    def _state(self) -> tuple[bool, float | None]:
        """Whether connections are accepted, and the milliseconds until they are."""
        if self._open_at is None:
            return False, None
        left = self._open_at - time.monotonic()
        if left > 0:
            return False, left * 1000 + 1
        if self._open_at:
            self._open_at = 0.0
            self._socket.listen(128)
        return True, None

    def _take(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._socket.settimeout(0)  # the client may be gone already
            sock, _ = self._socket.accept()
            sock.setblocking(True)  # noqa: FBT003 - its only form
            line = Line(sock, self._stop)
            self.accepted += 1
            thread = threading.Thread(
                target=self._work, args=(line,), name="fake connection", daemon=True
            )
            self._lines[line] = thread
            thread.start()

    def _work(self, line: Line) -> None:
        try:
            self._serve(line)
        finally:
            line.close()
            with self._lock:
                self._lines.pop(line, None)


def _bound(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((_HOST, port))
    return sock
