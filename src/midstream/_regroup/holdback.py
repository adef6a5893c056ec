"""Text that waits for its piece to become whole, and for how long at most.

When the wait is over, everything but the last grapheme cluster goes: that one may
still grow (👩 awaits a joiner and 👧), and a cluster cut in two is shown as rubbish for
good, while a late last character is only late. It goes as soon as the next text
proves it finished, or at the flush. While only such a rest is held there is no
deadline, since waking up could change nothing.
"""

from math import inf

from midstream._regroup.segmentation import tail
from midstream._values.errors import UsageError
from midstream._values.timeouts import LONGEST, is_seconds


class Holdback:
    """The text held, with the time it is due.

    Args:
        max_wait: Seconds that text may be held; None for as long as it takes.

    Attributes:
        text: What is held; begins at the edge of a cluster.

    Raises:
        UsageError: If `max_wait` is no number of seconds, 0 or more.
    """

    __slots__ = ("_due", "_stuck", "_wait", "text")

    def __init__(self, max_wait: float | None) -> None:
        if max_wait is not None and not is_seconds(max_wait):
            raise UsageError(f"max_wait must be 0 seconds or more, not {max_wait!r}")
        self.text = ""
        wait = inf if max_wait is None else max_wait
        self._wait = wait if wait <= LONGEST else inf
        self._due = inf
        self._stuck = False

    def keep(self, text: str, fresh: int, now: float) -> str:
        """Hold this text instead of what was held before.

        Args:
            text: The text to hold.
            fresh: How many characters at its end, or more, came just now. The rest
                has the due time of what was held before, so that it is never late.
            now: The time, in seconds.

        Returns:
            The part that is overdue already, often ``""``.
        """
        self.text = text
        if len(text) <= fresh:
            self._due = now + self._wait
        if now >= self._due:
            overdue = self.release(now)
            if len(self.text) <= fresh:
                self._due = now + self._wait
            return overdue
        self._stuck = False
        return ""

    def release(self, now: float) -> str:
        """Give up what has waited long enough.

        Args:
            now: The time, in seconds.

        Returns:
            All but the last cluster if it is due, else ``""``.
        """
        if now < self._due:
            return ""
        text = self.text
        cut = tail(text)
        self.text = text[cut:]
        self._stuck = True
        return text[:cut]

    def flush(self) -> list[str]:
        """Give all that is held.

        Returns:
            One piece, or none.
        """
        text, self.text = self.text, ""
        return [text] if text else []

    @property
    def deadline(self) -> float | None:
        """When `release` has something to give, in seconds; None for never."""
        if not self.text or self._stuck or self._due == inf:
            return None
        return self._due
