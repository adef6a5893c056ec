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

A fault found inside received bytes is kept until the events before it are delivered;
`check` raises it.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, assert_never

from midstream._dialects.base import EXACTNESS, Continuation, Generation, Received
from midstream._metrics import Metrics
from midstream._resume.growth import whole
from midstream._resume.ledger import Ledger
from midstream._resume.plan import Drop, Plan
from midstream._resume.policy import fails_over, pause, resumable
from midstream._session.leg import SHAPE_FAULTS, Leg
from midstream._values.endpoint import Endpoint
from midstream._values.errors import (
    AuthenticationFailed,
    ConnectFailed,
    Dropped,
    MidstreamError,
    NotFound,
    ServerError,
    TimedOut,
    TransportError,
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
from midstream._values.interruptions import (
    ResumeDiverged,
    ResumeExhausted,
    ResumeUnsupported,
    StreamInterrupted,
)
from midstream._values.request import Request
from midstream._values.resumption import Resumption
from midstream._values.timeouts import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from midstream._dialects.base import Call, Flow, Reply
    from midstream._resume.plan import Server
    from midstream._resume.policy import Resume
    from midstream._values.checkpoint import Checkpoint
    from midstream._values.errors import TimeoutKind
    from midstream._values.events import Signal
    from midstream._values.timeouts import Timeouts

Events: TypeAlias = list[Event]

_OK = 200
_SERVERS_OWN: dict[str, Any] = {
    "token_ids": [],
    "gaps": [],
    "prompt_ids": [],
    "response_id": None,
    "handle": "",
    "offset": 0,
    "cursor": None,
}
"""What of a checkpoint says nothing to a server with another dialect or model."""
_GRACE = 0.1  # seconds for a reader who comes late to find what has arrived
_LINGER = 2.0  # seconds to wait for usage and the closing marker after the finish
_DOWN = 30.0  # seconds for which a server that failed for good is asked last
_REPEATS = 3  # characters that a model must repeat to be taken for repeating itself
_SECRET = 8  # characters; shorter header values are no secrets


class Session:
    """The state machine of one stream.

    Args:
        servers: Who may answer, in order.
        request: What was asked.
        timeouts: The limits.
        resume: Whether and how to go on after a drop; None: never.
        handles: Makes unguessable names for generations.
        random: Source of the backoff's jitter.

    Attributes:
        deadline: Until when the driver waits for the next byte.
        ended: Whether nothing more will come.
        complete: Whether the whole answer came.
        exactness: The weakest of the connections.
        pause: Seconds to wait before `connect`.
        notes: What was odd but harmless.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        request: Request,
        *,
        timeouts: Timeouts,
        resume: Resume | None,
        handles: Callable[[], str],
        random: Random,
    ) -> None:
        self.request = request
        self.server = servers[0]
        self._servers = servers
        self._origin = servers[0].endpoint
        self._failed: list[Server] = []
        self.deadline = Deadline()
        self.ledger = Ledger(request.choice, request.max_tokens, request.choices)
        self.metrics = Metrics()
        self.exactness = Exactness.UNBROKEN
        self.resumes: list[Resumption] = []
        self.notes: list[str] = []
        self.ended = False
        self.complete = False
        self.pause = 0.0
        self._timeouts = timeouts
        self._resume = resume
        self._handles = handles
        self._random = random
        self._leg: Leg | None = None
        self._plan = Plan(notes=self.notes)
        self._survived: Drop | None = None
        self._fault: MidstreamError | None = None
        self._error: StreamInterrupted | None = None
        self._total_at = inf
        self._last_token = 0.0
        self._late = (inf, inf)  # which deadline had passed, and when it was noticed
        self._finished_at = inf
        self._stored: Checkpoint | None = None
        self._backlog: Events = []
        self._again = 0, 0  # what had come again until the last read
        self._skip = 0  # characters that come again and are not given again

    def restore(self, checkpoint: Checkpoint, after: int, now: float) -> None:
        """Go on where another process was.

        A server that keeps the stream sends it again from its begin, so that nothing
        of its decoding state need be stored; else the stored text is the prefix.

        Args:
            checkpoint: What that process left.
            after: Characters that the caller has; nothing of them is given again.
            now: Monotonic seconds.
        """
        self.request = request = Request.model_validate(checkpoint.request)
        self.ledger = Ledger(request.choice, request.max_tokens, request.choices)
        self._origin = origin = Endpoint.parse(checkpoint.endpoint)
        self.server = max(self._servers, key=lambda server: _kinship(server, origin))
        if not any(_kinship(self.server, origin)):
            checkpoint = checkpoint.model_copy(update=_SERVERS_OWN)
        self._stored, self._skip = checkpoint, after
        told = self._told(checkpoint)
        whole = checkpoint.complete or told.finished or told.used_up
        if whole or self._resume is None:
            self._load_stored()
            if whole:
                self._give_whole()
            return
        fault = Dropped("the process that had begun this stream ended")
        self._plan.drop = Drop(fault, now)
        ways = self.server.ways(self._resume)
        self._plan.ways = [w for w in ways if checkpoint.handle or w != "replay"]
        generation = replace(self._generation(), handle=checkpoint.handle)
        self._leg = Leg(self.server.dialect, generation)
        self._leg.opened = bool(checkpoint.handle)
        self.ledger.response_id = checkpoint.response_id
        if not self._continues() and not self._can_go_on(self._resume):
            self._fail_over(self._resume, self._plan.drop, now)

    def _told(self, stored: Checkpoint) -> Ledger:
        """What another process had received."""
        request = self.request
        told = Ledger(request.choice, request.max_tokens, request.choices)
        told.load(stored)
        return told

    def _give_whole(self) -> None:
        """All of it is stored: what is no text is given behind the text."""
        main, events, choice = self.ledger.main, self._backlog, self.request.choice
        if not main.finished:  # the process ended before it could say so
            main.finish(Finish("length", "length"))
        if main.refusal:
            events.append(RefusalDelta(main.refusal, choice, 0))
        for call in main.tool_calls:
            said = call.id, call.name, call.arguments, choice, 0, call.complete
            events.append(ToolCallDelta(call.index, *said))
        self._close(events)

    def _load_stored(self) -> None:
        """Begin with what is stored, unless more than that has come meanwhile."""
        stored, self._stored = self._stored, None
        if stored is None:
            return
        told, have = self._told(stored), self.ledger.main.characters
        if len(stored.text) < have or told.progress < self.ledger.progress:
            return
        told.model = self.ledger.model
        self.ledger = told  # in one step: the keeper's thread may look at any time
        text = stored.text[have + self._skip :]
        self._skip = max(self._skip - (len(stored.text) - have), 0)
        if text:
            self._backlog.append(TextDelta(text, self.request.choice, 0))

    def backlog(self) -> Events:
        """Events that were known before any byte came."""
        events, self._backlog = self._backlog, []
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
        if self._plan.drop is None and self._leg is not None and self._leg.opened:
            # Nobody told `dropped`: whoever read was cancelled, or interrupted.
            raise Dropped("a read was left, and the connection closed with it")
        self.metrics.connect(now)
        if self.metrics.connects == 1:
            self._first(now)
        self._await("first_token", self._timeouts.first_token, now)
        try:
            return (yield from self._next_leg())
        except UsageError as error:
            if not self._failed:
                raise
            who = self.server.endpoint  # the next one may know how
            raise ResumeUnsupported(f"{who} cannot be asked this: {error}") from error
        except SHAPE_FAULTS as error:
            raise WireError("an answer before the stream is malformed") from error

    def _next_leg(self) -> Flow[Call]:
        while self._continues():
            if not self._plan.ways:
                raise ResumeUnsupported(f"no way to continue: {'; '.join(self.notes)}")
            try:
                return (yield from self._continue_by(self._plan.ways[0]))
            except ResumeUnsupported as error:
                self._plan.skip(error)
                self._begin_stored()
        if self._plan.drop is None and self._leg is not None:
            yield from self._leave_quietly()  # a read was cancelled before the headers
        generation = self._generation()
        call = yield from self.server.dialect.begin(generation)
        self._start(Leg(self.server.dialect, generation))
        return call

    def _begin_stored(self) -> None:
        """What is stored begins in a replay's place, if another way may go on."""
        resume, drop = self._resume, self._plan.drop
        if self._stored is None or resume is None or drop is None:
            return
        if not self._can_go_on(resume) and self._error is not None:
            raise self._error from drop.fault

    def _first(self, now: float) -> None:
        """The stream begins: with the first server that is not known to be down."""
        if self._timeouts.total is not None:
            self._total_at = now + self._timeouts.total
        if self._plan.drop is not None:
            return  # another process began it
        if self.server.down_until > now:
            self.server = min(self._servers, key=lambda server: server.down_until)
        self._origin = self.server.endpoint

    def _continues(self) -> bool:
        """Whether there is something to continue: text, or a stream that is kept."""
        if self._plan.drop is None or self._leg is None:
            return False
        kept = self._leg.opened and self._plan.ways[:1] == ["replay"]
        return kept or self.ledger.progress > 0

    def _generation(self) -> Generation:
        return Generation(
            endpoint=self.server.endpoint,
            request=self.request,
            strategies=self.server.ways(self._resume) if self._resume else (),
            handle=self._handles(),
            memory=self.server.memory,
        )

    def _continue_by(self, way: str) -> Flow[Call]:
        dialect, received, leg = self.server.dialect, self._received(), self._leg
        if way == "replay":
            if leg is None or leg.generation.endpoint is not self.server.endpoint:
                raise ResumeUnsupported("another server keeps the stream")
            replay = yield from dialect.continuation(leg.generation, way, received)
            leg.replay(replay)
            return replay.call
        generation = self._generation()
        if way == "rerun":
            continuation = Continuation(
                call=(yield from dialect.begin(generation)),
                expect=received.text,
            )
        else:
            continuation = yield from dialect.continuation(generation, way, received)
            echo, least = self.server.endpoint.echo, _REPEATS if way == "ask" else 1
            if echo is not None:
                continuation = replace(continuation, echo=echo)
            else:
                continuation = replace(continuation, least=least)
        yield from self._abandon()
        self._start(Leg(dialect, generation, way)).join(continuation, received.text)
        return continuation.call

    def _start(self, leg: Leg) -> Leg:
        self.ledger.forget_open()
        if self._leg is not None and self._leg.opened:
            self.ledger.next_leg()
        self._leg = leg
        return leg

    def _abandon(self) -> Flow[None]:
        """Stop a generation that a server keeps alive though nobody will replay it."""
        leg = self._leg
        if leg is None or leg.dialect.transport != self.server.dialect.transport:
            return
        if leg.opened and not self._plan.lost:
            yield from self._leave_quietly()

    def _leave_quietly(self) -> Flow[None]:
        """Leave; that it failed is a note."""
        try:
            yield from self.leave()
        except (TransportError, ServerError) as error:
            self.notes.append(f"leave: {self._scrub(error)}")

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
            self._open_leg().open()
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
        leg = self._open_leg()
        events: Events = []
        drop, self._plan.drop = self._plan.drop, None
        self._survived = drop or self._survived
        if drop is not None and drop.opened:
            events.append(self._resumed(leg, drop, now))
        self._fold(leg.receive(piece), events)
        self._fault, leg.fault = leg.fault, None
        self._came(events, now)
        return events

    def eof(self, now: float) -> Events:
        """The body ended, as its transport calls clean.

        Args:
            now: Monotonic seconds.
        """
        leg = self._open_leg()
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

    def _open_leg(self) -> Leg:
        if self._leg is None:
            raise RuntimeError("connect() comes first")  # the driver's mistake
        return self._leg

    def _fold(self, signals: list[Event | Signal], events: Events) -> None:
        """Book what came; give on what the caller sees."""
        ledger, leg = self.ledger, self._open_leg()
        chosen = self.request.choice
        for signal in signals:
            match signal:
                case TextDelta():
                    if signal.choice != chosen:
                        ledger.choice(signal.choice).add_text(signal.text)
                    else:
                        ledger.add_text(signal, whole=not leg.pending)
                        if self._skip:
                            signal = self._skipped(signal)  # noqa: PLW2901 - its rest
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

    def _skipped(self, delta: TextDelta) -> TextDelta:
        """What of it the caller does not have."""
        skip = min(self._skip, len(delta.text))
        self._skip -= skip
        return replace(delta, text=delta.text[skip:])

    def _came(self, events: Events, now: float) -> None:
        """Move the deadline and the metrics, once per read."""
        chunks = characters = tokens = 0
        progress = False
        for event in events:
            if type(event) is TextDelta:
                chunks += 1
                characters += len(event.text)
                tokens += 1 if event.tokens is None else event.tokens
            elif isinstance(event, ReasoningDelta | RefusalDelta | ToolCallDelta):
                progress = True
        self.metrics.read(now, chunks, characters, tokens)
        if chunks or progress:
            self._plan.attempt = 0
            if self._failed:
                self._failed.clear()
            self._last_token = now
            self._await("idle", self._timeouts.idle, now)
        elif self._again != (self._skip, self._open_leg().repeated):
            self._last_token = now  # the server speaks, if only what the caller has
            self._await("idle", self._timeouts.idle, now)
        elif self.deadline.kind == "idle":
            self._ping(now)
        self._again = self._skip, self._open_leg().repeated
        if self.ledger.finished:
            self._finished_at = min(self._finished_at, now)
            if self.deadline.at > self._finished_at + _LINGER:
                self._await("idle", _LINGER, self._finished_at)
        if now >= self.deadline.at and not self.ended:
            self._overdue(now)

    def _overdue(self, now: float) -> None:
        """A line that is never silent for long must not outlive its limit."""
        if self._late[0] != self.deadline.at:
            self._late = self.deadline.at, now
        elif self._fault is None and now >= self._late[1] + _GRACE:
            self._fault = self.deadline.error()

    def _ping(self, now: float) -> None:
        """Keep-alives stretch the idle limit only as far as the caller lets them."""
        stretch, idle = self._timeouts.idle_with_pings, self._timeouts.idle
        if stretch is not None and idle is not None:
            until = min(now + idle, self._last_token + max(stretch, idle))
            self._await("idle", max(until - now, 0), now)

    def _await(self, kind: TimeoutKind, seconds: float | None, now: float) -> None:
        deadline = self.deadline
        at = inf if seconds is None else now + seconds
        if self._total_at < at:
            kind, seconds, at = "total", self._timeouts.total, self._total_at
        deadline.move(kind, seconds, at)

    def _resumed(self, leg: Leg, drop: Drop, now: float) -> Resumed:
        """The first bytes after a drop."""
        exactness = EXACTNESS.get(leg.strategy, Exactness.UNBROKEN)
        if self.ledger.progress and not leg.same_model(self._origin):
            exactness = Exactness.APPROXIMATE
        resumption = Resumption(
            at=self.ledger.main.characters,
            reason=str(drop.fault),
            strategy=leg.strategy,
            exactness=exactness,
            endpoint=self.server.endpoint,
            gap=now - drop.at,
        )
        self.resumes.append(resumption)
        self.exactness = max(self.exactness, exactness)
        self.metrics.resumed(resumption.gap)
        return Resumed(resumption)

    # -- ending ------------------------------------------------------------------

    def _end(self, events: Events) -> None:
        """The whole answer came: give what waited for its end."""
        leg = self._open_leg()
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
        main, usage = self.ledger.main, self.ledger.usage
        main.close_calls(main.finish_reason)
        self.ended = self.complete = True
        if usage is not None and not usage.estimated:
            self.metrics.tokens = usage.output_tokens
        self.metrics.replaced += self._leg.replaced if self._leg else 0
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
        self._scrub(fault)
        if isinstance(fault, ServerError) and self.server.dialect.passes(fault):
            fault.retryable = True
        if self.ledger.finished and not isinstance(fault, ResumeDiverged):
            self.notes.append(f"after the end: {fault}")
            self._end(events)
            return events
        if self._resume is not None and self.ledger.used_up and resumable(fault):
            self.ledger.main.finish(Finish("length", "length"))
            self._close(events)
            return events
        self.metrics.drop()
        self.pause = self._go_on(fault, now)
        return events

    def _go_on(self, fault: MidstreamError, now: float) -> float:
        """Plan the next connection; gives the seconds to wait for it, or raises."""
        plan, resume, leg = self._plan, self._resume, self._leg
        first = plan.drop or Drop(fault, now, leg is not None and leg.opened)
        tried = leg.strategy if leg is not None and plan.drop is not None else ""
        if resume is None:
            raise self._final(fault, first)
        if leg is not None and not leg.opened:
            strategies = leg.generation.strategies
            if plan.withdraw(self.server, strategies, fault):
                if plan.drop is None:
                    self._leg = None  # nothing runs there, and nothing had come
                return 0
        if plan.refused(self.server, tried, fault):
            plan.skip(fault)
            if not self._can_go_on(resume):
                self._fail_over(resume, first, now)
            return 0
        for_good = not resumable(fault) or plan.attempt >= resume.attempts
        if for_good or (isinstance(fault, ConnectFailed) and self._others()):
            if not fails_over(fault) or not self._others():
                raise self._final(fault, first, exhausted=resumable(fault))
            if not isinstance(fault, ResumeUnsupported):  # it may well begin others
                self.server.down_until = now + _DOWN
            self._fail_over(resume, first, now)
            return 0
        plan.attempt += 1
        if plan.drop is None:
            plan.drop, plan.ways = first, self.server.ways(resume)
        if leg is not None and leg.spent(fault):
            plan.no_replay(fault)
        if not self._can_go_on(resume):
            self._fail_over(resume, first, now)
            return 0
        wait = pause(fault, plan.attempt, resume.backoff, self._random)
        if now + wait >= self._total_at:
            raise self.signed(TimedOut("total", self._timeouts.total)) from first.fault
        return wait

    def _can_go_on(self, resume: Resume) -> bool:
        """Whether this server has a way to continue what came."""
        if self._stored is not None and self._plan.ways[:1] != ["replay"]:
            self._load_stored()
        if not self.ledger.progress:
            return True  # the request may simply be sent again
        self._error = self._plan.restrict(
            self.server, self.request, self.ledger, tools=resume.tools
        )
        return self._error is None

    def _others(self) -> list[Server]:
        """Servers that have not failed in this break, the healthy ones first."""
        left = [s for s in self._servers if s not in (*self._failed, self.server)]
        return sorted(left, key=lambda server: server.down_until)

    def _fail_over(self, resume: Resume, first: Drop, now: float) -> None:
        """The next server that can continues; raise when there is none."""
        while others := self._others():
            self._failed.append(self.server)
            self.server = others[0]
            self._plan.drop, self._plan.attempt = first, 0
            self._plan.ways = self.server.ways(resume)
            self.ledger.forget_ids()
            if self._can_go_on(resume):
                return
        error = self._error or ResumeUnsupported("no server is left")
        raise self._interruption(error, first.fault)

    def _final(
        self, fault: MidstreamError, first: Drop, *, exhausted: bool = False
    ) -> MidstreamError:
        """The error that says most.

        What the server reported, what never began and the caller's own total limit are
        raised as they are; a stream that broke is a `StreamInterrupted`.
        """
        if isinstance(fault, ResumeDiverged) and self._survived is not None:
            first = self._survived  # the drop without which nothing would diverge
        cause, attempts = first.fault, self._plan.attempt
        total = isinstance(fault, TimedOut) and fault.kind == "total"
        connecting = isinstance(fault, ConnectFailed) or (
            isinstance(fault, TimedOut) and fault.kind == "connect"
        )
        if (
            total
            or isinstance(fault, ServerError | WireError | StreamInterrupted)
            or (connecting and (self.ledger.progress == 0 or fault is cause))
        ):
            if fault is not cause and fault.__cause__ is None:
                fault.__cause__ = cause
            return self.signed(fault)
        if exhausted and attempts:
            tries = f"{attempts} attempts without progress"
            return self._interruption(
                ResumeExhausted(f"gave up after {tries}: {fault}"), cause
            )
        return self._interruption(
            StreamInterrupted(f"the stream broke: {cause}"), cause
        )

    def _interruption(
        self, error: StreamInterrupted, cause: MidstreamError | None = None
    ) -> MidstreamError:
        if cause is None and self._plan.drop is not None:
            cause = self._plan.drop.fault
        error.__cause__ = cause
        error.resumes = tuple(self.resumes)
        return self.signed(error)

    def signed(self, error: MidstreamError) -> MidstreamError:
        """The error with the text so far and a checkpoint, and without any key.

        Args:
            error: What is about to be raised out of the stream.
        """
        self.ended = True
        error.text = self.ledger.main.text
        error.checkpoint = self.checkpoint()
        if not hasattr(error, "__notes__"):
            error.add_note(self._who(error))
        return self._scrub(error)

    def _who(self, error: MidstreamError) -> str:
        """Who was asked, and with which key where that was the trouble."""
        endpoint, names = self.server.endpoint, self.server.dialect.key_variables
        if not isinstance(error, AuthenticationFailed):
            return f"The endpoint was {endpoint}."
        keys = " or ".join([*names, f"Endpoint({endpoint.dialect!r}, api_key=…)"])
        return f"The endpoint was {endpoint}; its key comes from {keys}."

    def _scrub(self, error: MidstreamError) -> MidstreamError:
        """The error without the keys that a server, or a URL, repeats in it."""
        error.args = tuple(
            self._scrubbed(arg) if isinstance(arg, str) else arg for arg in error.args
        )
        if isinstance(error, ServerError):
            error.message = self._scrubbed(error.message)
            error.type = error.type and self._scrubbed(error.type)
        elif isinstance(error, WireError):
            error.words = self._scrubbed(error.words)
        return error

    def _scrubbed(self, message: str) -> str:
        endpoint = self.server.endpoint
        secrets = [v for v in endpoint.headers.values() if len(v) >= _SECRET]
        if endpoint.api_key is not None:
            secrets.append(endpoint.api_key.get_secret_value())
        for secret in filter(None, secrets):
            message = message.replace(secret, "***")
        return message

    # -- leaving -----------------------------------------------------------------

    def leave(self) -> Flow[None]:
        """Calls that stop what still runs at the server; best effort."""
        leg = self._leg
        if leg is not None and (not self.complete or leg.stopped):
            yield from leg.dialect.leave(leg.generation, self._received())

    def checkpoint(self) -> Checkpoint:
        """What is needed to continue later."""
        return whole(self)

    def place(self) -> dict[str, Any]:
        """What of a checkpoint does not grow but changes."""
        leg, ledger, usage = self._leg, self.ledger, self.ledger.usage
        return {
            "endpoint": str(self.server.endpoint),
            "tokens": ledger.tokens,
            "response_id": ledger.response_id,
            "handle": leg.generation.handle if leg else "",
            "offset": leg.offset if leg else 0,
            "cursor": leg.cursor if leg else None,
            "usage": asdict(usage) if usage else None,
            "complete": self.complete,
            "exactness": self.exactness.name,
        }

    @property
    def mark(self) -> tuple[object, ...]:
        """Differs when a checkpoint would, but for its offset in the body."""
        leg, ledger = self._leg, self.ledger
        place = (leg.generation.handle, leg.cursor) if leg else ("", None)
        asked = ledger.response_id, len(ledger.prompt_ids), len(self.resumes)
        return self.complete, *place, *asked, *ledger.mark

    def _received(self) -> Received:
        leg = self._leg
        if leg is None:
            return self.ledger.received(0, None)
        return self.ledger.received(leg.offset, leg.cursor)


def _kinship(server: Server, origin: Endpoint) -> tuple[bool, bool]:
    """Whether it is the same server, and whether it is the same model."""
    mine = server.endpoint
    same = (mine.dialect, mine.model) == (origin.dialect, origin.model)
    return same and str(mine) == str(origin), same


def _says(delta: ReasoningDelta | RefusalDelta) -> bool:
    """Whether the caller sees it: it has text, or seals what had come."""
    sealed = isinstance(delta, ReasoningDelta) and delta.signature is not None
    return sealed or bool(delta.text)
