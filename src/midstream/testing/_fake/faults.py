"""Every way in which a stream can go wrong, as values.

A fault says *what* and *when*; how it is done on a socket is in `play`, in a body in
`script`. ``after`` always counts deltas: records that carry a piece of the answer, as
the client would count them; roles, keep-alives and end markers do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CutKind: TypeAlias = Literal["fin", "rst", "mid_chunk", "half", "eof", "no_done"]


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends before the answer does.

    Kinds: ``"fin"`` closes the socket inside the chunked body, ``"rst"`` resets it,
    ``"mid_chunk"`` closes it inside a record (inside a character, if the record has
    one of several bytes); ``"half"`` sends half a record and ends the body properly,
    ``"eof"`` ends it properly after a whole record, ``"no_done"`` sends everything but
    the end marker.

    Args:
        after: Deltas to send first; None with no `at`: not even the headers are sent.
        at: Bytes of the body to send instead, before any compression and chunking.
        kind: How it ends.
        refuse_for: Seconds during which new connections are refused.
    """

    after: int | None = None
    kind: CutKind = "fin"
    at: int | None = field(default=None, kw_only=True)
    refuse_for: float = field(default=0.0, kw_only=True)

    @property
    def before_headers(self) -> bool:
        """Whether nothing at all is answered."""
        return self.after is None and self.at is None and self.kind in ("fin", "rst")


@dataclass(frozen=True, slots=True)
class Stall:
    """The connection stays open and nothing more comes, until the client leaves.

    Args:
        after: Deltas to send first; 0: only headers (and the role), None: not even
            these.
        ping_every: Seconds between keep-alives while it stalls; None for silence.
    """

    after: int | None = None
    ping_every: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Slow:
    """The answer comes slowly.

    Args:
        delay: Seconds before each delta.
        first: Seconds before the first one, in its place.
    """

    delay: float = 0.0
    first: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Status:
    """An HTTP status in place of the stream; over gRPC the status that matches it.

    Args:
        code: The status.
        message: The server's words, in the dialect's own error document.
        type: The server's class of the error.
        headers: More headers, such as ``Retry-After``.
        body: The body as it is, in place of the error document.
    """

    code: int
    message: str = "the fake server was told to refuse"
    type: str | None = field(default=None, kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    body: bytes | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """An error in the stream, in the dialect's own shape, under status 200.

    Args:
        message: The server's words.
        after: Deltas to send first.
        type: The server's class of the error.
        status: The code inside the error document.
        then: ``"eof"`` ends the body properly, ``"done"`` sends the end marker first
            (as vLLM does), ``"stall"`` keeps the connection open, ``"go_on"`` goes on.
    """

    message: str = "the server is overloaded"
    after: int = field(default=0, kw_only=True)
    type: str | None = field(default="overloaded_error", kw_only=True)
    status: int | None = field(default=None, kw_only=True)
    then: Literal["eof", "done", "stall", "go_on"] = field(default="eof", kw_only=True)


@dataclass(frozen=True, slots=True)
class Garbage:
    """Bytes that are no record of the dialect.

    Args:
        data: These bytes.
        after: Deltas to send first.
        then: ``"eof"`` ends the body properly, ``"go_on"`` goes on.
    """

    data: bytes = b"data: \xff\xfe{nonsense\n\n"
    after: int = field(default=0, kw_only=True)
    then: Literal["eof", "go_on"] = field(default="go_on", kw_only=True)


@dataclass(frozen=True, slots=True)
class Pings:
    """Keep-alives between the deltas.

    Args:
        count: How many at a time.
        every: Deltas from one time to the next, the first one before any delta.
        data: One of them; by default a comment in SSE, a blank line in NDJSON.
    """

    count: int = 1
    every: int = field(default=1, kw_only=True)
    data: bytes | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class LineEnds:
    """Another spelling of the line ends; records hold no raw newline of their own.

    Args:
        ending: CRLF or CR.
    """

    ending: Literal["\r\n", "\r"] = "\r\n"


@dataclass(frozen=True, slots=True)
class ByteOrderMark:
    """The body starts with EF BB BF."""


@dataclass(frozen=True, slots=True)
class Gzip:
    """The body is compressed, with a flush after each record.

    Args:
        announced: Whether ``Content-Encoding`` says so.
        trailer: Whether it ends as compressed bodies end; else it is cut before that,
            though the response around it ends properly.
    """

    announced: bool = True
    trailer: bool = field(default=True, kw_only=True)


@dataclass(frozen=True, slots=True)
class Chunking:
    """How the body is cut into HTTP chunks and sends.

    Args:
        how: ``"record"``: a chunk and a send for each record; ``"whole"``: all in one
            send; ``"bytes"``: the wire one byte a send; ``"close"``: no chunks, the end
            of the connection ends the body; a number: chunks of so many bytes.
    """

    how: Literal["record", "whole", "bytes", "close"] | int = "record"


@dataclass(frozen=True, slots=True)
class StayOpen:
    """After the end marker the body does not end, nor does the connection."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """The request is sent elsewhere.

    Args:
        to: A URL; the request's path is appended where it has none.
        code: The status.
    """

    to: str
    code: int = field(default=307, kw_only=True)


Fault: TypeAlias = (
    Cut
    | Stall
    | Slow
    | Status
    | ErrorEvent
    | Garbage
    | Pings
    | LineEnds
    | ByteOrderMark
    | Gzip
    | Chunking
    | StayOpen
    | Redirect
)
"""One thing that goes wrong, or is unusual."""

F = TypeVar("F")


def pick(faults: Sequence[Any], kind: type[F]) -> F | None:
    """The first fault of a kind."""
    return next((fault for fault in faults if isinstance(fault, kind)), None)
