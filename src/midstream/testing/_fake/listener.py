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
        self._changed = threading.Condition()
        self._applied = True
        self._over = False
        self._listening = False
        self._socket = _bound(0)
        self.port: int = self._socket.getsockname()[1]
        self._stop, self._stopper = socket.socketpair()
        self._wake, self._waker = socket.socketpair()
        self._open_at: float | None = 0.0
        self._lines: dict[Line, threading.Thread] = {}
        self._apply()
        self._thread = threading.Thread(target=self._run, name="fake", daemon=True)
        self.accepted = 0
        self._thread.start()

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
        self._set(None if seconds is None else time.monotonic() + seconds)

    def accept(self) -> None:
        """Accept connections again; harmless when it does."""
        self._set(0.0)

    def _set(self, open_at: float | None) -> None:
        """Have the thread do it: a socket that it polls cannot be closed by another."""
        with self._changed:
            self._open_at, self._applied = open_at, self._over
            self._waker.send(b"!")
            self._changed.wait_for(lambda: self._applied)

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
        while self._turn(self._apply()):
            pass
        with self._changed:
            self._applied = self._over = True
            self._changed.notify_all()

    def _turn(self, left: float | None) -> bool:
        """Wait for something and do it; False when it was the end."""
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        if self._listening:
            poll.register(self._socket, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(left)}
        if self._stop.fileno() in ready:
            return False
        if self._wake.fileno() in ready:
            self._wake.recv(64)
        elif ready:
            self._take()
        return True

    def _apply(self) -> float | None:
        """Listen or do not; the milliseconds until that changes."""
        with self._changed:
            left = None
            if self._open_at is not None:
                left = max((self._open_at - time.monotonic()) * 1000, 0)
            if left == 0 and not self._listening:
                self._socket.listen(128)
            elif left != 0 and self._listening:
                self._socket.close()
                self._socket = _bound(self.port)  # keeps the port, and does not listen
            self._listening, self._applied = left == 0, True
            self._changed.notify_all()
        return left or None

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
    # Connections that were accepted before still hold the port.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((_HOST, port))
    return sock
