"""Server-sent events on bytes: https://html.spec.whatwg.org/multipage/server-sent-events.html.

Lines end with LF, CR or CRLF and nothing else; U+2028 and its kin are text.

Beyond the standard, because servers do it: a last event without its blank line is given
out by `flush`; a JSON document without ``data:`` in front (Gemini's late errors) and a
field named ``error`` (llama.cpp's, in 2025) become records. Events with empty data are
not given out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream._frames import MAX_RECORD
from midstream._frames.lines import LineSplitter
from midstream._values.errors import WireError

if TYPE_CHECKING:
    from midstream._frames import Record

_DIGITS = 18  # of a retry: more make no sensible wait, and 4301 are an error to int()


class SSEFramer:
    """Cuts a ``text/event-stream`` body into (data, event type).

    Args:
        limit: The most bytes of one event.

    Attributes:
        last_event_id: The last ``id:`` seen; it stays, as the standard says.
        retry: The last ``retry:`` seen, in milliseconds.
    """

    __slots__ = (
        "_data",
        "_lines",
        "_name",
        "_raw",
        "_size",
        "_skip_lf",
        "last_event_id",
        "retry",
    )

    def __init__(self, limit: int = MAX_RECORD) -> None:
        self._lines = LineSplitter(limit)
        self._data: list[bytes] = []
        self._name = ""
        self._raw = False
        self._size = 0
        self._skip_lf = False
        self.last_event_id = ""
        self.retry: int | None = None

    def decode(self, piece: bytes) -> list[Record]:
        """The events whose blank line has come."""
        if self._skip_lf or b"\r" in piece:
            piece = self._unify(piece)
        records: list[Record] = []
        try:
            for line in self._lines.split(piece):
                if line.startswith(b"data:"):
                    self._data.append(line[6:] if line[5:6] == b" " else line[5:])
                    if len(self._data) > 1:
                        self._bound()
                elif line:
                    self._field(line, records)
                elif self._data:
                    self._dispatch(records)
                else:
                    self._name = ""
        except WireError as error:
            error.records = records
            raise
        return records

    def flush(self) -> list[Record]:
        """The last event, where the body ended before its blank line."""
        records: list[Record] = []
        for line in self._lines.rest(), b"":
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif line:
                self._field(line, records)
            elif self._data:
                self._dispatch(records)
        return records

    def _dispatch(self, records: list[Record]) -> None:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        if data:
            records.append((data, self._name))
        self._data.clear()
        self._size = 0
        self._name = ""
        self._raw = False

    def _field(self, line: bytes, records: list[Record]) -> None:
        if self._raw or (line[:1] in (b"{", b"[") and not self._data):
            self._raw = True
            self._data.append(line)
            self._bound()
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._name = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self.last_event_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < _DIGITS:
            self.retry = int(value)
        elif name == b"error":
            records.append((value, "error"))
        elif name == b"data":  # a field without a colon has an empty value
            self._data.append(b"")
            self._bound()

    def _bound(self) -> None:
        """Many lines of one event count together, empty ones too."""
        if len(self._data) > 1:
            before = self._size or len(self._data[0])
            self._size = before + 1 + len(self._data[-1])
            if self._size > self._lines.limit:
                raise self._lines.too_large()

    def _unify(self, piece: bytes) -> bytes:
        """CR and CRLF to LF; a CR at the end may be followed by its LF next time."""
        if self._skip_lf and piece:
            piece = piece.removeprefix(b"\n")
            self._skip_lf = False
        if piece:
            self._skip_lf = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
