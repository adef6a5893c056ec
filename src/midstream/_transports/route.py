"""A call as httpx requests: the first one, and those after 307 and 308.

Sans-IO: `Route.request` makes the next request, `Route.follow` looks at the answer; the
two transports only send. Method and body are kept, as RFC 9110 §15.4.8 asks. Once the
way has left the origin of the call, its secrets stay behind for good, also when a later
hop leads back: it is then the other server that sends us there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import httpx

from midstream._transports.mapping import bare
from midstream._values.errors import UsageError

if TYPE_CHECKING:
    from midstream._dialects.base import Call

HOPS = 5

_KEEP_METHOD = frozenset({307, 308})
_SENSITIVE = (
    "api-key",
    "authorization",
    "cookie",
    "proxy-authorization",
    "x-api-key",
    "x-goog-api-key",
)
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.6.2 token
_VALUE = re.compile(r"([!-~]([\t -~]*[!-~])?)?")  # §5.5, ASCII only


class Route:
    """The way of one call.

    Args:
        call: What to send.
        trace: httpcore's ``trace`` extension for it, if any.

    Raises:
        UsageError: The URL or a header cannot be sent.
    """

    def __init__(self, call: Call, trace: Any = None) -> None:
        self._call = call
        self._trace = trace
        for name, value in {**call.headers, **call.secrets}.items():
            if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
                raise UsageError(
                    f"header {name!r}: HTTP takes visible ASCII only, without a line "
                    "break, and no space at the ends"
                )
        try:
            self._url = httpx.URL(call.url)
        except httpx.InvalidURL as error:
            raise UsageError(f"{bare(call.url)} is no address: {error}") from error
        if not self._url.host or self._url.scheme not in ("http", "https"):
            raise UsageError(f"{bare(call.url)} is no http:// or https:// address")
        self._left = False
        self._hops = 0

    @property
    def url(self) -> str:
        """Where the next request goes."""
        return str(self._url)

    @property
    def auth(self) -> Any:
        """The ``auth`` of the user's client at home, none elsewhere."""
        return None if self._left else httpx.USE_CLIENT_DEFAULT

    def request(
        self, client: httpx.Client | httpx.AsyncClient, timeouts: dict[str, Any]
    ) -> httpx.Request:
        """The next request."""
        call = self._call
        extensions: dict[str, Any] = {"timeout": timeouts}
        if self._trace is not None:
            extensions["trace"] = self._trace
        # What the user's client adds of its own stays at home too.
        build = httpx.Request if self._left else client.build_request
        request = build(
            call.method,
            self._url,
            content=call.content or None,
            headers={"accept-encoding": "identity", **_lower(call.headers)},
            extensions=extensions,
        )
        if call.content and isinstance(client, httpx.AsyncClient):
            request.stream = AsyncContent(call.content)
        if self._left:
            for name in _SENSITIVE:
                request.headers.pop(name, None)
        else:
            request.headers.update(call.secrets)
        return request

    def follow(self, response: httpx.Response) -> bool:
        """Whether the answer sends the call elsewhere; the next request goes there."""
        location = response.headers.get("location")
        if response.status_code not in _KEEP_METHOD or not location:
            return False
        target = self._url.join(location)  # httpx has refused what is no URL
        if self._hops == HOPS or target.scheme not in ("http", "https"):
            return False
        self._hops += 1
        self._left = self._left or _origin(target) != _origin(self._url)
        self._url = target
        return True


class AsyncContent(httpx.AsyncByteStream):
    """A request's body, as no generator: trio reports one that is cancelled midway."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __aiter__(self) -> AsyncContent:
        """From the begin, each time it is sent."""
        return AsyncContent(self._content)

    async def __anext__(self) -> bytes:
        """All of it, once."""
        if not self._content:
            raise StopAsyncIteration
        content, self._content = self._content, b""
        return content


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}[url.scheme]
