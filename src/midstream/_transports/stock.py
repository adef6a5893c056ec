"""What can be done about a network stream that is not ours.

httpcore's documented ``trace`` extension shows each connection as it is made, before
there is an answer to ask for its network stream. The blocking side needs it to end a
call that waits for its headers; on a connection that the user's pool already had, such
a call ends with its time limit. The async side needs it to close what httpcore leaves
open when a TLS handshake is cancelled.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import anyio

from midstream._transports.sync_backend import shut_down

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpcore
    import httpx

    from midstream._transports.exchange import Exchange


class StockLine:
    """A connection of httpcore's, to be broken under the thread that waits on it."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def cancel(self) -> None:
        """Shut the socket down."""
        sock = self._stream.get_extra_info("socket")
        if isinstance(sock, socket.socket):
            shut_down(sock)


class ResponseLine:
    """An answer from a transport that has no network stream."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    def cancel(self) -> None:
        """Close the answer."""
        self._response.close()


def line_of(response: httpx.Response) -> StockLine | ResponseLine:
    """What to break to end a read of ``response``."""
    stream = response.extensions.get("network_stream")
    return ResponseLine(response) if stream is None else StockLine(stream)


class Tracer:
    """Makes a new connection the line of the exchange that asked for it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __call__(self, name: str, info: Mapping[str, Any]) -> None:
        """Told by httpcore."""
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._exchange.line = StockLine(info["return_value"])
            if self._exchange.cancelled:
                self._exchange.break_line()


class AsyncTracer:
    """Closes a connection whose TLS handshake was left."""

    def __init__(self) -> None:
        self._plain: httpcore.AsyncNetworkStream | None = None

    async def __call__(self, name: str, info: Mapping[str, Any]) -> None:
        """Told by httpcore."""
        if name.endswith("connect_tcp.complete"):
            self._plain = info["return_value"]
        elif name.endswith("start_tls.failed") and self._plain is not None:
            with anyio.CancelScope(shield=True):
                await self._plain.aclose()
