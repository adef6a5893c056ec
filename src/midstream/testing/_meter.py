"""Where a connection is cut: counting what passes, without a socket.

A plan is a queue of cuts. A meter stands at one connection, takes the next cut when a
unit of what is counted begins, says how much may pass before it, and gives it back
when the unit ended first. Two meters: every byte of a connection, and the body bytes
of HTTP/1.1 responses, for which it follows both directions just far enough to know
where each message begins and ends.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

from midstream._values.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CutKind: TypeAlias = Literal["fin", "rst"]

_HEAD_LINE = 65_536  # bytes of a header line, above which it is no HTTP


@dataclass(frozen=True, slots=True)
class CutAt:
    """A cut to be made.

    Attributes:
        at: Bytes that pass before it; see the module's docstring for which.
        kind: ``"fin"`` ends the connection cleanly in mid-body, ``"rst"`` resets it.
    """

    at: int
    kind: CutKind = "fin"


@dataclass(frozen=True, slots=True)
class CutMade:
    """A cut that was made.

    Attributes:
        connection: Number of the client's connection, counted from 1.
        passed: Bytes that passed before it.
        kind: How the connection ended.
        request: ``"POST /v1/chat/completions"``, whose answer was cut; ``""`` if raw.
    """

    connection: int
    passed: int
    kind: CutKind
    request: str


class Plan:
    """The cuts still to make and those made, shared by the loop and its owner."""

    def __init__(self, cuts: Iterable[CutAt | int]) -> None:
        self.made: list[CutMade] = []
        self._lock = threading.Lock()
        self._waiting: deque[CutAt] = deque()
        self._taken: list[CutAt] = []
        self.add(cuts)

    def add(self, cuts: Iterable[CutAt | int]) -> None:
        planned = [CutAt(cut) if isinstance(cut, int) else cut for cut in cuts]
        if any(cut.at < 0 for cut in planned):
            raise UsageError("a cut cannot lie before byte 0")
        with self._lock:
            self._waiting.extend(planned)

    def left(self) -> list[CutAt]:
        with self._lock:
            return [*self._taken, *self._waiting]

    def take(self) -> CutAt | None:
        with self._lock:
            if not self._waiting:
                return None
            cut = self._waiting.popleft()
            self._taken.append(cut)
            return cut

    def give_back(self, cut: CutAt) -> None:
        with self._lock:
            self._taken.remove(cut)
            self._waiting.appendleft(cut)

    def carry_out(self, cut: CutAt, made: CutMade) -> None:
        with self._lock:
            self._taken.remove(cut)
            self.made.append(made)


class Meter:
    """Counts what passes to one client and says where to cut: raw connections.

    One unit is what a cut is counted in: here the connection, an HTTP response in the
    subclass. `allow` is told what came from the server and answers how much of it may
    pass; when it answers less than all of it, `due` is the cut to make there.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._cut: CutAt | None = None
        self._budget = 0
        self.request = ""

    def begin(self) -> None:
        """The connection is open."""
        self.open_unit()

    def sent(self, data: bytes) -> None:
        """The client sent `data`."""

    def allow(self, data: bytes) -> int:
        """Of `data` from the server, the number of bytes that may pass."""
        allowed = self.room(len(data))
        self.spend(allowed)
        return allowed

    def end(self) -> None:
        """The connection is over; an unused cut goes back to the plan."""
        if self._cut is not None:
            self._plan.give_back(self._cut)
            self._cut = None

    @property
    def due(self) -> bool:
        """Whether the cut's position is reached."""
        return self._cut is not None and self._budget == 0

    def carry_out(self, connection: int) -> CutKind:
        """Record the cut that is due, just before it is made."""
        cut, self._cut = self._cut, None
        assert cut is not None  # noqa: S101 - called when due
        made = CutMade(connection, cut.at, cut.kind, self.request)
        self._plan.carry_out(cut, made)
        return cut.kind

    def open_unit(self) -> None:
        """What is counted begins: take the next planned cut for it."""
        self._cut = self._plan.take()
        self._budget = self._cut.at if self._cut is not None else 0

    def close_unit(self) -> None:
        """What is counted ended by itself; a cut at its very end is still made."""
        if not self.due:
            self.end()

    def room(self, size: int) -> int:
        """Of `size` bytes, how many lie before the cut."""
        return size if self._cut is None else min(size, self._budget)

    def spend(self, size: int) -> None:
        """Count `size` bytes, no more than there is room for."""
        if self._cut is not None:
            self._budget -= size


