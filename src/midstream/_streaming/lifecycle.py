"""One value that says where a stream is, asked by all who read, close or lose it.

    new ──▶ open ──▶ complete          the whole answer came
                 ├─▶ broken            an error ended it, or its lease was lost
                 └─▶ left              it was closed before its end

Only a complete stream ends normally: whoever reads one that broke or was left is told,
also whoever was reading just then. The error that broke a stream is raised once, and
kept no longer: an error holds frames, and these hold the stream.
"""

from __future__ import annotations

from enum import Enum
from threading import Lock

from midstream._values.errors import UsageError


class Phase(Enum):
    """Where a stream is."""

    NEW = "new"
    OPEN = "open"
    COMPLETE = "complete"
    BROKEN = "broken"
    LEFT = "closed"


class Lifecycle:
    """The phase of one stream; moved from any thread.

    Args:
        entering: How this kind of stream is entered, for whoever forgot.

    Attributes:
        phase: Where it is.
        closed: Whether it was closed, in whatever phase.
    """

    __slots__ = ("_entering", "_error", "_lock", "_words", "closed", "phase")

    def __init__(self, entering: str) -> None:
        self.phase = Phase.NEW
        self.closed = False
        self._entering = entering
        self._error: Exception | None = None
        self._words = ""
        self._lock = Lock()

    @property
    def open(self) -> bool:
        """Whether a read may bring more."""
        return self.phase is Phase.OPEN

    def enter(self) -> None:
        """New becomes open.

        Raises:
            UsageError: It was entered or closed before.
        """
        with self._lock:
            if self.phase is not Phase.NEW:
                raise UsageError("a stream is entered once; ask for a new one")
            self.phase = Phase.OPEN

    def complete(self) -> None:
        """The whole answer came, unless something else ended it before."""
        with self._lock:
            if self.phase is Phase.OPEN:
                self.phase = Phase.COMPLETE

    def fail(self, error: Exception) -> bool:
        """An error ends it, unless it had ended; whether it did.

        Args:
            error: What the next reader is told.
        """
        with self._lock:
            if self.phase not in {Phase.NEW, Phase.OPEN}:
                return False
            self.phase = Phase.BROKEN
            self._error, self._words = error, f"{type(error).__name__}: {error}"
            return True

    def close(self) -> Phase | None:
        """It is left, unless it had ended.

        Returns:
            The phase before; None where it was closed already.
        """
        with self._lock:
            if self.closed:
                return None
            before, self.closed = self.phase, True
            self._error = None
            if before in {Phase.NEW, Phase.OPEN}:
                self.phase = Phase.LEFT
            return before

    def check(self) -> None:
        """Refuse a read of what was not entered.

        Raises:
            UsageError: It was not.
        """
        if self.phase is Phase.NEW:
            raise UsageError(f"enter the stream first: {self._entering}")

    def verdict(self) -> Exception | None:
        """What to raise where nothing more comes; None at the end of the answer.

        The error that broke the stream is given once.
        """
        error, self._error = self._error, None
        if error is not None or self.phase is Phase.COMPLETE:
            return error
        how = f"broke ({self._words})" if self._words else "was left"
        return UsageError(
            f"the stream {how} before its end; what came is in stream.text"
        )
