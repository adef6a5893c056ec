"""Where a session begins: at nothing, or at what another process left.

What was stored is in the ledger before the session exists. A server that keeps the
stream sends it again from its begin, so that nothing of its decoding state need be
stored: the known part is expected, checked and dropped, as in a rerun.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from midstream._resume.history import History
from midstream._resume.ledger import Ledger
from midstream._resume.recovery import Drop
from midstream._values.endpoint import Endpoint
from midstream._values.errors import Dropped, UsageError
from midstream._values.events import (
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream._values.exactness import Exactness
from midstream._values.request import Request
from midstream._values.resumption import Resumption
from midstream._values.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from midstream._resume.ledger import Choice
    from midstream._resume.server import Server
    from midstream._values.checkpoint import Checkpoint
    from midstream._values.events import Event


@dataclass(slots=True, kw_only=True)
class Beginning:
    """What a session begins with.

    Attributes:
        request: What is asked.
        ledger: What came already.
        server: Who is asked first.
        history: How that came about.
        handle: The generation's name, for servers that keep it for replay.
        drop: What ended it in another process; None for a new one.
        kept: Whether a server may keep it for replay.
        spent: Tokens of the generations before it.
        after: Characters of the text that the caller has.
        whole: Whether all of it came.
        events: What is known before a byte comes.
    """

    request: Request
    ledger: Ledger
    server: Server
    history: History
    handle: str
    drop: Drop | None = None
    kept: bool = False
    spent: Usage | None = None
    after: int = 0
    whole: bool = False
    events: list[Event] = field(default_factory=list)


def begin(servers: Sequence[Server], request: Request, handle: str) -> Beginning:
    """A new generation.

    Args:
        servers: Who may answer, in order.
        request: What is asked.
        handle: An unguessable name for it.
    """
    return Beginning(
        request=request,
        ledger=Ledger(request.choice, request.max_tokens, request.choices),
        server=servers[0],
        history=History(servers[0].endpoint),
        handle=handle,
    )


def restore(
    servers: Sequence[Server],
    stored: Checkpoint,
    now: float,
    *,
    after: int = 0,
    have: str | None = None,
) -> Beginning:
    """Go on where another process was.

    Args:
        servers: Who may answer, in order.
        stored: What that process left.
        now: Monotonic seconds.
        after: Characters that the caller has; nothing of them is given again.
        have: The text that the caller has.

    Raises:
        UsageError: What the caller has and what is stored do not agree.
    """
    request = Request.model_validate(stored.request)
    origin = Endpoint.parse(stored.endpoint)
    server = max(servers, key=lambda server: server.kinship(origin))
    ledger = Ledger(request.choice, request.max_tokens, request.choices)
    ledger.load(stored)
    kin = any(server.kinship(origin))
    if not kin:
        ledger.forget_server()
    if have is not None:
        after = len(have)
    if stored.complete and after > ledger.main.characters:
        raise UsageError(
            f"resume(after={after}): the stream is complete and has "
            f"{ledger.main.characters} characters"
        )
    if have is not None:
        _extend(ledger, have)
    kept = kin and bool(stored.handle)
    if ledger.used_up and not (ledger.guessed and kept):
        # The process ended before it could say so. A guess is worth less than a replay.
        ledger.main.finish(Finish("length", "length"))
    whole = stored.complete or ledger.finished
    events = _known(ledger, request.choice, after)
    if whole and ledger.usage is not None:  # else the last connection reports the sum
        events.append(UsageReport(ledger.usage))
    return Beginning(
        request=request,
        ledger=ledger,
        server=server,
        history=History(origin, Exactness[stored.exactness], _past(stored)),
        handle=stored.handle if kin else "",
        drop=Drop(Dropped("the process that had begun this stream ended"), now),
        kept=kept,
        spent=Usage(**stored.spent) if stored.spent else None,
        after=after,
        whole=whole,
        events=events,
    )


def _past(stored: Checkpoint) -> list[Resumption]:
    return [
        Resumption(
            at=one.at,
            reason=one.reason,
            strategy=one.strategy,
            exactness=Exactness[one.exactness],
            endpoint=Endpoint.parse(one.endpoint),
            gap=one.gap,
        )
        for one in stored.resumptions
    ]


def _extend(ledger: Ledger, have: str) -> None:
    """The caller may have seen more than was stored.

    Raises:
        UsageError: Neither text is the other's beginning.
    """
    text = ledger.main.text
    if text.startswith(have):
        return
    if not have.startswith(text):
        raise UsageError(
            "resume(have=…): this is not the text of the stored stream; they differ "
            f"at character {_common(text, have)}"
        )
    ledger.add_unstored(have[len(text) :])


def _common(a: str, b: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = zip(a, b, strict=False)
    return next((at for at, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def _known(ledger: Ledger, choice: int, after: int) -> list[Event]:
    """What is stored, as events; text and reasoning that the caller has left out."""
    return [
        event
        for index, answer in sorted(ledger.choices.items())
        for event in _said(answer, index, after if index == choice else 0)
    ]


def _said(answer: Choice, index: int, after: int) -> Iterator[Event]:
    if answer.reasoning and not after:
        yield ReasoningDelta(answer.reasoning, index, 0)
    if answer.characters > after:
        yield TextDelta(answer.text[after:], index, 0)
    if answer.refusal:
        yield RefusalDelta(answer.refusal, index, 0)
    for call in answer.tool_calls:
        said = call.id, call.name, call.arguments, index, 0, call.complete
        yield ToolCallDelta(call.index, *said)
