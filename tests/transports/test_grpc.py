"""The gRPC transports over loopback, in all three colours, against grpcio's own server.

``colour.run(main)`` runs one coroutine: over the sync transport, whose methods are
wrapped in coroutines that never wait; on asyncio; or on trio.
"""

import asyncio
import gc
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf

import grpc
import pytest
import trio

from midstream._dialects.base import Call
from midstream._transports import grpc as transports
from midstream._transports.grpc import AsyncGrpcTransport, GrpcTransport
from midstream._values.errors import (
    BadRequest,
    ConnectFailed,
    Dropped,
    EventTooLarge,
    NotFound,
    ServerFailed,
    TimedOut,
    UsageError,
    WireError,
)
from midstream._values.timeouts import Deadline

RPCS = (
    "Cancelled",
    "Count",
    "Echo",
    "Empty",
    "Fail",
    "FailLate",
    "Flood",
    "Large",
    "Metadata",
    "Silent",
    "Step",
    "Wait",
)


class Server:
    """A gRPC server each of whose RPCs is a generator of messages.

    Attributes:
        begun: Set when a call has begun.
        left: Set when a call has ended, by whoever.
        steps: Released once for each message that ``Step`` may send.
        sent: How many bytes ``Flood`` has given out.
    """

    def __init__(self, port=0, options=()):
        self.over = threading.Event()
        self.forget()
        self._pool = ThreadPoolExecutor(32)
        self._server = grpc.server(
            self._pool, options=[("grpc.so_reuseport", 0), *options]
        )
        handlers = {
            name: grpc.stream_stream_rpc_method_handler(partial(self._serve, name))
            for name in RPCS
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("test.Service", handlers),)
        )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    def forget(self):
        """Be as new, for the next test."""
        self.begun, self.left = threading.Event(), threading.Event()
        self.steps = threading.Semaphore(0)
        self.sent = 0

    @property
    def url(self):
        return f"grpc://127.0.0.1:{self.port}"

    def call(self, name, content=b"", **more):
        return Call(
            url=self.url, method=f"/test.Service/{name}", content=content, **more
        )

    def stop(self):
        stopped = self._server.stop(None)
        self.over.set()
        stopped.wait()
        self._pool.shutdown()

    def _serve(self, name, requests, context):
        request = next(requests)
        assert next(requests, None) is None  # the client has half-closed
        context.add_callback(self.left.set)
        self.begun.set()
        yield from getattr(self, name.lower())(request, context)

    def echo(self, request, context):
        yield request

    def metadata(self, request, context):
        for pair in context.invocation_metadata():
            yield f"{pair.key}={pair.value}".encode()

    def count(self, request, context):
        for number in range(5):
            yield b"%d" % number

    def wait(self, request, context):
        self._hold(context)
        yield b"too late"

    def silent(self, request, context):
        yield b"a"
        yield b"b"
        self._hold(context)

    def step(self, request, context):
        while context.is_active() and not self.over.is_set():
            if self.steps.acquire(timeout=0.05):
                yield b"s"

    def fail(self, request, context):
        context.set_trailing_metadata((("grpc-retry-pushback-ms", "1500"),))
        context.abort(grpc.StatusCode[request.decode()], "no such thing")
        yield b""

    def faillate(self, request, context):
        yield b"a"
        context.abort(grpc.StatusCode.INTERNAL, "out of memory")

    def cancelled(self, request, context):
        yield b"a"
        context.abort(grpc.StatusCode.CANCELLED, "the server is leaving")

    def large(self, request, context):
        yield b"x" * int(request)

    def empty(self, request, context):
        yield from ()

    def flood(self, request, context):
        piece = b"x" * 1000
        while context.is_active() and not self.over.is_set():
            self.sent += len(piece)
            yield piece

    def _hold(self, context):
        while context.is_active() and not self.over.wait(0.02):
            pass