class HttpMeter(Meter):
    """Counts the body bytes of eligible HTTP/1.1 responses."""

    def __init__(self, plan: Plan, eligible: Callable[[str, str], bool]) -> None:
        super().__init__(plan)
        self._eligible = eligible
        self._asked: deque[str] = deque()
        self._requests = _Framer(self._request_head)
        self._responses = _Framer(self._response_head)

    def begin(self) -> None:
        """Nothing is counted before the first response."""

    def sent(self, data: bytes) -> None:
        """Learn from the client's bytes what is asked."""
        at = 0
        while at < len(data):
            at += self._requests.advance(data, at, len(data))

    def allow(self, data: bytes) -> int:
        """Count through `data`, response by response."""
        passed = 0
        while passed < len(data) and not self.due:
            stop = len(data)
            if in_body := self._responses.in_body:
                stop = passed + self.room(stop - passed)
            used = self._responses.advance(data, passed, stop)
            passed += used
            if in_body:
                self.spend(used)
            if self._responses.done:
                self.close_unit()
        return passed

    def _request_head(self, lines: list[bytes]) -> _Body:
        self._asked.append(" ".join(lines[0].decode("latin-1").split()[:2]))
        # Without a length a request has no body, a response lasts until the close.
        return _body(_fields(lines), unsized=0)

    def _response_head(self, lines: list[bytes]) -> _Body:
        status = lines[0].split()[1:2]
        if status and status[0].startswith(b"1") and status != [b"101"]:
            return 0  # an interim answer: the real one follows
        self.request = self._asked.popleft() if self._asked else ""
        method, _, path = self.request.partition(" ")
        fields = _fields(lines)
        bodiless = method == "HEAD" or status in ([b"204"], [b"304"])
        if not bodiless and self._eligible(path, fields.get("content-type", "")):
            self.open_unit()
        return 0 if bodiless else _body(fields, unsized=None)


_Body: TypeAlias = int | Literal["chunked"] | None  # None: until the connection ends


def _fields(lines: list[bytes]) -> dict[str, str]:
    """The header fields of a head, names in lower case."""
    pairs = (line.decode("latin-1").partition(":") for line in lines[1:])
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _body(fields: dict[str, str], *, unsized: int | None) -> _Body:
    """How long the body is that follows a head, RFC 9112 section 6.3."""
    if "chunked" in fields.get("transfer-encoding", "").lower():
        return "chunked"
    length = fields.get("content-length", "")
    return int(length) if length.isdigit() else unsized


class _Framer:
    """Follows HTTP/1.1 messages in one direction, without holding their bytes back.

    Args:
        head: Called with the lines of each head, answers what body follows it.

    Attributes:
        done: Whether the last step reached the end of a message.
    """

    def __init__(self, head: Callable[[list[bytes]], _Body]) -> None:
        self.done = False
        self._head = head
        self._line = bytearray()
        self._lines: list[bytes] = []
        self._left = 0  # bytes of the body, or of a chunk with its line end
        self._state: Literal["head", "sized", "size", "chunk", "trailer", "rest"]
        self._state = "head"

    @property
    def in_body(self) -> bool:
        """Whether the next byte belongs to a body."""
        return self._state != "head"

    def advance(self, data: bytes, start: int, stop: int) -> int:
        """Follow the message up to its next border, at most to `stop`.

        Args:
            data: Bytes as they came.
            start: Where in them to go on; before `stop`.
            stop: Where they end.

        Returns:
            How many bytes that was, at least one; never from a head into its body.
        """
        self.done = False
        match self._state:
            case "rest":
                return stop - start
            case "sized" | "chunk":
                used = min(self._left, stop - start)
                self._left -= used
                if not self._left:
                    self._after_bytes()
                return used
            case "head" | "size" | "trailer":
                return self._advance_line(data, start, stop)
            case _ as never:
                assert_never(never)

    def _advance_line(self, data: bytes, start: int, stop: int) -> int:
        end = data.find(b"\n", start, stop) + 1
        part = data[start : end or stop]
        self._line += part
        if len(self._line) > _HEAD_LINE:
            self._state = "rest"  # no HTTP: let it pass
        elif end:
            line = bytes(self._line).rstrip(b"\r\n")
            self._line.clear()
            self._after_line(line)
        return len(part)

    def _after_line(self, line: bytes) -> None:
        if self._state == "head":
            self._after_head_line(line)
        elif self._state == "size":
            self._after_size(line)
        elif not line:
            self._finish()

    def _after_head_line(self, line: bytes) -> None:
        if line:
            self._lines.append(line)
            return
        lines, self._lines = self._lines, []
        if not lines:
            return  # RFC 9112 section 2.2: an empty line before a message is ignored
        match self._head(lines):
            case "chunked":
                self._state = "size"
            case None:
                self._state = "rest"
            case 0:
                self._finish()
            case size:
                self._state, self._left = "sized", size

    def _after_size(self, line: bytes) -> None:
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            self._state = "rest"
            return
        if size:
            self._state, self._left = "chunk", size + len(b"\r\n")
        else:
            self._state = "trailer"

    def _after_bytes(self) -> None:
        if self._state == "chunk":
            self._state = "size"
        else:
            self._finish()

    def _finish(self) -> None:
        self._state = "head"
        self.done = True
