"""What the server saw of one request, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midstream.testing._fake.faults import Fault

Ended: TypeAlias = Literal["complete", "cut", "refused", "hung_up", "stopped"]
How: TypeAlias = Literal["top", "text", "tokens", "ask", "replay"]


@dataclass(slots=True, kw_only=True)
class Recorded:
    """One request and what became of it; its numbers grow while it is served.

    Attributes:
        number: Its place among all requests, from 0.
        dialect: Who plays the server; ``""`` where nobody knows the route.
        method: ``"POST"``, or ``"RPC"`` for a gRPC call.
        path: The path without the dialect's prefix and the query.
        query: The query's parameters, the last one of each name.
        headers: Headers or metadata, names in lower case.
        content: The body as it came.
        body: The body as JSON values; None where it is none.
        streams: Whether a stream was asked for.
        how: How the request continues an answer; ``"top"`` when it does not.
        prefix: The text that the model was given as its own; ``""`` from the top.
        faults: What went wrong on purpose.
        status: The HTTP status; None when nothing was answered.
        deltas: Deltas handed to the connection.
        parts: Their texts; `text` joins them. Repetitions have none.
        tokens: Their tokens.
        body_bytes: Bytes of the body sent, before compression and chunking.
        ended: How it ended: ``"complete"``, ``"cut"`` by a fault, ``"refused"`` with a
            status, ``"hung_up"`` by the client, ``"stopped"`` by the server or a later
            request; None while it runs.
    """

    number: int
    dialect: str
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = field(default=b"", repr=False)
    body: Any = None
    streams: bool = False
    how: How = "top"
    prefix: str = ""
    faults: Sequence[Fault] = ()
    status: int | None = None
    deltas: int = 0
    parts: list[str] = field(default_factory=list, repr=False)
    tokens: int = 0
    body_bytes: int = 0
    ended: Ended | None = None

    @property
    def text(self) -> str:
        """The text sent; bytes that are half characters show as lone surrogates."""
        return "".join(self.parts)

    @property
    def hung_up(self) -> bool:
        """Whether the client closed before the end; `deltas` tells when."""
        return self.ended == "hung_up"
