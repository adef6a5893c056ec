"""What gRPC calls things, in midstream's words; no grpc is imported here.

A status is not taken at its word alone: UNAVAILABLE, CANCELLED, DEADLINE_EXCEEDED (we
set no deadline, so it is a proxy's) and the HTTP/2 resets that gRPC reports as UNKNOWN
or INTERNAL mean that the line dropped; all else is the server's answer. A broken
server is worth another try before the first message, as a 5xx is; later it says
nothing of the kind.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from midstream._dialects.faults import error_of
from midstream._values.errors import (
    BadRequest,
    ConnectFailed,
    Dropped,
    EventTooLarge,
    ServerFailed,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from midstream._dialects.base import Call
    from midstream._values.errors import MidstreamError

_DROPS = frozenset({"UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED"})
_RESET = re.compile(
    r"stream removed|rst_stream|goaway|socket closed|connection reset|broken pipe",
    re.IGNORECASE,
)
_NO_CONNECTION = re.compile(
    r"failed to connect|connection refused|name resolution|dns|handshake"
    r"|no route|unreachable|connection attempt",
    re.IGNORECASE,
)
_TOO_LARGE = re.compile(
    r"(client|server)?\W*\w* message larger than max", re.IGNORECASE
)
_KIN = {
    "ALREADY_EXISTS": "INVALID_ARGUMENT",
    "OUT_OF_RANGE": "INVALID_ARGUMENT",
    "UNIMPLEMENTED": "INVALID_ARGUMENT",
    "ABORTED": "INTERNAL",
}
_KEY = re.compile(r"[0-9a-z_.-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")


def failure(
    code: str, details: str, *, heard: bool, trailers: Mapping[str, Any] | None = None
) -> MidstreamError:
    """The typed error for a status that is not OK.

    Args:
        code: The status code's name.
        details: Its message.
        heard: Whether a message had come before.
        trailers: The trailing metadata.
    """
    words = f"{details or 'no details'} (gRPC {code})"
    if code == "UNAVAILABLE" and not heard and _NO_CONNECTION.search(details):
        return ConnectFailed(words)
    if code in _DROPS or (code in {"UNKNOWN", "INTERNAL"} and _RESET.search(details)):
        return Dropped(words)
    large = _TOO_LARGE.search(details) if code == "RESOURCE_EXHAUSTED" else None
    if large is not None:
        # Ours to receive, or the server's: sending the same again cannot help.
        if (large[1] or "client").lower() == "client":
            return EventTooLarge(details)
        return BadRequest(details, type=code)
    headers = {
        name: value
        for name, value in (trailers or {}).items()
        if isinstance(value, str)
    }
    if "grpc-retry-pushback-ms" in headers:
        headers["retry-after-ms"] = headers["grpc-retry-pushback-ms"]
    error = error_of(
        {"message": details, "status": _KIN.get(code, code)}, headers=headers
    )
    error.type = code
    if isinstance(error, ServerFailed) and "x-should-retry" not in headers:
        error.retryable = not heard
    return error


def target(url: str) -> tuple[str, bool]:
    """``host:port`` and whether it is spoken to over TLS.

    Raises:
        UsageError: It is no gRPC address.
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    if parts.scheme not in {"grpc", "grpcs"} or not host:
        raise UsageError(f"{url!r} is no gRPC address: grpc://host:port or grpcs://…")
    return host, parts.scheme == "grpcs"


def metadata(call: Call) -> tuple[tuple[str, str], ...]:
    """A call's headers, as gRPC wants them.

    Raises:
        UsageError: gRPC cannot send one of them; its value is not repeated.
    """
    pairs = {**call.headers, **call.secrets}
    for name, value in pairs.items():
        if not _KEY.fullmatch(name.lower()) or not _VALUE.fullmatch(value):
            raise UsageError(f"gRPC cannot send the header {name!r}: it must be ASCII")
    return tuple((name.lower(), value) for name, value in pairs.items())


_ATTEMPT = "grpc.min_reconnect_backoff_ms"  # how long one may take, too


def options(connect: float | None, limit: int) -> list[tuple[str, int]]:
    """The options of a channel.

    No keep-alive: servers answer pings on a quiet stream with GOAWAY "too many pings",
    and those which stopped in mid-answer are found by the idle timeout. Channels share
    no connections, so a failed one's waiting time does not hold the next one up.

    Args:
        connect: Seconds a connection is waited for; gRPC's own attempt may take a
            second more, so that it is always we who say that it took too long.
        limit: The largest message in bytes; gRPC's own 4 MiB are too few.
    """
    attempt = [] if connect is None else [(_ATTEMPT, connect + 1)]
    return [
        ("grpc.max_receive_message_length", limit),
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.enable_retries", 0),
        *((name, max(int(seconds * 1000), 1)) for name, seconds in attempt),
    ]
