"""Newline-delimited JSON: one document a line, LF or CRLF, blank lines skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream._frames import MAX_RECORD
from midstream._frames.lines import LineSplitter
from midstream._values.errors import WireError

if TYPE_CHECKING:
    from midstream._frames import Record


class NDJSONFramer:
    """Cuts an ``application/x-ndjson`` body into lines.

    Args:
        limit: The most bytes of one line.
    """

    __slots__ = ("_lines",)

    def __init__(self, limit: int = MAX_RECORD) -> None:
        self._lines = LineSplitter(limit)

    def decode(self, piece: bytes) -> list[Record]:
        """The lines whose end has come."""
        records: list[Record] = []
        try:
            for whole in self._lines.split(piece):
                line = whole.strip(b" \t\r")
                if line:
                    records.append((line, ""))
        except WireError as error:
            error.records = records
            raise
        return records

    def flush(self) -> list[Record]:
        """The last line, where the body ended without a newline."""
        line = self._lines.rest().strip(b" \t\r")
        return [(line, "")] if line else []
