"""The sockets between a client and a server: one thread, one selector, bounded buffers.

Bytes are moved as they come, a slow side holds the other one up. What may pass, and
whether the connection is to be cut there, is the meter's to say; this is how a cut is
made: with FIN after the last byte is written, with RST after it is delivered, which
takes a look at the kernel's send queue, since a reset throws away what is in it.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, assert_never

if TYPE_CHECKING:
    from collections.abc import Callable

    from midstream.testing._meter import Meter

_READ = 65_536  # bytes a read asks for
_HIGH = 262_144  # bytes waiting for one side, above which the other is not read
_DELIVERY = 2.0  # seconds a reset waits for a client that does not read
_TICK = 0.001  # seconds between two looks at a send queue that empties


class _Side:
    """One of the two sockets of a link, with what waits to be written to it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.waiting = bytearray()
        self.watched = 0  # the selector's events it is registered for
        self.ended = False  # it will send nothing more
        self.told = False  # it was told that the other side sends nothing more

    def flush(self) -> None:
        """Write what the kernel takes."""
        while self.waiting:
            try:
                sent = self.sock.send(self.waiting)
            except BlockingIOError:
                return
            del self.waiting[:sent]

    def tell_end(self) -> None:
        """Pass the other side's end of stream on, once."""
        if not self.told:
            self.told = True
            self.sock.shutdown(socket.SHUT_WR)

    @property
    def unsent(self) -> int:
        """Bytes that the kernel holds and the peer's kernel has not confirmed."""
        if self.waiting:
            return len(self.waiting)
        try:
            import fcntl  # noqa: PLC0415 - POSIX alone has it
            import termios  # noqa: PLC0415 - as above

            answer = fcntl.ioctl(self.sock, termios.TIOCOUTQ, b"\0" * 4)
        except (ImportError, OSError):
            return 0  # a system that does not say: a reset may take bytes with it
        return int(struct.unpack("i", answer)[0])

    def reset(self) -> None:
        """Close with RST instead of FIN; harmless when closed."""
        if self.sock.fileno() < 0:
            return
        linger = struct.pack("ii", 1, 0)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.sock.close()


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(
        self, number: int, client: socket.socket, server: socket.socket, meter: Meter
    ) -> None:
        self.number = number
        self.client = _Side(client)
        self.server = _Side(server)
        self.meter = meter
        self.closed = False
        self.draining = False  # cut with FIN: only waits for the client to go
        self.reset_by: float | None = None  # cut with RST: at the latest then
        meter.begin()
        if meter.due:  # a raw cut at byte 0
            self._cut()

    @property
    def cutting(self) -> bool:
        """Whether a cut is due and what was allowed is still on its way."""
        return self.draining or self.reset_by is not None

    def wants(self, side: _Side) -> int:
        """The selector's events to wait for on one of the two sockets."""
        other = self.server if side is self.client else self.client
        events = selectors.EVENT_WRITE if side.waiting else 0
        if self.cutting:
            readable = self.draining and side is self.client
        else:
            readable = len(other.waiting) < _HIGH
        if readable and not side.ended:
            events |= selectors.EVENT_READ
        return events

    def step(self, side: _Side, events: int) -> None:
        """Move what can be moved; a socket that fails resets the other one."""
        try:
            if events & selectors.EVENT_READ and not side.ended:
                self._receive(side)
            self.client.flush()
            if not self.cutting:
                self.server.flush()
            self._pass_ends()
        except OSError:
            self.close(reset=True)

    def tick(self, now: float) -> None:
        """Reset the client if all bytes before the cut are delivered, or never are."""
        if self.reset_by is None or self.closed:
            return
        if not self.client.unsent or now >= self.reset_by:
            self.close(reset=True)

    def close(self, *, reset: bool = False) -> None:
        """Drop both connections."""
        if self.closed:
            return
        self.closed = True
        self.meter.end()
        for side in (self.client, self.server):
            if reset:
                side.reset()
            else:
                side.sock.close()

    def _receive(self, side: _Side) -> None:
        try:
            data = side.sock.recv(_READ)
        except BlockingIOError:
            return
        if not data:
            side.ended = True
        elif self.draining:
            pass  # what a client says to a dead connection is lost
        elif side is self.client:
            self.meter.sent(data)
            self.server.waiting += data
        else:
            allowed = self.meter.allow(data)
            self.client.waiting += data[:allowed]
            if self.meter.due:
                self._cut()

    def _cut(self) -> None:
        """Make the cut that is due: the server's side now, the client's when told."""
        self.server.sock.close()
        match self.meter.carry_out(self.number):
            case "fin":
                self.draining = True
            case "rst":
                self.reset_by = time.monotonic() + _DELIVERY
            case _ as never:
                assert_never(never)

    def _pass_ends(self) -> None:
        if self.draining:
            # Half a close: closing while unread bytes of the client wait, or come
            # later, would make the kernel send a reset instead of a FIN.
            if not self.client.waiting:
                self.client.tell_end()
                if self.client.ended:
                    self.close()
            return
        if self.cutting:
            return
        for side, other in (
            (self.client, self.server),
            (self.server, self.client),
        ):
            if side.ended and not other.waiting:
                other.tell_end()
        if self.client.told and self.server.told:
            self.close()


class Loop:
    """The thread that accepts connections and moves bytes."""

    def __init__(self, target: tuple[str, int], meter: Callable[[], Meter]) -> None:
        self.accepted = 0
        self._target = target
        self._meter = meter
        self._links: set[_Link] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0)
        self.port: int = self._listener.getsockname()[1]
        self._bell, self._ear = socket.socketpair()
        self._thread = threading.Thread(
            target=self._run, name="midstream-cutter", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._bell.close()  # the loop hears the end of it
        self._thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector, self._listener, self._ear:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._ear, selectors.EVENT_READ)
            try:
                while self._turn(selector):
                    pass
            finally:
                for link in self._links:
                    link.close()

    def _turn(self, selector: selectors.BaseSelector) -> bool:
        waits = any(link.reset_by is not None for link in self._links)
        for key, events in selector.select(_TICK if waits else None):
            if key.fileobj is self._ear:
                return False
            if key.fileobj is self._listener:
                self._accept(selector)
            else:
                link, side = key.data
                if not link.closed:
                    link.step(side, events)
                    self._watch(selector, link)
        now = time.monotonic()
        for link in [link for link in self._links if link.reset_by is not None]:
            link.tick(now)
            self._watch(selector, link)
        return True

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # it is gone again
        self.accepted += 1
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            # Nobody listens there: the client finds its connection reset.
            _Side(client).reset()
            return
        for sock in (client, server):
            sock.settimeout(0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(self.accepted, client, server, self._meter())
        self._links.add(link)
        self._watch(selector, link)

    def _watch(self, selector: selectors.BaseSelector, link: _Link) -> None:
        """Bring the selector up to date with what a link waits for."""
        for side in (link.client, link.server):
            events = 0 if side.sock.fileno() < 0 else link.wants(side)
            if events == side.watched:
                continue
            if not side.watched:
                selector.register(side.sock, events, (link, side))
            elif events:
                selector.modify(side.sock, events, (link, side))
            else:
                selector.unregister(side.sock)  # by identity: it may be closed
            side.watched = events
        if link.closed:
            self._links.discard(link)
