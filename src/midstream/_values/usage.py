"""Tokens used."""

from __future__ import annotations

from midstream._values.event import event


@event
class Usage:
    """Tokens used, summed over all connections of the stream.

    Attributes:
        input_tokens: Tokens of the prompts; None when no server said.
        output_tokens: Tokens of the answer, reasoning included.
        reasoning_tokens: Those of them that were reasoning, where told.
        cached_tokens: Prompt tokens that came from a cache, where told.
        estimated: Whether a part was counted by midstream, not told by a server.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        """Sum field by field; what neither side knows stays unknown."""
        return Usage(
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
            _sum(self.reasoning_tokens, other.reasoning_tokens),
            _sum(self.cached_tokens, other.cached_tokens),
            self.estimated or other.estimated,
        )


def _sum(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b
