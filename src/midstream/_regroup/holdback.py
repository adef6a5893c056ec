"""Text that waits for its piece to become whole, and for how long at most.

When the wait is over, everything goes but a last grapheme cluster that is visibly
unfinished (half a flag, a joiner with nothing to join): one cut in two is shown as
rubbish for good. It goes as soon as the next text makes it whole, or at the flush;
while only such a rest is held there is no deadline, since waking up could change
nothing. Any other cluster may still grow, but nobody could tell that it must, and the
last character of a pause would stay hidden. Text that came just now has its own wait
before it, so its last cluster is kept while what is overdue goes.
"""

from math import inf

from midstream._regroup.arguments import seconds
from midstream._regroup.segmentation import presentable, tail


class Holdback:
    """The text held, with the time it is due.

    Args:
        max_wait: Seconds that text may be held; None for as long as it takes.
        form: The right form of the call that sets it, for the error.

    Attributes:
        text: What is held; begins at the edge of a cluster, or where one was shown
            before it grew.

    Raises:
        UsageError: If `max_wait` is no number of seconds, 0 or more.
    """

    __slots__ = ("_due", "_stuck", "_wait", "text")

    def __init__(self, max_wait: float | None, form: str) -> None:
        wanted = "max_wait is seconds, 0 or more, or None"
        self.text = ""
        self._wait = seconds(max_wait, wanted, form)
        self._due = inf
        self._stuck = False

    @property
    def max_wait(self) -> float | None:
        """Seconds that text may be held; None for as long as it takes."""
        return None if self._wait == inf else self._wait

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
        self._stuck = False
        old = len(text) - fresh
        if old <= 0:
            self._due = now + self._wait
            return "" if self._wait else self.release(now)
        if now < self._due:
            return ""
        cut = tail(text)
        if cut < old:
            return self.release(now)
        self.text = text[cut:]
        self._due = now + self._wait
        return text[:cut] + ("" if self._wait else self.release(now))

    def release(self, now: float) -> str:
        """Give up what has waited long enough.

        Args:
            now: The time, in seconds.

        Returns:
            All but a visibly unfinished cluster if it is due, else ``""``.
        """
        if now < self._due:
            return ""
        text = self.text
        cut = presentable(text)
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
