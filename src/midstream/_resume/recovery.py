"""What becomes of a broken stream: a decision, as a value.

`Recovery.decide` is given the fault, the time and the facts, and says one of

    GoOn      ask this server, in the first of these ways that it can, after a pause
    EndWell   the answer is whole all the same
    GiveUp    raise, and what is behind it

It remembers one break, from the drop to the next progress: which ways were refused,
which servers failed, how many tries brought nothing. It knows no session and calls
nothing back.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from midstream._resume.policy import (
    ENOUGH,
    RESTART,
    endures,
    fails_over,
    is_silence,
    pause,
    resumable,
)
from midstream._resume.prefix import allowed, no_prefix, refusal
from midstream._values.errors import (
    ContextOverflow,
    NotFound,
    ServerError,
    TimedOut,
    WireError,
)
from midstream._values.events import Finish
from midstream._values.interruptions import ResumeDiverged, StreamInterrupted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from midstream._resume.ledger import Ledger
    from midstream._resume.policy import Resume
    from midstream._resume.server import Server
    from midstream._values.errors import MidstreamError
    from midstream._values.request import Request
    from midstream._values.timeouts import Timeouts

_DOWN = 30.0  # seconds for which a server that failed for good is asked last


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last connection was and saw.

    Attributes:
        strategy: How it was asked: ``"begin"``, or a strategy of resuming.
        prepared: The ways that its request was prepared for.
        opened: Whether a stream had begun.
        spent: Whether what the server keeps of it has nothing more to give.
        restarted: Whether what it said was the answer's own beginning; None where it
            said nothing.
    """

    strategy: str
    prepared: Sequence[str] = ()
    opened: bool = False
    spent: bool = False
    restarted: bool | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision looks at.

    Attributes:
        request: What was asked.
        ledger: What came.
        seen: The last connection; None before the first.
        after: Characters that the caller has.
        ends_at: When the stream's total time is over, monotonic seconds.
        timeouts: Its limits.
    """

    request: Request
    ledger: Ledger
    seen: Seen | None
    after: int
    ends_at: float
    timeouts: Timeouts


@dataclass(frozen=True, slots=True)
class GoOn:
    """Ask a server, in the first of the ways that it can.

    Attributes:
        server: Whom.
        ways: How it may go on, best first; unused where nothing had come.
        pause: Seconds to wait before.
    """

    server: Server
    ways: tuple[str, ...] = ()
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class EndWell:
    """The answer is whole.

    Attributes:
        finish: Why it ended, where nobody said.
        note: What broke behind its end.
    """

    finish: Finish | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The stream cannot go on.

    Attributes:
        fault: What ends it.
        first: What broke first.
        attempts: Tries that brought nothing, where they are used up.
    """

    fault: MidstreamError
    first: MidstreamError
    attempts: int = 0


Decision: TypeAlias = GoOn | EndWell | GiveUp


@dataclass(slots=True)
class Drop:
    """What broke first.

    Attributes:
        fault: It.
        at: When, in monotonic seconds.
        opened: Whether a stream had begun; else it was only a refused request.
    """

    fault: MidstreamError
    at: float
    opened: bool = True


