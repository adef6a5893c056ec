"""Deltas from servers that send the whole answer so far each time.

Each text is held against what was given out. A tail of U+FFFD, or of raw bytes that
are half a character, is not yet what the server means and waits; it is given out when
more text follows it, or at the end. A text that takes back what was given out cannot
be followed, and is said to be broken rather than patched over. Of each text only what
it adds is looked at character by character, so that a long tail costs its length once.

Nothing here guesses whether a server is cumulative. Of texts ``ha``, ``haha`` either
reading is possible, so whoever knows the server must say.
"""

from __future__ import annotations

from midstream._values.errors import WireError

_UNSURE = "\ufffd" + "".join(map(chr, range(0xDC80, 0xDD00)))


class Cumulative:
    """Turns growing texts into what is new in each."""

    __slots__ = ("_given", "_told")

    def __init__(self) -> None:
        self._told = ""  # the answer as the server told it last
        self._given = 0  # how many of its characters were given out

    def feed(self, text: str) -> str:
        """What ``text`` says beyond what was given out, as far as it is sure.

        A text that ends earlier (a stop string was cut off) says nothing new.

        Raises:
            WireError: It differs within what was given out.
        """
        given = self._told[: self._given]
        if text.startswith(self._told):
            begin = len(self._told)
        elif text.startswith(given):
            begin = len(given)
        elif given.startswith(text[: _sure(text, 0)]):
            self._told = given
            return ""
        else:
            raise WireError("a cumulative text takes back what it had said")
        sure = _sure(text, begin)
        if sure == begin:  # what waited is as unsure as before
            sure = len(given)
        self._told, self._given = text, sure
        return text[len(given) : sure]

    def flush(self) -> str:
        """The tail that waited, now that nothing can change it."""
        held = self._told[self._given :]
        self._given = len(self._told)
        return held


def _sure(text: str, begin: int) -> int:
    """Where the unsure tail of a text begins, sought from an index on."""
    return begin + len(text[begin:].rstrip(_UNSURE))
