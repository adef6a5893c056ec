"""The tokens of the answer: how many came, and their ids.

A token counts as received when its text has come. Tokens of half characters, and of
text that a server holds back, stay open and are forgotten at a drop, since the
continuation sends them again. Ids that a server keeps to itself are gaps, -1 each.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midstream._values.checkpoint import Checkpoint
    from midstream._values.events import TextDelta

_BYTES = 4  # of a character; a token with text has at least one
_MARKS = 64  # tokens without text that a server may keep to itself at once


class Tokens:
    """Counted and open tokens.

    Attributes:
        count: Tokens whose text has come.
        ids: Their ids; fewer than `count` where a server told more tokens than the
            text can be.
        prompt_ids: The prompt's ids, where told.
    """

    def __init__(self) -> None:
        self.count = 0
        self.ids = array("q")
        self.prompt_ids: tuple[int, ...] = ()
        self._open = 0
        self._open_ids: list[int] = []
        self._gaps: list[tuple[int, int, str]] = []

    @property
    def gaps(self) -> list[tuple[int, int, str]]:
        """Where ids are missing: (index of the first, how many tokens, their text)."""
        return self.gaps_since(0)

    def gaps_since(self, known: int) -> list[tuple[int, int, str]]:
        """The same, behind the first ``known`` of them."""
        return [gap for gap in self._gaps[known:] if gap[0] < len(self.ids)]

    def add(self, delta: TextDelta) -> None:
        """Tokens of the text; with no text they stay open."""
        tokens = 1 if delta.tokens is None else delta.tokens
        if delta.token_ids:
            self._add_ids(delta.text, tokens, delta.token_ids)
        if not delta.text:
            self._open += tokens
            return
        self.count += tokens
        if self._open or self._open_ids:
            self.settle()

    def settle(self, ids: Sequence[int] = ()) -> None:
        """What was open has come, and ``ids`` after it."""
        self.count += self._open
        self._open = 0
        if self._open_ids or ids:
            self.ids.extend((*self._open_ids, *ids))
            self._open_ids.clear()

    def load(self, stored: Checkpoint) -> None:
        """What another process had received."""
        self.count = stored.tokens
        self.ids = array("q", stored.token_ids)
        self._gaps = list(stored.gaps)
        self.prompt_ids = tuple(stored.prompt_ids)

    def forget_ids(self) -> None:
        """Another server goes on: its tokens are not these."""
        self.ids = array("q")
        self._gaps.clear()
        self.prompt_ids = ()

    def forget_open(self) -> None:
        """A new generation begins: what was open will come again."""
        self._open = 0
        self._open_ids.clear()
        self._gaps = self.gaps

    def _add_ids(self, text: str, tokens: int, ids: tuple[int, ...]) -> None:
        missing = tokens - len(ids)
        if 0 < missing <= _BYTES * len(text) + _MARKS:
            start = len(self.ids) + len(self._open_ids)
            self._gaps.append((start, tokens, text))
            self._open_ids.extend([-1] * missing)
        self._open_ids.extend(ids)
