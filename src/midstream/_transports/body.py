"""An open answer in both colours: pieces out, and an end from wherever it comes.

Whoever closes and whoever reads may be two. So ``close`` raises a flag and then looks
whether a read is pending, and ``read`` says that it is pending and then looks at the
flag: at least one of them sees the other. A pending read is woken and cleans up itself;
without one, ``close`` does.

httpx's iterators are nested generators, and an async one that is dropped half-way is
reported by trio and finished by asyncio at some later time: closing the outermost does
not reach the inner ones. So an unfinished iteration is run to its end, in a scope that
is cancelled already; the cancellation ends all of them in order.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, cast

import anyio
import httpx

from midstream._transports.ending import cut_short
from midstream._transports.http2 import reset_frame
from midstream._transports.inflate import inflater_for
from midstream._transports.mapping import headers_of, read_error
from midstream._transports.twin import twin
from midstream._transports.watchdog import GRACE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from midstream._transports.exchange import Exchange
    from midstream._transports.watchdog import Watchdog
    from midstream._values.errors import MidstreamError

LEAVE_SECONDS = 1.0
"""How long the farewell to an HTTP/2 server may take."""

BUFFERED_PIECES = 20_000
"""More pieces than httpcore can hold when a body is left."""


class HttpBody:
    """An open answer, read by blocking.

    Args:
        response: The answer, nothing read yet.
        exchange: What it belongs to.
        release: Told once, when it has ended.
        watch: Makes what keeps the deadline, where the stream does not.

    Raises:
        WireError: It has a Content-Encoding that is not to be undone.
    """

    def __init__(
        self,
        response: httpx.Response,
        exchange: Exchange,
        *,
        release: Callable[[Exchange], None],
        watch: type[Watchdog] | None,
    ) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = headers_of(response)
        self._inflater = inflater_for(self.headers)
        self._response = response
        self._exchange = exchange
        self._release = release
        self._watchdog = None if watch is None else watch(exchange)
        self._pieces = response.iter_raw()
        self._reading = False
        self._ended = False
        self._error: MidstreamError | None = None
        self._lock = Lock()

    def read(self) -> bytes | None:
        """The next piece; see `Body.read`."""
        self._reading = True
        try:
            if self._exchange.cancelled or self._ended:
                return self._after_end()
            if self._watchdog is not None:
                self._watchdog.watch()
            piece = next(self._pieces, None)
            while self._inflater is not None and piece is not None:
                if piece := self._inflater.inflate(piece):
                    break
                piece = next(self._pieces, None)
            if piece is None:
                self._error = cut_short(self._response, self._inflater)
            if piece is None or self._exchange.cancelled:
                return self._after_end()
        except BaseException as error:
            self._finish()
            self._error = read_error(error, self._exchange)
            known = self._error is error
            self._error = self._error and twin(self._error)
            if known or self._error is None:
                raise
            raise twin(self._error) from error
        finally:
            self._reading = False
            if self._watchdog is not None:
                self._watchdog.rest()
        return piece

    def close(self) -> None:
        """End it; see `Body.close`."""
        self._exchange.cancelled = True
        if self._reading:
            self._exchange.break_line()
        else:
            self._finish()

    def _after_end(self) -> bytes | None:
        """What a read at the end returns, if it was the server's."""
        self._finish()
        error = self._error or self._exchange.verdict()
        if error is not None:
            raise twin(error)
        return None

    def _finish(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
        if self._watchdog is not None:
            self._watchdog.stop()
        self._release(self._exchange)
        response = self._response
        with suppress(Exception):
            if not response.is_closed and "stream_id" in response.extensions:
                response.extensions["network_stream"].write(
                    reset_frame(response.extensions["stream_id"]), LEAVE_SECONDS
                )
        with suppress(Exception):
            response.close()
        _let_go(response, self._exchange)


class AsyncHttpBody:
    """An open answer, read by awaiting; see `HttpBody`.

    Args:
        response: The answer, nothing read yet.
        exchange: What it belongs to.
        release: Told once, when it has ended.
        scoped: Whether each read keeps the deadline by a cancel scope of its own,
            because the network stream does not.

    Raises:
        WireError: It has a Content-Encoding that is not to be undone.
    """

    def __init__(
        self,
        response: httpx.Response,
        exchange: Exchange,
        *,
        release: Callable[[Exchange], None],
        scoped: bool,
    ) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = headers_of(response)
        self._inflater = inflater_for(self.headers)
        self._response = response
        self._exchange = exchange
        self._release = release
        pieces = response.aiter_raw()
        self._pieces = cast("AsyncGenerator[bytes, None]", pieces)
        # A bound method of ours, kept here, would be a cycle.
        self._next: Callable[[], Awaitable[bytes]] | None = (
            None if scoped else self._pieces.__anext__
        )
        self._reading = False
        self._ended = False
        self._error: MidstreamError | None = None

    async def read(self) -> bytes | None:
        """The next piece; see `AsyncBody.read`."""
        self._reading = True
        try:
            if self._exchange.cancelled or self._ended:
                return await self._after_end()
            step = self._next or self._next_in_scope
            piece = await step()
            while self._inflater is not None:
                if piece := self._inflater.inflate(piece):
                    break
                piece = await step()
            if self._exchange.cancelled:
                return await self._after_end()
        except StopAsyncIteration:
            self._error = cut_short(self._response, self._inflater)
            return await self._after_end()
        except BaseException as error:
            await self._finish()
            self._error = read_error(error, self._exchange)
            known = self._error is error
            self._error = self._error and twin(self._error)
            if known or self._error is None:
                raise
            raise twin(self._error) from error
        finally:
            self._reading = False
        return piece

    async def aclose(self) -> None:
        """End it; see `AsyncBody.aclose`."""
        self._exchange.cancelled = True
        if self._reading:
            self._exchange.break_line()
        else:
            await self._finish()

    async def _next_in_scope(self) -> bytes:
        exchange = self._exchange
        with anyio.CancelScope() as scope:
            exchange.line = scope
            scope.deadline = anyio.current_time() + max(exchange.left(), GRACE)
            return await anext(self._pieces)
        raise exchange.verdict() or exchange.deadline.error()

    async def _after_end(self) -> bytes | None:
        """What a read at the end returns, if it was the server's."""
        await self._finish()
        error = self._error or self._exchange.verdict()
        if error is not None:
            raise twin(error)
        return None

    async def _finish(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._release(self._exchange)
        response = self._response
        with anyio.CancelScope(shield=True):
            with suppress(Exception):
                if not response.is_closed and "stream_id" in response.extensions:
                    await response.extensions["network_stream"].write(
                        reset_frame(response.extensions["stream_id"]), LEAVE_SECONDS
                    )
            with anyio.CancelScope() as cancelled, suppress(Exception):
                cancelled.cancel()
                await self._run_out()
            with suppress(Exception):
                await response.aclose()
        _let_go(response, self._exchange)

    async def _run_out(self) -> None:
        """Bring the nested generators to their end."""
        for _ in range(BUFFERED_PIECES):
            if await anext(self._pieces, None) is None:
                return
        await self._pieces.aclose()


def _let_go(response: httpx.Response, exchange: Exchange) -> None:
    """Undo the circles of an exchange that has ended, so that nothing waits for gc.

    httpx's response and the stream in it hold each other, and so do a line and what
    waits on it; all that the application had would hang on them.
    """
    response.stream = httpx.ByteStream(b"")
    exchange.line = None
