"""Latency of a stream: time to first token, between chunks, between tokens.

Time is taken once per network read and handed in. Intervals wait in a short list and go
into logarithmic buckets of two per cent, so that neither a read pays for a logarithm
nor memory grows with the answer.
"""

from __future__ import annotations

import math
from collections import Counter

_STEP = math.log(1.02)
_RECENT = 256  # intervals that wait
_LEAST = 1e-6  # seconds; below it all is zero
_MOST = 2**53  # tokens; a server that says more is not counting


class Latency:
    """Intervals in seconds, seen through their quantiles (2 % wide buckets)."""

    __slots__ = ("_buckets", "_count", "_max", "_recent", "_total")

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self._recent: list[tuple[float, int]] = []
        self._count = 0
        self._total = 0.0
        self._max: float | None = None

    def add(self, seconds: float, times: int = 1) -> None:
        """Record an interval, ``times`` times."""
        self._recent.append((seconds, times))
        if len(self._recent) == _RECENT:
            self._sort_in()

    def _sort_in(self) -> None:
        for seconds, times in self._recent:
            self._buckets[int(math.log(max(seconds, _LEAST)) / _STEP)] += times
            self._count += times
            self._total += seconds * times
        longest = max((seconds for seconds, _ in self._recent), default=None)
        if longest is not None:
            self._max = max(longest, self._max or 0.0)
        self._recent.clear()

    @property
    def count(self) -> int:
        """How many there are."""
        self._sort_in()
        return self._count

    @property
    def total(self) -> float:
        """Their sum."""
        self._sort_in()
        return self._total

    @property
    def max(self) -> float | None:
        """The longest."""
        self._sort_in()
        return self._max

    def quantile(self, share: float) -> float | None:
        """The interval below which ``share`` of all lie; None when there is none."""
        self._sort_in()
        rank = share * self._count
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0 and self._max is not None:
                return min(math.exp(bucket * _STEP), self._max)
        return self._max

    @property
    def mean(self) -> float | None:
        """Their mean."""
        return self.total / self.count if self.count else None

    @property
    def p50(self) -> float | None:
        """Their median."""
        return self.quantile(0.50)

    @property
    def p95(self) -> float | None:
        """Below it lie 95 %."""
        return self.quantile(0.95)

    @property
    def p99(self) -> float | None:
        """Below it lie 99 %."""
        return self.quantile(0.99)

    def __repr__(self) -> str:
        """In milliseconds."""
        names = ("p50", "p95", "p99", "max")
        figures = [
            f"{name}={value * 1000:.1f} ms"
            for name in names
            if (value := getattr(self, name)) is not None
        ]
        return f"<Latency {' '.join(figures) or 'empty'}>"


class Rhythm:
    """What lies between the reads of one stream that brought text.

    Attributes:
        icl: Latency between them.
        itl: Latency between tokens; several that came together share it.
    """

    __slots__ = ("_last", "icl", "itl")

    def __init__(self) -> None:
        self._last: float | None = None
        self.icl = Latency()
        self.itl = Latency()

    def beat(self, now: float, tokens: int) -> None:
        """Text came, of so many tokens."""
        last, self._last = self._last, now
        if last is None:
            return
        self.icl.add(now - last)
        if tokens > 0:
            self.itl.add((now - last) / tokens, tokens)

    def rest(self) -> None:
        """The line broke: the wait for the next text is a gap, no latency."""
        self._last = None


class Metrics:
    """What a stream measured of itself.

    Attributes:
        ttft: Seconds from the first request to the first text.
        duration: Seconds from the first request to the last event so far.
        tokens: Tokens of the answer as the server counts them; None where it does
            not say.
        chunks: Records with text.
        characters: Characters of text.
        connects: Connections opened.
        resumes: Drops survived.
        gap: Seconds lost to drops.
        replaced: Bytes that were no UTF-8 and became U+FFFD.
    """

    def __init__(self) -> None:
        self._began: float | None = None
        self._rhythm = Rhythm()
        self.ttft: float | None = None
        self.duration = 0.0
        self.tokens: int | None = None
        self.chunks = 0
        self.characters = 0
        self.connects = 0
        self.resumes = 0
        self.gap = 0.0
        self.replaced = 0

    def __repr__(self) -> str:
        """The figures that are asked for most."""
        first = "" if self.ttft is None else f"ttft={self.ttft * 1000:.1f} ms "
        return (
            f"<Metrics {first}duration={self.duration:.3f} s tokens={self.tokens} "
            f"characters={self.characters} itl={self.itl} resumes={self.resumes}>"
        )

    @property
    def itl(self) -> Latency:
        """Latency between tokens; several tokens that came together share it."""
        return self._rhythm.itl

    @property
    def icl(self) -> Latency:
        """Latency between network reads that brought text."""
        return self._rhythm.icl

    @property
    def tokens_per_second(self) -> float | None:
        """Speed after the first token; None before the second and without a count."""
        if self.tokens is None or self.ttft is None or self.duration <= self.ttft:
            return None
        return max(min(self.tokens, _MOST) - 1, 0) / (self.duration - self.ttft)

    def connect(self, now: float) -> None:
        """A request goes out."""
        self.connects += 1
        if self._began is None:
            self._began = now

    def resumed(self, gap: float) -> None:
        """A drop was survived; it cost ``gap`` seconds."""
        self.resumes += 1
        self.gap += gap

    def read(self, now: float, chunks: int, characters: int, tokens: int) -> None:
        """One network read brought something.

        Args:
            now: Monotonic seconds.
            chunks: Records with text in it.
            characters: Their characters.
            tokens: Their tokens.
        """
        if self._began is None:
            self._began = now
        self.duration = now - self._began
        if not chunks:
            return
        self.chunks += chunks
        self.characters += characters
        self._rhythm.beat(now, min(tokens, _MOST))
        if self.ttft is None:
            self.ttft = self.duration

    def drop(self) -> None:
        """The line broke: the wait for the next text is a gap, no latency."""
        self._rhythm.rest()
