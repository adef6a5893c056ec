"""HTTP in both colours, over our own client or the user's.

Who keeps the deadline of a read depends on whose network stream it is:

    ours (a thread, asyncio)        the stream, which looks at it at each read
    stock, async (trio, a proxy,    a cancel scope around each read
        the user's client)
    stock, blocking                 a number before the headers, a watchdog after them

Nothing is held over a return. Whatever is pending can be ended from outside by its
deadline (`interrupt`) or all together (`close`): each call registers its `Exchange`.
"""

from __future__ import annotations

import asyncio
from math import inf
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import anyio

from midstream._dialects.base import Reply
from midstream._transports import pool
from midstream._transports.body import AsyncHttpBody, HttpBody
from midstream._transports.ending import Undelimited
from midstream._transports.exchange import Exchange, Exchanges, Limit
from midstream._transports.mapping import is_illegal, open_error
from midstream._transports.route import Route
from midstream._transports.stock import AsyncTracer, Tracer, line_of
from midstream._transports.watchdog import Watchdog
from midstream._values.errors import EventTooLarge, UsageError, WireError
from midstream._values.timeouts import Deadline

if TYPE_CHECKING:
    import httpx

    from midstream._dialects.base import Call

ClientT = TypeVar("ClientT", "httpx.Client", "httpx.AsyncClient")

MAX_REPLY = 16 * 1024 * 1024
"""The most bytes of an answer that is read whole."""


class HttpTransport:
    """Sends calls by blocking.

    Args:
        client: The user's own client, which is not closed here; None: ours.
        connect: Seconds until a connection must stand; None: no limit.
    """

    def __init__(
        self, client: httpx.Client | None = None, *, connect: float | None
    ) -> None:
        self._given = client
        self._ours: httpx.Client | None = None
        self._stock = client is not None or pool.proxied()
        self._connect = connect
        self._exchanges = Exchanges()
        self._lock = Lock()

    def open(self, call: Call, deadline: Deadline) -> HttpBody:
        """Send ``call``; see `Transport.open`."""
        return self._open(call, Exchange(deadline))

    def send(self, call: Call, deadline: Deadline) -> Reply:
        """Send ``call`` and read the whole answer; see `Transport.send`."""
        body = self._open(call, Exchange(_patience(call, deadline), deadline))
        content = bytearray()
        try:
            while (piece := body.read()) is not None:
                _append(content, piece)
        except Undelimited:
            pass  # a document tells by itself whether it is whole
        finally:
            body.close()
        return Reply(body.status, body.headers, bytes(content))

    def interrupt(self, deadline: Deadline) -> None:
        """End whatever is pending with ``deadline``; see `Transport.interrupt`."""
        self._exchanges.interrupt(deadline)

    def close(self) -> None:
        """End what is open; see `Transport.close`."""
        self._exchanges.close()
        with self._lock:
            if self._ours is not None:
                self._ours.close()

    def _open(self, call: Call, exchange: Exchange) -> HttpBody:
        route = Route(call, Tracer(exchange) if self._stock else None)
        self._exchanges.add(exchange)
        try:
            return self._body(route, exchange)
        except BaseException as error:  # noqa: BLE001 - raised again below
            self._exchanges.discard(exchange)
            _raise_ours(error, exchange, route.url, exchange.connect(self._connect))

    def _body(self, route: Route, exchange: Exchange) -> HttpBody:
        client = _usable(self._given or self._make_client(), self._exchanges)
        while True:
            limits = _limits(exchange, exchange.connect(self._connect))
            if self._stock:
                limits = _numbers(limits)
            response = client.send(
                route.request(client, limits),
                stream=True,
                auth=route.auth,
                follow_redirects=False,
            )
            if not route.follow(response):
                break
            response.close()
        if self._stock:
            exchange.line = line_of(response)
            limits["read"] = None  # httpcore looks again when the body is begun
        watch = Watchdog if self._stock else None
        try:
            return HttpBody(
                response, exchange, release=self._exchanges.discard, watch=watch
            )
        except WireError:
            response.close()
            raise

    def _make_client(self) -> httpx.Client:
        with self._lock:
            if self._ours is None:
                self._ours = pool.stock_client() if self._stock else pool.own_client()
            return self._ours


