r"""A JSON array that grows: an object in it is a record as soon as its brace closes.

Source: Gemini's ``alt=json`` form, ``[{…}\n,\r\n{…}\n]``. Between the objects stand
brackets, commas and whitespace, which say nothing: the end of the array is no sign that
the answer is whole. Inside an object only braces and brackets outside of strings count.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from midstream._frames import MAX_RECORD
from midstream._values.errors import EventTooLarge, WireError

if TYPE_CHECKING:
    from midstream._frames import Record

_BETWEEN = re.compile(rb"[\[\],\s]*")
_STRUCTURE = re.compile(rb'["{}\[\]]')
_STRING = re.compile(rb'["\\]')


class JSONArrayFramer:
    """Cuts an ``application/json`` body into the objects of its array.

    Args:
        limit: The most bytes of one object.
    """

    __slots__ = ("_depth", "_escaped", "_offset", "_open", "_size", "_string", "limit")

    def __init__(self, limit: int = MAX_RECORD) -> None:
        self.limit = limit
        self._open: list[bytes] = []  # the pieces of an object that has not closed
        self._size = 0
        self._depth = 0
        self._string = False
        self._escaped = False
        self._offset = 0

    def decode(self, piece: bytes) -> list[Record]:
        """The objects that ``piece`` closes."""
        self._offset += len(piece)
        records: list[Record] = []
        try:
            self._cut(piece, records)
        except WireError as error:
            error.records = records
            raise
        return records

    def _cut(self, piece: bytes, records: list[Record]) -> None:
        at = 0
        while at < len(piece):
            if not self._depth:
                at = self._between(piece, at)
                if at == len(piece):
                    break
            end = self._scan(piece, at)
            self._keep(piece[at:end])
            if not self._depth:
                records.append((b"".join(self._open), ""))
                self._open.clear()
                self._size = 0
            at = end

    def flush(self) -> list[Record]:
        """The object that the end of the body cut."""
        rest = b"".join(self._open)
        self._open.clear()
        return [(rest, "")] if rest else []

    def _between(self, piece: bytes, at: int) -> int:
        """Where the next object begins."""
        found = _BETWEEN.match(piece, at)
        at = found.end() if found else at
        if at < len(piece) and piece[at : at + 1] != b"{":
            excerpt = piece[at : at + 40].decode("utf-8", "replace")
            raise WireError(
                f"no object in a JSON array: {excerpt!r}", offset=self._offset
            )
        return at

    def _scan(self, piece: bytes, at: int) -> int:
        """Where the open object ends, or the piece."""
        while at < len(piece):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            mark = (_STRING if self._string else _STRUCTURE).search(piece, at)
            if mark is None:
                break
            at = mark.end()
            self._note(mark.group())
            if not self._depth:
                return at
        return len(piece)

    def _note(self, mark: bytes) -> None:
        if mark == b"\\":
            self._escaped = True
        elif mark == b'"':
            self._string = not self._string
        else:
            self._depth += 1 if mark in b"{[" else -1

    def _keep(self, part: bytes) -> None:
        self._open.append(part)
        self._size += len(part)
        if self._size > self.limit:
            raise EventTooLarge(
                f"a record of more than {self.limit:,} bytes", offset=self._offset
            )
