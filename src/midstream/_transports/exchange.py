"""One call and its answer, as seen by whoever waits for it or wants to end it.

httpcore hands ``extensions["timeout"]`` to the network stream as it is. So what goes in
there is a `Limit`: a number for a stock stream, and for ours the way to the `Exchange`,
whose deadline is looked at again at each read, and which can be cancelled from outside.
"""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Protocol, Self

from midstream._values.errors import Dropped
from midstream._values.timeouts import Deadline

if TYPE_CHECKING:
    from midstream._values.errors import TransportError


class Line(Protocol):
    """Whatever the exchange is waiting on."""

    def cancel(self) -> None:
        """Make it wait no longer."""
        ...


class Exchange:
    """One call and its answer.

    Args:
        deadline: Until when its reads wait.
        owner: The deadline by which `Transport.interrupt` knows it.

    Attributes:
        line: What it waits on just now.
        cancelled: Whether it was ended from outside.
        expired: Whether a watchdog ended it.
    """

    __slots__ = ("cancelled", "deadline", "expired", "line", "owner")

    def __init__(self, deadline: Deadline, owner: Deadline | None = None) -> None:
        self.deadline = deadline
        self.owner = deadline if owner is None else owner
        self.line: Line | None = None
        self.cancelled = False
        self.expired = False

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline.at - monotonic()

    def connect(self, usual: float | None) -> float | None:
        """Seconds until a connection must stand; the stream's own, or the usual."""
        own = self.owner.connect
        return usual if own is None else None if own == inf else own

    def cancel(self) -> None:
        """End it: what is pending raises `Dropped`."""
        self.cancelled = True
        self.break_line()

    def expire(self) -> None:
        """End it: what is pending raises `TimedOut`."""
        self.expired = True
        self.break_line()

    def break_line(self) -> None:
        """Wake whoever waits."""
        line = self.line
        if line is not None:
            line.cancel()

    def verdict(self) -> TransportError | None:
        """Why it ended, where it was we who ended it."""
        if self.cancelled or self.owner.interrupted:
            return Dropped("the stream was closed while it waited for the server")
        if self.expired:
            return self.deadline.error()
        return None


class Exchanges:
    """What is open or opening on one transport, to be ended from any thread.

    Adding and looking are single steps on a set; whoever adds looks at what was asked
    meanwhile only afterwards, so no request to end is missed.
    """

    def __init__(self) -> None:
        self._open: set[Exchange] = set()
        self.closed = False

    def add(self, exchange: Exchange) -> None:
        """It begins."""
        self._open.add(exchange)

    def discard(self, exchange: Exchange) -> None:
        """It has ended."""
        self._open.discard(exchange)

    def interrupt(self, deadline: Deadline) -> None:
        """End those that ``deadline`` owns, and those that will begin with it."""
        deadline.interrupt()
        for exchange in tuple(self._open):
            if exchange.owner is deadline:
                exchange.cancel()

    def close(self) -> None:
        """End all."""
        self.closed = True
        for exchange in tuple(self._open):
            exchange.cancel()


class Limit(float):
    """A time limit that leads our network streams to the exchange.

    Args:
        seconds: What a stock network stream sees.
        exchange: What ours look at.
    """

    exchange: Exchange

    def __new__(cls, seconds: float, exchange: Exchange) -> Self:
        """A float with an exchange."""
        limit = super().__new__(cls, seconds)
        limit.exchange = exchange
        return limit


def exchange_of(timeout: float | None) -> Exchange:
    """The exchange behind a limit; one of its own for a plain number."""
    if isinstance(timeout, Limit):
        return timeout.exchange
    deadline = Deadline()
    if timeout is not None:
        deadline.at = monotonic() + timeout
    return Exchange(deadline)