class AsyncHttpTransport:
    """Sends calls by awaiting; see `HttpTransport`.

    Args:
        client: The user's own client, which is not closed here; None: ours.
        connect: Seconds until a connection must stand; None: no limit.
    """

    def __init__(
        self, client: httpx.AsyncClient | None = None, *, connect: float | None
    ) -> None:
        self._given = client
        self._ours: httpx.AsyncClient | None = None
        self._stock = client is not None or pool.proxied()
        self._connect = connect
        self._exchanges = Exchanges()

    async def open(self, call: Call, deadline: Deadline) -> AsyncHttpBody:
        """Send ``call``; see `AsyncTransport.open`."""
        return await self._open(call, Exchange(deadline))

    async def send(self, call: Call, deadline: Deadline) -> Reply:
        """Send ``call`` and read the whole answer; see `AsyncTransport.send`."""
        body = await self._open(call, Exchange(_patience(call, deadline), deadline))
        content = bytearray()
        try:
            while (piece := await body.read()) is not None:
                _append(content, piece)
        except Undelimited:
            pass  # a document tells by itself whether it is whole
        finally:
            await body.aclose()
        return Reply(body.status, body.headers, bytes(content))

    def interrupt(self, deadline: Deadline) -> None:
        """End whatever is pending with ``deadline``; see `Transport.interrupt`."""
        self._exchanges.interrupt(deadline)

    async def aclose(self) -> None:
        """End what is open; see `AsyncTransport.aclose`."""
        self._exchanges.close()
        if self._ours is not None:
            with anyio.CancelScope(shield=True):
                await self._ours.aclose()

    async def _open(self, call: Call, exchange: Exchange) -> AsyncHttpBody:
        self._stock = self._stock or not _on_asyncio()
        route = Route(call, AsyncTracer() if self._stock else None)
        self._exchanges.add(exchange)
        try:
            with anyio.CancelScope() as scope:
                exchange.line = scope
                scope.deadline = anyio.current_time() + exchange.left()
                return await self._body(route, exchange)
            raise exchange.verdict() or exchange.deadline.error()
        except BaseException as error:  # noqa: BLE001 - raised again below
            self._exchanges.discard(exchange)
            _raise_ours(error, exchange, route.url, exchange.connect(self._connect))

    async def _body(self, route: Route, exchange: Exchange) -> AsyncHttpBody:
        client = _usable(self._given or self._make_client(), self._exchanges)
        while True:
            limits = _limits(exchange, exchange.connect(self._connect))
            if self._stock:
                limits = {**_numbers(limits), "read": None, "write": None}
            response = await client.send(
                route.request(client, limits),
                stream=True,
                auth=route.auth,
                follow_redirects=False,
            )
            if not route.follow(response):
                break
            await response.aclose()
        try:
            return AsyncHttpBody(
                response, exchange, release=self._exchanges.discard, scoped=self._stock
            )
        except WireError:
            await response.aclose()
            raise

    def _make_client(self) -> httpx.AsyncClient:
        if self._ours is None:
            self._ours = (
                pool.stock_async_client() if self._stock else pool.own_async_client()
            )
        return self._ours


def _usable(client: ClientT, exchanges: Exchanges) -> ClientT:
    if exchanges.closed:
        raise UsageError("the client is closed")
    if client.is_closed:
        raise UsageError("the httpx client is closed")
    return client


def _limits(exchange: Exchange, connect: float | None) -> dict[str, Any]:
    """The time limits of one request, which our network streams follow as they move."""
    ended = exchange.verdict()
    left = exchange.left()
    if ended is not None or left <= 0:
        raise ended or exchange.deadline.error()
    stand = Limit(min(left, inf if connect is None else connect), exchange)
    wait = Limit(left, exchange)
    return {"connect": stand, "pool": stand, "read": wait, "write": wait}


def _numbers(limits: dict[str, Any]) -> dict[str, Any]:
    """The same for a stock network stream."""
    return {
        name: None if seconds == inf else float(seconds)
        for name, seconds in limits.items()
    }


def _patience(call: Call, deadline: Deadline) -> Deadline:
    """How long a call that is not the stream may take."""
    if call.patience is None:
        return deadline
    patience = Deadline()
    patience.at = monotonic() + call.patience
    patience.seconds = call.patience
    return patience


def _append(content: bytearray, piece: bytes) -> None:
    content += piece
    if len(content) > MAX_REPLY:
        raise EventTooLarge("the answer is larger than 16 MiB", offset=len(content))


def _raise_ours(
    error: BaseException, exchange: Exchange, url: str, connect: float | None
) -> NoReturn:
    ours = open_error(error, exchange, url=url, connect=connect)
    if ours is None or ours is error:
        raise error
    raise ours from None if is_illegal(error) else error


def _on_asyncio() -> bool:
    """Whether this is a task of asyncio's; trio may run as a guest of its loop."""
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False
