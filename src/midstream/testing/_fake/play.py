"""Plays a body on a connection, and breaks it there where it was told to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from midstream.testing._fake.body import Body
from midstream.testing._fake.faults import (
    Chunking,
    Cut,
    Gzip,
    Slow,
    Stall,
    StayOpen,
    pick,
)
from midstream.testing._fake.wire import head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from midstream.testing._fake.faults import Fault
    from midstream.testing._fake.ledger import Ended, Ledger, Recorded
    from midstream.testing._fake.script import Pen, Record
    from midstream.testing._fake.wire import Line


class Broke(Exception):
    """The stream was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a performance needs.

    Attributes:
        line: The connection.
        entry: The record of the request, kept up to date.
        ledger: Where changes of it are announced.
        faults: What goes wrong.
        headers: The response's headers.
        pen: Whose end marker and keep-alive may be needed.
        refuse: Refuses new connections for some seconds.
    """

    line: Line
    entry: Recorded
    ledger: Ledger
    faults: Sequence[Fault]
    headers: Mapping[str, str]
    pen: Pen
    refuse: Callable[[float], None]


def play(stage: Stage, records: Iterable[Record]) -> Ended:
    """Send headers and records.

    Args:
        stage: Where and how.
        records: The body.

    Returns:
        How it ended.

    Raises:
        HungUp: The client left.
        Closing: The server closes.
    """
    show = _Show(stage)
    try:
        show.open()
        for record in records:
            show.perform(record)
        show.close()
    except Broke:
        return "cut"
    return "complete"


class _Show:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        faults = stage.faults
        self._cut = pick(faults, Cut)
        self._stall = pick(faults, Stall)
        self._slow = pick(faults, Slow)
        self._gzip = pick(faults, Gzip)
        self._chunking = pick(faults, Chunking) or Chunking()
        self._body = Body(stage.line, self._chunking, gzip=self._gzip is not None)

    def open(self) -> None:
        """The headers."""
        stage = self._stage
        if self._cut is not None and self._cut.before_headers:
            self._break(self._cut)
        if self._stall is not None and self._stall.after is None:
            self._hold(None)
        headers = dict(stage.headers)
        if self._gzip is not None and self._gzip.announced:
            headers["Content-Encoding"] = "gzip"
        if self._chunking.how == "close":
            headers["Connection"] = "close"
        else:
            headers["Transfer-Encoding"] = "chunked"
        stage.line.send(head(200, headers))
        stage.entry.status = 200

    def perform(self, record: Record) -> None:
        """One record."""
        if record.kind == "stall":
            self._hold(None)
        if record.kind in ("delta", "finish", "end"):
            self._before(record)
        if (
            record.kind == "end"
            and self._cut is not None
            and self._cut.kind == "no_done"
        ):
            data = self._stage.pen.unmarked(record.data)
            if data is not None:
                self._body.send(data)
            self._break(replace(self._cut, kind="eof"))
        self._send(record)

    def close(self) -> None:
        """The end of the body."""
        if pick(self._stage.faults, StayOpen) is not None:
            self._body.flush()
            self._stage.line.wait(None)
        self._stage.ledger.end(self._stage.entry, "complete")
        self._body.end()

    def _before(self, record: Record) -> None:
        """All that may happen between the last record and this one."""
        done = self._stage.entry.deltas
        if self._cut is not None and self._cut.after == done:
            if self._cut.kind in ("mid_chunk", "half"):
                self._break(self._cut, record.data, inside(record.data))
            elif self._cut.kind != "no_done":
                self._break(self._cut)
        if self._stall is not None and self._stall.after == done:
            self._body.flush()
            self._hold(self._stall.ping_every)
        delay = 0.0
        if self._slow is not None and record.kind == "delta":
            first = self._slow.first
            delay = first if first is not None and not done else self._slow.delay
        self._stage.line.wait(delay)

    def _send(self, record: Record) -> None:
        """Count first, so that a client which has a record finds it counted."""
        cut, left = self._cut, len(record.data) + 1
        if cut is not None and cut.at is not None:
            left = cut.at - self._body.size
        if record.deltas and len(record.data) <= left:
            self._stage.ledger.sent(self._stage.entry, record)
        if cut is not None and len(record.data) >= left:
            self._break(cut, record.data, left)
        self._body.send(record.data)
        self._count()

    def _count(self) -> None:
        self._stage.entry.body_bytes = self._body.size

    def _hold(self, ping_every: float | None) -> None:
        """Stay, until the client leaves or the server closes."""
        while True:
            self._stage.line.wait(ping_every)
            self._body.send(self._stage.pen.ping)

    def _break(self, cut: Cut, record: bytes = b"", size: int = 0) -> None:
        """Send `size` bytes of the record and end the connection."""
        line, body = self._stage.line, self._body
        if cut.kind == "mid_chunk":
            body.send_part(record, size)
        elif size:
            body.send(record[:size])
        body.flush()
        self._count()
        self._stage.ledger.end(self._stage.entry, "cut")
        if cut.refuse_for:
            self._stage.refuse(cut.refuse_for)
        if cut.kind == "rst":
            line.reset()
        elif cut.kind in ("half", "eof"):
            body.end()
        else:
            line.finish()
        raise Broke


def inside(record: bytes) -> int:
    """A place inside a record, inside a character where it has one that is long."""
    for at, byte in enumerate(record):
        if byte >= 0xC0:  # noqa: PLR2004 - UTF-8: the first of several bytes
            return at + 1
    return len(record) // 2
