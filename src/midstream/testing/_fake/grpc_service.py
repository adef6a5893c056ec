"""The gRPC server: grpcio behind a relay, started when somebody asks where it is."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, assert_never

from midstream._dialects.protobuf import extra
from midstream.testing._fake.asked import Refusal
from midstream.testing._fake.faults import (
    ByteOrderMark,
    Cut,
    LineEnds,
    Pings,
    Status,
    pick,
)
from midstream.testing._fake.listener import Listener
from midstream.testing._fake.marks import MARKS
from midstream.testing._fake.play import End, Open, Send, Tear, Wait, play
from midstream.testing._fake.relay import Relay
from midstream.testing._fake.sides.triton import TritonSide
from midstream.testing._fake.sides.vllm import VllmSide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from midstream.testing._fake.play import Action
    from midstream.testing._fake.recorded import Recorded
    from midstream.testing._fake.service import Mind
    from midstream.testing._fake.sides.grpc import GrpcSide, Other

SIDES: tuple[GrpcSide, ...] = (TritonSide(), VllmSide())
_THREADS = 32  # streams at a time
_SETTLE = 0.05  # seconds: gRPC clients drop messages that they had not read at a cut
_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
}
_TEXT_ONLY = (ByteOrderMark, LineEnds, Pings)


class _Aborted(Exception):
    """The call was ended with a status, as planned."""


class GrpcService:
    """The server.

    Args:
        mind: What it says.
        api_key: The key that requests must bear.
        routes: Statuses in place of the answers of whole RPCs, by full name.
        died: Told what a call broke of that nobody had planned.

    Raises:
        UsageError: grpcio or protobuf is not installed.
    """

    def __init__(
        self,
        mind: Mind,
        *,
        api_key: str | None,
        routes: dict[str, Status],
        died: Callable[[Exception], None],
    ) -> None:
        self._grpc = extra("grpc")
        self._mind = mind
        self._api_key = api_key
        self._routes = routes
        self._died = died
        self._closing = threading.Event()
        self._calls: set[threading.Event] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_THREADS, "fake grpc")
        options = {
            "grpc.max_receive_message_length": -1,
            "grpc.max_send_message_length": -1,
            "grpc.so_reuseport": 0,
        }
        self._server = self._grpc.server(self._pool, options=list(options.items()))
        self._server.add_generic_rpc_handlers((self._handlers(),))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.listener = Listener(Relay(port).serve, died)

    def close(self) -> None:
        """End all calls and all threads, connections first: a cut answer is not OK."""
        self._closing.set()
        self.listener.close()
        with self._lock:
            for over in self._calls:
                over.set()
        self._server.stop(0).wait()
        self._pool.shutdown()

    def _handlers(self) -> Any:
        grpc = self._grpc
        streams: dict[str, Any] = {side.method: self._streaming(side) for side in SIDES}
        others = {
            name: self._other(side, name, answer)
            for side in SIDES
            for name, answer in side.others.items()
        }

        watched = self._watched

        class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc, name-defined]
            def service(self, details: Any) -> Any:
                if details.method in streams:
                    run = watched(streams[details.method])
                    return grpc.stream_stream_rpc_method_handler(run)
                if details.method in others:
                    run = watched(others[details.method])
                    return grpc.unary_stream_rpc_method_handler(run)
                return None

        return Handlers()

    def _watched(
        self, run: Callable[[Any, Any], Iterable[bytes]]
    ) -> Callable[[Any, Any], Iterator[bytes]]:
        """The same, but what it dies of is told."""

        def watched(content: Any, context: Any) -> Iterator[bytes]:
            try:
                yield from run(content, context)
            except (_Aborted, self._grpc.RpcError):  # planned, or the client left
                raise
            except Exception as error:
                self._died(error)
                raise

        return watched

    def _other(
        self, side: GrpcSide, name: str, answer: Other
    ) -> Callable[[bytes, Any], Iterable[bytes]]:
        def run(content: bytes, context: Any) -> Iterable[bytes]:
            entry = self._record(side, name, content, context)
            self._admit(entry, context)
            self._mind.ledger.end(entry, "complete")
            yield from answer(content, self._mind.world)

        return run

    def _streaming(self, side: GrpcSide) -> Callable[[Any, Any], Iterator[bytes]]:
        def run(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            for content in requests:
                entry = self._record(side, side.method, content, context)
                yield from self._stream(side, content, entry, context)

        return run

    def _record(
        self, side: GrpcSide, method: str, content: bytes, context: Any
    ) -> Recorded:
        metadata = context.invocation_metadata()
        return self._mind.ledger.add(
            dialect=side.name,
            method="RPC",
            path=method,
            headers={item.key: item.value for item in metadata},
            content=content,
        )

    def _admit(self, entry: Recorded, context: Any) -> None:
        if entry.path in self._routes:
            self._abort(entry, context, self._routes[entry.path])
        bearer = str(entry.headers.get("authorization", "")).removeprefix("Bearer ")
        if self._api_key is not None and bearer != self._api_key:
            self._abort(entry, context, Status(401, "Invalid API Key"))

    def _stream(
        self, side: GrpcSide, content: bytes, entry: Recorded, context: Any
    ) -> Iterator[bytes]:
        over = self._watch(entry, context)
        entry.streams = True
        self._admit(entry, context)
        try:
            call = side.understand(content, self._mind.world)
        except Refusal as refusal:
            self._abort(entry, context, Status(refusal.status, refusal.message))
            return
        entry.body = call.body
        faults = self._mind.faults.next(entry)
        entry.faults = [fault for fault in faults if not isinstance(fault, _TEXT_ONLY)]
        status = pick(faults, Status)
        if status is not None:
            self._abort(entry, context, status)
        events = self._mind.think(call.asked, side.manner, entry)
        body = self._mind.body(events, call.pen, entry)
        wanted = (record for record in body if call.final or record.kind != "end")
        actions = play(wanted, call.pen, entry, self._mind.ledger)
        for message in self._carry_out(actions, over, entry):
            failed = call.fails(message)
            if failed is not None:
                self._abort(entry, context, failed)
            yield message

    def _watch(self, entry: Recorded, context: Any) -> threading.Event:
        """What is set when the call is over, however it ended."""
        over = threading.Event()

        def ended() -> None:
            closing = self._closing.is_set()
            self._mind.ledger.end(entry, "stopped" if closing else "hung_up")
            with self._lock:
                self._calls.discard(over)
            over.set()

        with self._lock:
            self._calls.add(over)
        if not context.add_callback(ended) or self._closing.is_set():
            ended()
        return over

    def _carry_out(
        self, actions: Iterator[Action], over: threading.Event, entry: Recorded
    ) -> Iterator[bytes]:
        cut = pick(entry.faults, Cut)
        for action in actions:
            match action:
                case Open():
                    pass  # grpcio sends the headers with the first message
                case Send():
                    yield action.data
                case Wait():
                    if over.wait(action.seconds):
                        return
                case End():
                    if action.size:
                        yield action.record[: action.size]
                case Tear():
                    if cut is not None and cut.refuse_for:
                        self._mind.refuse(cut.refuse_for)
                    over.wait(_SETTLE)
                    mark = MARKS["rst" if action.how == "rst" else "fin"]
                    yield action.record[: action.size] + mark
                    over.wait()
                case _:
                    assert_never(action)

    def _abort(self, entry: Recorded, context: Any, status: Status) -> None:
        """End the call with a status; does not return."""
        self._mind.ledger.end(entry, "refused")
        entry.status = status.code
        trailing = [(name.lower(), value) for name, value in status.headers.items()]
        context.set_trailing_metadata(trailing)
        code = getattr(self._grpc.StatusCode, _CODES.get(status.code, "INTERNAL"))
        try:
            context.abort(code, status.message)
        except Exception as error:  # it has no class of its own
            raise _Aborted from error
