"""Deltas from servers that send the whole answer so far each time.

Each text is held against what was given out. A tail of U+FFFD, or of raw bytes that
are half a character, is not yet what the server means and waits; it is given out when
more text follows it, or at the end. A text that takes back what was given out cannot
be followed, and is said to be broken rather than patched over.

Nothing here guesses whether a server is cumulative. Of texts ``ha``, ``haha`` either
reading is possible, so whoever knows the server must say.
"""

from __future__ import annotations

import re

from midstream._values.errors import WireError

_UNSURE = re.compile("[\ufffd\udc80-\udcff]+\\Z")


class Cumulative:
    """Turns growing texts into what is new in each."""

    __slots__ = ("_given", "_held")

    def __init__(self) -> None:
        self._given = ""
        self._held = ""

    def feed(self, text: str) -> str:
        """What ``text`` says beyond what was given out, as far as it is sure.

        A text that ends earlier (a stop string was cut off) says nothing new.

        Raises:
            WireError: It differs within what was given out.
        """
        unsure = _UNSURE.search(text)
        sure = text[: unsure.start()] if unsure else text
        if not sure.startswith(self._given):
            if self._given.startswith(sure):
                self._held = ""
                return ""
            raise WireError("a cumulative text takes back what it had said")
        new, self._given = sure[len(self._given) :], sure
        self._held = text[len(sure) :]
        return new

    def flush(self) -> str:
        """The tail that waited, now that nothing can change it."""
        held, self._held = self._held, ""
        self._given += held
        return held
