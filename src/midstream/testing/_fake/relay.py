"""The way to the gRPC server: passes bytes on, and breaks where a mark tells it to.

grpcio has no way to end a connection in mid-stream. So the handler sends a message
that ends in a mark; when the mark comes by here, the connection to the client is cut
in front of it. Everything before it has passed, nothing after it does, and what the
client has of the message with the mark is a torn one, as at a real cut.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from midstream.testing._fake.wire import Line

_SALT = b"\x00midstream\xffcut\xfe"
MARKS: dict[Literal["fin", "rst"], bytes] = {
    "fin": (_SALT + b"F") * 3,  # thrice: the border of two frames may go through one
    "rst": (_SALT + b"R") * 3,
}


class Relay:
    """Passes connections on to a port.

    Args:
        port: Of the gRPC server.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    def serve(self, line: Line) -> None:
        """Pass on one connection until one side ends or a mark comes."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._port)) as server,
        ):
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.join(server, Watch())


class Watch:
    """Looks for a mark in what passes."""

    def __init__(self) -> None:
        self._tail = b""
        self.found: Literal["fin", "rst"] | None = None

    def pass_on(self, data: bytes) -> bytes:
        """What of `data` may pass; `found` says whether the rest is cut."""
        seen = self._tail + data
        at = seen.find(_SALT)
        end = at + len(_SALT)
        if at < 0 or len(seen) == end:
            self._tail = seen[-len(_SALT) :]
            return data
        self.found = "rst" if seen[end : end + 1] == b"R" else "fin"
        return seen[len(self._tail) : max(at, len(self._tail))]
