"""Limits, cancelling and closing: nothing hangs, nothing leaks, nobody goes on."""

import threading
import time
import tracemalloc

import anyio
import pytest

import midstream
from midstream import Resume, Sentences, Timeouts, Words
from midstream.testing import Cut, FakeServer, Pings, Slow, Stall

TEXT = "The quick brown fox jumps over the lazy dog. 速い茶色の狐。" * 20
ONCE = {"resume": None}


def limits(**seconds):
    return {"resume": None, "timeouts": Timeouts(**{"connect": 5, **seconds})}


def test_a_slow_first_token_is_no_stall(colour):
    with FakeServer(TEXT[:60], faults=[Slow(0.02, first=0.5)]) as server:
        seen = colour(
            server.endpoint("llama.cpp"), client=limits(first_token=5, idle=0.3)
        )
    assert seen.error is None
    assert seen.joined == TEXT[:60]


@pytest.mark.parametrize("name", ["llama.cpp", "ollama", "triton-grpc"])
def test_three_limits_that_can_be_told_apart(colour, name):
    for fault, seconds, kind in [
        (Stall(after=0), {"first_token": 0.5}, "first_token"),
        (Stall(after=2), {"idle": 0.5}, "idle"),
        (Slow(0.03), {"total": 1.0, "idle": 5}, "total"),
    ]:
        with FakeServer(TEXT, faults=[fault]) as server:
            seen = colour(server.endpoint(name), client=limits(**seconds))
            server.wait_for_hangup()
        timeout = seen.error
        if kind != "total":
            assert isinstance(seen.error, midstream.StreamInterrupted)
            timeout = seen.error.__cause__
        assert isinstance(timeout, midstream.TimedOut)
        assert timeout.kind == kind
        assert seen.error.text == seen.joined
        assert TEXT.startswith(seen.joined)
        assert bool(seen.joined) == (kind != "first_token")


@pytest.mark.parametrize("name", ["openai", "ollama"])
def test_a_line_that_is_never_silent_ends_in_time(colour, name):
    for fault, seconds, kind in [
        (
            Stall(after=0, ping_every=0.01),
            {"first_token": 0.3, "total": 20},
            "first_token",
        ),
        (Stall(after=2, ping_every=0.01), {"idle": 0.3, "total": 20}, "idle"),
        (Slow(0.01), {"total": 0.3, "idle": 5}, "total"),
    ]:
        with FakeServer(TEXT, faults=[fault]) as server:
            seen = colour(server.endpoint(name), client=limits(**seconds))
        timeout = seen.error if kind == "total" else seen.error.__cause__
        assert isinstance(timeout, midstream.TimedOut)
        assert timeout.kind == kind


def test_a_half_open_line_is_resumed(colour, family):
    resume = Resume(approximate=True, backoff=midstream.Backoff(initial=0))
    client = {"resume": resume, "timeouts": Timeouts(idle=0.3, first_token=5)}
    with FakeServer(TEXT, faults=[Stall(after=2)]) as server:
        seen = colour(server.endpoint(family), client=client)
    assert seen.error is None
    assert seen.joined == TEXT
    assert "idle" in seen.stream.resumes[0].reason


def test_keep_alives_are_no_progress(colour):
    stall = Stall(after=2, ping_every=0.05)
    with FakeServer(TEXT, faults=[stall]) as server:
        seen = colour(server.endpoint("openai"), client=limits(idle=0.3))
    assert seen.error.__cause__.kind == "idle"


def test_keep_alives_stretch_the_idle_limit_where_wanted(colour):
    stall = Stall(after=2, ping_every=0.05)
    with FakeServer(TEXT, faults=[stall]) as server:
        began = time.monotonic()
        seen = colour(
            server.endpoint("openai"), client=limits(idle=0.2, idle_with_pings=0.8)
        )
        assert time.monotonic() - began > 0.7
    assert seen.error.__cause__.kind == "idle"


def test_pings_between_tokens_do_no_harm(colour):
    with FakeServer(TEXT, faults=[Pings(count=5)]) as server:
        seen = colour(server.endpoint("openai"))
    assert seen.joined == TEXT


@pytest.mark.parametrize("by", [None, Words, Sentences])
def test_twenty_breaks(colour, family, by):
    faults = [Stall(after=3)] * 20
    with FakeServer(TEXT, faults=faults, replay=False) as server:
        for nth in range(20):
            seen = colour(
                server.endpoint(family),
                take=1,
                by=Words(max_wait=0.01) if by is not None else None,
            )
            assert len(seen.pieces) == 1
            assert seen.error is None
            server.wait_for_hangup(nth + 1)
        server.wait_for(lambda entry: entry.ended is not None, 20)


def test_a_stream_keeps_its_client_alive():
    with FakeServer("one two") as server:
        stream = midstream.Client(server.endpoint("ollama")).stream("hi")
        with stream:
            assert stream.read() == "one two"
        stream._owner.close()


def test_an_exception_in_the_loop_is_the_callers_own(colour, family):
    with FakeServer(TEXT, faults=[Stall(after=3)], replay=False) as server:
        seen = colour(server.endpoint(family), loop_error=ZeroDivisionError("mine"))
        server.wait_for_hangup()
    assert isinstance(seen.error, ZeroDivisionError)


def test_leaving_stops_a_generation_that_the_server_keeps(colour):
    with FakeServer(TEXT, faults=[Slow(0.01)]) as server:
        colour(server.endpoint("llama.cpp"), take=1)
        entry = server.wait_for(lambda entry: entry.method == "DELETE")
        assert entry.query["conv_id"] == server.streams[0].headers["x-conversation-id"]


