"""Errors, as the caller gets them: the one that says most, signed and scrubbed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from midstream._values.errors import (
    AuthenticationFailed,
    ConnectFailed,
    MidstreamError,
    NotFound,
    ServerError,
    TimedOut,
    WireError,
)
from midstream._values.interruptions import ResumeExhausted, StreamInterrupted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midstream._resume.recovery import GiveUp
    from midstream._resume.server import Server
    from midstream._values.checkpoint import Checkpoint
    from midstream._values.endpoint import Endpoint
    from midstream._values.resumption import Resumption

_LOG = logging.getLogger("midstream")
_SECRET = 8  # characters; shorter header values are no secrets


def verdict(
    end: GiveUp, *, survived: MidstreamError | None, delivered: bool
) -> MidstreamError:
    """The error that says most.

    What the server reports before anything dropped, what never began and the caller's
    own total limit are raised as they are. Once something was delivered and the line
    dropped, whatever ends the stream is a `StreamInterrupted`: its cause says why, and
    the first drop is behind it.

    Args:
        end: What ends the stream.
        survived: The first drop that was survived before.
        delivered: Whether the caller has seen anything.
    """
    fault, first = end.fault, survived or end.first
    if isinstance(fault, StreamInterrupted):
        return _caused(fault, first)
    dropped = first is not fault and delivered
    if not dropped or (isinstance(fault, WireError) and isinstance(first, WireError)):
        plain = isinstance(fault, ServerError | WireError) or _limit(fault)
        if plain or (not delivered and _unreachable(fault)):
            return _caused(fault, first)
    says = isinstance(fault, ServerError | WireError) or _limit(fault)
    cause = _caused(fault, first) if says else first
    if end.attempts:
        tries = f"gave up after {end.attempts} attempts without progress"
        return _caused(ResumeExhausted(f"{tries}: {fault}"), cause)
    return _caused(StreamInterrupted(f"the stream broke: {cause}"), cause)


def _caused(error: MidstreamError, cause: MidstreamError) -> MidstreamError:
    """The error with a cause, behind that of another library where it has one."""
    behind, before = _chain(error), _chain(cause)
    if not any(one is other for one in behind for other in before):
        behind[-1].__cause__ = cause
    return error


def _chain(error: BaseException) -> list[BaseException]:
    """An error and what caused it."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    return chain


def _limit(fault: MidstreamError) -> bool:
    return isinstance(fault, TimedOut) and fault.kind == "total"


def _unreachable(fault: MidstreamError) -> bool:
    late = isinstance(fault, TimedOut) and fault.kind == "connect"
    return late or isinstance(fault, ConnectFailed)


def signed(
    error: MidstreamError,
    server: Server,
    *,
    text: str,
    checkpoint: Checkpoint,
    resumes: Sequence[Resumption],
) -> MidstreamError:
    """The error with the text so far and a checkpoint, and without any key.

    Args:
        error: What is about to be raised out of the stream.
        server: Who was asked.
        text: What came.
        checkpoint: What is needed to go on later.
        resumes: The drops that were survived.
    """
    error.text, error.checkpoint = text, checkpoint
    if isinstance(error, StreamInterrupted):
        error.resumes = tuple(resumes)
    if not error.endpoint:
        error.endpoint = str(server.endpoint)
        if advice := _advice(error, server):
            error.add_note(advice)
    return scrubbed(error, server.endpoint)


def _advice(error: MidstreamError, server: Server) -> str:
    """What to do next, and where the key comes from when that was the trouble."""
    if not isinstance(error, AuthenticationFailed):
        return error.advice
    given = f"Endpoint({server.endpoint.dialect!r}, api_key=…)"
    return f"The key comes from {' or '.join([*server.dialect.key_variables, given])}."


def scrubbed(error: MidstreamError, endpoint: Endpoint) -> MidstreamError:
    """The error without the keys that a server, or a URL, repeats in it."""
    error.args = tuple(
        _clean(arg, endpoint) if isinstance(arg, str) else arg for arg in error.args
    )
    if isinstance(error, ServerError):
        error.message = _clean(error.message, endpoint)
        error.type = error.type and _clean(error.type, endpoint)
    elif isinstance(error, WireError):
        error.words = _clean(error.words, endpoint)
    return error


def _clean(message: str, endpoint: Endpoint) -> str:
    secrets = [v for v in endpoint.headers.values() if len(v) >= _SECRET]
    if endpoint.api_key is not None:
        secrets.append(endpoint.api_key.get_secret_value())
    for secret in filter(None, secrets):
        message = message.replace(secret, "***")
    return message


def tell(who: Endpoint, at: int, fault: MidstreamError, *, first: bool) -> None:
    """Log a drop: never a server's words, which may hold anything.

    Args:
        who: Who had answered.
        at: Characters of text that had come.
        fault: What broke.
        first: Whether the line was well before; further tries are for debugging.
    """
    what = type(fault).__name__
    if isinstance(fault, ServerError) and fault.status is not None:
        what = f"{what} {fault.status}"
    elif isinstance(fault, TimedOut):
        what = f"{what} {fault.kind}"
    level = logging.WARNING if first else logging.DEBUG
    _LOG.log(level, "%s dropped at character %d: %s", who, at, what)


def refuse_page(headers: Mapping[str, str], endpoint: Endpoint) -> None:
    """Refuse a web page in place of a stream, as from a wrong address or a login.

    Raises:
        NotFound: It is one.
    """
    if headers.get("content-type", "").startswith("text/html"):
        raise NotFound(
            "an HTML page in place of a stream; is "
            f"{endpoint.address} the right address?",
            status=200,
        )