class Blocking:
    """A sync transport or body with the methods of an async one."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def open(self, call, deadline):
        return Blocking(self._inner.open(call, deadline))

    async def send(self, call, deadline):
        return self._inner.send(call, deadline)

    async def gather(self, call, deadline):
        return self._inner.gather(call, deadline)

    async def read(self):
        return self._inner.read()

    async def aclose(self):
        self._inner.close()


class Colour:
    def __init__(self, name):
        self.name = name

    def transport(self, *, connect=5.0, **more):
        if self.name == "sync":
            return Blocking(GrpcTransport(connect=connect, **more))
        return AsyncGrpcTransport(connect=connect, **more)

    def run(self, main):
        if self.name == "asyncio":
            return asyncio.run(main())
        if self.name == "trio":
            return trio.run(main)
        coroutine = main()
        with pytest.raises(StopIteration) as result:
            coroutine.send(None)
        return result.value.value

    def later(self, seconds, work):
        """Call ``work`` in a while: in the loop, or in a thread."""
        if self.name == "asyncio":
            asyncio.get_running_loop().call_later(seconds, work)
        elif self.name == "trio":

            async def task():
                await trio.sleep(seconds)
                work()

            trio.lowlevel.spawn_system_task(task)
        else:
            threading.Timer(seconds, work).start()


@pytest.fixture(params=["sync", "asyncio", "trio"])
def colour(request):
    return Colour(request.param)


@pytest.fixture(scope="module")
def one_server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def server(one_server):
    one_server.forget()
    return one_server


@pytest.fixture(autouse=True)
def nothing_left():
    """No thread of ours outlives its transport."""
    yield
    gc.collect()
    until(lambda: not threads("midstream"))


def threads(word):
    """The threads that have this word in their name or target."""
    return [
        thread
        for thread in threading.enumerate()
        if word in f"{thread.name} {getattr(thread, '_target', None)}"
    ]


def until(condition, within=5.0):
    """Wait for what happens in other threads."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


def within(seconds, kind="idle"):
    deadline = Deadline()
    deadline.at, deadline.kind, deadline.seconds = (
        time.monotonic() + seconds,
        kind,
        seconds,
    )
    return deadline


async def everything(body):
    messages = []
    while (message := await body.read()) is not None:
        messages.append(message)
    return messages


def test_messages_in_order_and_none_at_the_end(colour, server):
    async def main():
        transport = colour.transport()
        for _ in range(2):  # the channel is used again
            body = await transport.open(server.call("Count"), Deadline())
            assert (body.status, body.headers) == (200, {})
            assert await everything(body) == [b"0", b"1", b"2", b"3", b"4"]
            assert await body.read() is None
            await body.aclose()
            await body.aclose()
        await transport.aclose()

    colour.run(main)


def test_headers_and_secrets_travel_as_metadata(colour, server):
    call = server.call("Metadata", headers={"X-A": "1"}, secrets={"authorization": "B"})

    async def main():
        transport = colour.transport()
        messages = await transport.gather(call, Deadline())
        await transport.aclose()
        return messages

    assert {b"x-a=1", b"authorization=B"} <= set(colour.run(main))


@pytest.mark.parametrize("headers", [{"a b": "c"}, {"key": "ü"}, {"key": "a\nb"}])
def test_a_header_that_cannot_be_sent(colour, server, headers):
    async def main():
        transport = colour.transport()
        with pytest.raises(UsageError, match="header"):
            await transport.open(server.call("Echo", headers=headers), Deadline())
        await transport.aclose()

    colour.run(main)


@pytest.mark.parametrize("url", ["http://localhost:1", "grpc://", "localhost:8001"])
def test_an_address_that_is_none(colour, url):
    async def main():
        transport = colour.transport()
        with pytest.raises(UsageError, match="grpc://"):
            await transport.open(Call(url=url), Deadline())
        await transport.aclose()

    colour.run(main)


def test_send_and_gather(colour, server, monkeypatch):
    async def main():
        transport = colour.transport()
        reply = await transport.send(server.call("Echo", b"hello"), Deadline())
        assert (reply.status, reply.content) == (200, b"hello")
        assert (await transport.send(server.call("Count"), Deadline())).content == b"0"
        with pytest.raises(WireError, match="without a message"):
            await transport.send(server.call("Empty"), Deadline())
        with pytest.raises(NotFound):
            await transport.send(server.call("Fail", b"NOT_FOUND"), Deadline())
        monkeypatch.setattr(transports, "MAX_REPLY", 3)
        with pytest.raises(EventTooLarge):
            await transport.gather(server.call("Count"), Deadline())
        await transport.aclose()

    colour.run(main)


