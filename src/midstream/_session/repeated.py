"""What a replay from its begin says again, beside the text: checked and dropped.

The text itself goes through the seam. Reasoning, refusals, calls and the other answers
have no seam, since no prefix continues them; only a server that kept the stream says
them again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from midstream._resume.seam import Expected
from midstream._values.events import (
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from midstream._resume.ledger import Choice
    from midstream._values.events import Event, Signal

_Channel: TypeAlias = tuple[str, int, int]


class Repeated:
    """What came of all channels but the text.

    Args:
        choices: The answers by index.
        chosen: The one whose text goes through the seam.

    Attributes:
        characters: How many came again.
    """

    def __init__(self, choices: Mapping[int, Choice], chosen: int) -> None:
        self.characters = 0
        known = (
            (channel, text)
            for index, choice in choices.items()
            for channel, text in _channels(index, choice)
            if channel != ("text", chosen, 0)
        )
        self._open = {channel: Expected(text) for channel, text in known}

    def new(self, signal: Event | Signal) -> Event | Signal | None:
        """The new part of it; None where all of it had come.

        Raises:
            ResumeDiverged: It contradicts what had come.
        """
        channel = _channel_of(signal)
        expected = self._open.get(channel) if channel is not None else None
        if channel is None or expected is None:
            return signal
        assert isinstance(  # noqa: S101 - they have channels
            signal, TextDelta | ReasoningDelta | RefusalDelta | ToolCallDelta
        )
        said = signal.arguments if isinstance(signal, ToolCallDelta) else signal.text
        rest = expected.feed(said)
        self.characters += len(said) - len(rest or "")
        if rest is None:
            return None
        del self._open[channel]
        if isinstance(signal, ToolCallDelta):
            closes = rest or signal.closed
            return replace(signal, arguments=rest) if closes else None
        return replace(signal, text=rest) if rest else None

    def flush(self) -> None:
        """The answer has ended.

        Raises:
            ResumeDiverged: Less came again than had come.
        """
        for expected in self._open.values():
            if expected.left:
                expected.flush()


def _channels(index: int, choice: Choice) -> Iterator[tuple[_Channel, str]]:
    texts = {
        "text": choice.text,
        "reasoning": choice.reasoning,
        "refusal": choice.refusal,
    }
    for name, text in texts.items():
        if text:
            yield (name, index, 0), text
    for call in choice.tool_calls:
        yield ("call", index, call.index), call.arguments


def _channel_of(signal: Event | Signal) -> _Channel | None:
    match signal:
        case TextDelta(choice=choice):
            return "text", choice, 0
        case ReasoningDelta(choice=choice):
            return "reasoning", choice, 0
        case RefusalDelta(choice=choice):
            return "refusal", choice, 0
        case ToolCallDelta(choice=choice, index=index):
            return "call", choice, index
        case _:
            return None
