"""One generation over many connections: the state machine between bytes and events.

Sans-IO: a driver hands in bytes and the time, and does what it is told.

    connect()   a flow of calls; returns the one that opens the stream
    opened()    status and headers came; False: read the whole answer, then refused()
    receive()   bytes came; gives events
    eof()       the body ended
    dropped()   something broke; gives events and plans the next connection, or raises
    pause       seconds to wait before connect()
    deadline    until when to wait for the next byte
    leave()     a flow of calls that stops what still runs at the server

What becomes of a fault is decided in `recovery`; every limit is `patience`'s; errors
are made in `verdicts`; `legs` asks for connections. Times are monotonic seconds. A
fault found inside received bytes is kept until the events before it are delivered;
`check` raises it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn, TypeAlias, assert_never

from midstream._metrics import Metrics
from midstream._resume.growth import whole
from midstream._resume.recovery import EndWell, GiveUp, GoOn, Recovery
from midstream._session.folding import close, finish, fold, measure
from midstream._session.legs import Legs
from midstream._session.patience import Patience
from midstream._session.verdicts import refuse_page, scrubbed, signed, tell, verdict
from midstream._values.errors import (
    Dropped,
    MidstreamError,
)
from midstream._values.events import Event, Resumed
from midstream._values.interruptions import ResumeDiverged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from midstream._dialects.base import Call, Flow, Reply
    from midstream._resume.growth import Standing
    from midstream._resume.policy import Resume
    from midstream._resume.recovery import Drop
    from midstream._resume.restoring import Beginning
    from midstream._resume.server import Server
    from midstream._values.checkpoint import Checkpoint
    from midstream._values.events import Signal
    from midstream._values.timeouts import Deadline, Timeouts

Events: TypeAlias = list[Event]

_OK = 200
_LOG = logging.getLogger("midstream")


class Session:
    """The state machine of one stream.

    Args:
        servers: Who may answer, in order.
        beginning: What is asked, and what came of it already.
        timeouts: The limits.
        resume: Whether and how to go on after a drop; None: never.
        handles: Makes unguessable names for generations.
        random: Source of the backoff's jitter.

    Attributes:
        beginning: What is asked, and what came of it before.
        ledger: What came.
        history: How it came about.
        metrics: How fast.
        patience: The limits.
        recovery: What is decided when it breaks.
        ended: Whether nothing more will come.
        complete: Whether the whole answer came.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        beginning: Beginning,
        *,
        timeouts: Timeouts,
        resume: Resume | None,
        handles: Callable[[], str],
        random: Random,
    ) -> None:
        self.beginning = beginning
        self.ledger, self.history = beginning.ledger, beginning.history
        self.metrics = Metrics()
        self.patience = Patience(timeouts)
        notes, server = self.history.notes, beginning.server
        self.recovery = Recovery(servers, resume, random, notes, server)
        self._legs = Legs(beginning, self.recovery, handles)
        self._next = GoOn(server)
        self._fault: MidstreamError | None = None
        self.ended = self.complete = False
        if beginning.whole:
            self._close(beginning.events)
        elif beginning.drop is not None:
            self.recovery.restored(beginning.drop, kept=beginning.kept)

    @property
    def server(self) -> Server:
        """Who answers."""
        return self.recovery.server

    @property
    def deadline(self) -> Deadline:
        """Until when the next byte is waited for."""
        return self.patience.deadline

    @property
    def pause(self) -> float:
        """Seconds to wait before `connect`."""
        return self._next.pause

    def backlog(self) -> Events:
        """Events that were known before any byte came."""
        events, self.beginning.events = self.beginning.events, []
        return events

    # -- connecting --------------------------------------------------------------

    def connect(self, now: float) -> Flow[Call]:
        """The calls that open the next connection; see `Legs.ask`."""
        recovery = self.recovery
        self.metrics.connect(now)
        if self.metrics.connects == 1:
            self.patience.begin(now)
            if recovery.drop is None:
                self.history.origin = recovery.first_server(now).endpoint
        self.patience.ask(now)
        call = yield from self._legs.ask(self.patience)
        _LOG.debug("request to %s: %s", self.server.endpoint, self._legs.open.strategy)
        return call

    def opened(self, status: int, headers: Mapping[str, str]) -> bool:
        """The server answered; whether a stream follows. If not, see `refused`.

        Raises:
            NotFound: A web page follows, as from a wrong address or a login.
        """
        if status != _OK:
            return False
        refuse_page(headers, self.server.endpoint)
        self._legs.open.open()
        self.recovery.connected(self.ledger)
        return True

    def refused(self, reply: Reply) -> NoReturn:
        """The server answered with something else than a stream: raise what it said."""
        raise self.server.dialect.error(reply)

    # -- receiving ---------------------------------------------------------------

    def check(self) -> None:
        """Raise what the last bytes held behind their events."""
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def receive(self, piece: bytes, now: float) -> Events:
        """The next bytes of the body, or one message, came."""
        leg = self._legs.open
        events: Events = []
        drop, self.recovery.drop = self.recovery.drop, None
        if drop is not None and drop.opened:
            events.append(self._resumed(drop, now))
        self._fold(leg.receive(piece), events)
        self._came(events, now)
        return events

    def eof(self, now: float) -> Events:
        """The body ended, as its transport calls clean."""
        leg = self._legs.open
        events: Events = []
        signals, unterminated = leg.eof()
        if unterminated:
            self.history.notes.append("unterminated_tail")
        self._fold(signals, events)
        if not self.ended and self._fault is None:
            if self.ledger.finished:
                self._end_if_whole(events)
            else:
                self._fault = Dropped("the body ended before the answer did")
        self._came(events, now)
        return events

    def _fold(self, signals: list[Event | Signal], events: Events) -> None:
        leg, begun = self._legs.open, self.beginning
        self._fault, leg.fault = leg.fault, None
        ended = fold(signals, events, self.ledger, begun.request, begun.after)
        enough = self.recovery.grew(self.ledger.progress)
        if enough and self.recovery.restarts and self._legs.restarted():
            self._fault = ResumeDiverged(
                "the server does not continue the answer but begins it anew"
            )
        elif ended:
            self._end_if_whole(events)

    def _came(self, events: Events, now: float) -> None:
        """Move the limits and the metrics, once per read."""
        measure(events, self.metrics, now)
        again = self._legs.open.repeated
        self.patience.came(now, self.ledger.progress + again)
        if self.ledger.finished:
            self.patience.finished(now)
        if not self.ended and self._fault is None:
            self._fault = self.patience.overdue(now)

    def _resumed(self, drop: Drop, now: float) -> Resumed:
        """The first bytes after a drop."""
        way, who = self._legs.open.strategy, self.server.endpoint
        resumption = self.history.resumed(drop, self.ledger, way, who, now)
        self.metrics.resumed(resumption.gap)
        told = way, who, resumption.at, resumption.gap
        _LOG.info("resumed by %s at %s, character %d, after %.3f s", *told)
        return Resumed(resumption)

    def _end(self, events: Events) -> None:
        """The whole answer came: give what waited for its end."""
        finish(self._legs.open, events, self.ledger, self.beginning.request)
        after, came = self.beginning.after, self.ledger.main.characters
        if after > came:
            raise ResumeDiverged(f"{after} characters were read of an answer of {came}")
        self._close(events)

    def _end_if_whole(self, events: Events) -> None:
        try:
            self._end(events)
        except ResumeDiverged as error:  # behind what came before it
            self._fault = error

    def _close(self, events: Events) -> None:
        self.ended = self.complete = True
        self.history.survived = None  # its traceback leads back here
        choice, replaced = self.beginning.request.choice, self._legs.replaced
        events.append(close(self.ledger, self.metrics, choice, replaced))

    def dropped(self, fault: MidstreamError, now: float) -> Events:
        """The connection is gone, or was never there; raises if that is the end.

        Returns:
            The last events, when the answer is whole all the same.
        """
        events: Events = []
        if self._legs.now is not None and not self.ended:
            self._fold(self._legs.now.last_words(), events)
            if self.ended:
                return events
        scrubbed(fault, who := self.server.endpoint)
        self._legs.judge(fault)
        facts = self._legs.facts(self.patience, fault)
        before = self.recovery.drop
        decision = self.recovery.decide(fault, now, facts)
        match decision:
            case EndWell(finish=reason, note=note):
                if reason is not None:
                    self.ledger.main.finish(reason)
                    self._close(events)
                else:
                    self.history.notes.append(note or "")
                    self._end(events)
            case GiveUp():
                survived, came = self.history.survived, self.ledger.progress > 0
                raise self.signed(verdict(decision, survived=survived, delivered=came))
            case GoOn():
                self._next = decision
                self.metrics.drop()
                self._legs.hang_up()
                tell(who, self.ledger.main.characters, fault, first=before is None)
            case _:
                assert_never(decision)
        return events

    def signed(self, error: MidstreamError) -> MidstreamError:
        """The error with the text so far and a checkpoint, and without any key."""
        self.ended = True
        return signed(
            error,
            self.server,
            text=self.ledger.main.text,
            checkpoint=self.checkpoint(),
            resumes=self.history.resumes,
        )

    def leave(self) -> Flow[None]:
        """Calls that stop what still runs at the server; best effort."""
        leg = self._legs.now
        if not self.complete or (leg is not None and leg.stopped):
            yield from self._legs.leave()

    def checkpoint(self) -> Checkpoint:
        """What is needed to continue later."""
        return whole(self.standing())

    def standing(self) -> Standing:
        """The same, for who stores what is new of it."""
        return self._legs.standing(complete=self.complete)

    @property
    def mark(self) -> tuple[object, ...]:
        """Differs when a checkpoint would, but for its places in bodies."""
        return self.complete, *self._legs.mark
