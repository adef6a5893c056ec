"""Streams that outlive their connection, as llama.cpp keeps them by conversation id.

The records of a stream are made when somebody first needs them, and kept; whoever asks
later gets them from any byte on, and goes on making them. So the generation never
depends on the connection that began it, and no thread runs for it.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from midstream.testing._fake.script import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from midstream.testing._fake.script import Pen

_STOPPED = Record(b"", "stopped")


class KeptStream:
    """One of them.

    Args:
        source: Makes the records.
        pen: What they are written with.
    """

    def __init__(self, source: Iterator[Record], pen: Pen) -> None:
        self._source = source
        self.pen = pen
        self._records: list[Record] = []
        self._lock = threading.Lock()
        self.size = 0
        self.done = False
        self.stopped = False

    def follow(self, offset: int = 0) -> Iterator[Record]:
        """The records from byte `offset` of the body on, until the end."""
        index = at = 0
        while (record := self._get(index)) is not None:
            if record is _STOPPED:
                yield record
                return
            start = max(offset - at, 0)
            index, at = index + 1, at + len(record.data)
            if start < len(record.data):
                if start:  # of the end without its mark the same bytes were read
                    data, unmarked = record.data[start:], record.unmarked[start:]
                    record = replace(record, data=data, unmarked=unmarked)
                yield record

    def size_while(self, early: Callable[[bytes], bool]) -> int:
        """Bytes of the records at the begin, of those made, that are `early`."""
        with self._lock:
            begin = itertools.takewhile(early, (r.data for r in self._records))
            return sum(map(len, begin))

    def _get(self, index: int) -> Record | None:
        with self._lock:
            if self.stopped:
                return _STOPPED
            if index == len(self._records) and not self.done:
                record = next(self._source, None)
                self.done = record is None or record.kind == "end"
                if record is not None:
                    self._records.append(record)
                    self.size += len(record.data)
            return self._records[index] if index < len(self._records) else None


class KeptStreams:
    """A server's last ones.

    Args:
        window: Bytes at the end of a stream that can be asked for again.
        keep: How many streams are kept; beyond that the oldest one is stopped.
    """

    def __init__(self, window: int, keep: int) -> None:
        self.window = window
        self._keep = keep
        self._streams: dict[str, KeptStream] = {}
        self._lock = threading.Lock()

    def keep(self, name: str, source: Iterator[Record], pen: Pen) -> KeptStream:
        """Begin one; an older one of that name is stopped."""
        stream = KeptStream(source, pen)
        with self._lock:
            gone = [self._streams.pop(name, None)]
            self._streams[name] = stream
            if len(self._streams) > self._keep:
                gone.append(self._streams.pop(next(iter(self._streams))))
        for older in filter(None, gone):
            older.stopped = True
        return stream

    def find(self, name: str) -> KeptStream | None:
        """The stream of that name."""
        with self._lock:
            return self._streams.get(name)

    def stop(self, name: str) -> None:
        """Stop it and forget it; harmless when there is none."""
        with self._lock:
            stream = self._streams.pop(name, None)
        if stream is not None:
            stream.stopped = True

    def state(self, name: str) -> dict[str, Any] | None:
        """What the server tells of it."""
        stream = self.find(name)
        if stream is None:
            return None
        return {
            "conversation_id": name,
            "is_done": stream.done,
            "total_bytes": stream.size,
            "started_at": 0,
            "completed_at": 0,
        }
