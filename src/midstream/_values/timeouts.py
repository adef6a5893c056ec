"""How long a stream may take, and the one deadline that a read looks at."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import TYPE_CHECKING

from midstream._values.arguments import TIMEOUTS, explained_class
from midstream._values.errors import TimedOut, UsageError

if TYPE_CHECKING:
    from midstream._values.errors import TimeoutKind


LONGEST = 24 * 86_400
"""Seconds that every wait of the platform can take: sockets count 31 bits of ms."""


def is_seconds(value: object) -> bool:
    """Whether it is a length of time: a number, 0 or more, and no nan."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value >= 0


@explained_class(TIMEOUTS)
@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Limits in seconds; None switches one off, and so does more than 24 days.

    Args:
        connect: Until the connection stands.
        first_token: From the request to the first token: loading and prompt
            evaluation.
        idle: From one token to the next. Keep-alives are no tokens.
        total: From the first request to the end of the answer, resumes included.
        idle_with_pings: How far keep-alives may stretch ``idle``, counted from the
            last token; None: not at all.

    Raises:
        UsageError: A limit is no number above zero.
    """

    connect: float | None = 10
    first_token: float | None = 120
    idle: float | None = 30
    total: float | None = None
    idle_with_pings: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits that no stream can keep; drop those that no wait can take."""
        for field in fields(self):
            limit = getattr(self, field.name)
            if limit is None:
                continue
            if not is_seconds(limit) or limit == 0:
                raise UsageError(
                    f"Timeouts({field.name}={limit!r}): give seconds above 0, "
                    "or None for no limit"
                )
            if limit > LONGEST:
                object.__setattr__(self, field.name, None)


class Deadline:
    """Until when a read waits; network reads look at it.

    It is one object a stream, moved as tokens come, so that no timer and no timeout
    object is made per read.

    Attributes:
        at: Monotonic seconds; ``inf`` for never, ``-inf`` once interrupted.
        kind: Which limit of `Timeouts` it stands for.
        seconds: That limit.
        connect: Seconds in which a connection must stand; None: as the transport says.
        interrupted: Whether whoever waits was told to stop; nothing resets it.
    """

    __slots__ = ("at", "connect", "interrupted", "kind", "seconds")

    def __init__(self) -> None:
        self.at: float = inf
        self.kind: TimeoutKind = "first_token"
        self.seconds: float | None = None
        self.connect: float | None = None
        self.interrupted = False

    def move(self, kind: TimeoutKind, seconds: float | None, at: float) -> None:
        """Wait until another time, unless interrupted, from whichever thread."""
        self.kind, self.seconds, self.at = kind, seconds, at
        if self.interrupted:  # looked at behind the move: the flag is raised first
            self.at = -inf

    def interrupt(self) -> None:
        """Wait no more, for good."""
        self.interrupted = True
        self.at = -inf

    def error(self) -> TimedOut:
        """What to raise when it has passed."""
        return TimedOut(self.kind, self.seconds)
