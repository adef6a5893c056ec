"""The connections of one generation, one after the other: each is a leg.

Here a leg is asked for: begun, replayed, or continued in the first of the ways that the
server can. It knows the present leg and how the next one is made, and decides nothing.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from midstream._resume.growth import Standing
from midstream._resume.policy import restarts
from midstream._resume.recovery import Facts, Seen
from midstream._session.asking import continuation, generation, replay_from_begin
from midstream._session.leg import Leg
from midstream._session.repeated import Repeated
from midstream._session.shapes import SHAPE_FAULTS
from midstream._session.verdicts import scrubbed
from midstream._values.errors import (
    Dropped,
    ServerError,
    TransportError,
    UsageError,
    WireError,
)
from midstream._values.interruptions import ResumeUnsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from midstream._dialects.base import Call, Flow, Generation, Received
    from midstream._resume.recovery import Recovery
    from midstream._resume.restoring import Beginning
    from midstream._session.patience import Patience
    from midstream._values.errors import MidstreamError
    from midstream._values.usage import Usage


class Legs:
    """The present leg, and how the next one is asked for.

    Args:
        beginning: What is asked, and what came of it already.
        recovery: Whom, and in which ways.
        handles: Makes unguessable names for generations.

    Attributes:
        now: The present leg; None before the first.
    """

    def __init__(
        self, beginning: Beginning, recovery: Recovery, handles: Callable[[], str]
    ) -> None:
        self._beginning = beginning
        self._ledger = beginning.ledger
        self._recovery = recovery
        self._handles = handles
        self._rest = False
        self.now: Leg | None = None

    @property
    def open(self) -> Leg:
        """The present leg, where there must be one."""
        if self.now is None:
            raise RuntimeError("connect() comes first")  # the driver's mistake
        return self.now

    @property
    def handle(self) -> str:
        """The name of what another process may replay, known before it is asked for.

        What continues a text is no whole answer: from its begin it is only the rest.
        """
        if self.now is None:
            return self._beginning.handle
        return "" if self._rest else self.now.generation.handle

    @property
    def replaced(self) -> int:
        """How many U+FFFD were put in for bytes that are no UTF-8."""
        return 0 if self.now is None else self.now.replaced

    def hang_up(self) -> None:
        """The present connection has ended."""
        if self.now is not None and self._recovery.drop is None:
            self.now = None  # it was refused: nothing runs there, and nothing had come
        elif self.now is not None:
            self.now.hang_up()

    def judge(self, fault: MidstreamError) -> None:
        """Some errors are worth another try, though the server does not say so."""
        dialect = self._recovery.server.dialect
        if isinstance(fault, ServerError) and dialect.passes(fault):
            fault.retryable = True

    def received(self) -> Received:
        """What had come, as a dialect needs it."""
        leg = self.now
        if leg is None:
            return self._ledger.received(0, None)
        return self._ledger.received(leg.offset, leg.cursor)

    def facts(self, patience: Patience, fault: MidstreamError | None = None) -> Facts:
        """What a decision about ``fault`` looks at."""
        return Facts(
            request=self._beginning.request,
            ledger=self._ledger,
            seen=self._seen(fault),
            after=self._beginning.after,
            ends_at=patience.ends_at,
            timeouts=patience.timeouts,
        )

    def _seen(self, fault: MidstreamError | None) -> Seen | None:
        leg = self.now
        if leg is None:
            return None
        return Seen(
            strategy=leg.strategy,
            prepared=leg.generation.strategies,
            opened=leg.opened,
            spent=fault is not None and leg.spent(fault),
            restarted=self.restarted() if fault is not None else None,
        )

    def restarted(self) -> bool | None:
        """Whether the leg says the answer's own beginning; None if it said nothing."""
        leg, ledger, at = self.now, self._ledger, self._recovery.at
        if leg is None or not leg.answered or ledger.main.characters == at:
            return None
        continues = leg.strategy not in {"begin", "replay", "rerun"}
        again = self._recovery.restarts > 0
        return continues and restarts(ledger.main.text, at, again=again)

    def standing(self, *, complete: bool) -> Standing:
        """All that is stored of a stream."""
        begun, leg, ledger = self._beginning, self.now, self._ledger
        place = {
            "endpoint": str(self._recovery.server.endpoint),
            "tokens": ledger.tokens,
            "response_id": ledger.response_id,
            "handle": self.handle,
            "offset": leg.offset if leg else 0,
            "cursor": leg.cursor if leg else None,
            "usage": _fields(ledger.usage),
            "spent": _fields(ledger.spent),
            "complete": complete,
            "exactness": begun.history.exactness.name,
        }
        return Standing(begun.request, ledger, begun.history.resumes, place)

    @property
    def mark(self) -> tuple[object, ...]:
        """Differs when a checkpoint would, but for its places in bodies."""
        ledger = self._ledger
        cursor = None if self.now is None else self.now.cursor
        news = self.handle, ledger.response_id, len(ledger.prompt_ids), cursor
        return *news, len(self._beginning.history.resumes), *ledger.mark

    # -- asking ------------------------------------------------------------------

    def ask(self, patience: Patience) -> Flow[Call]:
        """The calls that open the next leg; returns the streaming one.

        Raises:
            ResumeUnsupported: No strategy that is left can continue.
            UsageError: The dialect cannot say what was asked.
            WireError: An answer before the stream is malformed.
        """
        try:
            return (yield from self._ask(patience))
        except UsageError as error:
            if not self._recovery.failed:
                raise
            who = self._recovery.server.endpoint  # the next one may know how
            raise ResumeUnsupported(f"{who} cannot be asked this: {error}") from error
        except SHAPE_FAULTS as error:
            raise WireError("an answer before the stream is malformed") from error

    def _ask(self, patience: Patience) -> Flow[Call]:
        recovery, leg = self._recovery, self.now
        if recovery.drop is None and leg is not None and leg.opened:
            # Nobody told what became of it: whoever read was interrupted.
            raise Dropped("a read was left, and the connection closed with it")
        while self._continues():
            error = recovery.restrict(self.facts(patience))
            if error is not None:
                raise error
            try:
                return (yield from self._continue_by(recovery.ways[0]))
            except ResumeUnsupported as why:
                recovery.skip(why)
        if recovery.drop is None and leg is not None:
            yield from self._leave_quietly()  # cancelled before the headers came
        wanted = self._generation()
        call = yield from recovery.server.dialect.begin(wanted)
        self._start(Leg(recovery.server.dialect, wanted))
        return call

    def _continues(self) -> bool:
        """Whether there is something to continue: text, or a stream that is kept."""
        recovery, leg = self._recovery, self.now
        if recovery.drop is None:
            return False
        kept = self._beginning.kept if leg is None else leg.opened
        if kept and recovery.ways[:1] == ["replay"]:
            return True
        return self._ledger.progress > 0 or self._beginning.after > 0

    def _generation(self) -> Generation:
        """A new one; the first has the name that was stored before it was asked for."""
        recovery = self._recovery
        first = self.now is None and recovery.drop is None
        handle = self._beginning.handle if first else self._handles()
        request = self._beginning.request
        return generation(recovery.server, request, recovery.resume, handle)

    def _continue_by(self, way: str) -> Flow[Call]:
        received, server = self.received(), self._recovery.server
        if way == "replay":
            return (yield from self._replay(received))
        if self._ledger.used_up:
            raise Dropped("a replay would have told whether all tokens have come")
        wanted = self._generation()
        found = yield from continuation(way, server, wanted, received)
        yield from self._abandon()
        self._start(Leg(server.dialect, wanted, way)).join(found, received.text)
        return found.call

    def _replay(self, received: Received) -> Flow[Call]:
        leg, server = self.now, self._recovery.server
        if leg is None:
            return (yield from self._replay_from_begin(received))
        if leg.generation.endpoint is not server.endpoint:
            raise ResumeUnsupported("another server keeps the stream")
        dialect, wanted = server.dialect, leg.generation
        found = yield from dialect.continuation(wanted, "replay", received)
        leg.replay(found)
        return found.call

    def _replay_from_begin(self, received: Received) -> Flow[Call]:
        """What another process had asked for; what it received is expected again."""
        begun, recovery = self._beginning, self._recovery
        server = recovery.server
        wanted = generation(server, begun.request, recovery.resume, begun.handle)
        found = yield from replay_from_begin(server, wanted, received)
        self.now = leg = Leg(server.dialect, wanted, "replay")
        leg.opened = True  # there
        leg.join(found, received.text)
        leg.repeat(Repeated(self._ledger.choices, begun.request.choice))
        self._ledger.replays(begun.spent)
        return found.call

    def _start(self, leg: Leg) -> Leg:
        self._ledger.forget_open()
        if self.now is not None and self.now.opened:
            self._ledger.next_leg()
        self.now, self._rest = leg, leg.strategy not in {"begin", "rerun"}
        return leg

    # -- leaving -----------------------------------------------------------------

    def leave(self) -> Flow[None]:
        """Calls that stop what still runs at the server."""
        leg = self.now
        if leg is not None:
            yield from leg.dialect.leave(leg.generation, self.received())

    def _abandon(self) -> Flow[None]:
        """Stop a generation that a server keeps alive though nobody will replay it."""
        leg, recovery = self.now, self._recovery
        if leg is None or leg.dialect.transport != recovery.server.dialect.transport:
            return
        if leg.opened and not recovery.lost:
            yield from self._leave_quietly()

    def _leave_quietly(self) -> Flow[None]:
        """Leave; that it failed is a note."""
        try:
            yield from self.leave()
        except (TransportError, ServerError) as error:
            words = scrubbed(error, self._recovery.server.endpoint)
            self._recovery.notes.append(f"leave: {words}")


def _fields(usage: Usage | None) -> dict[str, Any] | None:
    return None if usage is None else asdict(usage)
