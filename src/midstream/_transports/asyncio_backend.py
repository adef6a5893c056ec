"""An asyncio network backend for httpcore that makes no timeout object per read.

Operations we want to support: connect, TLS, read, write, and to be cancelled from
another task in each of them. The stream is its own `asyncio.Protocol`: bytes that
come are queued, reading pauses beyond a mark, and whoever waits sleeps on one future.
Time is kept by one timer that is armed when a wait begins and nothing earlier is set;
when it rings it looks at the deadline of that moment and sleeps on if that has moved.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import httpcore

from midstream._transports.exchange import exchange_of
from midstream._transports.sync_backend import is_readable

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from midstream._transports.exchange import Exchange

HIGH_WATER = 256 * 1024
"""Bytes that may wait for a slow reader before the socket is left to fill."""


class AsyncioStream(httpcore.AsyncNetworkStream, asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._paused = False
        self._full = False
        self._ended = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = inf
        self._exchange: Exchange | None = None

    # What httpcore calls.

    async def read(
        self,
        max_bytes: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
    ) -> bytes:
        """What is there, up to ``max_bytes``; waits for the first byte."""
        exchange = exchange_of(timeout)
        exchange.line = self
        if exchange.cancelled:
            raise httpcore.ReadError("cancelled")
        while not self._pieces and not self._ended:
            if await self._too_late(exchange):
                raise httpcore.ReadTimeout
        if not self._pieces:
            if self._error is not None:
                raise httpcore.ReadError(str(self._error)) from self._error
            return b""
        piece = self._pieces.popleft()
        if len(piece) > max_bytes:
            self._pieces.appendleft(piece[max_bytes:])
            piece = piece[:max_bytes]
        self._size -= len(piece)
        if self._paused and not self._pieces:
            self._paused = False
            self._line.resume_reading()
        return piece

    async def write(
        self,
        buffer: bytes,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
    ) -> None:
        """Send ``buffer``; waits while the kernel takes no more."""
        exchange = exchange_of(timeout)
        exchange.line = self
        if not self._ended:
            self._line.write(buffer)
        while self._full and not self._ended:
            if await self._too_late(exchange):
                raise httpcore.WriteTimeout
        if self._ended:
            raise httpcore.WriteError("the connection has ended") from self._error

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
    ) -> AsyncioStream:
        """Secure the connection, which stays the same stream."""
        plain = self._line
        try:
            async with asyncio.timeout(_seconds(timeout)):
                secured = await self._loop.start_tls(
                    plain, self, ssl_context, server_hostname=server_hostname
                )
        except BaseException as error:
            plain.abort()
            if isinstance(error, TimeoutError):
                raise httpcore.ConnectTimeout(str(error)) from error
            if isinstance(error, OSError | ValueError):
                raise httpcore.ConnectError(str(error)) from error
            raise
        self._transport = secured
        return self

    async def aclose(self) -> None:
        """Drop the connection; nothing is waited for."""
        self.cancel()

    def cancel(self) -> None:
        """Drop the connection and wake the task that waits on it."""
        self._ended = True
        if self._error is None:
            self._error = ConnectionAbortedError("closed on this side")
        self._stop_timer()
        self._pieces.clear()
        with suppress(RuntimeError):  # its event loop has been closed
            self._line.abort()
        self._wake()

    def get_extra_info(self, info: str) -> Any:
        """What httpcore asks for."""
        if info == "is_readable":
            if self._ended or self._pieces or self._is_stranded():
                return True
            return is_readable(self._line.get_extra_info("socket"))
        return self._line.get_extra_info(info)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER and not self._paused:
            self._paused = True
            self._line.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """The server sends no more; asyncio closes the transport."""
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, in order or not."""
        self._ended = True
        if self._error is None:
            self._error = exc
        self._stop_timer()
        self._wake()

    def pause_writing(self) -> None:
        """The kernel takes no more."""
        self._full = True

    def resume_writing(self) -> None:
        """The kernel takes bytes again."""
        self._full = False
        self._wake()

    # Waiting.

    @property
    def _line(self) -> asyncio.Transport:
        assert self._transport is not None  # noqa: S101 - connect_tcp made it
        return self._transport

    def _is_stranded(self) -> bool:
        """Whether the event loop that serves it has been left for another one."""
        return self._loop is not asyncio.get_running_loop()

    async def _too_late(self, exchange: Exchange) -> bool:
        """Sleep until something happens or the deadline passes; which of the two.

        A deadline that has passed already still lets the event loop look once, so that
        a slow reader gets what has come meanwhile.
        """
        self._exchange = exchange
        if exchange.deadline.at < self._rings_at:
            self._set_timer(exchange.deadline.at)
        self._waiter = self._loop.create_future()
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def _set_timer(self, at: float) -> None:
        self._stop_timer()
        self._rings_at = at
        self._timer = self._loop.call_later(max(at - monotonic(), 0), self._ring)

    def _stop_timer(self) -> None:
        self._rings_at = inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._stop_timer()
        if self._waiter is None or self._exchange is None:
            return  # nobody waits; who begins to will set it again
        if self._exchange.left() <= 0:
            self._wake(too_late=True)
        elif self._exchange.deadline.at < inf:
            self._set_timer(self._exchange.deadline.at)

    def _wake(self, *, too_late: bool = False) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(too_late)


class AsyncioBackend(httpcore.AsyncNetworkBackend):
    """Makes `AsyncioStream`s."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> AsyncioStream:
        """Connect to the first address of ``host`` that answers.

        Addresses share the time. asyncio could race them, but before Python 3.13 it
        loses connected sockets when it is cancelled then.
        """
        del local_address, socket_options  # our pools set neither
        loop = asyncio.get_running_loop()
        ends = monotonic() + (inf if timeout is None else timeout)
        failure: OSError = OSError("the host has no address")
        try:
            async with asyncio.timeout(_seconds(timeout)):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for tried, (family, _, protocol, _, address) in enumerate(found):
                share = (ends - monotonic()) / (len(found) - tried)
                try:
                    async with asyncio.timeout(_seconds(share)):
                        _, stream = await loop.create_connection(
                            AsyncioStream,
                            str(address[0]),
                            port,
                            family=family,
                            proto=protocol,
                        )
                except OSError as error:
                    failure = error
                else:
                    return stream
            raise failure
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from error


def _seconds(timeout: float | None) -> float | None:
    return None if timeout is None or timeout == inf else timeout
