"""What a dialect is: how one kind of server is asked, read, continued and left.

A dialect has no state. `Dialect.reader` makes the machine that reads one connection;
`begin`, `continuation` and `leave` are generators that yield a `Call`, are sent its
`Reply` and return their result, so that a continuation may tokenize or look something
up first and no dialect ever does I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar

from midstream._dialects.faults import server_error
from midstream._frames.sse import SSEFramer
from midstream._values.api_names import ApiNames
from midstream._values.exactness import Exactness

if TYPE_CHECKING:
    from midstream._frames import Framer
    from midstream._values.endpoint import Endpoint
    from midstream._values.errors import ServerError
    from midstream._values.events import Event, Signal
    from midstream._values.request import Request

T = TypeVar("T")

Strategy: TypeAlias = Literal["replay", "tokens", "text", "rerun", "ask"]

EXACTNESS: Mapping[str, Exactness] = {
    "replay": Exactness.REPLAYED,
    "tokens": Exactness.TOKENS,
    "text": Exactness.TEXT,
    "rerun": Exactness.RERUN,
    "ask": Exactness.APPROXIMATE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to send.

    Attributes:
        url: Where; ``http://…`` or, for gRPC, ``grpc://host:port`` or ``grpcs://…``.
        method: HTTP method, or the full name of the RPC.
        content: The body; for gRPC the serialized message.
        headers: Headers, or metadata for gRPC.
        secrets: Headers that stay behind on a redirect to another origin.
        patience: Seconds to wait for the reply of a call that is not the stream; None:
            as the stream's own deadlines say.
    """

    url: str
    method: str = "POST"
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    patience: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a `Call` that is not the stream.

    Attributes:
        status: HTTP status; 200 for a gRPC call that ended well.
        headers: Headers, names in lower case.
        content: The body; of an RPC its first message.
        messages: All messages of an RPC.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes
    messages: Sequence[bytes] = ()


