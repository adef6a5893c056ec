"""Which tokens are new where a continuation joins what had come.

The seam tells new text from repeated text; here the tokens follow it. A token whose
text only repeats was counted before. One that was held for an echo which did not come
counts with the text that follows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from midstream._values.events import TextDelta

if TYPE_CHECKING:
    from midstream._resume.seam import Seam


class Joining:
    """The deltas of one continuation, from its first to the one that is new.

    Args:
        seam: Where the text joins.
        again: How many tokens come again with the repeated text.

    Attributes:
        open: Whether what comes may still be no news.
        repeated: Characters that came again and were dropped.
    """

    __slots__ = ("_again", "_held", "_seam", "open", "repeated")

    def __init__(self, seam: Seam, again: int = 0) -> None:
        self._seam = seam
        self._again = again
        self._held: list[TextDelta] = []
        self.open = True
        self.repeated = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop string over the seam ended the answer."""
        return self._seam.stopped

    def join(self, delta: TextDelta) -> TextDelta:
        """What of it is new; tokens that only repeat do not count once more.

        Raises:
            ResumeDiverged: It contradicts what was delivered.
        """
        seam = self._seam
        repeating, new = seam.repeating, seam.feed(delta.text)
        if repeating and not new:
            self._held.append(delta)
            self.repeated += len(delta.text)
            return TextDelta("", delta.choice, 0)
        held, self._held = self._held, []
        if self._again:
            # Where ids run ahead of their text, new ones came with the old text.
            joined = self._without_repeated(_merged([*held, delta], new))
        elif len(new) > len(delta.text) or not any(one.text for one in held):
            joined = _merged([*held, delta], new)  # it was no repetition
        else:
            joined = replace(delta, text=new)
        self.open = seam.open or self._again > 0
        return joined

    def flush(self, rest: str) -> str:
        """The text that waited until the answer's end.

        Args:
            rest: What the decoder held.
        """
        if self._seam.stopped:
            return ""
        return self._seam.feed(rest) + self._seam.flush()

    def _without_repeated(self, delta: TextDelta) -> TextDelta:
        tokens = 1 if delta.tokens is None else delta.tokens
        gone = min(self._again, tokens)
        self._again -= gone
        return replace(delta, tokens=tokens - gone, token_ids=delta.token_ids[gone:])


def _merged(deltas: list[TextDelta], text: str) -> TextDelta:
    """Deltas that waited for each other as one."""
    tokens = sum(1 if one.tokens is None else one.tokens for one in deltas)
    ids = tuple(id_ for one in deltas for id_ in one.token_ids)
    return TextDelta(text, deltas[-1].choice, tokens, ids, deltas[-1].logprobs)