def test_patience_of_a_call_that_is_not_the_stream(colour, server):
    async def main():
        transport = colour.transport()
        begun = time.monotonic()
        with pytest.raises(TimedOut):
            await transport.send(server.call("Wait", patience=0.2), Deadline())
        assert 0.2 <= time.monotonic() - begun < 1
        await transport.aclose()

    colour.run(main)


def test_b45_six_mebibytes_in_one_message(colour, server):
    async def main():
        transport = colour.transport()
        call = server.call("Large", b"%d" % (6 << 20))
        body = await transport.open(call, Deadline())
        assert len(await body.read()) == 6 << 20
        await body.aclose()
        await transport.aclose()

    colour.run(main)


def test_b45_beyond_our_limit(colour, server):
    async def main():
        transport = colour.transport(limit=1000)
        body = await transport.open(server.call("Large", b"2000"), Deadline())
        with pytest.raises(EventTooLarge):
            await body.read()
        await transport.aclose()

    colour.run(main)


def test_b45_beyond_the_servers_limit(colour):
    server = Server(options=[("grpc.max_receive_message_length", 1000)])

    async def main():
        transport = colour.transport()
        body = await transport.open(server.call("Echo", b"x" * 2000), Deadline())
        with pytest.raises(BadRequest) as caught:
            await body.read()
        assert not caught.value.retryable
        await transport.aclose()

    colour.run(main)
    server.stop()


def test_what_the_server_says(colour, server):
    async def main():
        transport = colour.transport()
        body = await transport.open(server.call("Fail", b"NOT_FOUND"), Deadline())
        with pytest.raises(NotFound) as caught:
            await body.read()
        assert caught.value.type == "NOT_FOUND"
        assert caught.value.message == "no such thing"
        assert caught.value.retry_after == 1.5
        assert isinstance(caught.value.__cause__, grpc.RpcError)
        with pytest.raises(NotFound):  # it stays so
            await body.read()
        body = await transport.open(server.call("FailLate"), Deadline())
        assert await body.read() == b"a"
        with pytest.raises(ServerFailed) as caught:
            await body.read()
        assert not caught.value.retryable
        body = await transport.open(server.call("Cancelled"), Deadline())
        assert await body.read() == b"a"
        with pytest.raises(Dropped, match="leaving"):
            await body.read()
        await transport.aclose()

    colour.run(main)


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize("scheme", ["grpc", "grpcs"])
def test_nobody_listens(colour, scheme):
    url = f"{scheme}://127.0.0.1:{unused_port()}"

    async def main():
        transport = colour.transport()
        begun = time.monotonic()
        for _ in range(2):  # the second attempt does not wait for the first one's line
            with pytest.raises(ConnectFailed) as caught:
                await transport.open(Call(url=url, method="/a/b"), Deadline())
            assert isinstance(caught.value.__cause__, grpc.RpcError)
        assert time.monotonic() - begun < 2
        await transport.aclose()

    colour.run(main)


def test_tls_to_a_server_that_has_none(colour, server):
    async def main():
        transport = colour.transport()
        url = server.url.replace("grpc://", "grpcs://")
        with pytest.raises(ConnectFailed):
            await transport.open(Call(url=url, method="/a/b"), Deadline())
        await transport.aclose()

    colour.run(main)


@pytest.fixture
def mute():
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Call(url=f"grpc://127.0.0.1:{listener.getsockname()[1]}", method="/a/b")


def test_no_connection_in_time(colour, mute):
    async def main():
        transport = colour.transport(connect=0.2)
        with pytest.raises(TimedOut) as caught:
            await transport.open(mute, within(10))
        assert caught.value.kind == "connect"
        with pytest.raises(TimedOut) as caught:
            await transport.open(mute, within(0.1, "total"))
        assert caught.value.kind == "total"
        await transport.aclose()
        transport = colour.transport(connect=None)
        with pytest.raises(TimedOut) as caught:
            await transport.open(mute, within(0.1, "first_token"))
        assert caught.value.kind == "first_token"
        await transport.aclose()

    colour.run(main)


