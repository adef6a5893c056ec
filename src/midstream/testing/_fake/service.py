"""Answers requests: which server is played, what goes wrong, and what is said.

A path may begin with the name of a dialect (``/llama.cpp/v1/chat/completions``): that
is how servers that share a route are told apart on one port.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from midstream._values.events import TextDelta
from midstream.testing._fake.asked import Refusal
from midstream.testing._fake.body import Body
from midstream.testing._fake.faults import Cut, Redirect, Status, pick
from midstream.testing._fake.model import Step
from midstream.testing._fake.play import play
from midstream.testing._fake.script import records, repeated
from midstream.testing._fake.sides import HTTP_SIDES
from midstream.testing._fake.sides.base import Answer, World, document
from midstream.testing._fake.sides.llama import KEPT_ROUTE
from midstream.testing._fake.voice import speak
from midstream.testing._fake.wire import BadHttp, Closing, HungUp, head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from midstream._values.events import Event, Signal
    from midstream.testing._fake.asked import Asked
    from midstream.testing._fake.habits import Habits
    from midstream.testing._fake.kept import KeptStream
    from midstream.testing._fake.ledger import Ledger
    from midstream.testing._fake.places import Places
    from midstream.testing._fake.plan import FaultPlan
    from midstream.testing._fake.recorded import Ended, Recorded
    from midstream.testing._fake.script import Pen, Record
    from midstream.testing._fake.sides.base import Side
    from midstream.testing._fake.voice import Manner
    from midstream.testing._fake.wire import HttpRequest, Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Mind:
    """What the server knows and how it behaves, for all transports.

    Attributes:
        world: The model, and what was kept.
        places: Where continuations go on.
        habits: How prefixes are treated.
        faults: What goes wrong, stream by stream.
        ledger: What happened.
        repeat: How often the answer is said.
        refuse: Refuses new connections for some seconds.
    """

    world: World
    places: Places
    habits: Habits
    faults: FaultPlan
    ledger: Ledger
    repeat: int
    refuse: Callable[[float], None]

    def think(
        self, asked: Asked, manner: Manner, entry: Recorded
    ) -> Iterator[Event | Signal]:
        """What the model says to a request.

        Raises:
            Refusal: It refuses the prefix.
        """
        self.habits.check(asked)
        asked = self.habits.seen(asked)
        place = self.places.find(asked)
        entry.how = place.how
        entry.prefix = place.prefix.decode("utf-8", "surrogateescape")
        model = self.world.model
        steps = self.habits.steps(place, model)
        if asked.preface:
            preface = Step(TextDelta(""), asked.preface, model.id_of(asked.preface))
            steps = [preface, *steps]
        answers = [steps, *(model.choice(index) for index in range(1, asked.n))]
        return speak(answers, asked, manner, tools=model.calls_tools)

    def body(
        self, events: Iterable[Event | Signal], pen: Pen, entry: Recorded
    ) -> Iterator[Record]:
        """The records of a stream."""
        body = records(events, pen, entry.faults)
        return repeated(body, self.repeat) if self.repeat > 1 else body


class Service:
    """The HTTP server.

    Args:
        mind: What it says.
        plays: The dialect that answers on a route which several have.
        api_key: The key that requests must bear.
        routes: Statuses in place of the answers of whole routes.
    """

    def __init__(
        self,
        mind: Mind,
        *,
        plays: str | None,
        api_key: str | None,
        routes: Mapping[str, Status],
    ) -> None:
        self._mind = mind
        self._api_key = api_key
        self._routes = routes
        first = [HTTP_SIDES[plays]] if plays is not None else []
        self._sides = [*first, *HTTP_SIDES.values()]

    def owner(self, route: str) -> Side:
        """Who answers on a path without a dialect's name in front."""
        owners = (side for side in self._sides if side.serves(route))
        return next(owners, self._sides[0])

    def serve(self, line: Line) -> None:
        """Answer on one connection until it ends."""
        try:
            while line.alive and (request := line.read_request()) is not None:
                self._answer(line, request)
                if not request.keeps_alive:
                    return
        except BadHttp as error:
            answer = document({"error": {"message": str(error)}}, 400)
            _reply(line, answer, {"Connection": "close"})
        except (HungUp, Closing):
            pass

    def _answer(self, line: Line, request: HttpRequest) -> None:
        side, request = self._addressed(request)
        entry = self._record(side, request)
        visit = _Visit(self._mind, side, line, request, entry)
        ended: Ended = "hung_up"
        try:
            self._admit(request)
            ended = self._routed(visit)
        except Refusal as refusal:
            entry.faults = entry.faults or ()
            ended = visit.refuse(refusal.status, refusal.message, refusal.type)
        except Closing:
            ended = "stopped"
            raise
        finally:
            self._mind.ledger.end(entry, ended)

    def _addressed(self, request: HttpRequest) -> tuple[Side, HttpRequest]:
        """Who is addressed, and the request as this server sees it."""
        _, first, *rest = request.path.split("/", 2)
        if first in HTTP_SIDES:
            path = "/" + "".join(rest)
            return HTTP_SIDES[first], replace(request, path=path)
        path = request.path
        return self.owner("/completion" if path == KEPT_ROUTE else path), request

    def _record(self, side: Side, request: HttpRequest) -> Recorded:
        try:
            body = request.json()
        except ValueError:
            body = None
        return self._mind.ledger.add(
            dialect=side.name,
            method=request.method,
            path=request.path,
            query=request.query,
            headers=request.headers,
            content=request.content,
            body=body,
        )

    def _admit(self, request: HttpRequest) -> None:
        if self._api_key is None:
            return
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        others = map(request.headers.get, ("x-api-key", "x-goog-api-key"))
        if self._api_key not in (bearer, *others):
            raise Refusal(401, "Invalid API Key", type="authentication_error")

    def _routed(self, visit: _Visit) -> Ended:
        request = visit.request
        if request.path in self._routes:
            return visit.fail(self._routes[request.path])
        if request.method == "POST" and visit.side.serves(request.path):
            return visit.generate()
        asked = request
        if request.method == "HEAD":
            asked = replace(request, method="GET")
        sides = [visit.side, *self._sides]
        for side in sides:
            kept = side.replayed(request, self._mind.world)
            if kept is not None:
                return visit.replay(*kept)
            answer = side.other(asked, self._mind.world)
            if answer is not None:
                return visit.reply(answer)
        if visit.side.serves(request.path):
            raise Refusal(405, "Method Not Allowed")
        raise Refusal(404, "File Not Found")