@dataclass(slots=True)
class Recovery:
    """The rules of one stream, and what was tried since it broke.

    Attributes:
        servers: Who may answer, in order.
        resume: The caller's policy; None: a broken stream is given up.
        random: Source of the backoff's jitter.
        notes: Why ways were left; shared with the stream's.
        server: Who answers.
        ways: Strategies left to try, best first.
        drop: What broke; None while all is well.
        attempt: Tries that brought nothing.
        lost: Whether the server no longer knows the stream that it had kept.
        failed: Servers that were left in this break.
        malformed: Whether a record of the wire was malformed since the last progress.
        restarts: Connections running that said the answer's own beginning.
        at: Characters of text that had come when the present connection began.
    """

    servers: Sequence[Server]
    resume: Resume | None
    random: Random
    notes: list[str]
    server: Server
    ways: list[str] = field(default_factory=list)
    drop: Drop | None = None
    attempt: int = 0
    lost: bool = False
    failed: list[Server] = field(default_factory=list)
    malformed: bool = False
    restarts: int = 0
    at: int = 0
    _enough: int = ENOUGH

    def restored(self, drop: Drop, *, kept: bool) -> None:
        """Another process began the answer; ``kept``: its server may replay it."""
        self.drop = drop
        if self.resume is not None:
            ways = self.server.ways(self.resume)
            self.ways = [way for way in ways if kept or way != "replay"]

    def connected(self, ledger: Ledger) -> None:
        """A stream begins: what it brings is counted from here."""
        self.at = ledger.main.characters
        self._enough = ledger.progress + ENOUGH

    def grew(self, progress: int) -> bool:
        """So much has come; whether the present connection has just brought enough."""
        if progress < self._enough:
            return False
        self._enough = sys.maxsize
        self.attempt = 0
        self.malformed = False
        self.failed.clear()
        return True

    def decide(self, fault: MidstreamError, now: float, facts: Facts) -> Decision:
        """What to do about ``fault``.

        Args:
            fault: What broke.
            now: Monotonic seconds.
            facts: What came, by whom, and how long it may take.
        """
        ledger, resume = facts.ledger, self.resume
        if ledger.finished and not isinstance(fault, ResumeDiverged):
            return EndWell(note=f"after the end: {fault}")
        guess = ledger.guessed and self.ways[:1] == ["replay"]  # which tells for sure
        if resume is not None and ledger.used_up and not guess and resumable(fault):
            return EndWell(finish=Finish("length", "length"))
        if resume is None:
            return GiveUp(fault, fault if self.drop is None else self.drop.fault)
        return self._decide(fault, now, facts, resume)

    def _decide(
        self, fault: MidstreamError, now: float, facts: Facts, resume: Resume
    ) -> Decision:
        seen = facts.seen
        first = self.drop or Drop(fault, now, seen is not None and seen.opened)
        if self._withdraws(seen, fault):
            return self._go_on()
        if self._refuses(seen, fault):
            self.skip(fault)
            return self._restricted(facts) or self._go_on()
        if self._starts_anew(seen):
            return GiveUp(
                ResumeDiverged(
                    "the server does not continue the answer but begins it anew "
                    f"({RESTART} times running)"
                ),
                first.fault,
            )
        again = isinstance(fault, WireError) and self.malformed
        used_up = self.attempt >= resume.attempts
        for_good = not resumable(fault) or again or used_up or not endures(fault)
        if for_good or (is_silence(fault) and self._others()):
            if not (fails_over(fault) and self._others()):
                attempts = self.attempt if resumable(fault) and not again else 0
                return GiveUp(fault, first.fault, attempts)
            return self._next_server(fault, first, facts, now)
        return self._again(fault, first, facts, now)

    def _again(
        self, fault: MidstreamError, first: Drop, facts: Facts, now: float
    ) -> Decision:
        """One more try."""
        resume = self.resume
        assert resume is not None  # noqa: S101 - `decide` has looked
        self.attempt += 1
        self.malformed = self.malformed or isinstance(fault, WireError)
        if self.drop is None:
            self.drop, self.ways = first, self.server.ways(resume)
        spent = facts.seen is not None and facts.seen.spent
        if spent or isinstance(fault, WireError):
            # What the server keeps is itself broken: a replay brings nothing new.
            self._drop_way("replay", fault)
        wait = pause(fault, self.attempt, resume.backoff, self.random)
        if now + wait >= facts.ends_at:
            return GiveUp(TimedOut("total", facts.timeouts.total), first.fault)
        return self._restricted(facts, now) or self._go_on(wait)

    def _go_on(self, wait: float = 0.0) -> GoOn:
        return GoOn(self.server, tuple(self.ways), wait)

    # -- ways --------------------------------------------------------------------

    def skip(self, why: MidstreamError) -> None:
        """Leave the best way for the next."""
        self.notes.append(f"{self.ways[0]}: {why}")
        del self.ways[0]

    def _drop_way(self, way: str, why: MidstreamError) -> None:
        if way in self.ways:
            self.ways.remove(way)
            self.notes.append(f"{way}: {why}")

    def _withdraws(self, seen: Seen | None, fault: MidstreamError) -> bool:
        """Whether ``fault`` refuses what a request asked for replay's sake.

        That is remembered: the same request is made again without it.
        """
        if seen is None or seen.opened or "replay" not in seen.prepared:
            return False
        if not isinstance(fault, ServerError):
            return False
        if not self.server.dialect.refuses("replay", fault):
            return False
        self.server.refused.add((self.server.endpoint.model, "replay"))
        self.notes.append(f"replay: {fault}")
        self.ways = [way for way in self.ways if way != "replay"]
        return True

    def _refuses(self, seen: Seen | None, fault: MidstreamError) -> bool:
        """Whether ``fault`` refuses the way that was tried, not the request.

        A stream that is no longer kept is lost for replay; a server that cannot
        continue in some way is remembered.
        """
        if seen is None or self.drop is None or not isinstance(fault, ServerError):
            return False
        if not self.ways or self.ways[0] != seen.strategy:
            return False
        if seen.strategy == "replay":
            self.lost = isinstance(fault, NotFound)
            return not fault.retryable
        if not self.server.dialect.refuses(seen.strategy, fault):
            return False
        self.server.refused.add((self.server.endpoint.model, seen.strategy))
        return True

    def _starts_anew(self, seen: Seen | None) -> bool:
        """Whether connection after connection says the answer's own beginning."""
        if seen is not None and seen.restarted is not None:
            self.restarts = self.restarts + 1 if seen.restarted else 0
        return self.restarts >= RESTART

    def restrict(self, facts: Facts) -> StreamInterrupted | None:
        """Keep the ways that can continue what came; why there is none, if so."""
        resume, ledger = self.resume, facts.ledger
        if resume is None or (not ledger.progress and not facts.after):
            return None  # the request may simply be sent again
        why = no_prefix(
            self.server,
            facts.request,
            ledger,
            tools=resume.tools,
            after=facts.after,
        )
        self.ways = allowed(self.ways, ledger, why=why, after=facts.after)
        return None if self.ways else refusal(self.server, ledger, why, self.notes)

    def _restricted(self, facts: Facts, now: float = 0.0) -> Decision | None:
        """Where this server has no way left: the next one, or the end."""
        error = self.restrict(facts)
        if error is None or self.drop is None:
            return None
        return self._next_server(error, self.drop, facts, now)

    # -- servers -----------------------------------------------------------------

    def _others(self) -> list[Server]:
        """Servers that have not failed in this break, the healthy ones first."""
        left = [s for s in self.servers if s not in (*self.failed, self.server)]
        return sorted(left, key=lambda server: server.health.down_until)

    def first_server(self, now: float) -> Server:
        """Who is asked first: the first that is not known to be down."""
        if self.server.health.down_until > now:
            self.server = min(self.servers, key=lambda s: s.health.down_until)
        return self.server

    def _next_server(
        self, fault: MidstreamError, first: Drop, facts: Facts, now: float
    ) -> Decision:
        """The next server that can continue; else why the last one cannot."""
        if not isinstance(fault, StreamInterrupted | ContextOverflow):
            self.server.health.down_until = now + _DOWN  # else it may serve others well
        why = fault
        while others := self._others():
            self.failed.append(self.server)
            self.server = others[0]
            self.drop, self.attempt, self.restarts = first, 0, 0
            self.ways = self.server.ways(self.resume) if self.resume else []
            facts.ledger.forget_ids()
            error = self.restrict(facts)
            if error is None:
                return self._go_on()
            why = error
        return GiveUp(why, first.fault)