def test_b35_silence_ends_at_the_deadline_of_the_moment(colour, server):
    async def main():
        transport = colour.transport()
        deadline = within(60, "first_token")
        body = await transport.open(server.call("Silent"), deadline)
        assert await body.read() == b"a"
        assert await body.read() == b"b"
        # The session moves it to where the watchdog did not yet mean to look.
        deadline.at, deadline.kind = time.monotonic() + 0.3, "idle"
        begun = time.monotonic()
        with pytest.raises(TimedOut) as caught:
            await body.read()
        assert caught.value.kind == "idle"
        assert 0.2 <= time.monotonic() - begun < 1
        until(server.left.is_set)
        await transport.aclose()

    colour.run(main)


def test_a_silent_stream_gives_up_its_line_and_others_go_on(colour, server):
    async def main():
        transport = colour.transport()
        bystander = await transport.open(server.call("Step"), within(60))
        body = await transport.open(server.call("Wait"), within(0.1))
        with pytest.raises(TimedOut):
            await body.read()
        assert len(await transport.gather(server.call("Count"), Deadline())) == 5
        server.steps.release()
        assert await bystander.read() == b"s"
        await bystander.aclose()
        assert len(await transport.gather(server.call("Count"), Deadline())) == 5
        await transport.aclose()

    colour.run(main)


def test_a_deadline_that_moves_on_with_the_tokens(colour, server):
    async def main():
        transport = colour.transport()
        deadline = within(0.8)
        body = await transport.open(server.call("Step"), deadline)
        begun = time.monotonic()
        while time.monotonic() - begun < 1:
            threading.Timer(0.1, server.steps.release).start()
            assert await body.read() == b"s"
            deadline.at = time.monotonic() + 0.8
        await transport.aclose()

    colour.run(main)


def test_a_reader_that_comes_late_finds_what_has_arrived(colour, server):
    async def main():
        transport = colour.transport()
        deadline = within(60)
        body = await transport.open(server.call("Silent"), deadline)
        assert await body.read() == b"a"
        deadline.at = time.monotonic() - 1
        assert await body.read() == b"b"
        with pytest.raises(TimedOut):
            await body.read()
        await transport.aclose()

    colour.run(main)


def test_a_server_that_goes_and_comes_back(colour):
    server = Server()

    async def main():
        transport = colour.transport()
        body = await transport.open(server.call("Silent"), Deadline())
        other = await transport.open(server.call("Silent"), Deadline())
        for stream in body, other:
            assert await stream.read() == b"a"
            assert await stream.read() == b"b"
        server.stop()
        for stream in body, other:  # the line is shared, and given up once
            with pytest.raises(Dropped) as caught:
                await stream.read()
            assert isinstance(caught.value.__cause__, grpc.RpcError)
        with pytest.raises(ConnectFailed):
            await transport.open(server.call("Count"), Deadline())
        again = Server(server.port)
        begun = time.monotonic()
        assert len(await transport.gather(again.call("Count"), Deadline())) == 5
        assert time.monotonic() - begun < 1
        await transport.aclose()
        again.stop()

    colour.run(main)


def test_b46_close_in_mid_answer(colour, server):
    async def main():
        transport = colour.transport()
        body = await transport.open(server.call("Step"), Deadline())
        for _ in range(3):
            server.steps.release()
            assert await body.read() == b"s"
        begun = time.monotonic()
        await body.aclose()
        assert time.monotonic() - begun < 0.1
        until(server.left.is_set, 0.5)
        with pytest.raises(Dropped, match="closed"):
            await body.read()
        await transport.aclose()

    colour.run(main)


@pytest.mark.parametrize("how", ["body", "transport", "interrupt"])
@pytest.mark.parametrize("rpc", ["Silent", "Wait"])
def test_a_pending_read_is_ended_from_elsewhere(colour, server, how, rpc):
    async def main():
        transport = colour.transport()
        deadline = within(60)
        body = await transport.open(server.call(rpc), deadline)
        bystander = await transport.open(server.call("Step"), within(60))
        if rpc == "Silent":
            assert await body.read() == b"a"
            assert await body.read() == b"b"
        ends = {
            "body": lambda: end(body),
            "transport": lambda: end(transport),
            "interrupt": lambda: transport.interrupt(deadline),
        }
        colour.later(0.1, ends[how])
        begun = time.monotonic()
        with pytest.raises(Dropped):
            await body.read()
        assert time.monotonic() - begun < 0.6
        if how != "transport":
            server.steps.release()
            assert await bystander.read() == b"s"
        await transport.aclose()

    def end(thing):
        closing = thing.aclose()
        with suppress(StopIteration):
            closing.send(None)  # none of them waits for anything

    colour.run(main)
    until(server.left.is_set)


