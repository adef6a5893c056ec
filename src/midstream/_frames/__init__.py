"""Bytes to records: where one record of the wire ends and the next begins.

Every framer has the same two verbs. A record is its payload as bytes and its name (the
SSE event type, ``""`` elsewhere): text is decoded later, since servers put half
characters into JSON.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

Record: TypeAlias = tuple[bytes, str]

MAX_RECORD = 64 * 1024 * 1024
"""The largest record in bytes, unless told otherwise: images come as one line."""


class Framer(Protocol):
    """Cuts a body into records, whatever the pieces it comes in."""

    def decode(self, piece: bytes) -> list[Record]:
        """The records that ``piece`` completes.

        Raises:
            EventTooLarge: A record grew beyond the limit.
            WireError: The bytes break the framing.
        """
        ...

    def flush(self) -> list[Record]:
        """The record that the end of the body leaves without its delimiter."""
        ...
