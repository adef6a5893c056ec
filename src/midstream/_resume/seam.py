"""Where a continuation joins what had come: plain concatenation, four exceptions.

Each stage holds the continuation's first characters until it knows, then lets go for
good. Nothing that was delivered is ever taken back, and a true repetition is never
eaten: an echo is removed only where the dialect declares one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from midstream._values.interruptions import ResumeDiverged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midstream._dialects.base import Continuation

_TAIL = 400  # characters of the prefix that a partial echo is compared with


class Stage(Protocol):
    """One rule of the seam.

    Attributes:
        repeats: Whether what it swallows are tokens that had been counted before.
    """

    repeats: bool

    def feed(self, text: str) -> str | None:
        """Text to pass on once decided; None while it is open."""
        ...

    def flush(self) -> str:
        """What is still held, at the end of the continuation."""
        ...


class Expected:
    """Text that must come again: it is checked and dropped."""

    repeats = True

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def left(self) -> int:
        """Characters that have not come again."""
        return len(self._text) - self._at

    def feed(self, text: str) -> str | None:
        """Nothing until the expected text has come.

        Raises:
            ResumeDiverged: Other text came.
        """
        want = self._text[self._at : self._at + len(text)]
        if not text.startswith(want):
            raise ResumeDiverged(
                f"the continuation says {text[:40]!r} where {want[:40]!r} had been "
                f"delivered ({self._at} characters into the repeated part)"
            )
        self._at += len(want)
        return None if self.left else text[len(want) :]

    def flush(self) -> str:
        """It ended early: what had been delivered went further.

        Raises:
            ResumeDiverged: Always; the stage is open, so text is missing.
        """
        raise ResumeDiverged(
            f"the continuation ended {self.left} characters before "
            "the text that had been delivered"
        )


class Echoed:
    """A declared echo of the prefix, whole or only its end.

    A server that echoes the whole may still not do so: then all is passed on. Of a
    tail the longest match counts.
    """

    repeats = True

    def __init__(self, prefix: str, *, whole: bool, least: int = 1) -> None:
        self._prefix = prefix if whole else prefix[-_TAIL:]
        self._whole = whole
        self._least = least
        self._held = ""

    def feed(self, text: str) -> str | None:
        """Nothing while what has come may still be an echo."""
        self._held += text
        held, prefix = self._held, self._prefix
        if self._whole:
            if len(held) < len(prefix) and prefix.startswith(held):
                return None
            return held.removeprefix(prefix)
        if any(prefix.startswith(held, at) for at in range(len(prefix) - len(held))):
            return None
        return self.flush()

    def flush(self) -> str:
        """What is held, without the longest end of the prefix that it begins with."""
        held, prefix = self._held, self._prefix
        if self._whole:
            return held
        longest = min(len(held), len(prefix))
        for size in range(longest, self._least - 1, -1):
            if prefix.endswith(held[:size]):
                return held[size:]
        return held


class Whitespace:
    """Whitespace that was held off the prefix: dropped where it comes back."""

    repeats = False

    def __init__(self, tail: str) -> None:
        self._tail = tail
        self._at = 0

    def feed(self, text: str) -> str | None:
        """The text from the first character that was not delivered before."""
        for at, character in enumerate(text):
            if self._at == len(self._tail) or character != self._tail[self._at]:
                return text[at:]
            self._at += 1
        return None

    def flush(self) -> str:
        """Nothing: what was dropped had been delivered."""
        return ""


class StopStrings:
    """A stop string that began before the drop and ends after it still stops.

    Attributes:
        stopped: Whether one was found.
    """

    repeats = False

    def __init__(self, text: str, stop: Sequence[str]) -> None:
        self._rests = {
            word[size:]
            for word in stop
            for size in range(1, len(word))
            if text.endswith(word[:size])
        }
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str | None:
        """Nothing while a stop string may still complete."""
        self._held += text
        if any(self._held.startswith(rest) for rest in self._rests):
            self.stopped = True
            return ""
        if any(rest.startswith(self._held) for rest in self._rests):
            return None
        return self._held

    def flush(self) -> str:
        """The held text was no stop string."""
        return self._held


class Seam:
    """All stages of one continuation, in the order in which the text passes them.

    Args:
        continuation: How the new connection was asked.
        text: Everything delivered so far.
        stop: The request's stop strings.
    """

    def __init__(
        self, continuation: Continuation, text: str, stop: Sequence[str]
    ) -> None:
        sent = continuation.sent
        held = text[len(sent) + len(continuation.expect) :]
        stages: list[Stage] = []
        if continuation.expect:
            stages.append(Expected(continuation.expect))
        if continuation.echo != "none" and sent:
            whole, least = continuation.echo == "whole", continuation.least
            stages.append(Echoed(sent, whole=whole, least=least))
        if held.isspace():
            stages.append(Whitespace(held))
        self._stop = StopStrings(text, stop)
        if stop:
            stages.append(self._stop)
        self._stages = stages

    @property
    def open(self) -> bool:
        """Whether any rule still waits."""
        return bool(self._stages)

    @property
    def repeating(self) -> bool:
        """Whether what comes now had been delivered and counted before."""
        return bool(self._stages) and self._stages[0].repeats

    @property
    def stopped(self) -> bool:
        """Whether a stop string was completed over the seam."""
        return self._stop.stopped

    def feed(self, text: str) -> str:
        """The new part of ``text``.

        Raises:
            ResumeDiverged: It contradicts what was delivered.
        """
        while self._stages and text:
            passed = self._stages[0].feed(text)
            if passed is None:
                return ""
            del self._stages[0]
            text = passed
        return text

    def flush(self) -> str:
        """What is still held, at the end of the continuation.

        Raises:
            ResumeDiverged: Less came again than had been delivered.
        """
        text = ""
        while self._stages:
            text = self._stages.pop(0).flush()
            if text:
                text = self.feed(text)
        return text
