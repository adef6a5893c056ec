"""What of a stream is new since it was last looked at; its cost is that of the news.

Texts and ids only grow, so lengths are all that must be remembered of them, and the
objects themselves: a text or an id list that is another object than before did not grow
but was begun anew (ids are forgotten at a failover). Then there is no growth to tell,
and whoever keeps the stream takes the whole checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from midstream._values.checkpoint import Answer, Checkpoint, Growth, Survived

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midstream._resume.ledger import Choice, Ledger, Text
    from midstream._values.request import Request
    from midstream._values.resumption import Resumption
    from midstream._values.tool_call import ToolCall


@dataclass(frozen=True, slots=True)
class Standing:
    """What is asked of a stream, at one moment.

    Attributes:
        request: What was asked.
        ledger: What came.
        resumes: The drops that were survived.
        place: Everything that does not grow but changes, as `Growth` names it.
    """

    request: Request
    ledger: Ledger
    resumes: Sequence[Resumption]
    place: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _SeenChoice:
    """How much of one answer was seen."""

    choice: Choice
    texts: dict[str, tuple[Text, int]]
    calls: dict[int, tuple[Text, int, ToolCall]]
    end: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """How much of a stream was seen, by references and lengths."""

    choices: dict[int, _SeenChoice]
    ids: Sequence[int]
    known_ids: int
    gaps: int
    prompt_ids: Sequence[int]
    resumes: int
    place: dict[str, Any]


def seen(stream: Standing, before: Seen | None = None) -> Seen:
    """What there is now.

    Args:
        stream: Looked at; nothing may change it meanwhile.
        before: What was seen earlier, so that not all gaps need be counted again.
    """
    ledger = stream.ledger
    known = before.gaps if before is not None and before.ids is ledger.ids else 0
    return Seen(
        choices={index: _seen(choice) for index, choice in ledger.choices.items()},
        ids=ledger.ids,
        known_ids=len(ledger.ids),
        gaps=known + len(ledger.gaps_since(known)),
        prompt_ids=ledger.prompt_ids,
        resumes=len(stream.resumes),
        place=stream.place,
    )


def whole(stream: Standing) -> Checkpoint:
    """All of it."""
    ledger = stream.ledger
    return Checkpoint(
        **dict(ledger.main.stored()),
        **stream.place,
        request=stream.request.model_dump(mode="json", exclude_unset=True),
        others={
            index: choice.stored()
            for index, choice in ledger.choices.items()
            if choice is not ledger.main
        },
        token_ids=list(ledger.ids),
        gaps=ledger.gaps_since(0),
        prompt_ids=list(ledger.prompt_ids),
        resumptions=list(map(_survived, stream.resumes)),
    )


def growth(stream: Standing, before: Seen) -> Growth | None:
    """What came since ``before``; None where only the whole can tell it."""
    ledger = stream.ledger
    if ledger.ids is not before.ids or ledger.prompt_ids is not before.prompt_ids:
        return None
    news = _changed(stream.place, before.place)
    others: dict[int, Answer] = {}
    for index, choice in ledger.choices.items():
        known = before.choices.get(index)
        grown = _grown(choice, known or _SeenChoice(choice, {}, {}, {}))
        if grown is None:
            return None
        if choice is ledger.main:
            news |= grown
        elif grown:
            others[index] = Answer(**grown)
    if others:
        news["others"] = others
    if ids := ledger.ids[before.known_ids :]:
        news["token_ids"] = list(ids)
    if gaps := ledger.gaps_since(before.gaps):
        news["gaps"] = gaps
    if resumes := stream.resumes[before.resumes :]:
        news["resumptions"] = list(map(_survived, resumes))
    return Growth(**news)


def _seen(choice: Choice) -> _SeenChoice:
    return _SeenChoice(
        choice=choice,
        texts={name: (text, text.length) for name, text in choice.channels.items()},
        calls={
            index: (arguments, arguments.length, replace(call, arguments=""))
            for index, (call, arguments) in choice.calls.items()
        },
        end=_end(choice),
    )


def _end(choice: Choice) -> dict[str, Any]:
    return {
        "finished": choice.finished,
        "finish_reason": choice.finish_reason,
        "raw_finish_reason": choice.raw_finish_reason,
    }


def _grown(choice: Choice, known: _SeenChoice) -> dict[str, Any] | None:
    """The fields of one answer that changed; None where it is another answer."""
    if known.choice is not choice:
        return None
    news = _changed(_end(choice), known.end)
    for name, text in choice.channels.items():
        before, length = known.texts.get(name, (text, 0))
        if before is not text:
            return None
        if text.length > length:
            news[name] = text.since(length)
    calls = []
    for index, (call, arguments) in choice.calls.items():
        unknown = (arguments, 0, None)
        before, length, said = known.calls.get(index, unknown)
        if before is not arguments:
            return None
        if arguments.length > length or replace(call, arguments="") != said:
            calls.append(replace(call, arguments=arguments.since(length)))
    if calls:
        news["tool_calls"] = calls
    return news


def _changed(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in now.items()
        if name not in before or before[name] != value
    }


def _survived(resumption: Resumption) -> Survived:
    return Survived(
        at=resumption.at,
        reason=resumption.reason,
        strategy=resumption.strategy,
        exactness=resumption.exactness.name,
        endpoint=str(resumption.endpoint),
        gap=resumption.gap,
    )
