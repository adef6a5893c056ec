"""What all connections used: the server's reports, added up.

A connection that broke told nothing of its tokens, or too few: what came of it is
counted in place of a report, and the sum is an estimate.
"""

from __future__ import annotations

from midstream._values.usage import Usage


class Spent:
    """Usage over all connections.

    Attributes:
        legs: Generations before the present one.
        before: What they used.
    """

    def __init__(self) -> None:
        self.legs = 0
        self.before: Usage | None = None
        self._told: Usage | None = None
        self._tokens = 0

    def report(self, usage: Usage) -> None:
        """The server's usage of this connection; the last one counts."""
        self._told = usage

    def next_leg(self, tokens: int) -> None:
        """A new generation begins: its usage is added.

        Args:
            tokens: All that came so far.
        """
        told = self._told or Usage()
        if told.output_tokens is None:  # the count comes with the answer's end
            told += Usage(output_tokens=tokens - self._tokens, estimated=True)
        self.before = told if self.before is None else self.before + told
        self._told = None
        self._tokens = tokens
        self.legs += 1

    def load(self, usage: Usage | None, tokens: int, *, whole: bool) -> None:
        """What another process had been told, and what had come there.

        Args:
            usage: The sum that it knew.
            tokens: All that came there.
            whole: Whether nothing broke there; else its connections may have told
                nothing.
        """
        if not whole and (usage is None or usage.output_tokens is None):
            told = usage or Usage()
            usage = told + Usage(output_tokens=tokens, estimated=True)
        self.before, self._tokens = usage, tokens

    def unstored(self, tokens: int) -> None:
        """Tokens that came there and were not stored, as far as one can guess."""
        guess = Usage(output_tokens=tokens, estimated=True)
        self.before = guess if self.before is None else self.before + guess
        self._tokens += tokens

    def usage(self, tokens: int) -> Usage | None:
        """The sum; None where no server ever said.

        Args:
            tokens: All that came so far.
        """
        told = self._told
        if told is None:
            if self.before is None or tokens == self._tokens:
                return self.before
            told = Usage(output_tokens=tokens - self._tokens, estimated=True)
        return told if self.before is None else self.before + told
