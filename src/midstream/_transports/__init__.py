"""What the streams need of the line, in both colours; floor 5 of the house.

Only the modules of this package import httpx, httpcore or grpc, and nothing here does
before a transport is made: this file is types alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from midstream._dialects.base import Call, Reply
    from midstream._values.timeouts import Deadline


class Body(Protocol):
    """An answer whose status and headers are there.

    Attributes:
        status: The HTTP status, whatever it is.
        headers: Headers, names in lower case.
    """

    status: int
    headers: Mapping[str, str]

    def read(self) -> bytes | None:
        """The next piece as soon as it is there, never empty; None at a clean end.

        Clean is what cannot be a cut: a last chunk, a length that was reached, the
        protocol's own word; and the trailer of a compressed body.

        Raises:
            Dropped: The connection ended before the body did, or perhaps with it; or
                `close` was called.
            TimedOut: The deadline passed.
            WireError: The content decoding failed.
        """
        ...

    def close(self) -> None:
        """End the exchange, from any thread and any number of times.

        A `read` that is pending in another thread raises `Dropped` at once.
        """
        ...


class Transport(Protocol):
    """Sends calls."""

    def open(self, call: Call, deadline: Deadline) -> Body:
        """Send ``call``; return when status and headers are there.

        Raises:
            UsageError: The address or a header is no valid one.
            ConnectFailed: No connection came about.
            Dropped: The connection ended before the headers, or was interrupted.
            TimedOut: The connect limit or the deadline passed.
        """
        ...

    def send(self, call: Call, deadline: Deadline) -> Reply:
        """Send ``call`` and read the whole answer.

        ``call.patience`` is its time limit where it is set, else ``deadline``.

        Raises:
            EventTooLarge: The answer is beyond 16 MiB.
            MidstreamError: As for `open` and `Body.read`.
        """
        ...

    def interrupt(self, deadline: Deadline) -> None:
        """End whatever is pending, or still begins, with ``deadline``.

        From any thread; `open`, `send` and `Body.read` then raise `Dropped` at once.
        The deadline is spent with it, for good (`Deadline.interrupt`).
        """
        ...

    def close(self) -> None:
        """End what is open and the connections that are ours."""
        ...


class AsyncBody(Protocol):
    """An answer whose status and headers are there; see `Body`."""

    status: int
    headers: Mapping[str, str]

    async def read(self) -> bytes | None:
        """As `Body.read`; cancelling it closes the connection."""
        ...

    async def aclose(self) -> None:
        """As `Body.close`, from any task; quick, also in a cancelled scope."""
        ...


class AsyncTransport(Protocol):
    """Sends calls; see `Transport`."""

    async def open(self, call: Call, deadline: Deadline) -> AsyncBody:
        """As `Transport.open`; cancelling it closes the connection."""
        ...

    async def send(self, call: Call, deadline: Deadline) -> Reply:
        """As `Transport.send`."""
        ...

    def interrupt(self, deadline: Deadline) -> None:
        """As `Transport.interrupt`, from any task of the event loop."""
        ...

    async def aclose(self) -> None:
        """As `Transport.close`."""
        ...
