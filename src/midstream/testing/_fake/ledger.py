"""What the server saw and did, request by request, for tests to wait for and see."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from midstream.testing._fake.faults import Fault
    from midstream.testing._fake.script import Record

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


class Ledger:
    """The list of requests, and the condition that announces each change to it."""

    def __init__(self) -> None:
        self.entries: list[Recorded] = []
        self._changed = threading.Condition()

    def add(self, **facts: Any) -> Recorded:
        """Record a request that was read."""
        with self._changed:
            entry = Recorded(number=len(self.entries), **facts)
            self.entries.append(entry)
            self._changed.notify_all()
        return entry

    def sent(self, entry: Recorded, record: Record) -> None:
        """Count a record that was sent."""
        with self._changed:
            entry.deltas += record.deltas
            entry.parts.append(record.text)
            entry.tokens += record.tokens
            self._changed.notify_all()

    def end(self, entry: Recorded, how: Ended) -> None:
        """Record how a request ended; the first word counts."""
        with self._changed:
            entry.ended = entry.ended or how
            self._changed.notify_all()

    def wait(
        self, what: str, nth: int, wanted: Callable[[Recorded], bool], timeout: float
    ) -> Recorded:
        """The `nth` (from 1) entry that is `wanted`, waited for.

        Raises:
            TimeoutError: There was none in `timeout` seconds.
        """
        with self._changed:
            if self._changed.wait_for(
                lambda: len(self._all(wanted)) >= nth, timeout=timeout
            ):
                return self._all(wanted)[nth - 1]
            seen = [(e.method, e.path, e.ended) for e in self.entries]
        raise TimeoutError(f"no {what} number {nth} within {timeout:g} s; saw {seen}")

    def _all(self, wanted: Callable[[Recorded], bool]) -> list[Recorded]:
        return [entry for entry in self.entries if wanted(entry)]
