"""What plays a gRPC dialect: it reads the request message; the writer answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from midstream.testing._fake.asked import Asked
    from midstream.testing._fake.faults import Status
    from midstream.testing._fake.script import Pen
    from midstream.testing._fake.sides.base import World
    from midstream.testing._fake.voice import Manner


Other: TypeAlias = "Callable[[bytes, World], Iterable[bytes]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request for a stream, understood.

    Attributes:
        asked: What is asked of the model.
        pen: What writes the answer; it has been told the request's names.
        body: The request as JSON values, for the record.
        final: Whether the end marker is wanted.
        fails: The status that a record stands for, where errors are no messages.
    """

    asked: Asked
    pen: Pen
    body: Mapping[str, object]
    final: bool = True
    fails: Callable[[bytes], Status | None] = lambda _: None


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
    def others(self) -> Mapping[str, Other]:
        """The other RPCs, by full name: request to responses."""

    @abstractmethod
    def understand(self, content: bytes, world: World) -> Call:
        """What a request message asks.

        Raises:
            Refusal: The server refuses it.
        """
