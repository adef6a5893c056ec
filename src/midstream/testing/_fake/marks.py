"""The mark that tells the relay where to cut, and the watch that finds it."""

from __future__ import annotations

from typing import Literal

_SALT = b"\x00midstream\xffcut\xfe"
MARKS: dict[Literal["fin", "rst"], bytes] = {
    "fin": (_SALT + b"F") * 3,  # thrice: the border of two frames may go through one
    "rst": (_SALT + b"R") * 3,
}


class Watch:
    """Looks for a mark in what passes."""

    def __init__(self) -> None:
        self._tail = b""
        self.found: Literal["fin", "rst"] | None = None

    def pass_on(self, data: bytes) -> bytes:
        """What of `data` may pass; `found` says whether the rest is cut."""
        seen = self._tail + data
        at = seen.find(_SALT)
        end = at + len(_SALT)
        if at < 0 or len(seen) == end:
            self._tail = seen[-len(_SALT) :]
            return data
        self.found = "rst" if seen[end : end + 1] == b"R" else "fin"
        return seen[len(self._tail) : max(at, len(self._tail))]
