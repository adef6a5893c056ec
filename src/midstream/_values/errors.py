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
the ``__cause__``. An error out of an open stream names its endpoint and carries the
text received so far and a checkpoint to continue from.

An error is also a value that can be copied and pickled as often as one likes: it is
made again from its ``args`` and its attributes, past ``__init__``, since the parameters
of that are not the ``args``.
"""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

if TYPE_CHECKING:
    from midstream._values.checkpoint import Checkpoint

TimeoutKind = Literal["connect", "first_token", "idle", "total"]


class MidstreamError(Exception):
    """Every error of midstream.

    It can be copied and pickled; pickled, a foreign ``__cause__`` that cannot travel is
    a `MidstreamError` with its words.

    Attributes:
        text: The text received before the error, ``""`` when no stream was open.
        checkpoint: What is needed to continue later; None when no stream was open.
        endpoint: Who was asked, ``DIALECT[:MODEL][@URL]`` without secrets; ``""`` when
            nobody was.
        advice: What to do next, where something can be done.
    """

    text: str = ""
    checkpoint: Checkpoint | None = None
    endpoint: str = ""
    advice: ClassVar[str] = ""

    def __str__(self) -> str:
        """What is wrong, and who was asked."""
        words = self._words()
        if not self.endpoint or self.endpoint in words:
            return words
        return f"{words} ({self.endpoint})"

    def _words(self) -> str:
        """What is wrong."""
        return super().__str__()

    def __reduce__(self) -> tuple[Any, ...]:
        """How it is pickled: from its args, not by a call of the class."""
        state = {**self.__dict__, "__cause__": _portable(self.__cause__)}
        return _made, (type(self), self.args), state

    def __copy__(self) -> Self:
        """An error of its own: a note that is added to it stays its own."""
        twin = self._twin(self.__dict__)
        if notes := twin.__dict__.get("__notes__"):
            twin.__dict__["__notes__"] = list(notes)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The same, its attributes copied too; the cause is what it was."""
        return self._twin(copy.deepcopy(self.__dict__, memo))

    def _twin(self, state: dict[str, Any]) -> Self:
        twin = _made(type(self), self.args)
        twin.__dict__.update(state)
        twin.__cause__ = self.__cause__
        return twin


E = TypeVar("E", bound=MidstreamError)


def _made(kind: type[E], args: tuple[Any, ...]) -> E:
    """An error made again, past its ``__init__``."""
    return kind.__new__(kind, *args)


def _portable(cause: BaseException | None) -> BaseException | None:
    """The cause, or its words where another process could not make it again."""
    if cause is None or isinstance(cause, MidstreamError):
        return cause
    try:
        pickle.loads(pickle.dumps(cause))  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - whatever a foreign class raises
        kind = type(cause)
        return MidstreamError(f"{kind.__module__}.{kind.__qualname__}: {cause}")
    return cause


class UsageError(MidstreamError):
    """The caller's mistake: nothing was sent, or nothing more will be."""


class StreamBusy(UsageError):
    """Another reader has this key."""

    advice = "take_over=True takes the stream from its reader."


class StreamNotFound(UsageError):
    """The store has no stream under this key."""

    advice = "Begin it with client.stream(…, key=…)."


class TransportError(MidstreamError):
    """The line failed; the server may be well."""


class ConnectFailed(TransportError):
    """No connection came about (refused, unknown host, TLS)."""

    advice = "Is the server running, and its address right?"


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

    def _words(self) -> str:
        """The server's words with its status and type."""
        facts = [str(fact) for fact in (self.status, self.type) if fact is not None]
        return f"{self.message} [{', '.join(facts)}]" if facts else self.message


class BadRequest(ServerError):
    """The request is wrong; sending it again will not help."""


class AuthenticationFailed(ServerError):
    """The key is missing, wrong, or not allowed to do this."""

    advice = "Give the key as Endpoint(…, api_key=…)."


class NotFound(ServerError):
    """No such model or route."""

    advice = "Check the model's name and the address."


class RateLimited(ServerError):
    """Too many requests or tokens for this key."""

    advice = "Ask again after `retry_after` seconds, or name another endpoint."


class Overloaded(ServerError):
    """The server has no room now, or is still loading its model."""

    advice = "Ask again later, or name another endpoint."


class ContextOverflow(ServerError):
    """Prompt and answer do not fit the model's context."""

    advice = "Shorten the prompt, or ask for fewer tokens."


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

    advice = "Mend the store, or stream without key=."


def publish(error: type[MidstreamError]) -> None:
    """Let tracebacks name the class where users find it."""
    error.__module__ = "midstream"
    for kind in error.__subclasses__():
        publish(kind)


publish(MidstreamError)
