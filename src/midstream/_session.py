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

from dataclasses import asdict, dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

from midstream._dialects.base import (
    EXACTNESS,
    Continuation,
    Generation,
    Received,
)
from midstream._errors import (
    ConnectFailed,
    Dropped,
    MidstreamError,
    NotFound,
    ResumeDiverged,
    ResumeExhausted,
    ResumeUnsupported,
    ServerError,
    StreamInterrupted,
    TimedOut,
    ToolCallInterrupted,
    TransportError,
    WireError,
)
from midstream._events import (
    End,
    Exactness,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Resumed,
    Resumption,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream._metrics import Metrics
from midstream._resume.checkpoint import Checkpoint
from midstream._resume.ledger import Ledger
from midstream._resume.policy import pause, resumable
from midstream._resume.seam import Seam
from midstream._timeouts import Deadline, Timeouts
from midstream._utf8 import Utf8Decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from midstream._dialects.base import Call, Dialect, Flow, Reader, Reply
    from midstream._events import Event, Signal
    from midstream._frames import Framer
    from midstream._request import Endpoint, Request
    from midstream._resume.policy import Resume

_OK = 200
_LINGER = 2.0  # seconds to wait for usage and the closing marker after the finish


@dataclass(slots=True)
class Server:
    """An endpoint, its dialect, and what was learned of it; it outlives the stream."""

    endpoint: Endpoint
    dialect: Dialect
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def refused(self) -> set[tuple[str | None, str]]:
        """(model, strategy) pairs that the server said it cannot do."""
        refused: set[tuple[str | None, str]] = self.memory.setdefault("refused", set())
        return refused


@dataclass(slots=True)
class _Drop:
    """What broke, and when."""

    fault: MidstreamError
    at: float
    characters: int


@dataclass(slots=True)
class _Leg:
    """One connection and its decoding state."""

    generation: Generation
    framer: Framer
    reader: Reader
    decoders: dict[tuple[int, str], Utf8Decoder]
    decoder: Utf8Decoder
    strategy: str = "begin"
    seam: Seam | None = None
    offset: int = 0
    opened: bool = False


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
        pause: Seconds to wait before `connect`.
        notes: What was odd but harmless.
    """

    def __init__(  # noqa: PLR0913 - the whole of a stream's circumstances
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
        self.deadline = Deadline()
        self.metrics = Metrics()
        self.resumes: list[Resumption] = []
        self.notes: list[str] = []
        self.ended = False
        self.complete = False
        self.pause = 0.0
        self.ledger = Ledger(request.choice, request.max_tokens)
        self._servers = list(servers)
        self._server = self._servers[0]
        self._timeouts = timeouts
        self._resume = resume
        self._handles = handles
        self._random = random
        self._leg: _Leg | None = None
        self._ways: list[str] = []
        self._attempt = 0
        self._drop: _Drop | None = None
        self._fault: MidstreamError | None = None
        self._exactness = Exactness.UNBROKEN
        self._total_at = inf
        self._last_token = 0.0

    # -- what the stream shows ---------------------------------------------------

    @property
    def server(self) -> Server:
        """Who answers now."""
        return self._server

    @property
    def exactness(self) -> Exactness:
        """The weakest of its connections."""
        return self._exactness

    def checkpoint(self) -> Checkpoint:
        """What is needed to continue later."""
        leg, ledger = self._leg, self.ledger
        received = self._received()
        return Checkpoint(
            endpoint=str(self._server.endpoint),
            request=self.request.model_dump(mode="json", exclude_unset=True),
            text=received.text,
            reasoning=received.reasoning,
            tokens=received.tokens,
            token_ids=list(received.token_ids),
            gaps=list(received.gaps),
            prompt_ids=list(received.prompt_ids),
            response_id=received.response_id,
            handle=leg.generation.handle if leg else "",
            offset=received.offset,
            cursor=received.cursor,
            usage=asdict(ledger.usage) if ledger.usage else None,
            finish_reason=ledger.main.finish_reason,
            complete=self.complete,
        )

    # -- connecting --------------------------------------------------------------

    def connect(self, now: float) -> Flow[Call]:
        """The calls that open the next connection; returns the streaming one.

        Args:
            now: Monotonic seconds.

        Raises:
            StreamInterrupted: No strategy that is left can continue.
            UsageError: The dialect cannot say what was asked.
        """
        self._begin(now)
        if self._drop is None or not self._continues():
            generation = self._generation()
            call = yield from self._server.dialect.begin(generation)
            self._start_leg(generation, "begin", None)
            return call
        return (yield from self._continuation())

    def _begin(self, now: float) -> None:
        self.metrics.begin(now)
        if self._total_at == inf and self._timeouts.total is not None:
            self._total_at = now + self._timeouts.total
        self._await("first_token", self._timeouts.first_token, now)
        self.metrics.connects += 1

    def _continues(self) -> bool:
        """Whether anything can be continued: text, or a stream kept by the server."""
        leg = self._leg
        return leg is not None and (
            self.ledger.main.length > 0 or (leg.opened and "replay" in self._ways)
        )

    def _generation(self) -> Generation:
        server = self._server
        return Generation(
            endpoint=server.endpoint,
            request=self.request,
            strategies=self._resume.ways if self._resume is not None else (),
            handle=self._handles(),
            memory=server.memory,
        )

    def _continuation(self) -> Flow[Call]:
        """The first strategy that the dialect can follow, best first."""
        while self._ways:
            way = self._ways[0]
            try:
                return (yield from self._continue_by(way))
            except ResumeUnsupported as error:
                self.notes.append(f"{way}: {error}")
                del self._ways[0]
        self._interrupt(
            ResumeUnsupported,
            f"{self._server.endpoint.dialect} cannot continue this stream"
            f"{'; ' + self.notes[-1] if self.notes else ''}",
        )

    def _continue_by(self, way: str) -> Flow[Call]:
        dialect, leg = self._server.dialect, self._leg
        received = self._received()
        if way == "replay":
            if leg is None or leg.generation.endpoint is not self._server.endpoint:
                raise ResumeUnsupported("another server holds the stream")
            continuation = yield from dialect.continuation(
                leg.generation, way, received
            )
            self._replay_leg(leg, continuation)
            return continuation.call
        generation = self._generation()
        if way == "rerun":
            call = yield from dialect.begin(generation)
            continuation = Continuation(
                call=call, expect=received.text, again=received.tokens
            )
        else:
            continuation = yield from dialect.continuation(generation, way, received)
        yield from self._abandon()
        self._start_leg(generation, way, continuation)
        return continuation.call

    def _abandon(self) -> Flow[None]:
        """Stop a generation that a server keeps alive though nobody will replay it."""
        known = self._drop is not None and not isinstance(self._drop.fault, NotFound)
        if known and self._leg is not None and self._leg.opened:
            try:
                yield from self.leave()
            except (TransportError, ServerError) as error:
                self.notes.append(f"leave: {error}")

    def _start_leg(
        self, generation: Generation, way: str, continuation: Continuation | None
    ) -> None:
        dialect, request = self._server.dialect, self.request
        errors = self._server.endpoint.errors
        if self._leg is not None and self._leg.opened:
            self.ledger.next_leg()
        reader = continuation.reader if continuation is not None else None
        decoder = Utf8Decoder(errors)
        leg = _Leg(
            generation,
            dialect.framer(),
            reader or dialect.reader(generation),
            {(request.choice, "text"): decoder},
            decoder,
            way,
        )
        if continuation is not None:
            self.ledger.tokens = max(self.ledger.tokens - continuation.again, 0)
            seam = Seam(continuation, self.ledger.main.text, request.stop or ())
            leg.seam = seam if seam.open else None
        self._leg = leg

    def _replay_leg(self, leg: _Leg, continuation: Continuation) -> None:
        """The same records go on: what was decoded so far stays."""
        if continuation.keeps != "body":
            leg.framer = self._server.dialect.framer()
            leg.offset = 0
        leg.strategy = "replay"

    def opened(self, status: int, headers: Mapping[str, str], now: float) -> bool:
        """The server answered.

        Args:
            status: HTTP status; 200 for gRPC.
            headers: Headers, names in lower case.
            now: Monotonic seconds.

        Returns:
            Whether a stream follows. If not, read the body and call `refused`.
        """
        del headers, now
        if status != _OK:
            return False
        if self._leg is not None:
            self._leg.opened = True
        return True

    def refused(self, reply: Reply) -> None:
        """The server answered with something else than a stream.

        Raises:
            ServerError: What it said.
        """
        raise self._server.dialect.error(reply)

    # -- receiving ---------------------------------------------------------------

    def check(self) -> None:
        """Raise what the last bytes held behind their events.

        Raises:
            MidstreamError: The fault.
        """
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def receive(self, piece: bytes, now: float) -> list[Event]:
        """Bytes came.

        Args:
            piece: The next bytes of the body, or one message.
            now: Monotonic seconds.
        """
        leg = self._open_leg()
        leg.offset += len(piece)
        events: list[Event] = []
        if self._drop is not None:
            self._resumed(leg, now, events)
        try:
            records = leg.framer.decode(piece)
        except WireError as error:
            self._fault = error
            records = []
        self._read(leg, records, events)
        self._came(events, now)
        return events

    def eof(self, now: float) -> list[Event]:
        """The body ended, as its transport calls clean.

        Args:
            now: Monotonic seconds.
        """
        leg = self._open_leg()
        events: list[Event] = []
        rest = leg.framer.flush()
        self._read(leg, rest, events)
        if isinstance(self._fault, WireError):  # half a record: it was cut
            self._fault = None
        elif rest and not self._fault:
            self.notes.append("unterminated_tail")
        if not self.ended and self._fault is None:
            self._take(leg, leg.reader.eof(), events)
        if not self.ended and self._fault is None:
            if self._finished():
                self._end(events)
            else:
                self._fault = Dropped("the body ended before the answer did")
        self._came(events, now)
        return events

    def _open_leg(self) -> _Leg:
        if self._leg is None:
            raise RuntimeError("connect() comes first")  # the driver's mistake
        return self._leg

    def _read(
        self, leg: _Leg, records: Iterable[tuple[bytes, str]], events: list[Event]
    ) -> None:
        read = leg.reader.read
        for data, name in records:
            try:
                signals = read(data, name)
            except WireError as error:
                self._fault = WireError(
                    str(error).partition(" (at byte")[0], offset=leg.offset
                )
                return
            self._take(leg, signals, events)
            if self.ended or self._fault is not None:
                return

    def _take(
        self, leg: _Leg, signals: list[Event | Signal], events: list[Event]
    ) -> None:
        for signal in signals:
            try:
                if type(signal) is TextDelta:
                    self._text(leg, signal, events)
                else:
                    self._other(leg, signal, events)
            except (WireError, ResumeDiverged) as error:
                self._fault = error
            if self.ended or self._fault is not None:
                return

    def _text(self, leg: _Leg, delta: TextDelta, events: list[Event]) -> None:
        text, choice = delta.text, delta.choice
        if choice != self.request.choice:
            self._other_choice(leg, delta, events)
            return
        decoder = leg.decoder
        if decoder.pending or not text.isascii():
            text = decoder.decode(text)
        tokens = delta.tokens
        seam = leg.seam
        if seam is not None:
            repeating = seam.repeating
            text = seam.feed(text)
            if repeating and not text:
                tokens = 0
            if not seam.open:
                leg.seam = None
        self.ledger.add_text(text, tokens, delta.token_ids, whole=not decoder.pending)
        if text:
            if text is not delta.text:
                delta = TextDelta(text, choice, tokens, delta.token_ids, delta.logprobs)
            events.append(delta)
        if seam is not None and seam.stopped:
            self._finish(Finish("stop", "stop"))
            self._end(events)

    def _other_choice(self, leg: _Leg, delta: TextDelta, events: list[Event]) -> None:
        text = self._decoded(leg, delta.text, delta.choice, "text")
        if text:
            self.ledger.choice(delta.choice)._text.add(text)  # noqa: SLF001 - as Ledger
            events.append(
                TextDelta(
                    text, delta.choice, delta.tokens, delta.token_ids, delta.logprobs
                )
            )

    def _decoded(self, leg: _Leg, text: str, choice: int, channel: str) -> str:
        """Whole characters of a channel; each has its own half in waiting."""
        key = choice, channel
        decoder = leg.decoders.get(key)
        if decoder is None:
            if text.isascii():
                return text
            decoder = leg.decoders[key] = Utf8Decoder(self._server.endpoint.errors)
        return decoder.decode(text)

    def _other(self, leg: _Leg, signal: Event | Signal, events: list[Event]) -> None:
        match signal:
            case ReasoningDelta() | RefusalDelta():
                self._side_text(leg, signal, events)
            case ToolCallDelta():
                self._tool(leg, signal, events)
            case UsageReport():
                usage = self.ledger.report(signal.usage)
                events.append(UsageReport(usage))
            case Finish():
                self._finish(signal)
            case Started():
                self.ledger.response_id = signal.id or self.ledger.response_id
                self.ledger.model = signal.model or self.ledger.model
                self.ledger.prompt_ids = signal.prompt_ids or self.ledger.prompt_ids
            case Failure():
                self._fault = signal.error
            case End():
                self._end(events)
            case TextDelta():  # among signals of eof()
                self._text(leg, signal, events)

    def _side_text(
        self, leg: _Leg, delta: ReasoningDelta | RefusalDelta, events: list[Event]
    ) -> None:
        kind = type(delta)
        text = self._decoded(leg, delta.text, delta.choice, kind.__name__)
        choice = self.ledger.choice(delta.choice)
        side = choice._reasoning if kind is ReasoningDelta else choice._refusal  # noqa: SLF001 - as Ledger
        side.add(text)
        self.ledger.add_other(delta.tokens)
        if not text:
            return
        if isinstance(delta, ReasoningDelta):
            events.append(
                ReasoningDelta(
                    text, delta.choice, delta.tokens, delta.token_ids, delta.signature
                )
            )
        else:
            events.append(RefusalDelta(text, delta.choice, delta.tokens))

    def _tool(self, leg: _Leg, delta: ToolCallDelta, events: list[Event]) -> None:
        channel = f"tool {delta.index}"
        arguments = self._decoded(leg, delta.arguments, delta.choice, channel)
        delta = ToolCallDelta(
            delta.index,
            delta.id,
            delta.name,
            arguments,
            delta.choice,
            delta.tokens,
            delta.closed,
        )
        self.ledger.choice(delta.choice).tool(delta)
        self.ledger.add_other(delta.tokens)
        events.append(delta)

    def _came(self, events: list[Event], now: float) -> None:
        """Move the deadline and the metrics, once per read."""
        chunks = characters = tokens = 0
        progress = False
        for event in events:
            if type(event) is TextDelta:
                chunks += 1
                characters += len(event.text)
                tokens += 1 if event.tokens is None else event.tokens
            elif type(event) in (ReasoningDelta, RefusalDelta, ToolCallDelta):
                progress = True
        if chunks:
            self.metrics.text(now, chunks, characters, tokens)
        self.metrics.tick(now)
        if self._finished():
            self._await("idle", _LINGER, now)
        elif chunks or progress:
            self._attempt = 0
            self._last_token = now
            self._await("idle", self._timeouts.idle, now)
        elif self.deadline.kind == "idle":
            self._ping(now)

    def _ping(self, now: float) -> None:
        """Keep-alives stretch the idle limit only as far as the caller lets them."""
        stretch, idle = self._timeouts.idle_with_pings, self._timeouts.idle
        if stretch is not None and idle is not None:
            until = min(now + idle, self._last_token + stretch)
            self._await("idle", max(until - now, 0), now)

    def _await(self, kind: Any, seconds: float | None, now: float) -> None:
        deadline = self.deadline
        deadline.kind, deadline.seconds = kind, seconds
        deadline.at = inf if seconds is None else now + seconds
        if self._total_at < deadline.at:
            deadline.kind, deadline.seconds = "total", self._timeouts.total
            deadline.at = self._total_at

    # -- ending ------------------------------------------------------------------

    def _finish(self, finish: Finish) -> None:
        """The first reason wins; text may still follow."""
        choice = self.ledger.choice(finish.choice)
        if not choice.finished:
            choice.finished = True
            choice.finish_reason = finish.reason
            choice.raw_finish_reason = finish.raw
            choice.close_calls(finish.reason)

    def _finished(self) -> bool:
        """Whether every answer said that it ended."""
        return all(choice.finished for choice in self.ledger.choices.values())

    def _end(self, events: list[Event]) -> None:
        """The whole answer came."""
        leg = self._open_leg()
        rest = leg.decoder.flush()
        if leg.seam is not None and not leg.seam.stopped:
            rest = leg.seam.feed(rest) + leg.seam.flush()
        if rest:
            self.ledger.add_text(rest, 0, (), whole=True)
            events.append(TextDelta(rest, self.request.choice, tokens=0))
        self._close(events)

    def _close(self, events: list[Event]) -> None:
        main, usage = self.ledger.main, self.ledger.usage
        main.close_calls(main.finish_reason)
        self.ended = self.complete = True
        if usage is not None and not usage.estimated:
            self.metrics.tokens = usage.output_tokens
        if self._leg is not None:
            replaced = sum(d.replaced for d in self._leg.decoders.values())
            self.metrics.replaced += replaced
        events.append(
            Finish(main.finish_reason, main.raw_finish_reason, self.request.choice)
        )

    # -- breaking ----------------------------------------------------------------

    def dropped(self, fault: MidstreamError, now: float) -> list[Event]:
        """The connection is gone, or was never there.

        Args:
            fault: What broke.
            now: Monotonic seconds.

        Returns:
            The last events, when the answer is whole all the same.

        Raises:
            MidstreamError: The stream cannot go on.
        """
        events: list[Event] = []
        if self._finished() and isinstance(fault, TransportError | ServerError):
            self.notes.append(f"after the end: {fault}")
            self._end(events)
            return events
        if self._leg is not None:
            for decoder in self._leg.decoders.values():
                decoder.forget()
        self.ledger.forget_open()
        self.metrics.drop()
        refused = self._way_refused(fault)
        first = self._drop or _Drop(fault, now, self.ledger.main.length)
        if not refused:
            self._plan(fault, first)
        self._drop = first
        self.pause = self._pause(fault, now) if not refused else 0.0
        if self.ledger.left == 0 and self.ledger.main.length:
            self._finish(Finish("length", "length"))
            self._close(events)
        return events

    def _plan(self, fault: MidstreamError, first: _Drop) -> None:
        """Choose how to go on, or raise."""
        resume = self._resume
        if resume is None or not resumable(fault):
            self._give_up(fault, first)
        self._attempt += 1
        if self._attempt > resume.attempts:
            self._give_up(fault, first, exhausted=True)
        if self._drop is None:
            self._ways = self._allowed(resume)
        if not self.ledger.main.length and not self._side_progress():
            return  # nothing came: the request may simply be sent again
        self._must_continue(fault)

    def _side_progress(self) -> bool:
        return any(choice.length for choice in self.ledger.choices.values())

    def _allowed(self, resume: Resume) -> list[str]:
        """The strategies that policy, dialect and experience leave."""
        server = self._server
        known = server.dialect.strategies
        return [
            way
            for way in resume.ways
            if (way in known or way == "rerun")
            and (server.endpoint.model, way) not in server.refused
        ]

    def _must_continue(self, fault: MidstreamError) -> None:
        """Refuse what a prefix cannot continue; replay and rerun can all."""
        exact = [way for way in self._ways if way in ("replay", "rerun")]
        main = self.ledger.main
        request = self.request
        why = None
        if main.tool_calls:
            why = "a tool call was cut"
        elif len(self.ledger.choices) > 1 or request.extra.get("n", 1) != 1:
            why = "more than one choice (n > 1) cannot be continued from a prefix"
        elif main.refusal:
            why = "a refusal is not continued"
        elif request.tools and self._resume and not self._resume.tools:
            why = "the request has tools, and Resume(tools=False)"
        else:
            why = self._server.dialect.no_prefix(request)
        if why is not None:
            self._ways = exact
        if self._ways:
            return
        kind = ToolCallInterrupted if main.tool_calls else ResumeUnsupported
        self._interrupt(
            kind,
            why
            or f"{self._server.endpoint.dialect} has no allowed way to continue"
            " (Resume.strategies, Resume.approximate)",
            fault,
        )

    def _way_refused(self, fault: MidstreamError) -> bool:
        """Whether the server refused the way, not the request: then the next is due."""
        leg = self._leg
        if leg is None or (leg.opened and leg.strategy != "replay"):
            return False
        if not self._ways or not isinstance(fault, ServerError):
            return False
        way = self._ways[0]
        if leg.strategy != way or self._drop is None:
            return False
        dialect = self._server.dialect
        lost = way == "replay" and not fault.retryable
        if not lost and not dialect.refuses(way, fault):
            return False
        if not lost:
            self._server.refused.add((self._server.endpoint.model, way))
        self.notes.append(f"{way}: {fault}")
        del self._ways[0]
        self._must_continue(fault)
        return True

    def _pause(self, fault: MidstreamError, now: float) -> float:
        if self._resume is None:
            return 0.0
        wait = pause(fault, self._attempt, self._resume.backoff, self._random)
        if now + wait >= self._total_at:
            raise self.signed(TimedOut("total", self._timeouts.total)) from fault
        return wait

    def _resumed(self, leg: _Leg, now: float, events: list[Event]) -> None:
        """The first bytes after a drop."""
        drop, self._drop = self._drop, None
        if drop is None:
            return
        gap = now - drop.at
        self.metrics.gap += gap
        exactness = EXACTNESS.get(leg.strategy, Exactness.UNBROKEN)
        resumption = Resumption(
            at=self.ledger.main._text.length,  # noqa: SLF001 - as Ledger
            reason=str(drop.fault),
            strategy=leg.strategy,
            exactness=exactness,
            endpoint=self._server.endpoint,
            gap=gap,
        )
        self.resumes.append(resumption)
        self.metrics.resumes += 1
        self._exactness = max(self._exactness, exactness)
        events.append(Resumed(resumption))

    def _give_up(
        self, fault: MidstreamError, first: _Drop, *, exhausted: bool = False
    ) -> NoReturn:
        """Raise the error that says most.

        What the server reported, what never began and the caller's own total limit are
        raised as they are; a stream that broke is a `StreamInterrupted`.
        """
        cause = first.fault
        began = self.ledger.main.length > 0 or self._side_progress()
        if isinstance(fault, ServerError | WireError | StreamInterrupted):
            raise self.signed(fault) from (None if cause is fault else cause)
        if isinstance(fault, TimedOut) and fault.kind == "total":
            raise self.signed(fault)
        unconnected = isinstance(fault, ConnectFailed) or (
            isinstance(fault, TimedOut) and fault.kind == "connect"
        )
        if unconnected and not began and cause is fault:
            raise self.signed(fault)
        if exhausted:
            tries = f"{self._attempt - 1} attempts without progress"
            self._interrupt(ResumeExhausted, f"gave up after {tries}: {fault}", cause)
        self._interrupt(StreamInterrupted, f"the stream broke: {cause}", cause)

    def _interrupt(
        self,
        kind: type[StreamInterrupted],
        message: str,
        fault: MidstreamError | None = None,
    ) -> NoReturn:
        cause = self._drop.fault if self._drop is not None else fault
        error = kind(message)
        error.resumes = tuple(self.resumes)
        if isinstance(error, ToolCallInterrupted):
            error.tool_calls = self.ledger.main.tool_calls
        raise self.signed(error) from cause

    def signed(self, error: MidstreamError) -> MidstreamError:
        """The error with the text so far and a checkpoint, and without any key.

        Args:
            error: What is about to be raised out of the stream.
        """
        self.ended = True
        error.text = self.ledger.main.text
        error.checkpoint = self.checkpoint()
        if isinstance(error, ServerError):
            error.message = self._scrubbed(error.message)
            error.args = (error.message,)
        return error

    def _scrubbed(self, message: str) -> str:
        endpoint = self._server.endpoint
        secrets = [value for value in endpoint.headers.values() if len(value) > 7]  # noqa: PLR2004 - shorter ones are no secrets
        if endpoint.api_key is not None:
            secrets.append(endpoint.api_key.get_secret_value())
        for secret in filter(None, secrets):
            message = message.replace(secret, "***")
        return message

    # -- leaving -----------------------------------------------------------------

    def leave(self) -> Flow[None]:
        """Calls that stop what still runs at the server; best effort."""
        leg = self._leg
        if leg is not None and not self.complete:
            yield from self._server.dialect.leave(leg.generation, self._received())

    def _received(self) -> Received:
        leg = self._leg
        if leg is None:
            return Received()
        return self.ledger.received(leg.offset, leg.reader.cursor)
