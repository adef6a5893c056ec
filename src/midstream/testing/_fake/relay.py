"""The way to the gRPC server: passes bytes on, and breaks where a mark tells it to.

grpcio has no way to end a connection in mid-stream. So the handler sends a message
that ends in a mark; when the mark comes by here, the connection to the client is cut
in front of it. Everything before it has passed, nothing after it does, and what the
client has of the message with the mark is a torn one, as at a real cut.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from midstream.testing._fake.marks import Watch

if TYPE_CHECKING:
    from midstream.testing._fake.wire import Line


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
