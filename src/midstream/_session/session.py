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

What becomes of a fault is decided in `recovery`; every limit is `patience`'s; errors are
made in `verdicts`. A fault found inside received bytes is kept until the events before
it are delivered; `check` raises it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, TypeAlias, assert_never

from midstream._dialects.base import EXACTNESS
from midstream._metrics import Metrics
from midstream._resume import storing
from midstream._resume.recovery import EndWell, GiveUp, GoOn, Recovery
from midstream._session.leg import SHAPE_FAULTS
from midstream._session.legs import Legs
from midstream._session.patience import Patience
from midstream._session.verdicts import scrubbed, signed, told, verdict
from midstream._values.errors import (
    Dropped,
    MidstreamError,
    NotFound,
    ServerError,
    UsageError,
    WireError,
)
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
from midstream._values.exactness import Exactness
from midstream._values.interruptions import ResumeDiverged, ResumeUnsupported
from midstream._values.resumption import Resumption

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from midstream._dialects.base import Call, Flow, Reply
    from midstream._resume.policy import Resume
    from midstream._resume.recovery import Drop
    from midstream._resume.restoring import Beginning
    from midstream._resume.server import Server
    from midstream._values.checkpoint import Checkpoint
    from midstream._values.events import Signal
    from midstream._values.request import Request
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
        self._beginning = beginning
        self.ledger, self.history = beginning.ledger, beginning.history
        self.metrics = Metrics()
        self.patience = Patience(timeouts)
        notes = self.history.notes
        self.recovery = Recovery(servers, resume, random, notes, beginning.server)
        self._legs = Legs(beginning, self.recovery, handles)
        self._next = GoOn(beginning.server)
        self._fault: MidstreamError | None = None
        self.ended = self.complete = False
        if beginning.whole:
            self._close(beginning.events)
        elif beginning.drop is not None:
            self.recovery.restored(beginning.drop, kept=beginning.kept)

    @property
    def request(self) -> Request:
        """What was asked."""
        return self._beginning.request

    @property
    def after(self) -> int:
        """From which character of the text on it is given out."""
        return self._beginning.after

    @property
    def server(self) -> Server:
        """Who answers."""
        return self.recovery.server

    @property
    def notes(self) -> list[str]:
        """What was odd but harmless."""
        return self.history.notes

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
        events, self._beginning.events = self._beginning.events, []
        return events

    # -- connecting --------------------------------------------------------------

    def connect(self, now: float) -> Flow[Call]:
        """The calls that open the next connection; returns the streaming one.

        Args:
            now: Monotonic seconds.

        Raises:
            ResumeUnsupported: No strategy that is left can continue.
            UsageError: The dialect cannot say what was asked.
        """
        recovery = self.recovery
        self.metrics.connect(now)
        if self.metrics.connects == 1:
            self.patience.begin(now)
            if recovery.drop is None:
                self.history.origin = recovery.first_server(now).endpoint
        self.patience.ask(now)
        try:
            call = yield from self._legs.ask(self.patience)
        except UsageError as error:
            if not recovery.failed:
                raise
            who = self.server.endpoint  # the next one may know how
            raise ResumeUnsupported(f"{who} cannot be asked this: {error}") from error
        except SHAPE_FAULTS as error:
            raise WireError("an answer before the stream is malformed") from error
        _LOG.debug("request to %s: %s", self.server.endpoint, self._legs.open.strategy)
        return call

    def opened(self, status: int, headers: Mapping[str, str]) -> bool:
        """The server answered.

        Args:
            status: HTTP status; 200 for gRPC.
            headers: Headers, names in lower case.

        Returns:
            Whether a stream follows. If not, read the body and call `refused`.

        Raises:
            NotFound: A web page follows, as from a wrong address or a login.
        """
        if status == _OK and headers.get("content-type", "").startswith("text/html"):
            raise NotFound(
                "an HTML page in place of a stream; is "
                f"{self.server.endpoint.address} the right address?",
                status=status,
            )
        if status == _OK:
            self._legs.open.open()
            self.recovery.connected(self.ledger)
        return status == _OK

    def refused(self, reply: Reply) -> NoReturn:
        """The server answered with something else than a stream.

        Raises:
            ServerError: What it said.
        """
        raise self.server.dialect.error(reply)

    # -- receiving ---------------------------------------------------------------

    def check(self) -> None:
        """Raise what the last bytes held behind their events.

        Raises:
            MidstreamError: The fault.
        """
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def receive(self, piece: bytes, now: float) -> Events:
        """Bytes came.

        Args:
            piece: The next bytes of the body, or one message.
            now: Monotonic seconds.
        """
        leg = self._legs.open
        events: Events = []
        drop, self.recovery.drop = self.recovery.drop, None
        if drop is not None and drop.opened:
            events.append(self._resumed(drop, now))
        self._fold(leg.receive(piece), events)
        self._fault, leg.fault = leg.fault, None
        self._came(events, now)
        return events

    def eof(self, now: float) -> Events:
        """The body ended, as its transport calls clean.

        Args:
            now: Monotonic seconds.
        """
        leg = self._legs.open
        events: Events = []
        signals, unterminated = leg.eof()
        if unterminated:
            self.notes.append("unterminated_tail")
        self._fold(signals, events)
        self._fault, leg.fault = leg.fault, None
        if not self.ended and self._fault is None:
            if self.ledger.finished:
                self._end(events)
            else:
                self._fault = Dropped("the body ended before the answer did")
        self._came(events, now)
        return events

    def _fold(self, signals: list[Event | Signal], events: Events) -> None:
        """Book what came; give on what the caller sees."""
        ledger, leg = self.ledger, self._legs.open
        for signal in signals:
            match signal:
                case TextDelta():
                    if signal.choice != self.request.choice:
                        ledger.choice(signal.choice).add_text(signal.text)
                    else:
                        ledger.add_text(signal, whole=not leg.pending)
                        missing = self.after - ledger.main.characters
                        if missing > -len(signal.text):
                            text = signal.text[len(signal.text) + missing :]
                            signal = replace(signal, text=text)  # noqa: PLW2901 - its rest
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
                    self._end(events)
                case Resumed() | Failure():
                    raise RuntimeError(f"{signal} comes from no leg")
                case _:
                    assert_never(signal)

    def _came(self, events: Events, now: float) -> None:
        """Move the limits and the metrics, once per read."""
        chunks = characters = tokens = 0
        for event in events:
            if type(event) is TextDelta:
                chunks += 1
                characters += len(event.text)
                tokens += 1 if event.tokens is None else event.tokens
        self.metrics.read(now, chunks, characters, tokens)
        progress = self.ledger.progress
        if self.recovery.grew(progress) and self.recovery.restarts:
            if self._legs.restarted():
                self._fault = ResumeDiverged(
                    "the server does not continue the answer but begins it anew"
                )
        self.patience.came(now, progress + self._legs.open.repeated)
        if self.ledger.finished:
            self.patience.finished(now)
        if not self.ended and self._fault is None:
            self._fault = self.patience.overdue(now)

    def _resumed(self, drop: Drop, now: float) -> Resumed:
        """The first bytes after a drop."""
        leg, at = self._legs.open, self.ledger.main.characters
        exactness = EXACTNESS.get(leg.strategy, Exactness.UNBROKEN)
        if self.ledger.progress and not leg.same_model(self.history.origin):
            exactness = Exactness.APPROXIMATE
        resumption = Resumption(
            at=at,
            reason=str(drop.fault),
            strategy=leg.strategy,
            exactness=exactness,
            endpoint=self.server.endpoint,
            gap=now - drop.at,
        )
        self.history.add(resumption, drop.fault)
        self.metrics.resumed(resumption.gap)
        how = leg.strategy, self.server.endpoint, at, resumption.gap
        _LOG.info("resumed by %s at %s, character %d, after %.3f s", *how)
        return Resumed(resumption)

    # -- ending ------------------------------------------------------------------

    def _end(self, events: Events) -> None:
        """The whole answer came: give what waited for its end."""
        leg = self._legs.open
        rest = leg.flush()
        if rest:
            delta = TextDelta(rest, self.request.choice, 0)
            self.ledger.add_text(delta, whole=True)
            events.append(delta)
        for delta in leg.flush_others():
            self.ledger.choice(delta.choice).add_text(delta.text)
            events.append(delta)
        self._close(events)

    def _close(self, events: Events) -> None:
        main, usage, leg = self.ledger.main, self.ledger.usage, self._legs.now
        main.close_calls(main.finish_reason)
        self.ended = self.complete = True
        if usage is not None and not usage.estimated:
            self.metrics.tokens = usage.output_tokens
        self.metrics.replaced += leg.replaced if leg else 0
        reason, raw = main.finish_reason, main.raw_finish_reason
        events.append(Finish(reason, raw, self.request.choice))

    # -- breaking ----------------------------------------------------------------

    def dropped(self, fault: MidstreamError, now: float) -> Events:
        """The connection is gone, or was never there.

        Args:
            fault: What broke.
            now: Monotonic seconds.

        Returns:
            The last events, when the answer is whole all the same.

        Raises:
            MidstreamError: The stream cannot go on.
        """
        events: Events = []
        scrubbed(fault, self.server.endpoint)
        if isinstance(fault, ServerError) and self.server.dialect.passes(fault):
            fault.retryable = True
        _LOG.debug("%s: %s", self.server.endpoint, told(fault))
        left = self.server
        decision = self.recovery.decide(fault, now, self._legs.facts(self.patience, fault))
        match decision:
            case EndWell():
                self._end_well(decision, events)
            case GiveUp():
                raise self.signed(
                    verdict(
                        decision,
                        survived=self.history.survived,
                        delivered=self.ledger.progress > 0,
                    )
                )
            case GoOn():
                self._next = decision
                self.metrics.drop()
                self._legs.dropped()
                where = left.endpoint, self.ledger.main.characters, told(fault)
                _LOG.warning("%s dropped at character %d: %s", *where)
            case _:
                assert_never(decision)
        return events

    def _end_well(self, decision: EndWell, events: Events) -> None:
        if decision.note is not None:
            self.notes.append(decision.note)
            self._end(events)
        if decision.finish is not None:
            self.ledger.main.finish(decision.finish)
            self._close(events)

    def signed(self, error: MidstreamError) -> MidstreamError:
        """The error with the text so far and a checkpoint, and without any key.

        Args:
            error: What is about to be raised out of the stream.
        """
        self.ended = True
        return signed(
            error,
            self.server,
            text=self.ledger.main.text,
            checkpoint=self.checkpoint(),
            resumes=self.history.resumes,
        )

    # -- leaving -----------------------------------------------------------------

    def leave(self) -> Flow[None]:
        """Calls that stop what still runs at the server; best effort."""
        leg = self._legs.now
        if not self.complete or (leg is not None and leg.stopped):
            yield from self._legs.leave()

    def checkpoint(self) -> Checkpoint:
        """What is needed to continue later."""
        return storing.checkpoint(
            self.server,
            self.request,
            self.ledger,
            self.history,
            self._legs.received(),
            handle=self._legs.handle,
            complete=self.complete,
        )

    @property
    def mark(self) -> tuple[object, ...]:
        """Differs when a checkpoint would, but for its places in bodies."""
        leg, ledger = self._legs.now, self.ledger
        cursor = None if leg is None else leg.cursor
        news = self.complete, self._legs.handle, ledger.response_id, cursor
        return *news, len(self.history.resumes), *ledger.mark


def _says(delta: ReasoningDelta | RefusalDelta) -> bool:
    """Whether the caller sees it: it has text, or seals what had come."""
    sealed = isinstance(delta, ReasoningDelta) and delta.signature is not None
    return sealed or bool(delta.text)
