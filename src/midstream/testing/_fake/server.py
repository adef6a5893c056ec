"""`FakeServer`: the model, the port and the record of what happened, in one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from midstream._values.errors import UsageError
from midstream.testing._fake.doors import Doors
from midstream.testing._fake.habits import Echo, Habits, Prefill, Whitespace
from midstream.testing._fake.kept import KeptStreams
from midstream.testing._fake.ledger import Ledger
from midstream.testing._fake.model import Split, ToyModel, pieces_of
from midstream.testing._fake.places import Places
from midstream.testing._fake.plan import FaultPlan
from midstream.testing._fake.service import Mind, Service
from midstream.testing._fake.sides import GRPC_DIALECTS, side
from midstream.testing._fake.sides.base import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from midstream._values.events import Event
    from midstream.testing._fake.faults import Status
    from midstream.testing._fake.grpc_service import GrpcService
    from midstream.testing._fake.plan import FaultRule, Faults
    from midstream.testing._fake.recorded import Recorded

TEXT = (
    "The quick brown fox jumps over the lazy dog. "
    "日本語のテキストと絵文字 👩‍👩‍👧 🇯🇵 が流れます。\n"
    "Cafe\u0301, naïve, Ελληνικά, हिन्दी, ไทย — done."
)
_WAIT = 5.0  # seconds


class FakeServer:
    """A real server on loopback that plays a model and breaks on purpose.

    It answers every request with the same answer. A request that carries a begin of
    that answer (a trailing assistant message, a prompt that ends with it, its token
    ids) is continued exactly there; anything else starts from the top, so a client
    that sends a wrong prefix shows it.

    Example:
        >>> from midstream.testing import Cut, FakeServer
        >>> with FakeServer("Hello, world.", faults=[Cut(after=2)]) as server:
        ...     endpoint = server.endpoint("llama.cpp")

    Args:
        text: The answer.
        tokens: The answer's tokens in place of `text`; bytes may be half characters.
        events: A script of events in place of both: reasoning, refusals, tool calls.
        choices: What further answers say, where a request wants more than one.
        faults: What goes wrong, one item for each stream that is asked for, in order:
            a fault, several, None, or a function that decides by the request; after
            the last one all is well. A function in place of the list decides for all.
        always: Faults that every stream has besides.
        split: How text becomes tokens: ``"text"``: one to four characters each;
            ``"bytes"``: characters that are no ASCII fall into several tokens.
        seed: Of the splitting.
        echo: What a continuation repeats of the prefix: nothing, the ``"whole"`` of
            it, or so many characters of its end.
        prefill: Whether a trailing assistant message is continued, refused with status
            400, or answered from the top.
        whitespace: At the end of such a message it is kept; refused with status 400;
            or trimmed, and then comes again (``"trim"``), is left out (``"skip"``), or
            comes as its last character only (``"one"``).
        replay: Whether llama.cpp keeps streams that have an ``X-Conversation-Id``.
        replay_window: Bytes of a stream that it keeps.
        repeat: How often the answer is said; from 2 on, whole answers come as fast as
            the client reads.
        prompt: The raw prompt, for a server that takes over in mid-answer.
        plays: The dialect that answers on a route which several dialects have.
        api_key: The key that requests must bear; None: any or none.
        routes: Statuses in place of the answers of whole routes, as
            ``{"/tokenize": Status(501)}``.
        keep: How many requests are remembered, the last ones; as many prompts, and
            streams that outlive their connection.

    Raises:
        UsageError: Options that exclude each other, or a dialect that is not played.
    """

    def __init__(  # noqa: PLR0913 - options, by keyword
        self,
        text: str = TEXT,
        *,
        tokens: Sequence[bytes | str] | None = None,
        events: Sequence[Event] | None = None,
        choices: Sequence[str] = (),
        faults: Iterable[Faults | FaultRule] | FaultRule = (),
        always: Faults = None,
        split: Split = "text",
        seed: int = 0,
        echo: Echo = "none",
        prefill: Prefill = "continue",
        whitespace: Whitespace = "keep",
        replay: bool = True,
        replay_window: int = 4 << 20,
        repeat: int = 1,
        prompt: str | None = None,
        plays: str | None = None,
        api_key: str | None = None,
        routes: Mapping[str, Status] | None = None,
        keep: int = 1000,
    ) -> None:
        if tokens is not None and events is not None:
            raise UsageError("FakeServer takes tokens or events, not both")
        pieces = (
            pieces_of(text, split, seed)
            if tokens is None
            else [t if isinstance(t, bytes) else t.encode() for t in tokens]
        )
        model = ToyModel(pieces, events=events, choices=choices, split=split, seed=seed)
        if plays is not None:
            side(plays)
        self._api_key = api_key
        self._routes = dict(routes or {})
        self._ledger = Ledger(keep)
        self._mind = Mind(
            world=World(
                model=model, kept=KeptStreams(replay_window, keep) if replay else None
            ),
            places=Places(model, prompt, keep=keep),
            habits=Habits(echo=echo, prefill=prefill, whitespace=whitespace),
            faults=FaultPlan(faults, always),
            ledger=self._ledger,
            repeat=repeat,
            refuse=self.refuse_connections,
        )
        self._service = Service(
            self._mind, plays=plays, api_key=api_key, routes=self._routes
        )
        self._doors = Doors(self._service.serve, self._grpc)
        self.text = model.answer.decode("utf-8", "replace") * repeat

    def start(self) -> None:
        """Open the port; harmless when it is open."""
        self._doors.open()

    def close(self) -> None:
        """End all connections, also those that stall; harmless twice.

        Raises:
            RuntimeError: A thread that served a request had died; the cause says why.
        """
        self._doors.close()

    def __enter__(self) -> Self:
        """Open the port."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all connections; what threads died of is noted on another error."""
        if error is None:
            self.close()
            return
        try:
            self.close()
        except RuntimeError as died:
            error.add_note(str(died))

    @property
    def port(self) -> int:
        """The port of all HTTP dialects."""
        return self._doors.http.port

    def url(self, dialect: str) -> str:
        """The base URL at which the server plays a dialect.

        Args:
            dialect: Its name.

        Raises:
            UsageError: It is not played, or the server is not open.
        """
        if dialect in GRPC_DIALECTS:
            return f"grpc://127.0.0.1:{self._doors.grpc.port}"
        player = side(dialect)
        base = f"http://127.0.0.1:{self.port}"
        owner = self._service.owner(player.route)
        return base if owner is player else f"{base}/{dialect}"

    def endpoint(self, dialect: str, model: str = "fake") -> str:
        """The endpoint string of a dialect, for `midstream.Client`.

        Args:
            dialect: Its name.
            model: The model's name; any will do.
        """
        return f"{dialect}:{model}@{self.url(dialect)}"

    @property
    def requests(self) -> list[Recorded]:
        """The requests so far, in order; the last `keep` of them."""
        return self._ledger.entries

    @property
    def streams(self) -> list[Recorded]:
        """Those of the `requests` that asked for a stream."""
        return [entry for entry in self.requests if entry.streams]

    @property
    def connections(self) -> int:
        """How many connections were accepted so far."""
        return sum(listener.accepted for listener in self._doors.all)

    @property
    def open_connections(self) -> int:
        """How many connections there are now."""
        return sum(listener.open for listener in self._doors.all)

    def wait_for_request(self, nth: int = 1, *, timeout: float = _WAIT) -> Recorded:
        """The `nth` request, from 1, waited for.

        Raises:
            TimeoutError: It did not come within `timeout` seconds.
        """
        return self.wait_for(lambda _: True, nth, timeout=timeout)

    def wait_for_stream(self, nth: int = 1, *, timeout: float = _WAIT) -> Recorded:
        """The `nth` request for a stream, waited for.

        Raises:
            TimeoutError: It did not come within `timeout` seconds.
        """
        return self.wait_for(lambda entry: entry.streams, nth, timeout=timeout)

    def wait_for_hangup(self, nth: int = 1, *, timeout: float = _WAIT) -> Recorded:
        """The `nth` request whose client closed before the end, waited for.

        Raises:
            TimeoutError: None did within `timeout` seconds.
        """
        return self.wait_for(lambda entry: entry.hung_up, nth, timeout=timeout)

    def wait_for(
        self,
        wanted: Callable[[Recorded], bool],
        nth: int = 1,
        *,
        timeout: float = _WAIT,
    ) -> Recorded:
        """The `nth` request that is `wanted`; asked again at each change.

        Counted are those that are remembered.

        Raises:
            TimeoutError: There was none within `timeout` seconds.
        """
        return self._ledger.wait("request", nth, wanted, timeout)

    def refuse_connections(self, seconds: float | None = None) -> None:
        """Refuse new connections; those that there are go on.

        Args:
            seconds: So long; None: until `accept_connections`.
        """
        self._doors.refuse(seconds)

    def accept_connections(self) -> None:
        """Accept connections again."""
        self._doors.accept()

    def _grpc(self, died: Callable[[Exception], None]) -> GrpcService:
        """The gRPC server, started when it is needed: grpcio is an extra."""
        from midstream.testing._fake.grpc_service import (  # noqa: PLC0415 - as above
            GrpcService,
        )

        return GrpcService(
            self._mind, api_key=self._api_key, routes=self._routes, died=died
        )
