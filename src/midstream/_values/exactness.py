"""How surely a resumed answer equals the unbroken one."""

from __future__ import annotations

import enum


class Exactness(enum.IntEnum):
    """How surely a resumed answer equals the unbroken one; larger is weaker."""

    UNBROKEN = 0
    """Nothing dropped."""
    REPLAYED = 1
    """The server had kept the stream: identical under any sampling."""
    TOKENS = 2
    """Continued from token ids: identical for greedy decoding."""
    TEXT = 3
    """Continued from the text: identical at token edges for greedy decoding."""
    RERUN = 4
    """Asked again from the start; what had been received was checked and skipped."""
    APPROXIMATE = 5
    """The model was asked to go on: plausible, not the same."""

    def __str__(self) -> str:
        """Its name: ``print(stream.exactness)`` is for people."""
        return self.name

    def __format__(self, spec: str) -> str:
        """As `str`, in f-strings too."""
        return format(self.name, spec)
