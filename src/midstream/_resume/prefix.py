"""What may continue an answer that broke: which ways are left, and why there is none.

A prefix cannot continue everything: a tool call would be called twice, a grammar starts
anew at the prefix, a refusal is an answer. Replay can, since nothing is asked again;
so can a rerun, which checks what it gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream._values.interruptions import (
    ResumeUnsupported,
    StreamInterrupted,
    ToolCallInterrupted,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midstream._resume.ledger import Ledger
    from midstream._resume.server import Server
    from midstream._values.request import Request

_WHOLE_STREAM = ("replay", "rerun")  # ways that do not depend on a prefix


def no_prefix(
    server: Server, request: Request, ledger: Ledger, *, tools: bool, after: int
) -> str | None:
    """Why no prefix may continue what came, or None when one may.

    Args:
        server: Who would continue.
        request: What was asked.
        ledger: What came.
        tools: Whether text of a request with tools may be continued.
        after: Characters that the caller has.
    """
    if after > ledger.main.characters:
        return (
            f"{after} characters were read and only {ledger.main.characters} are "
            "stored: give the text itself, resume(key, have=…)"
        )
    if ledger.main.tool_calls:
        return "a tool call was cut; it cannot be continued from a prefix"
    if len(ledger.choices) > 1 or request.choices > 1:
        return "more than one choice (n > 1) cannot be continued from a prefix"
    if ledger.main.refusal:
        return "a refusal is not continued"
    if request.tools and not tools:
        return "the request has tools and Resume(tools=False)"
    return server.dialect.no_prefix(request)


def allowed(
    ways: Sequence[str], ledger: Ledger, *, why: str | None, after: int
) -> list[str]:
    """Those of the ways that can continue what came.

    Args:
        ways: What policy and server leave, best first.
        ledger: What came.
        why: Why no prefix may, if so.
        after: Characters that the caller has.
    """
    left = [way for way in ways if why is None or way in _WHOLE_STREAM]
    more = ledger.progress > ledger.main.characters
    if more or after > ledger.main.characters:
        # A rerun checks and drops text that came; all else would come twice.
        left = [way for way in left if way != "rerun"]
    return left


def refusal(
    server: Server, ledger: Ledger, why: str | None, notes: Sequence[str]
) -> StreamInterrupted:
    """What to raise where no way is left.

    Args:
        server: Who would continue.
        ledger: What came.
        why: Why no prefix may, if so.
        notes: Why ways were left.
    """
    if ledger.main.tool_calls:
        error = ToolCallInterrupted(why or "a tool call was cut")
        error.tool_calls = ledger.main.settled_calls()
        return error
    tried = f"; {'; '.join(notes)}" if notes else ""
    return ResumeUnsupported(
        why
        or f"{server.endpoint.dialect} has no allowed way to continue this stream "
        f"(see Resume.strategies and Resume.approximate){tried}"
    )
