"""A language model that knows one text and streams it in pieces of one to three bytes.

It behaves as a greedy model with a byte-level vocabulary would: where a piece ends
depends only on its place in the text, so an answer that is continued from any prefix is
the same as one that was never interrupted. Pieces end inside characters, and may hold
the end of one and the beginning of the next.

It continues when the prompt ends with the beginning of the text, at whatever byte; a
piece that was begun is then finished first, and counts as a token.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PARAGRAPH = (
    "🌅 第{n}話。東京の朝、ライラは🍜を食べた。Then she walked to the lighthouse, "
    "👩‍👩‍👧‍👦 in tow; it was number {n}, a naïve café beside it. "
    "「こんにちは、世界！」と𠮷野さんが言った🎉👋🏽。\n"
)

# Numbered paragraphs: no place in the text looks like another one.
TEXT = "".join(_PARAGRAPH.format(n=n) for n in range(1, 61)).encode()

_SIZES = random.Random(20)


def _borders() -> list[int]:
    borders = [0]
    while borders[-1] < len(TEXT):
        borders.append(min(borders[-1] + _SIZES.randint(1, 3), len(TEXT)))
    return borders


BORDERS = _borders()


def position(prompt: bytes) -> int:
    """How many bytes of the text the prompt ends with."""
    for size in range(min(len(TEXT), len(prompt)), 0, -1):
        if prompt.endswith(TEXT[:size]):
            return size
    return 0


def answer(
    prompt: bytes, max_tokens: int | None = None, stop: Sequence[bytes] = ()
) -> Iterator[tuple[bytes, str]]:
    """The tokens that follow the prompt.

    Args:
        prompt: What was asked, and perhaps the beginning of the answer.
        max_tokens: Tokens to give at most; None gives all.
        stop: Texts before which the answer ends, without them.

    Yields:
        A piece of text, and why the answer ends with it: ``"None"`` while it does not,
        ``"length"`` or ``"stop"``.
    """
    start = position(prompt)
    stops = (TEXT.find(word, start) for word in stop if word)
    end = min((at for at in stops if at >= 0), default=len(TEXT))
    ahead = BORDERS[bisect_right(BORDERS, start) :]
    edges = [start, *(border for border in ahead if border < end), end]
    pieces = [TEXT[a:b] for a, b in itertools.pairwise(edges) if a < b]
    limit = len(pieces) if max_tokens is None else max(max_tokens, 0)
    last = "stop" if limit >= len(pieces) else "length"
    pieces = pieces[:limit]
    for number, piece in enumerate(pieces, 1):
        yield piece, last if number == len(pieces) else "None"
