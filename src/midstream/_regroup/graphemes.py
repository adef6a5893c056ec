"""Graphemes: one grapheme cluster, what a reader calls a character, a piece.

The last cluster is always kept back until the next character proves it finished.
"""

from typing import Self

from midstream._regroup.segmentation import clusters, tail


class Graphemes:
    """Re-aggregator that gives single grapheme clusters: ``"e"``, ``"👨‍👩‍👧"``."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def fresh(self) -> Self:
        """Give one that has seen no text."""
        return type(self)()

    def feed(self, text: str, now: float) -> list[str]:
        """Take text and give the clusters that are finished.

        Args:
            text: What came.
            now: Not used: a cluster waits for the character after it.

        Returns:
            The clusters, in order.
        """
        if not text:
            return []
        buffer = self._held + text
        cut = tail(buffer)
        self._held = buffer[cut:]
        return clusters(buffer[:cut])

    def flush(self) -> list[str]:
        """Give the last cluster.

        Returns:
            One piece, or none.
        """
        held, self._held = self._held, ""
        return [held] if held else []

    @property
    def deadline(self) -> None:
        """None: only the character after it can prove a cluster finished."""
        return
