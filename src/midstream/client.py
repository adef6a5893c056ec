"""Clients: who is asked, with which limits, over which connections."""

from __future__ import annotations

import threading
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

import anyio.to_thread

from midstream._base_client import BaseClient
from midstream._resume.policy import Resume
from midstream._streaming.stream import AsyncStream, Stream
from midstream._values.arguments import (
    CLIENT,
    EXTRA,
    STREAM,
    check_http_client,
    explained,
)
from midstream._values.timeouts import Timeouts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    import httpx

    from midstream._base_client import Existing
    from midstream._session.session import Session
    from midstream._transports import AsyncTransport, Transport
    from midstream._values.endpoint import Endpoint
    from midstream._values.message import Prompt
    from midstream.stores.protocol import Store


class Client(BaseClient):
    """Streams answers, over blocking sockets.

    Args:
        endpoints: ``DIALECT[:MODEL][@URL]`` or `Endpoint`; the first serves, the others
            take over in mid-stream when it fails for good.
        timeouts: Limits in seconds.
        resume: How a broken stream goes on; None: it does not.
        store: Keeps streams that have a key, so that another process can go on.
        http_client: Your own `httpx.Client` (proxies, TLS, auth, limits); it stays open
            when this client closes.

    Raises:
        UsageError: An endpoint cannot be.
    """

    @explained("Client", CLIENT)
    def __init__(
        self,
        *endpoints: str | Endpoint,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
        resume: Resume | None = Resume(),  # noqa: B008 - frozen
        store: Store | None = None,
        http_client: httpx.Client | None = None,
    ) -> None:
        super().__init__(endpoints, timeouts, resume, store)
        check_http_client(http_client, "Client")
        self._http_client = http_client
        self._making = threading.Lock()
        self._http: Transport | None = None
        self._grpc: Transport | None = None

    @explained("stream", STREAM, otherwise=EXTRA)
    def stream(  # noqa: PLR0913 - the words of the contract
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        stop: str | Sequence[str] | None = None,
        seed: int | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        choice: int = 0,
        key: str | None = None,
        existing: Existing = "replace",
        take_over: bool = False,
        headers: Mapping[str, str] = {},
        timeouts: Timeouts | None = None,
        extra: Mapping[str, Any] = {},
    ) -> Stream:
        """Ask for an answer; enter the stream with ``with`` and iterate it.

        Args:
            prompt: Text, or messages (mappings or `Message`).
            max_tokens: The most tokens of answer, over all connections.
            temperature: Sampling temperature; 0 is greedy.
            top_p: Nucleus sampling.
            stop: Strings that end the answer.
            seed: Seed of the sampling.
            tools: Tools in the API's own form.
            choice: Which of n answers the stream's text is.
            key: Names the stream in the client's store.
            existing: What becomes of a stream that is stored under the key:
                ``"replace"``; ``"resume"``: what is stored of the same request comes
                first, then the rest; ``"error"``.
            take_over: Take the key from a reader that is still thought alive; that
                one's stream ends with `LeaseLost`.
            headers: More headers, for this stream alone; they stay behind on a
                redirect to another origin.
            timeouts: This stream's own limits in seconds; None: the client's.
            extra: Merged into the request body; standard parameters in it, under the
                API's own names, count as the ones above.

        Raises:
            UsageError: An argument cannot be. On entering a stream with a key:
                `StreamBusy`, another reader has it, or something is stored there that
                is not to be replaced or was asked otherwise.
            StoreFailed: On entering: the store cannot be used.
        """
        begun = self._begin(
            prompt,
            key=key,
            existing=existing,
            take_over=take_over,
            headers=headers,
            timeouts=timeouts,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            stop=stop,
            seed=seed,
            tools=tools,
            extra=extra,
            choice=choice,
        )
        session, kept, restore = begun
        return Stream(session, self, self._transport, kept, restore)

    @explained("resume")
    def resume(
        self,
        key: str,
        *,
        have: str | None = None,
        after: int = 0,
        take_over: bool = False,
    ) -> Stream:
        """Go on with a stream that this or another process began and stored.

        Args:
            key: Its name in the store.
            have: The text that you have; iterating and ``read()`` give what follows
                it, ``stream.text`` is the whole. It may be more than was stored.
            after: Characters that you have, where you kept only a count. What lies
                beyond the stored text must then come again by replay.
            take_over: Take the stream from a reader that is still thought alive; that
                one's stream ends with `LeaseLost`.

        Raises:
            UsageError: There is no store. On entering: `StreamNotFound`, there is no
                such stream; `StreamBusy`, another reader has it; ``have`` is not its
                text.
            StoreFailed: On entering: the store cannot be used.
        """
        session, kept, restore = self._continue(
            key, have=have, after=after, take_over=take_over
        )
        return Stream(session, self, self._transport, kept, restore)

    def close(self) -> None:
        """Close the connections; a second time does nothing."""
        self._closed = True
        for transport in (self._http, self._grpc):
            if transport is not None:
                transport.close()

    def __del__(self) -> None:
        """A client that nobody closed leaves no socket behind."""
        with suppress(Exception):  # __init__ may have failed; the interpreter may end
            self.close()

    def __enter__(self) -> Self:
        """The client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def _transport(self, session: Session) -> Transport:
        with self._making:  # streams may begin in several threads
            return self._made_transport(session)

    def _made_transport(self, session: Session) -> Transport:
        connect = self._timeouts.connect
        if session.server.dialect.transport == "http":
            if self._http is None:
                from midstream._transports.http import (  # noqa: PLC0415 - httpx is slow
                    HttpTransport,
                )

                self._http = HttpTransport(self._http_client, connect=connect)
            return self._http
        if self._grpc is None:
            from midstream._transports.grpc import GrpcTransport  # noqa: PLC0415 - extra

            self._grpc = GrpcTransport(connect=connect)
        return self._grpc


class AsyncClient(BaseClient):
    """Streams answers, under asyncio or trio.

    Args:
        endpoints: ``DIALECT[:MODEL][@URL]`` or `Endpoint`; the first serves, the others
            take over in mid-stream when it fails for good.
        timeouts: Limits in seconds.
        resume: How a broken stream goes on; None: it does not.
        store: Keeps streams that have a key, so that another process can go on.
        http_client: Your own `httpx.AsyncClient` (proxies, TLS, auth, limits); it stays
            open when this client closes.

    Raises:
        UsageError: An endpoint cannot be.
    """

    @explained("AsyncClient", CLIENT)
    def __init__(
        self,
        *endpoints: str | Endpoint,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
        resume: Resume | None = Resume(),  # noqa: B008 - frozen
        store: Store | None = None,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__(endpoints, timeouts, resume, store)
        check_http_client(http_client, "AsyncClient")
        self._http_client = http_client
        self._http: AsyncTransport | None = None
        self._grpc: AsyncTransport | None = None

    @explained("stream", STREAM, otherwise=EXTRA)
    def stream(  # noqa: PLR0913 - the words of the contract
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        stop: str | Sequence[str] | None = None,
        seed: int | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        choice: int = 0,
        key: str | None = None,
        existing: Existing = "replace",
        take_over: bool = False,
        headers: Mapping[str, str] = {},
        timeouts: Timeouts | None = None,
        extra: Mapping[str, Any] = {},
    ) -> AsyncStream:
        """Ask for an answer; enter the stream with ``async with`` and iterate it.

        Args:
            prompt: Text, or messages (mappings or `Message`).
            max_tokens: The most tokens of answer, over all connections.
            temperature: Sampling temperature; 0 is greedy.
            top_p: Nucleus sampling.
            stop: Strings that end the answer.
            seed: Seed of the sampling.
            tools: Tools in the API's own form.
            choice: Which of n answers the stream's text is.
            key: Names the stream in the client's store.
            existing: What becomes of a stream that is stored under the key:
                ``"replace"``; ``"resume"``: what is stored of the same request comes
                first, then the rest; ``"error"``.
            take_over: Take the key from a reader that is still thought alive; that
                one's stream ends with `LeaseLost`.
            headers: More headers, for this stream alone; they stay behind on a
                redirect to another origin.
            timeouts: This stream's own limits in seconds; None: the client's.
            extra: Merged into the request body; standard parameters in it, under the
                API's own names, count as the ones above.

        Raises:
            UsageError: An argument cannot be. On entering a stream with a key:
                `StreamBusy`, another reader has it, or something is stored there that
                is not to be replaced or was asked otherwise.
            StoreFailed: On entering: the store cannot be used.
        """
        begun = self._begin(
            prompt,
            key=key,
            existing=existing,
            take_over=take_over,
            headers=headers,
            timeouts=timeouts,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            stop=stop,
            seed=seed,
            tools=tools,
            extra=extra,
            choice=choice,
        )
        session, kept, restore = begun
        return AsyncStream(session, self, self._transport, kept, restore)

    @explained("resume")
    def resume(
        self,
        key: str,
        *,
        have: str | None = None,
        after: int = 0,
        take_over: bool = False,
    ) -> AsyncStream:
        """Go on with a stream that this or another process began and stored.

        Args:
            key: Its name in the store.
            have: The text that you have; iterating and ``read()`` give what follows
                it, ``stream.text`` is the whole. It may be more than was stored.
            after: Characters that you have, where you kept only a count. What lies
                beyond the stored text must then come again by replay.
            take_over: Take the stream from a reader that is still thought alive; that
                one's stream ends with `LeaseLost`.

        Raises:
            UsageError: There is no store. On entering: `StreamNotFound`, there is no
                such stream; `StreamBusy`, another reader has it; ``have`` is not its
                text.
            StoreFailed: On entering: the store cannot be used.
        """
        session, kept, restore = self._continue(
            key, have=have, after=after, take_over=take_over
        )
        return AsyncStream(session, self, self._transport, kept, restore)

    async def aclose(self) -> None:
        """Close the connections; a second time does nothing."""
        self._closed = True
        for transport in (self._http, self._grpc):
            if transport is not None:
                await transport.aclose()

    async def __aenter__(self) -> Self:
        """The client."""
        if missing := self._unloaded():  # a tenth of a second, off the event loop
            await anyio.to_thread.run_sync(lambda: list(map(import_module, missing)))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.aclose()

    def _transport(self, session: Session) -> AsyncTransport:
        connect = self._timeouts.connect
        if session.server.dialect.transport == "http":
            if self._http is None:
                from midstream._transports.http import (  # noqa: PLC0415 - httpx is slow
                    AsyncHttpTransport,
                )

                self._http = AsyncHttpTransport(self._http_client, connect=connect)
            return self._http
        if self._grpc is None:
            from midstream._transports.grpc import AsyncGrpcTransport  # noqa: PLC0415 - extra

            self._grpc = AsyncGrpcTransport(connect=connect)
        return self._grpc
