"""How a broken stream may go on: which strategies are left, and what none may do.

A prefix cannot continue everything: a tool call would be called twice, a grammar starts
anew at the prefix, a refusal is an answer. Replay can, since nothing is asked again;
so can a rerun, which checks what it gets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from midstream._values.errors import MidstreamError, NotFound, ServerError
from midstream._values.interruptions import (
    ResumeUnsupported,
    StreamInterrupted,
    ToolCallInterrupted,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midstream._dialects.base import Dialect
    from midstream._resume.ledger import Ledger
    from midstream._resume.policy import Resume
    from midstream._values.endpoint import Endpoint
    from midstream._values.request import Request

_WHOLE_STREAM = ("replay", "rerun")  # ways that do not depend on a prefix


@dataclass(slots=True, eq=False)
class Server:
    """An endpoint, its dialect, and what was learned of it; it outlives the stream.

    Attributes:
        endpoint: The address, defaults filled in.
        dialect: How it speaks.
        memory: The dialect's own notes.
        refused: (model, strategy) pairs that the server said it cannot do.
        down_until: Until when it is asked last, as it failed for good (monotonic
            seconds).
    """

    endpoint: Endpoint
    dialect: Dialect
    memory: dict[str, Any] = field(default_factory=dict)
    refused: set[tuple[str | None, str]] = field(default_factory=set)
    down_until: float = 0.0

    def ways(self, resume: Resume) -> list[str]:
        """The strategies that policy, dialect and experience leave, best first."""
        return [
            way
            for way in resume.ways
            if (way in self.dialect.strategies or way == "rerun")
            and (self.endpoint.model, way) not in self.refused
        ]


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
class Plan:
    """The state of one break, from the drop to the next new text.

    Attributes:
        ways: Strategies left to try, best first.
        attempt: Tries without a new character.
        drop: What broke; None while all is well.
        lost: Whether the server no longer knows the stream that it had kept.
        notes: Why ways were left.
    """

    ways: list[str] = field(default_factory=list)
    attempt: int = 0
    drop: Drop | None = None
    lost: bool = False
    notes: list[str] = field(default_factory=list)

    def no_replay(self, why: MidstreamError) -> None:
        """What the server keeps is itself broken: replaying it brings nothing new."""
        if "replay" in self.ways:
            self.ways.remove("replay")
            self.notes.append(f"replay: {why}")

    def skip(self, why: MidstreamError) -> None:
        """Leave the best way for the next."""
        self.notes.append(f"{self.ways[0]}: {why}")
        del self.ways[0]

    def refused(self, server: Server, strategy: str, fault: MidstreamError) -> bool:
        """Whether ``fault`` refuses the way that was tried, not the request.

        A stream that is no longer kept is lost for replay; a server that cannot
        continue in some way is remembered.
        """
        if not self.ways or self.ways[0] != strategy:
            return False
        if not isinstance(fault, ServerError):
            return False
        if strategy == "replay":
            self.lost = isinstance(fault, NotFound)
            return not fault.retryable
        if not server.dialect.refuses(strategy, fault):
            return False
        server.refused.add((server.endpoint.model, strategy))
        return True

    def withdraw(
        self, server: Server, strategies: Sequence[str], fault: MidstreamError
    ) -> bool:
        """Whether ``fault`` refuses what a request asked for replay's sake.

        That is remembered: the same request is made again without it.

        Args:
            server: Who refused.
            strategies: The ways that the request had been prepared for.
            fault: Its words.
        """
        if "replay" not in strategies or not isinstance(fault, ServerError):
            return False
        if not server.dialect.refuses("replay", fault):
            return False
        server.refused.add((server.endpoint.model, "replay"))
        self.notes.append(f"replay: {fault}")
        self.ways = [way for way in self.ways if way != "replay"]
        return True

    def restrict(
        self, server: Server, request: Request, ledger: Ledger, *, tools: bool
    ) -> StreamInterrupted | None:
        """Keep the ways that can continue what came.

        Args:
            server: Who would continue.
            request: What was asked.
            ledger: What came.
            tools: Whether text of a request with tools may be continued.

        Returns:
            Why there is none, if so.
        """
        why = _no_prefix(server.dialect, request, ledger, tools=tools)
        if why is not None:
            self.ways = [way for way in self.ways if way in _WHOLE_STREAM]
        if ledger.progress > ledger.main.characters:
            # A rerun checks and skips text; all else would come twice.
            self.ways = [way for way in self.ways if way != "rerun"]
        if self.ways:
            return None
        if ledger.main.tool_calls:
            error = ToolCallInterrupted(why or "a tool call was cut")
            error.tool_calls = ledger.main.settled_calls()
            return error
        tried = f"; {'; '.join(self.notes)}" if self.notes else ""
        return ResumeUnsupported(
            why
            or f"{server.endpoint.dialect} has no allowed way to continue this stream "
            f"(see Resume.strategies and Resume.approximate){tried}"
        )


def _no_prefix(
    dialect: Dialect, request: Request, ledger: Ledger, *, tools: bool
) -> str | None:
    """Why no prefix may continue what came, or None when one may."""
    if ledger.main.tool_calls:
        return "a tool call was cut; it cannot be continued from a prefix"
    if len(ledger.choices) > 1 or request.choices > 1:
        return "more than one choice (n > 1) cannot be continued from a prefix"
    if ledger.main.refusal:
        return "a refusal is not continued"
    if request.tools and not tools:
        return "the request has tools and Resume(tools=False)"
    return dialect.no_prefix(request)
