"""The ports of a fake server, one for HTTP and one for gRPC, opened and closed as one.

What goes wrong in a thread that serves nobody would see. It is kept until the server is
closed, and raised there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream._values.errors import UsageError
from midstream.testing._fake.listener import Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from midstream.testing._fake.grpc_service import GrpcService
    from midstream.testing._fake.wire import Line


_MOST = 10  # deaths that are remembered


class Doors:
    """All ports of one server.

    Args:
        serve: Serves one connection of HTTP.
        grpc: Makes the gRPC server: grpcio is an extra.

    Attributes:
        died: What threads that serve have raised; the first ones.
    """

    def __init__(
        self,
        serve: Callable[[Line], None],
        grpc: Callable[[Callable[[Exception], None]], GrpcService],
    ) -> None:
        self._serve = serve
        self._make_grpc = grpc
        self._http: Listener | None = None
        self._grpc: GrpcService | None = None
        self.died: list[Exception] = []

    def open(self) -> None:
        """Open the HTTP port; harmless when it is open."""
        if self._http is None:
            self._http = Listener(self._serve, self._note)

    def close(self) -> None:
        """End all connections and threads; harmless twice.

        Raises:
            RuntimeError: A thread that served had died; the cause says of what.
        """
        http, self._http = self._http, None
        grpc, self._grpc = self._grpc, None
        if grpc is not None:
            grpc.close()
        if http is not None:
            http.close()
        died, self.died = self.died, []
        if died:
            raise RuntimeError(f"a thread of the FakeServer died: {died[0]!r}") from (
                died[0]
            )

    @property
    def http(self) -> Listener:
        """The HTTP port.

        Raises:
            UsageError: It is not open.
        """
        if self._http is None:
            raise UsageError("the FakeServer is not open: use it in a with statement")
        return self._http

    @property
    def grpc(self) -> Listener:
        """The gRPC port, opened when it is needed.

        Raises:
            UsageError: The server is not open, or grpcio is not installed.
        """
        self.http  # noqa: B018 - raises when the server is not open
        if self._grpc is None:
            self._grpc = self._make_grpc(self._note)
        return self._grpc.listener

    @property
    def all(self) -> list[Listener]:
        """The ports that are open."""
        return [self.http] if self._grpc is None else [self.http, self._grpc.listener]

    def refuse(self, seconds: float | None = None) -> None:
        """Refuse new connections; those that there are go on.

        Args:
            seconds: So long; None: until `accept`.
        """
        for listener in self.all:
            listener.refuse(seconds)

    def accept(self) -> None:
        """Accept connections again."""
        for listener in self.all:
            listener.accept()

    def _note(self, error: Exception) -> None:
        if len(self.died) < _MOST:
            self.died.append(error)