@pytest.mark.parametrize("how", ["transport", "interrupt"])
def test_a_pending_connect_is_ended_from_elsewhere(colour, mute, how):
    async def main():
        transport = colour.transport(connect=60)
        deadline, other = Deadline(), Deadline()

        def end():
            transport.interrupt(other)
            if how == "interrupt":
                transport.interrupt(deadline)
                transport.interrupt(deadline)
            else:
                with suppress(StopIteration):
                    transport.aclose().send(None)

        colour.later(0.1, end)
        begun = time.monotonic()
        with pytest.raises(Dropped):
            await transport.open(mute, deadline)
        assert time.monotonic() - begun < 0.6
        await transport.aclose()

    colour.run(main)


def test_an_interrupted_deadline_begins_nothing(colour, server):
    async def main():
        transport = colour.transport()
        deadline = within(60)
        body = await transport.open(server.call("Step"), deadline)
        transport.interrupt(deadline)
        assert deadline.at == -inf
        with pytest.raises(Dropped):
            await body.read()
        with pytest.raises(Dropped):
            await transport.open(server.call("Step"), deadline)
        with pytest.raises(Dropped):
            await transport.send(server.call("Step", patience=5), deadline)
        await transport.aclose()

    colour.run(main)


def test_a_closed_transport(colour, server):
    async def main():
        transport = colour.transport()
        body = await transport.open(server.call("Step"), Deadline())
        await transport.aclose()
        await transport.aclose()
        with pytest.raises(Dropped):
            await body.read()
        with pytest.raises(UsageError, match="closed"):
            await transport.open(server.call("Count"), Deadline())

    colour.run(main)


def test_grpcs_own_threads_end(colour, server):
    async def main():
        transport = colour.transport()
        assert len(await transport.gather(server.call("Count"), Deadline())) == 5
        await transport.aclose()

    colour.run(main)
    until(lambda: not threads("_poll_connectivity") + threads("channel_spin"))


def test_a_body_that_is_dropped(colour, server):
    async def main():
        transport = colour.transport()
        body = await transport.open(server.call("Silent"), within(60))
        assert await body.read() == b"a"
        del body
        gc.collect()
        if colour.name == "asyncio":
            await asyncio.sleep(0)
        until(server.left.is_set)
        await transport.aclose()

    colour.run(main)


def test_b41_a_slow_consumer_holds_the_server_back(colour, server):
    async def main():
        transport = colour.transport()
        body = await transport.open(server.call("Flood"), Deadline())
        assert len(await body.read()) == 1000
        seen = -1
        while seen != server.sent:
            seen = server.sent
            time.sleep(0.2)  # noqa: ASYNC251 - nobody else runs
        assert seen < 16 << 20
        for _ in range(100):
            assert len(await body.read()) == 1000
        await body.aclose()
        await transport.aclose()

    colour.run(main)


@pytest.mark.parametrize("rpc", ["Silent", "Wait"])
@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_b40_cancelling_the_task_that_reads(server, library, rpc):
    async def main():
        transport = AsyncGrpcTransport(connect=5)
        body = await transport.open(server.call(rpc), within(60))
        begun = time.monotonic()
        if library == "asyncio":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await everything(body)
        else:
            with trio.move_on_after(0.2) as scope:
                await everything(body)
            assert scope.cancelled_caught
        assert time.monotonic() - begun < 0.7
        until(server.left.is_set, 0.5)
        with pytest.raises(Dropped):
            await body.read()
        await transport.aclose()

    Colour(library).run(main)


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_cancelling_the_task_that_connects(mute, library):
    async def main():
        transport = AsyncGrpcTransport(connect=60)
        begun = time.monotonic()
        if library == "asyncio":
            task = asyncio.create_task(transport.open(mute, Deadline()))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            with trio.move_on_after(0.1) as scope:
                await transport.open(mute, Deadline())
            assert scope.cancelled_caught
        assert time.monotonic() - begun < 0.6
        await transport.aclose()

    Colour(library).run(main)


