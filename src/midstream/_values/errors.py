"""One tree of errors, each naming whose fault it is.

    MidstreamError
    ├── UsageError                  the caller's
    │   ├── StreamBusy
    │   └── StreamNotFound
    ├── TransportError              the line's
    │   ├── ConnectFailed
    │   ├── Dropped
    │   └── TimedOut(kind)
    ├── ServerError                 the server's, classed by what it says of itself
    │   ├── BadRequest
    │   ├── AuthenticationFailed
    │   ├── NotFound
    │   ├── RateLimited
    │   ├── Overloaded
    │   ├── ContextOverflow
    │   └── ServerFailed
    ├── WireError(offset)           bytes that break their protocol
    │   └── EventTooLarge
    ├── StoreFailed                 the store's: a full disk, no server
    └── StreamInterrupted           the stream could not be finished
        ├── ResumeUnsupported
        ├── ResumeDiverged
        ├── ResumeExhausted
        ├── ToolCallInterrupted
        └── LeaseLost

No exception of httpx, grpc, json, a codec or anyio leaves midstream; the original is
the ``__cause__``. An error out of an open stream carries the text received so far and
a checkpoint to continue from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from midstream._values.checkpoint import Checkpoint

TimeoutKind = Literal["connect", "first_token", "idle", "total"]


class MidstreamError(Exception):
    """Every error of midstream.

    Attributes:
        text: The text received before the error, ``""`` when no stream was open.
        checkpoint: What is needed to continue later; None when no stream was open.
    """

    text: str = ""
    checkpoint: Checkpoint | None = None


class UsageError(MidstreamError):
    """The caller's mistake: nothing was sent, or nothing more will be."""


class StreamBusy(UsageError):
    """Another reader has this key."""


class StreamNotFound(UsageError):
    """The store has no stream under this key."""


class TransportError(MidstreamError):
    """The line failed; the server may be well."""


class ConnectFailed(TransportError):
    """No connection came about (refused, unknown host, TLS)."""


class Dropped(TransportError):
    """The connection ended before the answer did."""


class TimedOut(TransportError):
    """A limit of `Timeouts` ran out.

    Attributes:
        kind: Which: ``"connect"``, ``"first_token"``, ``"idle"`` or ``"total"``.
    """

    def __init__(self, kind: TimeoutKind, seconds: float | None = None) -> None:
        waits = {
            "connect": "no connection",
            "first_token": "no first token",
            "idle": "no further token",
            "total": "the answer did not end",
        }
        limit = "" if seconds is None else f" within {seconds:g} s"
        super().__init__(f"{waits[kind]}{limit} (Timeouts.{kind})")
        self.kind: TimeoutKind = kind
        self.seconds = seconds


class ServerError(MidstreamError):
    """The server said no, before the stream or in the middle of it.

    Attributes:
        message: The server's words, keys scrubbed.
        status: HTTP status; None where there is none (gRPC, an error in mid-stream).
        type: The server's own class or code for it, if it gave one.
        retry_after: Seconds the server asked to wait, if it did.
        retryable: Whether the same request may succeed later.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        type: str | None = None,  # noqa: A002 - the name every API gives this field
        retry_after: float | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.type = type
        self.retry_after = retry_after
        self.retryable = retryable

    def __str__(self) -> str:
        """The server's words with its status and type."""
        facts = [str(fact) for fact in (self.status, self.type) if fact is not None]
        return f"{self.message} [{', '.join(facts)}]" if facts else self.message


class BadRequest(ServerError):
    """The request is wrong; sending it again will not help."""


class AuthenticationFailed(ServerError):
    """The key is missing, wrong, or not allowed to do this."""


class NotFound(ServerError):
    """No such model or route."""


class RateLimited(ServerError):
    """Too many requests or tokens for this key."""


class Overloaded(ServerError):
    """The server has no room now, or is still loading its model."""


class ContextOverflow(ServerError):
    """Prompt and answer do not fit the model's context."""


class ServerFailed(ServerError):
    """The server broke."""


class WireError(MidstreamError):
    """Bytes that break their protocol.

    Attributes:
        words: What is wrong, without the place.
        offset: Where in the body, in bytes from its begin.
        records: Whole records that came before it in the same bytes; the stream
            delivers them before it raises.
    """

    def __init__(self, message: str, *, offset: int = 0) -> None:
        super().__init__(f"{message} (at byte {offset} of the body)")
        self.words = message
        self.offset = offset
        self.records: list[tuple[bytes, str]] = []


class EventTooLarge(WireError):
    """One record is larger than the limit that keeps memory bounded."""


class StoreFailed(MidstreamError):
    """A store that cannot be used: a full disk, no server."""


def publish(error: type[MidstreamError]) -> None:
    """Let tracebacks name the class where users find it."""
    error.__module__ = "midstream"
    for kind in error.__subclasses__():
        publish(kind)


publish(MidstreamError)
