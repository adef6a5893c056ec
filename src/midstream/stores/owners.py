"""Names of owners, and what is said to one that owns a key no longer."""

from __future__ import annotations

from midstream._values.interruptions import LeaseLost


def holder_of(owner: str) -> str:
    """The client whose stream it is: the part before the slash."""
    return owner.partition("/")[0]


def lost(key: str) -> LeaseLost:
    """The error of a write that came too late."""
    return LeaseLost(
        f"another reader took the stream {key!r} over; what came here is in the "
        "error's text, and the other one goes on"
    )
