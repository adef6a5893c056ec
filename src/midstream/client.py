"""Clients: who is asked, with which limits, over which connections."""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from pydantic import SecretStr

from midstream import _dialects
from midstream._keeping.keeper import Keeper, Kept
from midstream._resume.policy import Resume
from midstream._resume.server import Server
from midstream._session.session import Session
from midstream._streaming.stream import AsyncStream, Stream
from midstream._values.api_names import normalised
from midstream._values.arguments import (
    CLIENT,
    EXTRA,
    STREAM,
    check_http_client,
    explained,
)
from midstream._values.endpoint import Endpoint
from midstream._values.errors import UsageError
from midstream._values.request import Request
from midstream._values.timeouts import Timeouts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    import httpx

    from midstream._transports import AsyncTransport, Transport
    from midstream._values.checkpoint import Checkpoint
    from midstream._values.message import Prompt
    from midstream.stores.protocol import Store


class _Base:
    """What both clients share: everything but the transports."""

    def __init__(
        self,
        endpoints: Sequence[str | Endpoint],
        timeouts: Timeouts,
        resume: Resume | None,
        store: Store | None,
    ) -> None:
        if not endpoints:
            raise UsageError('name an endpoint, as in Client("ollama:gemma3")')
        if not isinstance(timeouts, Timeouts):
            raise UsageError(f"timeouts={timeouts!r}: give Timeouts(…)")
        if not isinstance(resume, Resume | None):
            raise UsageError(f"resume={resume!r}: give Resume(…), or None for never")
        if store is not None and not hasattr(store, "acquire"):
            raise UsageError(f"store={store!r}: give a store, as SQLiteStore(…)")
        self._servers = [_server(Endpoint.parse(endpoint)) for endpoint in endpoints]
        self._timeouts = timeouts
        self._resume = resume
        self._keeper = Keeper(store) if store is not None else None
        self._random = random.Random()  # noqa: S311 - jitter
        self._closed = False

    @property
    def endpoints(self) -> list[Endpoint]:
        """Who answers, in order, default addresses filled in."""
        return [server.endpoint for server in self._servers]

    def __repr__(self) -> str:
        """The endpoints, without keys."""
        names = ", ".join(map(str, self.endpoints))
        return f"<{type(self).__name__} {names}>"

    def _session(self, prompt: Prompt, **fields: Any) -> Session:
        if self._closed:
            raise UsageError("the client is closed")
        return Session(
            self._servers,
            self._request(prompt, **fields),
            timeouts=self._timeouts,
            resume=self._resume,
            handles=lambda: uuid.uuid4().hex,
            random=self._random,
        )

    def _request(self, prompt: Prompt, **fields: Any) -> Request:
        """What is asked, in the standard words whatever the API."""
        names = (s.dialect.api_names(s.endpoint) for s in self._servers)
        return normalised(Request.of(prompt=prompt, **fields), names)

    def _keep(self, key: str | None) -> Kept | None:
        """A new stream's place in the store; what was there is replaced."""
        if key is None:
            return None
        return Kept(self._need_keeper(), key)

    def _continue(
        self, key: str, after: int
    ) -> tuple[Session, Kept, Callable[[Checkpoint | None], Session]]:
        """A stored stream, made ready when it is entered."""
        if after < 0:
            raise UsageError(f"resume(after={after}): give characters, 0 or more")
        session = self._session("")

        def restore(stored: Checkpoint | None) -> Session:
            if stored is None:
                raise UsageError(f"the store has no stream {key!r}")
            if self._resume is None and not stored.complete:
                raise UsageError(
                    f"stream {key!r} is not complete, and Client(resume=None) "
                    "continues none"
                )
            session.restore(stored, after, time.monotonic())
            return session

        return session, Kept(self._need_keeper(), key), restore

    def _need_keeper(self) -> Keeper:
        if self._keeper is None:
            raise UsageError(
                'streams with a key need a store: Client(…, store=SQLiteStore("…"))'
            )
        return self._keeper


def _server(endpoint: Endpoint) -> Server:
    """The endpoint with its dialect's defaults: address, and key from the environment.

    Raises:
        UsageError: The dialect has no usual address and none was given.
    """
    dialect = _dialects.find(endpoint.dialect)
    defaults: dict[str, Any] = {}
    if endpoint.base_url is None:
        if dialect.default_url is None:
            raise UsageError(
                f'{endpoint.dialect} needs an address: "{endpoint}@http://host:port"'
            )
        defaults["base_url"] = dialect.default_url
    elif "://" not in endpoint.base_url:
        scheme = "grpc" if dialect.transport == "grpc" else "http"
        defaults["base_url"] = f"{scheme}://{endpoint.base_url}"
    if endpoint.api_key is None:
        keys = filter(None, map(os.environ.get, dialect.key_variables))
        defaults["api_key"] = next(map(SecretStr, keys), None)
    return Server(endpoint.model_copy(update=defaults), dialect)


class Client(_Base):
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
        key: str | None = None,
        extra: Mapping[str, Any] = {},
        choice: int = 0,
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
            key: Names the stream in the client's store.
            extra: Merged into the request body; standard parameters in it, under the
                API's own names, count as the ones above.
            choice: Which of n answers the stream's text is.

        Raises:
            UsageError: An argument cannot be.
        """
        session = self._session(
            prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            stop=stop,
            seed=seed,
            tools=tools,
            extra=dict(extra),
            choice=choice,
        )
        return Stream(session, self, self._transport, self._keep(key))

    @explained("resume")
    def resume(self, key: str, *, after: int = 0) -> Stream:
        """Go on with a stream that this or another process began and stored.

        Args:
            key: Its name in the store.
            after: Characters of its text that you have; it gives what follows them.

        Raises:
            UsageError: There is no store. On entering: there is no such stream, or
                another process is reading it.
        """
        session, kept, restore = self._continue(key, after)
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


class AsyncClient(_Base):
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
        key: str | None = None,
        extra: Mapping[str, Any] = {},
        choice: int = 0,
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
            key: Names the stream in the client's store.
            extra: Merged into the request body; standard parameters in it, under the
                API's own names, count as the ones above.
            choice: Which of n answers the stream's text is.

        Raises:
            UsageError: An argument cannot be.
        """
        session = self._session(
            prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            stop=stop,
            seed=seed,
            tools=tools,
            extra=dict(extra),
            choice=choice,
        )
        return AsyncStream(session, self, self._transport, self._keep(key))

    @explained("resume")
    def resume(self, key: str, *, after: int = 0) -> AsyncStream:
        """Go on with a stream that this or another process began and stored.

        Args:
            key: Its name in the store.
            after: Characters of its text that you have; it gives what follows them.

        Raises:
            UsageError: There is no store. On entering: there is no such stream, or
                another process is reading it.
        """
        session, kept, restore = self._continue(key, after)
        return AsyncStream(session, self, self._transport, kept, restore)

    async def aclose(self) -> None:
        """Close the connections; a second time does nothing."""
        self._closed = True
        for transport in (self._http, self._grpc):
            if transport is not None:
                await transport.aclose()

    async def __aenter__(self) -> Self:
        """The client."""
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
