"""What both clients share: everything but the transports."""

from __future__ import annotations

import os
import random
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from pydantic import SecretStr

from midstream import _dialects
from midstream._keeping.keeper import Keeper, Kept, check_store
from midstream._resume.policy import Resume
from midstream._resume.restoring import Beginning, begin, restore
from midstream._resume.server import Server
from midstream._session.session import Session
from midstream._values.api_names import normalised
from midstream._values.endpoint import Endpoint
from midstream._values.errors import UsageError
from midstream._values.request import Request
from midstream._values.timeouts import Timeouts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from midstream._values.checkpoint import Checkpoint
    from midstream._values.message import Prompt
    from midstream.stores.protocol import Store

Existing: TypeAlias = Literal["replace", "resume", "error"]
"""What becomes of a stream that is stored under the key already."""

_EXISTING = ("replace", "resume", "error")


class Begun(NamedTuple):
    """A stream that was asked for and not entered.

    Attributes:
        session: Its state; another takes its place where one is stored.
        kept: Its place in the store, if it has one.
        restore: Makes the session that goes on with what is stored.
    """

    session: Session
    kept: Kept | None = None
    restore: Callable[[Checkpoint | None], Session] | None = None


class BaseClient:
    """Who is asked, with which limits, and where streams are kept."""

    def __init__(
        self,
        endpoints: Sequence[str | Endpoint],
        timeouts: Timeouts,
        resume: Resume | None,
        store: Store | None,
    ) -> None:
        if not endpoints:
            raise UsageError('name an endpoint, as in Client("ollama:gemma3")')
        _check_timeouts(timeouts)
        if not isinstance(resume, Resume | None):
            raise UsageError(f"resume={resume!r}: give Resume(…), or None for never")
        if store is not None:
            check_store(store)
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

    def _begin(
        self,
        prompt: Prompt,
        *,
        key: str | None,
        existing: Existing,
        take_over: bool,
        headers: Mapping[str, str],
        timeouts: Timeouts | None,
        **fields: Any,
    ) -> Begun:
        """A new stream, or what is stored of the same request."""
        if self._closed:
            raise UsageError("the client is closed")
        if existing not in _EXISTING:
            words = ", ".join(map(repr, _EXISTING))
            raise UsageError(f"stream(existing={existing!r}): give one of {words}")
        timeouts = self._timeouts if timeouts is None else timeouts
        _check_timeouts(timeouts)
        names = (s.dialect.api_names(s.endpoint) for s in self._servers)
        request = normalised(Request.of(prompt=prompt, **fields), names)
        own = Endpoint(self._servers[0].endpoint.dialect, headers=headers).headers
        servers = [server.with_headers(own) for server in self._servers]
        new = begin(servers, request, _handle())
        session = self._session(servers, new, timeouts)
        if key is None:
            if existing != "replace" or take_over:
                raise UsageError("existing= and take_over= are for streams with key=")
            return Begun(session)
        kept = self._kept(key, existing, take_over=take_over)
        if existing != "resume":
            return Begun(session, kept)

        def go_on(stored: Checkpoint | None) -> Session:
            if stored is None:
                return session
            if stored.request != request.model_dump(mode="json", exclude_unset=True):
                raise UsageError(
                    f"stream {key!r} was begun with another request; use another key, "
                    'or existing="replace"'
                )
            known = restore(servers, stored, time.monotonic())
            return self._session(servers, known, timeouts)

        return Begun(session, kept, go_on)

    def _continue(
        self, key: str, *, have: str | None, after: int, take_over: bool
    ) -> Begun:
        """A stored stream, made ready when it is entered."""
        if self._closed:
            raise UsageError("the client is closed")
        _check_place(have, after)
        servers = self._servers

        def go_on(stored: Checkpoint | None) -> Session:
            assert stored is not None  # noqa: S101 - `Kept.open` has looked
            if self._resume is None and not stored.complete:
                raise UsageError(
                    f"stream {key!r} is not complete, and Client(resume=None) "
                    "continues none"
                )
            now = time.monotonic()
            known = restore(servers, stored, now, after=after, have=have)
            return self._session(servers, known, self._timeouts)

        unknown = begin(servers, Request.of(prompt=""), "")
        session = self._session(servers, unknown, self._timeouts)
        return Begun(session, self._kept(key, "continue", take_over=take_over), go_on)

    def _session(
        self, servers: Sequence[Server], beginning: Beginning, timeouts: Timeouts
    ) -> Session:
        return Session(
            servers,
            beginning,
            timeouts=timeouts,
            resume=self._resume,
            handles=_handle,
            random=self._random,
        )

    def _unloaded(self) -> list[str]:
        """The transports' modules that nobody has imported yet; they are slow to."""
        kinds = {server.dialect.transport for server in self._servers}
        names = [f"midstream._transports.{kind}" for kind in sorted(kinds)]
        return [name for name in names if name not in sys.modules]

    def _kept(
        self, key: object, existing: Existing | Literal["continue"], *, take_over: bool
    ) -> Kept:
        if self._keeper is None:
            raise UsageError(
                'streams with a key need a store: Client(…, store=SQLiteStore("…"))'
            )
        if not isinstance(key, str) or not key:
            raise UsageError(f"key={key!r}: give a name for the stream, a str")
        return Kept(self._keeper, key, existing, take_over=take_over)


def _handle() -> str:
    """An unguessable name for a generation."""
    return uuid.uuid4().hex


def _check_timeouts(timeouts: object) -> None:
    if not isinstance(timeouts, Timeouts):
        raise UsageError(f"timeouts={timeouts!r}: give Timeouts(…)")


def _check_place(have: object, after: object) -> None:
    if not isinstance(after, int) or after < 0:
        raise UsageError(f"resume(after={after!r}): give characters, 0 or more")
    if not isinstance(have, str | None):
        raise UsageError(f"resume(have={have!r}): give the text that you have")
    if have is not None and after:
        raise UsageError("resume(have=…, after=…): give one of them; have= is best")


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
