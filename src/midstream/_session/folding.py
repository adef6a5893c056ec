"""What a leg says is booked, and what the caller sees of it is given on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from midstream._values.events import (
    End,
    Event,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Resumed,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from midstream._metrics import Metrics
    from midstream._resume.ledger import Ledger
    from midstream._session.leg import Leg
    from midstream._values.events import Signal
    from midstream._values.request import Request


def fold(
    signals: Iterable[Event | Signal],
    events: list[Event],
    ledger: Ledger,
    request: Request,
    after: int,
) -> bool:
    """Book what came.

    Args:
        signals: What the leg says.
        events: Where that goes which the caller sees.
        ledger: Where all of it is booked.
        request: What was asked.
        after: Characters of the text that the caller has.

    Returns:
        Whether the answer has ended.
    """
    for signal in signals:
        match signal:
            case TextDelta():
                if signal.choice != request.choice:
                    ledger.choice(signal.choice).add_text(signal.text)
                else:
                    ledger.add_text(signal)
                    if after > ledger.main.characters - len(signal.text):
                        signal = _behind(signal, after - ledger.main.characters)  # noqa: PLW2901 - its rest
                if signal.text:
                    events.append(signal)
            case ReasoningDelta() | RefusalDelta():
                ledger.add_side(signal)
                if _says(signal):
                    events.append(signal)
            case ToolCallDelta():
                ledger.add_tool(signal)
                events.append(signal)
            case UsageReport():
                events.append(UsageReport(ledger.report(signal.usage)))
            case Finish():
                ledger.choice(signal.choice).finish(signal)
            case Started():
                ledger.start(signal)
            case End():
                return True
            case Resumed() | Failure():
                raise RuntimeError(f"{signal} comes from no leg")
            case _:
                assert_never(signal)
    return False


def _behind(delta: TextDelta, missing: int) -> TextDelta:
    """What of it the caller does not have; ``missing`` more he has, if positive."""
    return replace(delta, text="" if missing >= 0 else delta.text[missing:])


def _says(delta: ReasoningDelta | RefusalDelta) -> bool:
    """Whether the caller sees it: it has text, or seals what had come."""
    sealed = isinstance(delta, ReasoningDelta) and delta.signature is not None
    return sealed or bool(delta.text)


def finish(leg: Leg, events: list[Event], ledger: Ledger, request: Request) -> None:
    """The answer has ended: give what waited for its end.

    Raises:
        ResumeDiverged: Less came again than had come.
    """
    rest = leg.flush()
    if rest:
        delta = TextDelta(rest, request.choice, 0)
        ledger.add_text(delta)
        events.append(delta)
    for delta in leg.flush_others():
        ledger.choice(delta.choice).add_text(delta.text)
        events.append(delta)


def close(ledger: Ledger, metrics: Metrics, choice: int, replaced: int) -> Finish:
    """The last event of a whole answer.

    Args:
        ledger: What came.
        metrics: Told the final counts.
        choice: The stream's answer.
        replaced: How many U+FFFD were put in for bytes that are no UTF-8.
    """
    main, usage = ledger.main, ledger.usage
    main.close_calls(main.finish_reason)
    if usage is not None and not usage.estimated:
        metrics.tokens = usage.output_tokens
    metrics.replaced += replaced
    return Finish(main.finish_reason, main.raw_finish_reason, choice)


def measure(events: Iterable[Event], metrics: Metrics, now: float) -> None:
    """Tell the metrics what one read brought."""
    chunks = characters = tokens = 0
    for event in events:
        if type(event) is TextDelta:
            chunks += 1
            characters += len(event.text)
            tokens += 1 if event.tokens is None else event.tokens
    metrics.read(now, chunks, characters, tokens)
