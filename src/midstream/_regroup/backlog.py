"""Text that waits for its frames, in order, and by when each of it must be out.

How long text has waited is known by slots of time, not by characters: few numbers
however much comes, and never later than the truth.
"""

from collections import deque
from math import floor

from midstream._regroup.segmentation import CLUSTER_LIMIT, edge_from


class Backlog:
    """A queue of characters.

    Args:
        slot: Seconds within which due times count as one.
    """

    __slots__ = ("_due", "_finished", "_given", "_parts", "_read", "_slot", "_text")

    def __init__(self, slot: float) -> None:
        self._slot = slot
        self._parts: list[str] = []  # text that is not joined yet
        self._text = ""
        self._read = 0  # index in the text of what comes next
        self._finished = 0  # characters since the beginning: taken,
        self._given = 0  # and given out
        # When text must be out, and the count of characters up to its end.
        self._due: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        """Characters that wait."""
        return self._finished - self._given

    def add(self, text: str, due: float) -> None:
        """Take text that must be out at a time, in seconds."""
        self._parts.append(text)
        self._finished += len(text)
        if self._due and due - self._due[-1][0] <= self._slot:
            due = self._due.pop()[0]
        self._due.append((due, self._finished))

    def urgent(self, now: float, frame: float) -> float:
        """Tell how many characters must go now, so that each is out when it is due.

        Args:
            now: The time, in seconds.
            frame: Seconds from one frame to the next.

        Returns:
            Characters, at least 0.
        """
        most = 0.0
        for due, end in self._due:
            # One frame is left in reserve, as no screen keeps its beat exactly.
            frames = floor((due - now) / frame) if due - now > frame else 1
            most = max(most, (end - self._given) / frames)
        return most

    def give(self, size: int) -> str:
        """Give so many characters, up to the next edge of a cluster."""
        if self._read + size > len(self._text):
            self._text = self._text[self._read :] + "".join(self._parts)
            self._read = 0
            self._parts = []
        window = self._text[self._read : self._read + size + CLUSTER_LIMIT]
        piece = window[: edge_from(window, size)]
        self._read += len(piece)
        self._given += len(piece)
        while self._due and self._due[0][1] <= self._given:
            self._due.popleft()
        return piece

    def clear(self) -> str:
        """Give all that waits."""
        rest = self._text[self._read :] + "".join(self._parts)
        self._text = ""
        self._parts = []
        self._read = 0
        self._given = self._finished
        self._due.clear()
        return rest
