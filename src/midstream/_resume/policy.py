"""When to try again: values; the driver sleeps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from midstream._values.arguments import RESUME, explained_class
from midstream._values.errors import (
    AuthenticationFailed,
    ConnectFailed,
    ContextOverflow,
    Dropped,
    EventTooLarge,
    MidstreamError,
    NotFound,
    ServerError,
    TimedOut,
    UsageError,
    WireError,
)
from midstream._values.interruptions import ResumeUnsupported
from midstream._values.timeouts import LONGEST, is_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

_STRATEGIES = ("replay", "tokens", "text", "rerun", "ask")
_LONGEST_WISH = 120.0  # seconds; a longer Retry-After is not waited for
_TELLING = 3  # characters; fewer begin many a sentence

ENOUGH = 16
"""Characters of text, reasoning or arguments that are progress: with fewer, a
connection was a try that brought nothing."""

RESTART = 2
"""Connections running that say the answer's own beginning: no continuation."""


@explained_class()
@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before the next attempt.

    The first reconnection after new text is made at once; what is below holds from the
    second on, and for servers that said they have no room.

    Args:
        initial: Seconds before the first repeated attempt.
        maximum: The most seconds; each attempt doubles the wait up to it.
        jitter: Whether to draw from the upper half of the wait, so that many clients
            do not come back together.
    """

    initial: float = 0.25
    maximum: float = 10
    jitter: bool = True

    def __post_init__(self) -> None:
        """Refuse waits that cannot be, and shorten those that no sleep can take."""
        known = is_seconds(self.initial) and is_seconds(self.maximum)
        if not known or self.maximum < self.initial:
            raise UsageError(
                f"Backoff(initial={self.initial!r}, maximum={self.maximum!r}): give "
                "0 <= initial <= maximum, in seconds"
            )
        for name in "initial", "maximum":
            object.__setattr__(self, name, min(getattr(self, name), LONGEST))

    def delay(self, attempt: int, random: Random) -> float:
        """Seconds to wait before attempt number ``attempt``, from 1."""
        wait = min(self.initial * 2.0 ** min(attempt - 1, 32), self.maximum)
        return wait * random.uniform(0.5, 1) if self.jitter else wait


@explained_class(RESUME)
@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Whether and how a broken stream goes on.

    Args:
        attempts: Tries that bring less than 16 characters before giving up.
        backoff: How long to wait between them.
        approximate: Whether the model may be asked to go on where nothing exact is
            possible; the stream then says ``Exactness.APPROXIMATE``.
        strategies: Allowed ways, best first: ``"replay"``, ``"tokens"``, ``"text"``,
            and opt-in ``"rerun"``.
        tools: Whether text may be continued when the request has tools; a cut tool
            call never is.
    """

    attempts: int = 5
    backoff: Backoff = Backoff()
    approximate: bool = False
    strategies: Sequence[str] = ("replay", "tokens", "text")
    tools: bool = True

    def __post_init__(self) -> None:
        """Refuse strategies that do not exist."""
        if not _are_strategies(self.strategies):
            raise UsageError(
                f"Resume(strategies={self.strategies!r}): give a sequence of "
                f"{', '.join(sorted(_STRATEGIES))}"
            )
        if not isinstance(self.backoff, Backoff):
            raise UsageError(f"Resume(backoff={self.backoff!r}): give Backoff(…)")
        whole = isinstance(self.attempts, int) or self.attempts == inf
        if not whole or isinstance(self.attempts, bool) or self.attempts < 0:
            raise UsageError(
                f"Resume(attempts={self.attempts!r}): give a whole number, 0 or more"
            )

    @property
    def ways(self) -> tuple[str, ...]:
        """The strategies in order, asking last and only if it is allowed."""
        chosen = tuple(way for way in self.strategies if way != "ask")
        return (*chosen, "ask") if self.approximate else chosen


def _are_strategies(ways: object) -> bool:
    if isinstance(ways, str) or not isinstance(ways, Collection):
        return False
    return all(way in _STRATEGIES for way in ways)


def resumable(fault: MidstreamError) -> bool:
    """Whether a fault is a drop: the line or the server failed, not the caller."""
    match fault:
        case TimedOut(kind=kind):
            return kind != "total"
        case Dropped() | ConnectFailed():
            return True
        case EventTooLarge():  # the same answer would be as large
            return False
        case WireError():
            return True
        case ServerError(retryable=retryable):
            return retryable
        case _:
            return False


def fails_over(fault: MidstreamError) -> bool:
    """Whether another server may do better: not where the caller is at fault."""
    elsewhere = AuthenticationFailed | ContextOverflow | NotFound | ResumeUnsupported
    return resumable(fault) or isinstance(fault, elsewhere)


def is_silence(fault: MidstreamError) -> bool:
    """Whether nobody answered: then another server is asked first, if there is one."""
    return isinstance(fault, ConnectFailed | TimedOut)


def endures(fault: MidstreamError) -> bool:
    """Whether the wait that a server asked for is one that we keep."""
    wish = fault.retry_after if isinstance(fault, ServerError) else None
    return wish is None or wish <= _LONGEST_WISH


def pause(
    fault: MidstreamError, attempt: int, backoff: Backoff, random: Random
) -> float:
    """Seconds to wait after ``fault``, as the server asks or the backoff says.

    Args:
        fault: What broke.
        attempt: Which try without progress comes next, from 1.
        backoff: The caller's waits.
        random: Source of the jitter.
    """
    if isinstance(fault, ServerError) and fault.retry_after is not None:
        return fault.retry_after
    if isinstance(fault, Dropped | TimedOut | WireError):
        return backoff.delay(attempt - 1, random) if attempt > 1 else 0
    return backoff.delay(attempt, random)


def restarts(text: str, at: int, *, again: bool = False) -> bool:
    """Whether what was said from ``at`` on is the answer's own beginning.

    Fewer than three characters are too few to tell. An answer that had repeated its
    beginning before may well do so once more.

    Args:
        text: All that came.
        at: Where the last connection began, in characters.
        again: Whether the connection before it had said that beginning, too.
    """
    said, known = text[at : at + ENOUGH], text[:at][:ENOUGH]
    size = min(len(said), len(known))
    if size < _TELLING or said[:size] != known[:size]:
        return False
    return again or text.find(known[:size], 1, at) < 0
