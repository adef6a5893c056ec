"""The model speaks: steps become events, as a server streams them.

Text is held back until characters are whole (where the server does that) and until no
stop string can begin in it; what was held goes out with the next token, whose id is the
only one sent for all of them. Half a character at the end is lost, as it is at real
servers; it counts all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from midstream._values.events import (
    End,
    Finish,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReport,
)
from midstream._values.usage import Usage
from midstream.testing._fake.model import whole_characters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from midstream._values.events import Event, Signal
    from midstream.testing._fake.asked import Asked
    from midstream.testing._fake.model import Step

Why: TypeAlias = Literal["eos", "word", "length", "tools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a server speaks.

    Attributes:
        whole: Whether it holds back half characters.
        ids: Whether it sends token ids.
        held: Whether a token whose text is held back is sent at once, without it.
        finish: Its word for each kind of end.
    """

    whole: bool
    ids: bool
    finish: Callable[[Why], Finish]
    held: bool = False


class Voice:
    """One of n answers.

    Args:
        asked: The limits.
        manner: How the server speaks.
    """

    def __init__(self, asked: Asked, manner: Manner) -> None:
        self._asked = asked
        self._manner = manner
        self._held = b""
        self._waiting = 0
        self._last: Step | None = None
        self.said = 0
        self.why: Why | None = None

    def say(self, step: Step) -> list[Event]:
        """The events of one step; none while its text is held back."""
        says = isinstance(step.event, TextDelta | ReasoningDelta)
        if not says or (isinstance(step.event, ReasoningDelta) and not step.data):
            return [*self._flush(), step.event]  # a signature has no text
        events: list[Event] = []
        if self._last is not None and self._last.channel != step.channel:
            events = self._flush()
        self._last = step
        self._held += step.data
        self._waiting += 1
        self.said += 1
        found = [at for stop in self._asked.stop if (at := self._held.find(stop)) >= 0]
        if found:
            self.why = "word"
            return events + self._told(step, min(found))
        if self._asked.max_tokens is not None and self.said >= self._asked.max_tokens:
            self.why = "length"
            return events + self._told(step, len(self._held))
        size = len(self._held) - (begun := self._stop_begins())
        if begun and self._manner.ids and not self._manner.held:
            size = 0  # whole tokens are held back, or their ids would say more
        return events + self._told(step, size)

    def end(self, default: Why) -> list[Event]:
        """What was held, and why the answer ends."""
        rest = [] if self.why == "word" else self._flush()
        return [*rest, self._manner.finish(self.why or default)]

    def _told(self, step: Step, size: int) -> list[Event]:
        """The first bytes of what is held, or the bare token where none goes out."""
        events = self._emit(size)
        if events or not self._manner.held:
            return events
        self._waiting = 0
        event: Any = step.event
        ids = (step.id,) if self._manner.ids else ()
        return [replace(event, text="", tokens=1, token_ids=ids)]

    def _flush(self) -> list[Event]:
        return self._emit(len(self._held)) if self._held else []

    def _emit(self, size: int) -> list[Event]:
        """Give out the first bytes of what is held."""
        if self._manner.whole:
            size = whole_characters(self._held[:size])
        out, self._held = self._held[:size], self._held[size:]
        if not out or self._last is None:
            return []
        text = out.decode(
            "utf-8", "replace" if self._manner.whole else "surrogateescape"
        )
        ids = (self._last.id,) if self._manner.ids else ()
        tokens, self._waiting = self._waiting, 0
        event: Any = self._last.event
        return [
            replace(event, text=text, tokens=tokens, token_ids=event.token_ids or ids)
        ]

    def _stop_begins(self) -> int:
        """How many bytes at the end may be the begin of a stop string."""
        longest = 0
        for stop in self._asked.stop:
            for size in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:size]):
                    longest = size
                    break
        return longest


def speak(
    answers: Sequence[Sequence[Step]], asked: Asked, manner: Manner, *, tools: bool
) -> Iterator[Event | Signal]:
    """All events of a stream, the end marker included.

    Args:
        answers: The steps of each of n answers; they take turns.
        asked: The limits.
        manner: How the server speaks.
        tools: Whether the answer ends because it calls tools.
    """
    yield Started()
    voices = [Voice(asked, manner) for _ in answers]
    scripted: set[type] = set()
    for turn in range(max(map(len, answers), default=0)):
        for steps, voice in zip(answers, voices, strict=True):
            if turn >= len(steps) or voice.why is not None:
                continue
            for event in voice.say(steps[turn]):
                scripted.add(type(event))
                yield event
    for index, voice in enumerate(voices):
        for event in voice.end("tools" if tools else "eos"):
            if not isinstance(event, Finish):
                yield event
            elif Finish not in scripted:
                yield replace(event, choice=index)
    if asked.usage and UsageReport not in scripted:
        said = sum(voice.said for voice in voices)
        yield UsageReport(Usage(asked.prompt_tokens, said))
    yield End()