def test_closing_twice_and_after_the_end(family):
    with (
        FakeServer("one two") as server,
        midstream.Client(server.endpoint(family)) as client,
    ):
        with client.stream("hi") as stream:
            stream.read()
        stream.close()
        stream.close()
        assert stream.text == "one two"
        assert list(stream) == []


def test_closing_from_another_thread_ends_a_pending_read(family):
    with (
        FakeServer(TEXT, faults=[Stall(after=2)], replay=False) as server,
        midstream.Client(server.endpoint(family)) as client,
        client.stream("hi") as stream,
    ):
        closer = threading.Thread(
            target=lambda: (server.wait_for(lambda e: e.deltas >= 2), stream.close())
        )
        closer.start()
        pieces = []
        with pytest.raises(midstream.UsageError, match="left before its end"):
            for piece in stream:
                pieces.append(piece)  # noqa: PERF402 - what came before the error
        closer.join()
        assert "".join(pieces) == stream.text
        assert not stream.complete
        server.wait_for_hangup()


def test_closing_from_another_task_ends_a_pending_read(async_colour, family):
    async def main(server):
        async with (
            midstream.AsyncClient(server.endpoint(family)) as client,
            client.stream("hi") as stream,
            anyio.create_task_group() as tasks,
        ):
            iterator = aiter(stream)
            first = await anext(iterator)
            tasks.start_soon(stream.aclose)
            rest = []
            with pytest.raises(midstream.UsageError, match="left before its end"):
                async for piece in iterator:
                    rest.append(piece)  # noqa: PERF401 - what came before the error
            await stream.aclose()
        return first + "".join(rest), stream

    with FakeServer(TEXT, faults=[Stall(after=2)], replay=False) as server:
        text, stream = async_colour.run(main, server)
        server.wait_for_hangup()
    assert text == stream.text
    assert not stream.complete


def test_cancelling_while_the_headers_are_awaited(async_colour, family):
    async def main(server):
        async with midstream.AsyncClient(server.endpoint(family)) as client:
            began = time.monotonic()
            with anyio.move_on_after(0.2) as scope:
                async with client.stream("hi") as stream:
                    await stream.read()
            assert scope.cancelled_caught
            return time.monotonic() - began

    with FakeServer(TEXT, faults=[Stall()], replay=False) as server:
        assert async_colour.run(main, server) < 2
        server.wait_for_hangup()


def test_each_step_may_run_in_a_task_of_its_own(async_colour, family):
    async def main(server):
        async with midstream.AsyncClient(server.endpoint(family)) as client:
            stream = client.stream("hi")
            pieces = []

            async def step():
                pieces.append(await anext(iterator))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stream.__aenter__)
            iterator = aiter(stream)
            for _ in range(3):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(step)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stream.aclose)
            return "".join(pieces)

    with FakeServer(TEXT, faults=[Stall(after=4)], replay=False) as server:
        assert TEXT.startswith(async_colour.run(main, server))
        server.wait_for_hangup()


def test_a_stream_that_was_not_entered_says_what_to_do():
    with midstream.Client("ollama:m") as client:
        with pytest.raises(midstream.UsageError, match=r"with client\.stream"):
            next(iter(client.stream("hi")))
        stream = client.stream("hi")
        stream.close()
    with pytest.raises(midstream.UsageError, match="closed"):
        client.stream("hi")


@pytest.mark.parametrize("by", [None, lambda: Words(max_wait=0.2)])
def test_a_slow_consumer_keeps_memory_bounded(by):
    """B41: the server pushes as fast as it can; the reader takes its time."""
    with FakeServer("x" * 4000, repeat=50_000) as server:  # 200 MB
        tracemalloc.start()
        try:
            with (
                midstream.Client(server.endpoint("ollama")) as client,
                client.stream("hi") as stream,
            ):
                source = stream if by is None else stream.chunks(by())
                for taken, _ in enumerate(source):
                    time.sleep(0.001)
                    if taken == 300:
                        break
                _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 32 << 20


def test_a_deadline_of_regrouping_fires_while_a_read_is_pending(colour):
    tokens = ["Hello", " wor"]
    faults = [Stall(after=2), Cut(after=0)]
    with FakeServer(tokens=tokens, faults=faults) as server:
        seen = colour(
            server.endpoint("openai"),
            by=Words(max_wait=0.05),
            client={"resume": None, "timeouts": Timeouts(idle=0.6)},
            take=2,
        )
    assert seen.pieces[0] == "Hello "
    assert seen.error is None


def test_closing_when_the_headers_have_just_come(family, monkeypatch):
    with (
        FakeServer(TEXT, faults=[Stall(after=2)], replay=False) as server,
        midstream.Client(server.endpoint(family)) as client,
        client.stream("hi") as stream,
    ):
        transport = client._transport(stream._session)
        begin = transport.open

        def open_and_leave(call, deadline):
            body = begin(call, deadline)
            server.wait_for(lambda entry: entry.deltas == 2)
            stream.close()
            return body

        monkeypatch.setattr(transport, "open", open_and_leave)
        monkeypatch.setattr(transport, "interrupt", lambda _: None)  # just missed it
        with pytest.raises(midstream.UsageError, match="left before its end"):
            list(stream)
        assert stream.text == ""
        server.wait_for_hangup()
