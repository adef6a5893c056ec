"""A blocking network backend for httpcore whose reads follow a moving deadline.

Operations we want to support: connect, TLS, read, write, and to be cancelled from
another thread in each of them. The socket's own timeout waits; it is set again only
when the deadline came noticeably nearer, and a wait that ends too early is repeated.
Cancelling shuts the socket down and leaves closing to the thread that reads it, so that
no descriptor is reused under a pending call.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import httpcore

from midstream._transports.exchange import exchange_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from midstream._transports.exchange import Exchange

SLACK = 0.02
"""Seconds that a wait may outlast its deadline, for the price of fewer system calls."""

_NOT_YET = (TimeoutError, BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class SyncStream(httpcore.NetworkStream):
    """One socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._armed = -inf

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What is there, up to ``max_bytes``; waits for the first byte."""
        exchange = exchange_of(timeout)
        exchange.line = self
        while True:
            left = self._arm(exchange)
            try:
                data = self._sock.recv(max_bytes)
            except _NOT_YET as error:
                self._armed = -inf
                if left <= 0:
                    raise httpcore.ReadTimeout(str(error)) from error
            except OSError as error:
                raise httpcore.ReadError(str(error)) from error
            else:
                return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of ``buffer``."""
        exchange = exchange_of(timeout)
        exchange.line = self
        rest = memoryview(buffer)
        while rest:
            left = self._arm(exchange)
            try:
                rest = rest[self._sock.send(rest) :]
            except _NOT_YET as error:
                self._armed = -inf
                if left <= 0:
                    raise httpcore.WriteTimeout(str(error)) from error
            except OSError as error:
                raise httpcore.WriteError(str(error)) from error

    def _arm(self, exchange: Exchange) -> float:
        """Let the socket wait until about the deadline; the seconds that are left."""
        if exchange.cancelled:
            raise httpcore.ReadError("cancelled")
        left = exchange.deadline.at - monotonic()
        if self._armed > left + SLACK or self._armed < 0:
            self._armed = max(left, 0)
            try:
                self._sock.settimeout(None if left == inf else self._armed)
            except OSError as error:
                raise httpcore.ReadError(str(error)) from error
        return left

    def connect(self, address: Any, seconds: float) -> None:
        """Connect, in at most ``seconds``."""
        self._sock.settimeout(None if seconds == inf else max(seconds, 0))
        self._sock.connect(address)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> SyncStream:
        """Secure the connection; the new stream replaces this one."""
        exchange = exchange_of(timeout)
        secured = SyncStream(self._sock)
        try:
            self._sock.settimeout(_seconds(timeout))
            sock = ssl_context.wrap_socket(
                self._sock,
                server_hostname=server_hostname,
                do_handshake_on_connect=False,
            )
            secured = SyncStream(sock)
            exchange.line = secured
            sock.do_handshake()
        except TimeoutError as error:
            secured.close()
            raise httpcore.ConnectTimeout(str(error)) from error
        except (OSError, ValueError) as error:
            secured.close()
            raise httpcore.ConnectError(str(error)) from error
        return secured

    def cancel(self) -> None:
        """Wake the thread that waits on this socket."""
        shut_down(self._sock)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def get_extra_info(self, info: str) -> Any:
        """What httpcore asks for."""
        match info:
            case "socket":
                return self._sock
            case "is_readable":
                return is_readable(self._sock)
            case "ssl_object" if isinstance(self._sock, ssl.SSLSocket):
                return self._sock
            case _:
                return None


class SyncBackend(httpcore.NetworkBackend):
    """Makes `SyncStream`s."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> SyncStream:
        """Connect to the first address of ``host`` that answers.

        Addresses share the time, so that a dead IPv6 route leaves some for IPv4.
        """
        del local_address, socket_options  # our pools set neither
        exchange = exchange_of(timeout)
        ends = monotonic() + (inf if timeout is None else timeout)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from error
        failure: OSError = OSError("the host has no address")
        for tried, (family, kind, protocol, _, address) in enumerate(found):
            stream = SyncStream(socket.socket(family, kind, protocol))
            exchange.line = stream
            if exchange.cancelled:
                stream.close()
                break
            try:
                stream.connect(address, (ends - monotonic()) / (len(found) - tried))
            except OSError as error:
                stream.close()
                failure = error
            else:
                return stream
        if isinstance(failure, _NOT_YET):
            raise httpcore.ConnectTimeout(str(failure)) from failure
        raise httpcore.ConnectError(str(failure)) from failure


def shut_down(sock: socket.socket) -> None:
    """End both directions, so that a thread that waits on the socket wakes.

    `ssl.SSLSocket.shutdown` would also drop the TLS state under that thread.
    """
    with suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def is_readable(sock: socket.socket) -> bool:
    """Whether an idle connection has something to read, which can only be its end."""
    if sock.fileno() < 0:
        return True
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def _seconds(timeout: float | None) -> float | None:
    return None if timeout is None or timeout == inf else max(timeout, 0)
