"""The client that is ours: httpx over httpcore pools with our network backends.

httpx's own transport takes no network backend, so a small one stands in, by public API
only. There is one pool for ``http`` and one for ``https``: the latter needs the SSL
context, which costs 27 ms and is made once a process, when first needed. A pool has no
limit of connections: a stream holds one for minutes, and the 101st must not wait for
another to end. HTTP/1.1 only: HTTP/2 costs twice as much a read and shares its fate.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast
from urllib.request import getproxies

import httpcore
import httpx

from midstream._transports.asyncio_backend import AsyncioBackend
from midstream._transports.sync_backend import SyncBackend

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator

KEEPALIVE_CONNECTIONS = 100
KEEPALIVE_SECONDS = 60.0
LIMITS = httpx.Limits(
    max_connections=None,
    max_keepalive_connections=KEEPALIVE_CONNECTIONS,
    keepalive_expiry=KEEPALIVE_SECONDS,
)


@cache
def ssl_context() -> ssl.SSLContext:
    """The one SSL context of this process, as httpx makes it."""
    return httpx.create_ssl_context()


def proxied() -> bool:
    """Whether the environment names a proxy, which stock httpx must then serve."""
    return not getproxies().keys().isdisjoint(("all", "http", "https", "socks"))


def stock_client() -> httpx.Client:
    """A client with httpx's own transport."""
    return httpx.Client(verify=ssl_context(), limits=LIMITS)


def stock_async_client() -> httpx.AsyncClient:
    """A client with httpx's own transport."""
    return httpx.AsyncClient(verify=ssl_context(), limits=LIMITS)


def own_client() -> httpx.Client:
    """A client over our network backend."""
    return httpx.Client(transport=PoolTransport())


def own_async_client() -> httpx.AsyncClient:
    """A client over our network backend."""
    return httpx.AsyncClient(transport=AsyncPoolTransport())


class PoolTransport(httpx.BaseTransport):
    """httpx over httpcore pools with our blocking backend."""

    def __init__(self) -> None:
        self._pools: dict[str, httpcore.ConnectionPool] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; exceptions stay httpcore's."""
        scheme = request.url.scheme
        pool = self._pools.get(scheme) or self._pools.setdefault(scheme, _pool(scheme))
        answer = pool.handle_request(_core_request(request))
        return _httpx_response(answer, _Stream(answer))

    def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            pool.close()


class AsyncPoolTransport(httpx.AsyncBaseTransport):
    """httpx over httpcore pools with our asyncio backend."""

    def __init__(self) -> None:
        self._pools: dict[str, httpcore.AsyncConnectionPool] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; exceptions stay httpcore's."""
        scheme = request.url.scheme
        if scheme not in self._pools:
            self._pools[scheme] = _async_pool(scheme)
        answer = await self._pools[scheme].handle_async_request(_core_request(request))
        return _httpx_response(answer, _AsyncStream(answer))

    async def aclose(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.aclose()


class _Stream(httpx.SyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        return iter(cast("Iterable[bytes]", self._answer.stream))

    def close(self) -> None:
        self._answer.close()


class _AsyncStream(httpx.AsyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(cast("AsyncIterable[bytes]", self._answer.stream))

    async def aclose(self) -> None:
        await self._answer.aclose()


def _pool(scheme: str) -> httpcore.ConnectionPool:
    return httpcore.ConnectionPool(
        ssl_context=ssl_context() if scheme == "https" else None,
        max_connections=None,
        max_keepalive_connections=KEEPALIVE_CONNECTIONS,
        keepalive_expiry=KEEPALIVE_SECONDS,
        network_backend=SyncBackend(),
    )


def _async_pool(scheme: str) -> httpcore.AsyncConnectionPool:
    return httpcore.AsyncConnectionPool(
        ssl_context=ssl_context() if scheme == "https" else None,
        max_connections=None,
        max_keepalive_connections=KEEPALIVE_CONNECTIONS,
        keepalive_expiry=KEEPALIVE_SECONDS,
        network_backend=AsyncioBackend(),
    )


def _core_request(request: httpx.Request) -> httpcore.Request:
    url = request.url
    return httpcore.Request(
        request.method,
        httpcore.URL(
            scheme=url.raw_scheme,
            host=url.raw_host,
            port=url.port,
            target=url.raw_path,
        ),
        headers=request.headers.raw,
        content=request.stream,
        extensions=request.extensions,
    )


def _httpx_response(
    answer: httpcore.Response, stream: httpx.SyncByteStream | httpx.AsyncByteStream
) -> httpx.Response:
    return httpx.Response(
        answer.status,
        headers=answer.headers,
        stream=stream,
        extensions=answer.extensions,
    )
