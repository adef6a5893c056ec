"""A TCP proxy on loopback that kills connections on purpose, where it was told to.

    client ──▶ Cutter ──▶ server
           ◀── cut ──

It sits between a real client and a real server, so that what breaks is a real socket.
Only the way from the server to the client is counted and cut. What is counted depends
on what passes:

* HTTP/1.1 (the default): the bytes of one response's **body as they are on the wire**,
  chunk sizes included, from the first byte after the empty line. Responses that are not
  a stream of tokens (`eligible`) pass untouched, on kept-alive connections as well.
* ``raw=True``: every byte of one connection, whatever it means. This is for gRPC, whose
  HTTP/2 frames are not looked at; its first bytes are settings, not messages.

Each planned cut waits for the next eligible response (raw: connection). One that ends
before the cut's position was reached leaves the cut to the one after it, so a plan is
always carried out in order and entirely, if enough is asked for. When nothing is
planned, everything passes. The server's own connection is closed with each cut, as a
router that died would do.

A cut is exact: the client's kernel has received every byte before the position and none
after it. For a reset that needs care, since a reset throws away what was not delivered:
it waits until the kernel's send queue is empty.

One thread and one selector serve all connections; a slow reader slows the server down
(the buffer between them is bounded) instead of filling the memory.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from midstream._values.errors import UsageError
from midstream.testing._meter import CutAt, CutKind, CutMade, HttpMeter, Meter, Plan
from midstream.testing._proxy import Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

__all__ = ["CutAt", "CutKind", "CutMade", "Cutter", "streams_tokens"]

_STREAMS = ("text/event-stream", "application/x-ndjson")


def streams_tokens(path: str, content_type: str) -> bool:
    """The usual `eligible`: server-sent events and NDJSON, on whatever path.

    Args:
        path: Of the request, with its query.
        content_type: Of the response, ``""`` when it has none.
    """
    del path
    return content_type.partition(";")[0].strip().lower() in _STREAMS


class Cutter:
    """A proxy that cuts connections at planned bytes; a context manager.

    Example:
        >>> with Cutter("http://localhost:80", cuts=[900, CutAt(90, "rst")]) as cutter:
        ...     client = midstream.Client(f"llama.cpp@{cutter.url}")  # doctest: +SKIP

    Args:
        upstream: The server's URL (``http://host:port/path``), or ``host:port``.
        cuts: What to cut, in order; a number is a `CutAt` of kind ``"fin"``.
        eligible: Told the request's path and the response's content type, says
            whether that response may be cut. Not asked when `raw`.
        raw: Count the bytes of a connection instead of those of a response's body.

    Raises:
        UsageError: `upstream` has no port, or needs TLS; a cut lies before byte 0.
    """

    def __init__(
        self,
        upstream: str,
        cuts: Iterable[CutAt | int] = (),
        *,
        eligible: Callable[[str, str], bool] = streams_tokens,
        raw: bool = False,
    ) -> None:
        parts = urlsplit(upstream if "://" in upstream else f"//{upstream}")
        if parts.scheme == "https":
            raise UsageError("a Cutter cannot look into TLS: give it an http URL")
        if not parts.hostname or not parts.port:
            raise UsageError(f"{upstream!r} names no host and port")
        self._target = (parts.hostname, parts.port)
        self._prefix = f"{parts.scheme}://" if parts.scheme else ""
        self._suffix = parts.path.rstrip("/")
        self._plan = Plan(cuts)
        self._eligible = eligible
        self._raw = raw
        self._loop: Loop | None = None
        self._port = 0

    @classmethod
    def random(
        cls,
        upstream: str,
        *,
        seed: int,
        count: int = 5,
        between: tuple[int, int] = (200, 2000),
        kinds: Sequence[CutKind] = ("fin", "rst"),
        eligible: Callable[[str, str], bool] = streams_tokens,
        raw: bool = False,
    ) -> Self:
        """A cutter whose cuts lie at random bytes; the same seed gives the same.

        Args:
            upstream: As for the class.
            seed: Of the positions.
            count: Cuts to make.
            between: Lowest and highest position, in bytes, both included.
            kinds: Used in turn, so that each of them comes up.
            eligible: As for the class.
            raw: As for the class.
        """
        source = random.Random(seed)  # noqa: S311 - repeatable, not secret
        cuts = [
            CutAt(source.randint(*between), kinds[number % len(kinds)])
            for number in range(count)
        ]
        return cls(upstream, cuts, eligible=eligible, raw=raw)

    @property
    def url(self) -> str:
        """What the client is given in place of `upstream`, with the same path."""
        return f"{self._prefix}127.0.0.1:{self._port}{self._suffix}"

    @property
    def cuts(self) -> list[CutMade]:
        """The cuts made so far, in order; each is here before the client feels it."""
        return list(self._plan.made)

    @property
    def planned(self) -> list[CutAt]:
        """The cuts not made yet, in order, those under way included."""
        return self._plan.left()

    @property
    def connections(self) -> int:
        """Connections accepted so far."""
        return self._loop.accepted if self._loop is not None else 0

    def plan(self, cuts: Iterable[CutAt | int]) -> None:
        """Add cuts to those planned, while running or before.

        Args:
            cuts: As for the class.
        """
        self._plan.add(cuts)

    def start(self) -> None:
        """Listen on a fresh port; `with` does this by itself."""
        self.close()
        self._loop = Loop(self._target, self._meter)
        self._port = self._loop.port
        self._loop.start()

    def close(self) -> None:
        """Stop listening and drop all connections; closing twice is harmless."""
        if self._loop is not None:
            self._loop.close()

    def __enter__(self) -> Self:
        """Start to listen."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop listening and drop all connections."""
        self.close()

    def _meter(self) -> Meter:
        if self._raw:
            return Meter(self._plan)
        return HttpMeter(self._plan, self._eligible)