Flow: TypeAlias = Generator[Call, Reply, T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What had come when the connection dropped.

    Attributes:
        text: The text that was delivered.
        reasoning: The reasoning that was delivered.
        tokens: How many tokens these are.
        left: How many tokens of ``max_tokens`` are left; None for no limit.
        token_ids: Their ids, -1 for an id that the server kept to itself.
        gaps: Where ids are missing: (index of the first, how many tokens, their text,
            the last one's id included).
        prompt_ids: The prompt's ids, where the server told them.
        offset: Bytes of body received, after content decoding.
        response_id: The server's id of the response.
        cursor: What the reader remembers as the place to replay from.
    """

    text: str = ""
    reasoning: str = ""
    tokens: int = 0
    left: int | None = None
    token_ids: Sequence[int] = ()
    gaps: Sequence[tuple[int, int, str]] = ()
    prompt_ids: Sequence[int] = ()
    offset: int = 0
    response_id: str | None = None
    cursor: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What a dialect is asked to produce.

    Attributes:
        endpoint: The server, default address and key filled in.
        request: What the caller asked.
        strategies: The ways of resuming that the caller allows.
        handle: An unguessable name for this generation, new for each connection that
            is not a replay.
        memory: What was learned of this endpoint; it outlives the stream.
    """

    endpoint: Endpoint
    request: Request
    strategies: Sequence[str] = ()
    handle: str = ""
    memory: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """How a broken generation goes on.

    Attributes:
        call: The request that opens the new connection.
        sent: The prefix as it was sent; what is missing at its end against the
            received text is whitespace that the server would refuse.
        expect: Text that comes again before the new one, to be checked and dropped.
        again: How many tokens come again with it.
        echo: What the server is declared to repeat of the prefix.
        least: Characters below which a match with the prefix's end is no echo: a model
            that was asked to go on may begin with the letter that came last.
        keeps: ``"body"``: bytes go on where they broke; ``"reader"``: records go on
            with the next one; None: a new stream begins.
        reader: Reads the new connection, where that is another route's format.
    """

    call: Call
    sent: str = ""
    expect: str = ""
    again: int = 0
    echo: Literal["none", "whole", "tail"] = "none"
    least: int = 1
    keeps: Literal["body", "reader"] | None = None
    reader: Reader | None = None


class Reader(Protocol):
    """Reads the records of one connection.

    Attributes:
        cursor: The place to replay from, where the dialect has one.
    """

    cursor: Any

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """What one record says.

        Args:
            data: The record's payload.
            name: The SSE event type, ``""`` where there is none.

        Raises:
            WireError: The payload is not what the dialect sends.
        """
        ...

    def eof(self) -> list[Event | Signal]:
        """What a clean end of the body says: mostly nothing, and so a drop."""
        ...


class Writer(Protocol):
    """Writes events as the server would; the fake server and healing live on it."""

    def write(self, event: Event | Signal) -> list[bytes]:
        """The body's bytes for one event, one item a record.

        A `Finish` and the `UsageReport` after it may be held until the `End`, where
        the server sends them in one record.
        """
        ...


class Dialect(ABC):
    """One kind of server. Rows that differ in data only are instances, not classes.

    Attributes:
        name: What users write.
        transport: ``"http"`` or ``"grpc"``.
        default_url: Where such a server usually is; None: the user must say.
        key_variables: Environment variables that may hold its key.
        strategies: How it can be continued, best first.
        framer: The class that cuts its bodies into records.
        paths: The routes it is asked on, for those who tell dialects apart.
        content_type: The type of its streams.
    """

    name: str
    default_url: str | None
    key_variables: tuple[str, ...]
    strategies: tuple[str, ...]
    transport: ClassVar[Literal["http", "grpc"]] = "http"
    framer: ClassVar[type[Framer]] = SSEFramer
    content_type: ClassVar[str] = "text/event-stream"

    @abstractmethod
    def begin(self, generation: Generation) -> Flow[Call]:
        """The request that starts the stream.

        Raises:
            UsageError: The dialect cannot say what was asked.
        """

    @abstractmethod
    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """The request that goes on where the connection broke.

        Raises:
            ResumeUnsupported: This strategy cannot, after all; the next one may.
        """

    def leave(self, generation: Generation, received: Received) -> Flow[None]:
        """Calls that stop a generation which outlives its connection; mostly none."""
        del generation, received
        yield from ()

    @abstractmethod
    def reader(self, generation: Generation | None = None) -> Reader:
        """A machine that reads one connection."""

    @abstractmethod
    def writer(self) -> Writer:
        """A machine that writes one connection."""

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """What its API calls the standard parameters, and what carries the prompt.

        In ``extra`` the former are taken for the standard ones, the latter are refused;
        a dialect that names nothing gets its ``extra`` as it is.
        """
        del endpoint
        return ApiNames()

    def error(self, reply: Reply) -> ServerError:
        """What an answer that is not a stream says."""
        return server_error(reply.content, status=reply.status, headers=reply.headers)

    def passes(self, error: ServerError) -> bool:
        """Whether ``error`` is worth another try, though the server does not say so."""
        del error
        return False

    def refuses(self, strategy: str, error: ServerError) -> bool:
        """Whether ``error`` says that the server cannot continue that way at all."""
        del strategy, error
        return False

    def no_prefix(self, request: Request) -> str | None:
        """Why a prefix cannot continue this request, or None when it can."""
        constrained = sorted(CONSTRAINTS & request.extra.keys())
        if constrained:
            return f"a grammar restarts at the prefix ({', '.join(constrained)})"
        return None


CONSTRAINTS = frozenset(
    {
        "format",
        "grammar",
        "guided_choice",
        "guided_grammar",
        "guided_json",
        "guided_regex",
        "json_schema",
        "response_format",
        "structured_outputs",
    }
)
"""Request fields that hold the model to a grammar."""


def segments(path: str) -> list[str]:
    """A path's parts."""
    return [part for part in path.split("/") if part]


def join_url(base: str, route: str) -> str:
    """Append a route to a base URL that may hold the route's first parts already."""
    base = base.rstrip("/")
    have, want = segments(base.partition("://")[2]), segments(route)
    for shared in range(min(len(have) - 1, len(want)), 0, -1):
        if have[-shared:] == want[:shared]:
            want = want[shared:]
            break
    return "/".join([base, *want])
