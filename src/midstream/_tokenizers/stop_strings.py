"""Stop strings in bytes that come token by token.

A server that sends ids sends those of the stop text, too. So what may begin a stop
string waits here until it is one, and the answer is cut, or until it is none. Nothing
else waits. Of several stop strings that are found at once, the one that is whole first
counts (vLLM ``v1/engine/detokenizer.py``, ``check_stop_strings``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class StopStrings:
    """Finds where an answer stops.

    Args:
        stop: The strings.
        keep: Whether the string that stops is part of the answer.

    Attributes:
        matched: Whether one was found.
    """

    __slots__ = ("_keep", "_seen", "_stop", "matched")

    def __init__(self, stop: Sequence[str], *, keep: bool = False) -> None:
        self._stop = [word.encode("utf-8", "surrogateescape") for word in stop if word]
        self._keep = keep
        self._seen = b""  # a begin of a stop string; given out already if `keep`
        self.matched = False

    @property
    def holding(self) -> bool:
        """Whether something waits."""
        return bool(self._seen) and not self._keep

    def feed(self, data: bytes, *, armed: bool = True) -> bytes:
        """What of it is surely part of the answer.

        Args:
            data: The next bytes.
            armed: Whether a string that is whole now stops the answer.
        """
        if self.matched:
            return b""
        if not self._stop:
            return data
        seen = self._seen + data
        given = len(self._seen) if self._keep else 0
        found = self._first(seen) if armed else None
        if found is not None:
            self.matched = True
            self._seen = b""
            return seen[given : found[1] if self._keep else found[0]]
        size = self._begun(seen)
        self._seen = seen[len(seen) - size :]
        return data if self._keep else seen[: len(seen) - size]

    def flush(self) -> bytes:
        """What waits; it was no stop string."""
        rest, self._seen = self._seen, b""
        return b"" if self._keep else rest

    def _first(self, seen: bytes) -> tuple[int, int] | None:
        """Begin and end of the string that is whole first."""
        places = [(at, at + len(w)) for w in self._stop if (at := seen.find(w)) >= 0]
        return min(places, key=lambda place: place[1], default=None)

    def _begun(self, seen: bytes) -> int:
        """How many bytes at the end may begin a stop string."""
        longest = max(map(len, self._stop)) - 1
        for size in range(min(longest, len(seen)), 0, -1):
            end = seen[len(seen) - size :]
            if any(word.startswith(end) and word != end for word in self._stop):
                return size
        return 0