class _Visit:
    """One request that is being answered."""

    def __init__(
        self, mind: Mind, side: Side, line: Line, request: HttpRequest, entry: Recorded
    ) -> None:
        self._mind = mind
        self._line = line
        self._entry = entry
        self.side = side
        self.request = request

    def generate(self) -> Ended:
        """The model's answer, as a stream or whole."""
        body = self._entry.body
        if not isinstance(body, dict):
            raise Refusal(400, "the body is no JSON object")
        body = self.side.addressed(body, self.request)
        answer = self.side.ungenerated(body, self._mind.world)
        if answer is not None:
            return self.reply(answer)
        asked = self.side.asked(body, self._mind.world)
        self._entry.streams = asked.streams
        if (ended := self._fault()) is not None:
            return ended
        events = self.side.watched(
            self._mind.think(asked, self.side.manner, self._entry)
        )
        if not asked.streams:
            return self.reply(document(self.side.complete(list(events))))
        pen = self.side.pen(body)
        source = self._mind.body(events, pen, self._entry)
        name, kept = pen.kept or self.side.keeps(self.request), self._mind.world.kept
        if name is None or kept is None:
            return self._play(source, pen)
        # What is kept has its keep-alives inside; a stall has none of its own.
        pen = replace(pen, ping=b"")
        return self._play(kept.keep(name, source, pen).follow(), pen)

    def replay(self, stream: KeptStream, offset: int) -> Ended:
        """A kept stream, from some byte on."""
        entry = self._entry
        entry.streams, entry.how = True, "replay"
        if (ended := self._fault()) is not None:
            return ended
        return self._play(stream.follow(offset), stream.pen)

    def reply(self, answer: Answer) -> Ended:
        """A response that is no stream."""
        self._settle(answer.status, "complete")
        without = answer.status == 204 or self.request.method == "HEAD"  # noqa: PLR2004 - RFC 9110
        _reply(self._line, answer, self.side.headers, body=not without)
        return "complete"

    def refuse(self, status: int, message: str, type: str | None) -> Ended:  # noqa: A002 - as all APIs call it
        """A refusal of the server's own."""
        return self.fail(Status(status, message, type=type))

    def fail(self, fault: Status) -> Ended:
        """A status in place of the answer."""
        error = self.side.error(fault.code, fault.message, fault.type)
        content = document(error).content if fault.body is None else fault.body
        self._settle(fault.code, "refused")
        _reply(
            self._line,
            Answer(status=fault.code, content=content),
            {**self.side.headers, **fault.headers},
            body=self.request.method != "HEAD",
        )
        return "refused"

    def _settle(self, status: int, ended: Ended) -> None:
        """Write down the end first, so that whoever has the answer finds it."""
        self._entry.status = status
        self._mind.ledger.end(self._entry, ended)

    def _fault(self) -> Ended | None:
        """What goes wrong before there is a stream."""
        entry = self._entry
        entry.faults = self._mind.faults.next(entry)
        redirect, status = pick(entry.faults, Redirect), pick(entry.faults, Status)
        if redirect is not None:
            self._settle(redirect.code, "refused")
            there = redirect.to.rstrip("/")
            if there.count("/") == 2:  # noqa: PLR2004 - scheme://host
                there += self.request.path
            _reply(self._line, Answer(status=redirect.code), {"Location": there})
            return "refused"
        return self.fail(status) if status is not None else None

    def _play(self, source: Iterator[Record], pen: Pen) -> Ended:
        entry = self._entry
        media = {"Content-Type": pen.type or self.side.dialect.content_type}
        chunked = self.request.version != "HTTP/1.0"
        body = Body(
            self._line, media | dict(self.side.headers), entry.faults, chunked=chunked
        )
        actions = play(source, pen, entry, self._mind.ledger)
        body.carry_out(actions, self._mind.refuse, pick(entry.faults, Cut))
        return "complete"


def _reply(
    line: Line, answer: Answer, headers: Mapping[str, Any], *, body: bool = True
) -> None:
    """Send a response with a length."""
    length = None if answer.status == 204 else len(answer.content)  # noqa: PLR2004 - RFC 9110
    full = {"Content-Type": answer.type, **headers}
    content = answer.content if body else b""
    line.send(head(answer.status, full, length=length) + content)
