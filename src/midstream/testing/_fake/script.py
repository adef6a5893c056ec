"""From events to the records of the body, with all that can be wrong inside a body."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from midstream._dialects.faults import error_of
from midstream._values.events import (
    End,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream.testing._fake.faults import (
    ByteOrderMark,
    ErrorEvent,
    Garbage,
    LineEnds,
    Pings,
    pick,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from midstream._dialects.base import Writer
    from midstream._values.events import Event, Signal
    from midstream.testing._fake.faults import Fault

Kind: TypeAlias = Literal[
    "open", "delta", "bulk", "finish", "end", "ping", "noise", "stall", "stopped"
]
_BULK = 1 << 16  # bytes of one piece
_DELTAS = TextDelta | ReasoningDelta | RefusalDelta | ToolCallDelta


@dataclass(frozen=True, slots=True)
class Record:
    """A piece of the body.

    Attributes:
        data: Its bytes.
        kind: What it is; ``"bulk"``: many deltas; ``"stall"``: nothing, and nothing
            after it; ``"stopped"``: the generation was stopped.
        text: The text in it.
        tokens: How many tokens it stands for.
        deltas: How many deltas it holds.
        unmarked: Of the end record, its bytes without the end marker.
    """

    data: bytes
    kind: Kind
    text: str = ""
    tokens: int = 0
    deltas: int = 0
    unmarked: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pen:
    """What writes a body.

    Attributes:
        writer: The dialect's writer.
        dress: Puts into a written record what the server adds to it: gets the record,
            the event, and the tokens so far.
        unmarked: The end record without its end marker; None when nothing is left.
        ping: The server's keep-alive.
        kept: The name under which the server keeps the stream, if it gave it one.
        type: The body's media type, where it is not the dialect's own.
    """

    writer: Writer
    dress: Callable[[bytes, Event | Signal, int], bytes] = lambda data, *_: data
    unmarked: Callable[[bytes], bytes | None] = lambda _: None
    ping: bytes = b""
    kept: str | None = None
    type: str | None = None


def records(
    events: Iterable[Event | Signal], pen: Pen, faults: Sequence[Fault]
) -> Iterator[Record]:
    """The body's records.

    Args:
        events: What the model says.
        pen: Writes it.
        faults: What goes wrong on this connection.
    """
    spoken = _pinged(_broken(_written(events, pen), pen, faults), pen, faults)
    ending = pick(faults, LineEnds)
    bom = b"" if pick(faults, ByteOrderMark) is None else b"\xef\xbb\xbf"
    for record in spoken:
        data, unmarked = record.data, record.unmarked
        if ending is not None:
            data = data.replace(b"\n", ending.ending.encode())
            unmarked = unmarked.replace(b"\n", ending.ending.encode())
        if bom or data is not record.data:
            yield replace(record, data=bom + data, unmarked=bom + unmarked)
        else:
            yield record
        bom = b""


def repeated(records: Iterable[Record], times: int) -> Iterator[Record]:
    """The same deltas again and again, byte for byte, in large pieces.

    Args:
        records: The body's records, the deltas of which are said so often.
        times: How often.
    """
    block: list[Record] = []
    for record in records:
        if record.kind == "delta":
            block.append(record)
        elif block and record.kind in ("finish", "end"):
            yield from _bulk(block, times - 1)
            block.clear()
        yield record


def _bulk(block: Sequence[Record], times: int) -> Iterator[Record]:
    data = b"".join(record.data for record in block)
    tokens = sum(record.tokens for record in block)
    most = max(_BULK // len(data), 1)
    while times > 0:
        now = min(times, most)
        times -= now
        yield Record(data * now, "bulk", "", tokens * now, len(block) * now)


def _written(events: Iterable[Event | Signal], pen: Pen) -> Iterator[Record]:
    tokens = 0
    for event in events:
        kind = _kind(event)
        new = (event.tokens or 0) if isinstance(event, _DELTAS) else 0
        tokens += new
        text = event.text if isinstance(event, TextDelta) else ""
        written = [pen.dress(data, event, tokens) for data in pen.writer.write(event)]
        if not written:
            continue
        *others, last = written
        for data in others:  # the begin of a delta's block; the reason before the mark
            yield Record(data, "finish" if kind == "end" else "open")
        unmarked = pen.unmarked(last) if kind == "end" else None
        yield Record(last, kind, text, new, int(kind == "delta"), unmarked or b"")


def _kind(event: Event | Signal) -> Kind:
    match event:
        case Started():
            return "open"
        case Finish() | UsageReport():
            return "finish"
        case End():
            return "end"
        case _:
            return "delta"


def _broken(
    records: Iterator[Record], pen: Pen, faults: Sequence[Fault]
) -> Iterator[Record]:
    """Errors and garbage, each once, before what follows its last delta."""
    due: list[ErrorEvent | Garbage] = [
        fault for fault in faults if isinstance(fault, ErrorEvent | Garbage)
    ]
    deltas = 0
    for record in records:
        for fault in [] if record.kind == "open" else due.copy():
            if deltas < fault.after:
                continue
            due.remove(fault)
            yield from _interruption(fault, pen)
            if fault.then != "go_on":
                return
        yield record
        deltas += record.kind == "delta"


def _interruption(fault: ErrorEvent | Garbage, pen: Pen) -> Iterator[Record]:
    if isinstance(fault, Garbage):
        yield Record(fault.data, "noise")
        return
    words = {"message": fault.message, "type": fault.type, "code": fault.status}
    error = error_of(words, status=fault.status)
    for data in pen.writer.write(Failure(error)):
        yield Record(data, "noise")
    if fault.then == "done":
        for data in pen.writer.write(End()):
            yield Record(data, "end")
    if fault.then == "stall":
        yield Record(b"", "stall")


def _pinged(
    records: Iterator[Record], pen: Pen, faults: Sequence[Fault]
) -> Iterator[Record]:
    pings = pick(faults, Pings)
    if pings is None:
        yield from records
        return
    ping = pings.data if pings.data is not None else pen.ping
    deltas = 0
    for record in records:
        if record.kind == "delta":
            if deltas % pings.every == 0:
                for _ in range(pings.count):
                    yield Record(ping, "ping")
            deltas += 1
        yield record