def test_a_cancel_that_meets_our_own_is_a_cancel(server):
    async def main():
        transport = AsyncGrpcTransport(connect=5)
        body = await transport.open(server.call("Wait"), within(60))
        task = asyncio.create_task(body.read())
        await asyncio.sleep(0.1)
        task.cancel()
        await body.aclose()
        with pytest.raises(asyncio.CancelledError):
            await task
        await transport.aclose()

    asyncio.run(main())


def test_several_loops_one_after_the_other(server):
    transport = AsyncGrpcTransport(connect=5)

    async def main():
        assert len(await transport.gather(server.call("Count"), Deadline())) == 5
        body = await transport.open(server.call("Step"), within(60))
        other = replace(
            server.call("Wait"), url=server.url.replace("127.0.0.1", "localhost")
        )
        with pytest.raises(TimedOut):
            await transport.gather(other, within(0.3))
        return body

    bodies = [asyncio.run(main()) for _ in range(3)]
    trio.run(main)
    del bodies  # their loops are gone
    gc.collect()

    async def last():
        await main()
        await transport.aclose()

    asyncio.run(last())


def test_grpcio_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "grpc", None)
    for kind in GrpcTransport, AsyncGrpcTransport:
        with pytest.raises(UsageError, match=r"pip install 'midstream\[grpc\]'"):
            kind(connect=5)


def test_many_streams_share_a_line(server):
    async def main():
        transport = AsyncGrpcTransport(connect=5)
        calls = [
            transport.gather(server.call("Echo", b"%d" % n), within(30))
            for n in range(50)
        ]
        assert await asyncio.gather(*calls) == [[b"%d" % n] for n in range(50)]
        await transport.aclose()

    asyncio.run(main())


class Connected:
    """A call on a channel that had failed to connect, and now has."""

    def __init__(self, rpc):
        self._rpc = rpc

    def exception(self, timeout):
        raise grpc.FutureTimeoutError

    async def code(self):
        raise TimeoutError

    def __getattr__(self, name):
        return getattr(self._rpc, name)


def test_a_channel_that_connects_after_all(colour, server, monkeypatch):
    async def main():
        transport = colour.transport()
        body = await transport.open(server.call("Count"), Deadline())
        rpc, inner = Connected(body._rpc), getattr(body, "_inner", body)
        confirming = transport._confirm(rpc, inner)
        if confirming is not None:
            await confirming
        assert len(await everything(body)) == 5
        await transport.aclose()

    if colour.name != "trio":  # which is the sync one
        colour.run(main)


def test_a_call_that_ended_well_after_all(server):
    async def main():
        transport = AsyncGrpcTransport(connect=5)
        body = await transport.open(server.call("Empty"), Deadline())
        await transport._confirm(body._rpc, body)
        assert await body.read() is None
        await transport.aclose()

    asyncio.run(main())
    transport = GrpcTransport(connect=5)
    body = transport.open(server.call("Empty"), Deadline())
    transport._confirm(body._rpc, body)
    assert body.read() is None
    transport.close()


def test_a_client_that_closes_while_a_call_begins(server, monkeypatch):
    transport = GrpcTransport(connect=5)
    monkeypatch.setattr(transport, "_ready", lambda line, *_: line.close())
    with pytest.raises(Dropped, match="client was closed"):
        transport.open(server.call("Count"), Deadline())
    transport.close()


def test_what_grpc_says_without_a_status(server):
    class Broken:
        async def read(self):
            raise grpc.aio.InternalError("no loop")

        def cancel(self):
            pass

    async def main():
        transport = AsyncGrpcTransport(connect=5)
        body = await transport.open(server.call("Count"), Deadline())
        body._rpc.cancel()
        body._rpc = Broken()
        with pytest.raises(Dropped, match="no loop"):
            await body.read()
        await transport.aclose()

    asyncio.run(main())


def test_a_timer_of_a_body_that_is_gone(server):
    async def main():
        transport = AsyncGrpcTransport(connect=5)
        body = await transport.open(server.call("Silent"), within(0.3))
        assert await body.read() == b"a"
        del body
        gc.collect()
        await asyncio.sleep(0.4)
        await transport.aclose()

    asyncio.run(main())
