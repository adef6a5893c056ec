"""Foreign exceptions to ours; nothing of httpx, httpcore, ssl, h2 or the OS escapes.

Both httpx's classes and httpcore's are named, because our own pool skips httpx's
translation. What is none of these (a hook or an ``auth`` of the user's client that
raised) is not ours to rename, as long as it comes before the body.
"""

from __future__ import annotations

import sys
from email.utils import formatdate
from typing import TYPE_CHECKING

import anyio
import httpcore
import httpx

from midstream._values.errors import (
    ConnectFailed,
    Dropped,
    MidstreamError,
    TimedOut,
    UsageError,
)

if TYPE_CHECKING:
    from midstream._transports.exchange import Exchange

_REFUSED = 400  # and all above

CONNECT_TIMEOUT = (
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpcore.ConnectTimeout,
    httpcore.PoolTimeout,
)
TIMEOUT = (httpx.TimeoutException, httpcore.TimeoutException)
CONNECT = (
    httpx.ConnectError,
    httpx.ProxyError,
    httpcore.ConnectError,
    httpcore.ProxyError,
)
ADDRESS = (httpx.UnsupportedProtocol, httpx.InvalidURL, httpcore.UnsupportedProtocol)
LINE = (
    httpx.TransportError,
    httpx.StreamError,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    OSError,
)


def open_error(
    error: BaseException, exchange: Exchange, *, url: str, connect: float | None
) -> MidstreamError | None:
    """What an exception before the headers means; None where it is not ours."""
    if not isinstance(error, Exception):
        return None
    if isinstance(error, MidstreamError):
        return error
    verdict = exchange.verdict()
    if verdict is not None:
        return verdict
    if isinstance(error, CONNECT_TIMEOUT):
        if exchange.left() <= 0:
            return exchange.deadline.error()
        return TimedOut("connect", connect)
    if isinstance(error, CONNECT):
        return ConnectFailed(
            f"no connection to {bare(url)}: {_reason(error)}; {_advice(error)}"
        )
    if isinstance(error, ADDRESS):
        return UsageError(f"{bare(url)} is no http:// or https:// address")
    if is_illegal(error):
        return UsageError("HTTP does not allow one of the headers of the http_client")
    return _line_error(error, exchange)


def is_illegal(error: BaseException) -> bool:
    """Whether h11 refused a header, which it then repeats with all that is in it."""
    return "Illegal header" in str(error)


def read_error(error: BaseException, exchange: Exchange) -> MidstreamError | None:
    """What an exception while the body is read means; None for a cancellation."""
    if not isinstance(error, Exception):
        return None
    if isinstance(error, MidstreamError):
        return error
    verdict = exchange.verdict()
    if verdict is not None:
        return verdict
    return _line_error(error, exchange) or Dropped(f"the body ended: {error!r}")


def _line_error(error: BaseException, exchange: Exchange) -> MidstreamError | None:
    if isinstance(error, TIMEOUT):
        return exchange.deadline.error()
    if isinstance(error, LINE) or _is_h2(error):
        return Dropped(f"the connection ended before the answer did: {_reason(error)}")
    return None


def _is_h2(error: BaseException) -> bool:
    """Whether it comes from h2, which httpcore lets through here and there."""
    h2 = sys.modules.get("h2.exceptions")
    return h2 is not None and isinstance(error, h2.H2Error)


def _words(error: BaseException) -> str:
    """What the first of it and its causes says that says anything.

    httpcore's pool cuts causes off (``from None``); the context still knows them.
    """
    cause: BaseException | None = error
    while cause is not None and not str(cause):
        cause = cause.__cause__ or cause.__context__
    return str(cause or type(error).__name__)


def _reason(error: BaseException) -> str:
    """Plain words for what went wrong."""
    words = _words(error)
    if "ConnectionTerminated" in words:
        return "the server is closing this HTTP/2 connection (GOAWAY)"
    if "StreamReset" in words:
        return "the server reset the HTTP/2 stream (RST_STREAM)"
    if "incomplete chunked read" in words or "without sending complete" in words:
        return "the server stopped in the middle of the body"
    return words


def _advice(error: BaseException) -> str:
    words = _words(error).lower()
    if "certificate" in words:
        return (
            "trust its certificate authority with SSL_CERT_FILE, or give your own "
            "http_client"
        )
    if "ssl" in words or "tls" in words:
        return "is it an https:// server?"
    return "is the server running, and the address right?"


def bare(url: str) -> str:
    """A URL without what may be secret in it: user, password, query."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return scheme.partition("?")[0]
    authority, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


def headers_of(response: httpx.Response) -> dict[str, str]:
    """The answer's headers, names in lower case.

    A refusal without a date gets ours, so that a date in its ``Retry-After`` says how
    long to wait (RFC 9110 §10.2.3).
    """
    headers = dict(response.headers.items())
    if response.status_code >= _REFUSED and "date" not in headers:
        headers["date"] = formatdate(usegmt=True)
    return headers
