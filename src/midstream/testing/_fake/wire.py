"""Plain sockets: reading HTTP/1.1 requests, and every way to end a connection.

A `Line` is one connection, used by one thread. Whatever it waits for, it also waits for
the server to close (`Closing`) and, once a request was read, for the client to leave
(`HungUp`), so nothing ever has to be polled or slept for.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from midstream.testing._fake.marks import Watch

_READ = 65536
_MAX_HEAD = 1 << 20
_MAX_BODY = 1 << 28
_LEFT = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
_DRAIN = 5.0  # seconds that the kernel has to send what comes before a reset
_UNSENT = 0x894B  # ioctl SIOCOUTQNSD of Linux: bytes that were not sent yet


class HungUp(Exception):
    """The client has closed its side."""


class Closing(Exception):
    """The server is being closed."""


class BadHttp(Exception):
    """The bytes are no HTTP request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request.

    Attributes:
        method: Its method.
        path: The path, percent-decoded.
        target: Path and query as they were sent.
        query: The query's parameters.
        headers: Names in lower case.
        content: The body.
        version: ``"HTTP/1.1"`` or ``"HTTP/1.0"``.
    """

    method: str
    path: str
    target: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    version: str = "HTTP/1.1"

    @property
    def keeps_alive(self) -> bool:
        """Whether the client wants to use the connection again."""
        asked = self.headers.get("connection", "").lower()
        return "keep-alive" in asked if self.version == "HTTP/1.0" else asked != "close"

    def json(self) -> Any:
        """The body as JSON values; bytes that are no UTF-8 become lone surrogates.

        Raises:
            ValueError: It is none.
        """
        return json.loads(self.content.decode("utf-8", "surrogateescape"))


class Line:
    """One connection.

    Args:
        sock: It; owned from now on.
        stop: A socket that becomes readable when the server closes.
    """

    def __init__(self, sock: socket.socket, stop: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client may be gone already
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._stop = stop
        self._buffer = b""
        self.alive = True

    def read_request(self) -> HttpRequest | None:
        """The next request; None when the client has no more.

        Raises:
            BadHttp: What came is none.
            Closing: The server closes.
        """
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > _MAX_HEAD:
                raise BadHttp("headers without end")
            if not self._more():
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        request = _parse_head(head)
        if "100-continue" in request.headers.get("expect", "").lower():
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return _with(request, self._body(request.headers))

    def send(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            HungUp: The client is gone.
            Closing: The server closes.
        """
        try:
            self._sock.sendall(data)
        except OSError:
            raise self._why() from None

    def wait(self, seconds: float | None) -> None:
        """Wait so long; for ever when None.

        Raises:
            HungUp: The client left meanwhile.
            Closing: The server closes.
        """
        until = None if seconds is None else time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._sock, _LEFT)
        poll.register(self._stop, select.POLLIN)
        while True:
            left = None if until is None else max(until - time.monotonic(), 0)
            if poll.poll(None if left is None else left * 1000):
                raise self._why()
            if left is not None and left <= 0:
                return

    def finish(self) -> None:
        """Close as a server does that is done: FIN after all that was sent."""
        self.alive = False
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with RST, which the client sees at once; what was sent arrives."""
        self.alive = False
        self._drain()
        with contextlib.suppress(OSError):  # the client may be gone already
            self._sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        self._sock.close()

    def join(self, server: socket.socket, watch: Watch) -> None:
        """Pass bytes between the client and another server, until one of them ends.

        Args:
            server: The connection to it.
            watch: Says where to cut what it sends.

        Raises:
            OSError: One of the two failed.
        """
        poll = select.poll()
        for sock in (self._sock, server, self._stop):
            poll.register(sock, select.POLLIN)
        while watch.found is None:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._stop.fileno() in ready:
                return
            if self._sock.fileno() in ready:
                data = self._sock.recv(_READ)
                server.sendall(data)
                if not data:
                    return
            if server.fileno() in ready:
                data = server.recv(_READ)
                self._sock.sendall(watch.pass_on(data))
                if not data:
                    return
        if watch.found == "rst":
            self.reset()
        else:
            self.finish()
            self._drain_input()

    def close(self) -> None:
        """Let go of the socket; harmless twice."""
        self.alive = False
        self._sock.close()

    def abort(self) -> None:
        """From another thread: whatever the line waits for ends at once."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _body(self, headers: Mapping[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return self._chunks()
        size = headers.get("content-length", "0")
        if not size.isdigit() or int(size) > _MAX_BODY:
            raise BadHttp(f"Content-Length: {size}")
        return self._exactly(int(size))

    def _chunks(self) -> bytes:
        parts: list[bytes] = []
        while True:
            size = self._until(b"\r\n").partition(b";")[0].strip()
            try:
                count = int(size, 16)
            except ValueError:
                raise BadHttp(f"chunk size {size!r}") from None
            if not count:
                while self._until(b"\r\n"):
                    pass
                return b"".join(parts)
            parts.append(self._exactly(count))
            self._exactly(2)

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            if not self._more():
                raise BadHttp("the request ends too early")
        line, _, self._buffer = self._buffer.partition(mark)
        return line

    def _exactly(self, size: int) -> bytes:
        parts = [self._buffer]
        have = len(self._buffer)
        while have < size:
            self._buffer = b""
            if not self._more():
                raise BadHttp("the request ends too early")
            parts.append(self._buffer)
            have += len(self._buffer)
        whole = b"".join(parts)
        self._buffer = whole[size:]
        return whole[:size]

    def _more(self) -> bool:
        """Read more; False at the end of what the client sends."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll()]
        if self._stop.fileno() in ready:
            raise Closing
        try:
            data = self._sock.recv(_READ)
        except OSError:
            return False
        self._buffer += data
        return bool(data)

    def _why(self) -> HungUp | Closing:
        closing = select.select([self._stop], [], [], 0)[0]
        return Closing() if closing else HungUp()

    def _drain_input(self) -> None:
        """Read until the client closes: closing over unread bytes would reset it."""
        with contextlib.suppress(Closing):
            while self._more():
                self._buffer = b""

    def _drain(self) -> None:
        """Wait until the client's kernel has all: a reset throws the rest away."""
        with contextlib.suppress(ImportError, OSError):
            import fcntl  # noqa: PLC0415 - not everywhere

            until = time.monotonic() + _DRAIN
            while time.monotonic() < until:
                unsent = fcntl.ioctl(self._sock, _UNSENT, struct.pack("i", 0))
                if struct.unpack("i", unsent)[0] == 0:
                    return
                if select.select([self._stop], [], [], 0.001)[0]:
                    return


def head(
    status: int, headers: Mapping[str, str], *, length: int | None = None
) -> bytes:
    """The status line and the headers, with the empty line.

    Args:
        status: The status.
        headers: The headers.
        length: Of the body, in bytes, where it is known.
    """
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unassigned"
    lines = [f"HTTP/1.1 {status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _parse_head(data: bytes) -> HttpRequest:
    first, *lines = data.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):  # noqa: PLR2004 - RFC 9112
        raise BadHttp(f"request line {first[:80]!r}")
    method, target, version = parts
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadHttp(f"header line {line[:80]!r}")
        headers[name.lower()] = value.strip()
    url = urlsplit(target)
    return HttpRequest(
        method=method,
        path=unquote(url.path),
        target=target,
        query=dict(parse_qsl(url.query, keep_blank_values=True)),
        headers=headers,
        version=version,
    )


def _with(request: HttpRequest, content: bytes) -> HttpRequest:
    return HttpRequest(
        method=request.method,
        path=request.path,
        target=request.target,
        query=request.query,
        headers=request.headers,
        content=content,
        version=request.version,
    )
