"""The gate of a port: whether it listens, and until when it does not.

A socket that one thread polls cannot be closed by another. So whoever opens or shuts
the gate says so and wakes the thread that polls; that one does it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time

_HOST = "127.0.0.1"


class Gate:
    """A port on loopback that can refuse connections for a while.

    Attributes:
        port: Its number.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._applied = True
        self._over = False
        self._listening = False
        self._socket = _bound(0)
        self.port: int = self._socket.getsockname()[1]
        self._wake, self._waker = socket.socketpair()
        self._open_at: float | None = 0.0
        self.apply()

    def set(self, open_at: float | None) -> None:
        """From any thread: when to listen; returns once it is so.

        Args:
            open_at: Monotonic seconds; None: not until the next call.
        """
        with self._changed:
            self._open_at, self._applied = open_at, self._over
            self._waker.send(b"!")
            self._changed.wait_for(lambda: self._applied)

    def apply(self) -> float | None:
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

    def wait(
        self, stop: socket.socket, milliseconds: float | None
    ) -> socket.socket | None:
        """A new connection; None where there is none and the gate may have changed.

        Args:
            stop: Becomes readable when it is the end.
            milliseconds: How long to wait; None: for ever.
        """
        poll = select.poll()
        poll.register(stop, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        if self._listening:
            poll.register(self._socket, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(milliseconds)}
        if self._wake.fileno() in ready:
            self._wake.recv(64)
        elif self._listening and self._socket.fileno() in ready:
            with contextlib.suppress(OSError):  # the client may be gone already
                self._socket.settimeout(0)
                return self._socket.accept()[0]
        return None

    def end(self) -> None:
        """Nobody polls any more: `set` need not wait."""
        with self._changed:
            self._applied = self._over = True
            self._changed.notify_all()

    def close(self) -> None:
        """Let go of the port."""
        for sock in (self._socket, self._wake, self._waker):
            sock.close()


def _bound(port: int) -> socket.socket:
    sock = socket.socket()
    # Connections that were accepted before still hold the port.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((_HOST, port))
    return sock
