"""gRPC messages: the transport has cut them already."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from midstream._frames import Record


class MessageFramer:
    """One piece is one record."""

    __slots__ = ()

    def decode(self, piece: bytes) -> list[Record]:
        """The message as it is."""
        return [(piece, "")]

    def flush(self) -> list[Record]:
        """Nothing is ever left."""
        return []
