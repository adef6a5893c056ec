"""What plays one kind of server: it reads requests; the dialect's writer answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from midstream._dialects import find
from midstream._dialects.documents import dumps
from midstream._values.events import Finish
from midstream.testing._fake.script import Pen
from midstream.testing._fake.voice import Manner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from midstream._dialects.base import Dialect
    from midstream._values.events import Event, Signal
    from midstream.testing._fake.asked import Asked
    from midstream.testing._fake.kept import KeptStream, KeptStreams
    from midstream.testing._fake.model import ToyModel
    from midstream.testing._fake.voice import Why
    from midstream.testing._fake.wire import HttpRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a side may use of its server.

    Attributes:
        model: The toy model.
        kept: Streams that outlive their connection; None where the server has none.
    """

    model: ToyModel
    kept: KeptStreams | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response that is not a stream.

    Attributes:
        status: The status.
        content: The body.
        type: Its media type.
    """

    status: int = 200
    content: bytes = b""
    type: str = "application/json"


def document(value: Any, status: int = 200) -> Answer:
    """A JSON document."""
    return Answer(status=status, content=dumps(value))


class Side(ABC):
    """Plays one dialect over HTTP.

    Attributes:
        name: The dialect.
        route: Where streams are asked for.
        aliases: Other paths of it.
        headers: What the server puts into every response.
        whole: Whether it holds back half characters.
        ids: Whether it streams token ids.
        words: Its word for each kind of end.
    """

    name: str
    route: str
    aliases: Sequence[str] = ()
    headers: ClassVar[Mapping[str, str]] = {}
    whole: ClassVar[bool] = True
    ids: ClassVar[bool] = False
    words: ClassVar[Mapping[Why, str]] = {
        "eos": "stop",
        "word": "stop",
        "length": "length",
        "tools": "tool_calls",
    }

    @property
    def dialect(self) -> Dialect:
        """Who reads what this side writes."""
        return find(self.name)

    @property
    def routes(self) -> tuple[str, ...]:
        """All paths on which streams are asked for."""
        return (self.route, *self.aliases)

    def serves(self, path: str) -> bool:
        """Whether streams are asked for on a path."""
        return path in self.routes

    def addressed(
        self, body: Mapping[str, Any], request: HttpRequest
    ) -> Mapping[str, Any]:
        """The body with what the request's address says beside it."""
        del request
        return body

    def ungenerated(self, body: Mapping[str, Any], world: World) -> Answer | None:
        """The answer to a request on such a path that wants nothing generated."""
        del body, world
        return None

    @property
    def manner(self) -> Manner:
        """How it speaks."""
        return Manner(whole=self.whole, ids=self.ids, finish=self.finish)

    @abstractmethod
    def asked(self, body: Mapping[str, Any], world: World) -> Asked:
        """What a request asks.

        Raises:
            Refusal: The server refuses it.
        """

    @abstractmethod
    def error(self, status: int, message: str, type: str | None) -> Any:  # noqa: A002 - as all APIs call it
        """An error as a JSON document, not in a stream."""

    @abstractmethod
    def complete(self, events: Sequence[Event | Signal]) -> Any:
        """The answer as one JSON document, for a request that wants no stream."""

    def finish(self, why: Why) -> Finish:
        """The end in the server's own word."""
        return Finish(self.words[why], self.words[why])

    def pen(self, body: Mapping[str, Any]) -> Pen:
        """What writes the answer to a request."""
        del body
        ndjson = "ndjson" in self.dialect.content_type
        return Pen(
            writer=self.dialect.writer(),
            unmarked=self.unmarked,
            ping=b"\n" if ndjson else b": ping\n\n",
        )

    def unmarked(self, record: bytes) -> bytes | None:
        """The end record without the end marker; None when nothing is left of it."""
        del record
        return None

    def watched(self, events: Iterator[Event | Signal]) -> Iterator[Event | Signal]:
        """What the server lets through of what the model says."""
        return events

    def keeps(self, request: HttpRequest) -> str | None:
        """The name under which a stream is kept, where the request asks for that."""
        del request
        return None

    def replayed(
        self, request: HttpRequest, world: World
    ) -> tuple[KeptStream, int] | None:
        """The kept stream that a request asks for again, and from which byte on.

        Raises:
            Refusal: It is not there.
        """
        del request, world
        return None

    def other(self, request: HttpRequest, world: World) -> Answer | None:
        """The answer on another of its routes; None: there is no such route.

        Raises:
            Refusal: The server refuses it.
        """
        del request, world
        return None
