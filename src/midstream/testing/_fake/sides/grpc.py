"""What plays a gRPC dialect: it reads the request message; the writer answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from midstream.testing._fake.asked import Asked
    from midstream.testing._fake.script import Pen
    from midstream.testing._fake.sides.base import World
    from midstream.testing._fake.voice import Manner


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request for a stream, understood.

    Attributes:
        asked: What is asked of the model.
        pen: What writes the answer; it has been told the request's names.
        body: The request as JSON values, for the record.
        final: Whether the end marker is wanted.
    """

    asked: Asked
    pen: Pen
    body: Mapping[str, object]
    final: bool = True


class GrpcSide(ABC):
    """Plays one dialect over gRPC.

    Attributes:
        name: The dialect.
        method: The full name of the streaming RPC.
    """

    name: ClassVar[str]
    method: ClassVar[str]

    @property
    @abstractmethod
    def manner(self) -> Manner:
        """How it speaks."""

    @property
    @abstractmethod
    def unary(self) -> Mapping[str, Callable[[bytes], bytes]]:
        """The other RPCs, by full name: request to response."""

    @abstractmethod
    def understand(self, content: bytes, world: World) -> Call:
        """What a request message asks."""
