"""Decides what happens on a connection: what is sent, waited for, and broken where.

A generator of actions that does no I/O; a transport carries them out, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from midstream.testing._fake.faults import Cut, Slow, Stall, StayOpen, pick

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from midstream.testing._fake.ledger import Ledger
    from midstream.testing._fake.recorded import Recorded
    from midstream.testing._fake.script import Pen, Record


@dataclass(frozen=True, slots=True)
class Open:
    """Send what comes before the body."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a piece of the body.

    Attributes:
        data: It.
    """

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait, and notice whether the client is gone.

    Attributes:
        seconds: So long; None: for ever.
    """

    seconds: float | None = 0.0


@dataclass(frozen=True, slots=True)
class End:
    """End the body properly.

    Attributes:
        size: Bytes of a last record that are sent before.
        record: This record.
    """

    record: bytes = b""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Tear:
    """End the connection.

    Attributes:
        how: With FIN, with RST, or with FIN inside a chunk.
        record: The record that would follow.
        size: Bytes of it that are sent before.
    """

    how: Literal["fin", "rst", "mid_chunk"]
    record: bytes = b""
    size: int = 0


Action: TypeAlias = Open | Send | Wait | End | Tear
_HELD = ("delta", "finish", "end")


def play(
    records: Iterable[Record], pen: Pen, entry: Recorded, ledger: Ledger
) -> Iterator[Action]:
    """What to do with a body; the last action is `End` or `Tear`.

    Args:
        records: The body.
        pen: Whose keep-alive may be needed.
        entry: The request, with its faults; kept up to date.
        ledger: Where changes of it are announced.
    """
    return _Show(pen, entry, ledger).perform(records)


class _Show:
    def __init__(self, pen: Pen, entry: Recorded, ledger: Ledger) -> None:
        self._pen = pen
        self._entry = entry
        self._ledger = ledger
        self._cut = pick(entry.faults, Cut)
        self._stall = pick(entry.faults, Stall)
        self._slow = pick(entry.faults, Slow) or Slow()

    def perform(self, records: Iterable[Record]) -> Iterator[Action]:
        if self._cut is not None and self._cut.before_headers:
            yield self._tear(self._cut)
            return
        if self._stall is not None and self._stall.after is None:
            yield Wait(None)
        self._entry.status = 200
        yield Open()
        for record in records:
            if record.kind == "stopped":
                self._ledger.end(self._entry, "stopped")
                break
            last = self._last(record)
            if last is not None:
                yield last
                return
            yield from self._before(record)
            self._count(record, len(record.data))
            yield Send(record.data)
        if pick(self._entry.faults, StayOpen) is not None:
            yield Wait(None)
        self._ledger.end(self._entry, "complete")
        yield End()

    def _last(self, record: Record) -> Action | None:
        """The end that a cut makes in place of this record, or inside it."""
        cut = self._cut
        if cut is None:
            return None
        if cut.at is not None:
            left = cut.at - self._entry.body_bytes
            return self._tear(cut, record, left) if len(record.data) >= left else None
        if cut.kind == "no_done":
            if record.kind != "end":
                return None
            self._ledger.end(self._entry, "cut")
            return End(record.unmarked, len(record.unmarked))
        if cut.after == self._entry.deltas and record.kind in _HELD:
            torn = cut.kind in ("mid_chunk", "half")
            return self._tear(cut, record, inside(record.data) if torn else 0)
        return None

    def _before(self, record: Record) -> Iterator[Action]:
        """What happens between the last record and this one."""
        done = self._entry.deltas
        if record.kind == "stall":
            yield Wait(None)
        if record.kind not in _HELD:
            return
        if self._stall is not None and self._stall.after == done:
            while True:
                yield Wait(self._stall.ping_every)
                yield Send(self._pen.ping)
        seconds = 0.0
        if record.kind == "delta":
            first = self._slow.first if not done else None
            seconds = self._slow.delay if first is None else first
        yield Wait(seconds)

    def _tear(self, cut: Cut, record: Record | None = None, size: int = 0) -> Action:
        data = b"" if record is None else record.data
        if record is not None:
            self._count(record, size)
        self._ledger.end(self._entry, "cut")
        match cut.kind:
            case "fin" | "rst" | "mid_chunk":
                return Tear(cut.kind, data, size)
            case _:
                return End(data, size)

    def _count(self, record: Record, size: int) -> None:
        """Count first, so that a client which has a record finds it counted."""
        self._entry.body_bytes += size
        if record.deltas and size == len(record.data):
            self._ledger.sent(self._entry, record)


def inside(record: bytes) -> int:
    """A place inside a record, inside a character where it has one that is long."""
    for at, byte in enumerate(record):
        if byte >= 0xC0:  # noqa: PLR2004 - UTF-8: the first of several bytes
            return at + 1
    return len(record) // 2
