"""The oracle: what a caller may see of a case, and nothing else.

    complete      the whole text, one Finish, and the numbers fit
    an error      one of ours, with the begin of the text, and never "complete"

Everything else is a fault of midstream, or of this oracle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases import COMPLETE, HONEST

import midstream
from midstream import Exactness, Finish, ReasoningDelta, Resumed, TextDelta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases import Case


@dataclass
class Seen:
    """What a caller saw of a stream.

    Attributes:
        pieces: Text, piece by piece.
        events: Events, where it was read by them.
        stream: The stream itself, left.
        error: What was raised.
        faults: What was wrong on the way.
    """

    pieces: list[str] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    stream: Any = None
    error: BaseException | None = None
    faults: list[str] = field(default_factory=list)

    def note(self, item: Any) -> None:
        """One item of the iteration."""
        if isinstance(item, str):
            self.pieces.append(item)
            return
        self.events.append(item)
        if isinstance(item, TextDelta):
            self.pieces.append(item.text)


def wrong(case: Case, seen: Seen) -> list[str]:
    """All that is wrong; nothing, when all is well."""
    found = [*seen.faults, *_pieces(seen), *_text(case, seen), *_end(case, seen)]
    if case.legs:
        return [*found, *_joined(case, seen)]
    return [*found, *_shown(case, seen), *_events(case, seen), *_facts(case, seen)]


def _pieces(seen: Seen) -> Iterator[str]:
    for piece in seen.pieces:
        if not piece:
            yield "an empty piece"
        try:
            piece.encode()
        except UnicodeEncodeError:
            yield f"half a character in {piece!r}"


def _joined(case: Case, seen: Seen) -> Iterator[str]:
    """What several readers saw, one after the other."""
    joined = "".join(seen.pieces)
    if not case.text.startswith(joined):
        yield f"all readers together saw {joined!r}, no begin of {case.text!r}"
    elif seen.error is None and joined != case.text:
        yield f"all readers together saw {joined!r} of {case.text!r}"


def _shown(case: Case, seen: Seen) -> Iterator[str]:
    """What one reader saw."""
    stream, joined = seen.stream, "".join(seen.pieces)
    regrouped = seen.error is not None and case.how in ("words", "graphemes")
    if case.how != "read" and joined != stream.text and not regrouped:
        yield f"pieces {joined!r} are not the text {stream.text!r}"
    if not stream.text.startswith(joined):
        yield f"pieces {joined!r} are no begin of {stream.text!r}"


def _text(case: Case, seen: Seen) -> Iterator[str]:
    stream = seen.stream
    text = case.text
    begun = any(resumption.at for resumption in stream.resumes)
    if case.instead and not begun and case.instead.startswith(stream.text):
        text = case.instead
    for name, got, whole in (
        ("text", stream.text, text),
        ("reasoning", stream.reasoning, case.reasoning),
        ("arguments", _arguments(stream), case.arguments),
    ):
        if stream.complete and got != whole:
            yield f"complete with other {name}: {got!r} for {whole!r}"
        if not whole.startswith(got):
            yield f"{name} {got!r} is no begin of {whole!r}"


def _arguments(stream: Any) -> str:
    return "|".join(call.arguments for call in stream.tool_calls)


def _end(case: Case, seen: Seen) -> Iterator[str]:
    stream, error = seen.stream, seen.error
    if (error is None) != stream.complete:
        yield f"complete is {stream.complete} after {error!r}"
    if error is None:
        if case.must not in (COMPLETE, HONEST) and case.text == stream.text:
            yield f"no error where {case.must} was due"
        if case.finish and stream.finish_reason not in (*case.finish, None):
            yield f"finish reason {stream.finish_reason!r} is none of {case.finish}"
        return
    if not isinstance(error, midstream.MidstreamError):
        yield f"a foreign error: {error!r}"
        return
    if case.must == COMPLETE and not _reads_as_begun_anew(error, stream.text):
        yield f"not whole: {type(error).__name__}: {error}; {stream.notes}"
    elif case.must not in (COMPLETE, HONEST) and not isinstance(error, case.must):
        yield f"{type(error).__name__} in place of {case.must}: {error}"
    if isinstance(error, midstream.UsageError | RuntimeError):
        yield f"the caller is blamed: {error}"
    if error.checkpoint is None:
        yield f"an error without a checkpoint: {error!r}"
        return
    if error.text != stream.text or error.checkpoint.text != stream.text:
        yield f"the error has {error.text!r}, the stream {stream.text!r}"
    if error.checkpoint.complete:
        yield "the checkpoint of a cut stream says complete"


def _reads_as_begun_anew(error: Exception, came: str) -> bool:
    """Whether nobody could tell the text from an answer that was begun three times.

    "ha ha ha", cut behind each "ha ", is such a text: an honest error, as K31 asks.
    """
    thrice = came.count(came[:3]) > 2 if came else False
    return isinstance(error, midstream.ResumeDiverged) and thrice


def _events(case: Case, seen: Seen) -> Iterator[str]:
    if case.how != "events":
        return
    finishes = [at for at, e in enumerate(seen.events) if isinstance(e, Finish)]
    due = [len(seen.events) - 1] if seen.error is None else []
    if finishes != due:
        yield f"Finish at {finishes} of {len(seen.events)} events"
    resumed = [e.resumption for e in seen.events if isinstance(e, Resumed)]
    if resumed != seen.stream.resumes:
        yield f"Resumed events {resumed} are not {seen.stream.resumes}"
    at = 0
    for event in seen.events:
        if isinstance(event, TextDelta):
            at += len(event.text)
        elif isinstance(event, Resumed) and event.resumption.at != at:
            yield f"resumed at {event.resumption.at}, but {at} characters had come"
    thought = "".join(e.text for e in seen.events if isinstance(e, ReasoningDelta))
    if thought != seen.stream.reasoning:
        yield f"reasoning {thought!r} is not {seen.stream.reasoning!r}"


def _facts(case: Case, seen: Seen) -> Iterator[str]:
    stream, metrics = seen.stream, seen.stream.metrics
    if case.connects is not None and metrics.connects > case.connects:
        yield f"{metrics.connects} connects where {case.connects} are enough"
    if metrics.characters != len(stream.text):
        yield f"{metrics.characters} characters counted of {len(stream.text)}"
    if metrics.connects < len(stream.resumes) + bool(stream.text):
        yield f"{metrics.connects} connects, {len(stream.resumes)} resumes"
    if (metrics.ttft is None) == bool(stream.text):
        yield f"first text after {metrics.ttft} s"
    if metrics.resumes != len(stream.resumes) or metrics.gap < 0:
        yield f"{metrics.resumes} resumes and a gap of {metrics.gap} s counted"
    weakest = max((r.exactness for r in stream.resumes), default=Exactness.UNBROKEN)
    if stream.exactness is not weakest:
        yield f"{stream.exactness} is not the weakest, {weakest}"
