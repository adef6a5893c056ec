"""Only a complete stream ends normally, whoever reads and whoever ends it."""

import threading
import time

import anyio
import pytest

import midstream
from midstream import Backoff, Resume, Timeouts, UsageError, Words
from midstream._streaming.lifecycle import Lifecycle, Phase
from midstream.testing import Cut, FakeServer, Slow, Stall, Status

TEXT = "An answer that takes its time. " * 4
READS = {
    "texts": list,
    "events": lambda stream: list(stream.events()),
    "chunks": lambda stream: list(stream.chunks(Words(max_wait=None))),
    "chunks in time": lambda stream: list(stream.chunks(Words(max_wait=0.01))),
    "read": lambda stream: stream.read(),
}


def left():
    return pytest.raises(UsageError, match=r"left before its end.*stream\.text")


def broke():
    return pytest.raises(UsageError, match=r"broke \(.*\) before its end")


async def _all(iterator):
    return [item async for item in iterator]


AREADS = {
    "texts": _all,
    "events": lambda stream: _all(stream.events()),
    "chunks": lambda stream: _all(stream.chunks(Words(max_wait=None))),
    "chunks in time": lambda stream: _all(stream.chunks(Words(max_wait=0.01))),
    "read": lambda stream: stream.read(),
}


def test_a_life_goes_one_way():
    life = Lifecycle("with it:")
    with pytest.raises(UsageError, match="with it:"):
        life.check()
    life.enter()
    with pytest.raises(UsageError, match="entered once"):
        life.enter()
    life.complete()
    assert not life.fail(ValueError("late"))
    assert life.close() is Phase.COMPLETE
    assert life.close() is None
    assert life.verdict() is None
    life.check()


def test_what_was_closed_before_it_was_entered_cannot_be():
    life = Lifecycle("with it:")
    assert life.close() is Phase.NEW
    with pytest.raises(UsageError, match="entered once"):
        life.enter()
    assert "left before its end" in str(life.verdict())


def test_an_error_is_given_once_and_kept_no_longer():
    life = Lifecycle("with it:")
    life.enter()
    error = ValueError("what broke")
    assert life.fail(error)
    assert life.verdict() is error
    assert "ValueError: what broke" in str(life.verdict())
    life.complete()
    assert life.phase is Phase.BROKEN


def test_an_error_that_nobody_heard_goes_with_the_close():
    life = Lifecycle("with it:")
    life.enter()
    life.fail(ValueError("what broke"))
    assert life.close() is Phase.BROKEN
    assert isinstance(life.verdict(), UsageError)


@pytest.mark.parametrize("how", READS)
def test_a_stream_that_was_left_raises_however_it_is_read(how):
    with (
        FakeServer(TEXT, faults=[Stall(after=3)]) as server,
        midstream.Client(server.endpoint("ollama")) as client,
    ):
        with client.stream("hi") as stream:
            first = next(iter(stream))
        with left() as raised:
            READS[how](stream)
        assert raised.value.text == stream.text
        assert stream.text.startswith(first)


@pytest.mark.parametrize("how", AREADS)
def test_the_same_without_blocking(how, backend):
    async def main(server):
        async with midstream.AsyncClient(server.endpoint("ollama")) as client:
            async with client.stream("hi") as stream:
                await anext(aiter(stream))
            with left() as raised:
                await AREADS[how](stream)
            assert raised.value.text == stream.text

    with FakeServer(TEXT, faults=[Stall(after=3)]) as server:
        anyio.run(main, server, backend=backend)


@pytest.mark.parametrize("how", READS)
def test_a_read_that_is_going_on_when_another_thread_closes_raises(how, family):
    with (
        FakeServer(TEXT, faults=[Stall(after=2)], replay=False) as server,
        midstream.Client(server.endpoint(family)) as client,
        client.stream("hi") as stream,
    ):

        def close():
            server.wait_for(lambda entry: entry.deltas >= 2)
            stream.close()

        closer = threading.Thread(target=close)
        closer.start()
        with left():
            READS[how](stream)
        closer.join()
        server.wait_for_hangup()


@pytest.mark.parametrize("how", AREADS)
def test_a_read_that_is_going_on_when_another_task_closes_raises(how, family, backend):
    async def main(server):
        async with (
            midstream.AsyncClient(server.endpoint(family)) as client,
            client.stream("hi") as stream,
            anyio.create_task_group() as tasks,
        ):

            async def read():
                with left():
                    await AREADS[how](stream)

            tasks.start_soon(read)
            while not stream.text:  # noqa: ASYNC110 - the server has no events
                await anyio.sleep(0.005)
            await stream.aclose()

    with FakeServer(TEXT, faults=[Stall(after=2)], replay=False) as server:
        anyio.run(main, server, backend=backend)
        server.wait_for_hangup()


@pytest.mark.parametrize("again", READS)
@pytest.mark.parametrize("how", READS)
def test_a_stream_that_broke_raises_once_its_error_and_then_says_so(how, again):
    with (
        FakeServer(TEXT, faults=[Cut(after=3)]) as server,
        midstream.Client(server.endpoint("ollama"), resume=None) as client,
        client.stream("hi") as stream,
    ):
        with pytest.raises(midstream.StreamInterrupted) as raised:
            READS[how](stream)
        assert raised.value.text == stream.text
        with broke():
            READS[again](stream)
        stream.close()
        with broke():
            READS[again](stream)


@pytest.mark.parametrize("again", AREADS)
@pytest.mark.parametrize("how", AREADS)
def test_so_does_an_async_one(how, again, backend):
    async def main(server):
        async with (
            midstream.AsyncClient(server.endpoint("ollama"), resume=None) as client,
            client.stream("hi") as stream,
        ):
            with pytest.raises(midstream.StreamInterrupted) as raised:
                await AREADS[how](stream)
            assert raised.value.text == stream.text
            with broke():
                await AREADS[again](stream)
            await stream.aclose()
            with broke():
                await AREADS[again](stream)

    with FakeServer(TEXT, faults=[Cut(after=3)]) as server:
        anyio.run(main, server, backend=backend)


def test_a_complete_stream_ends_normally_however_often_it_is_read(family):
    with (
        FakeServer(TEXT) as server,
        midstream.Client(server.endpoint(family)) as client,
        client.stream("hi") as stream,
    ):
        assert "".join(stream) == TEXT
        for closed in (False, True):
            assert list(stream) == list(stream.events()) == []
            assert stream.read() == TEXT
            if not closed:
                stream.close()


def test_so_does_a_complete_async_one(family, backend):
    async def main(server):
        async with (
            midstream.AsyncClient(server.endpoint(family)) as client,
            client.stream("hi") as stream,
        ):
            assert "".join(await _all(stream)) == TEXT
            for closed in (False, True):
                assert await _all(stream) == await _all(stream.events()) == []
                assert await stream.read() == TEXT
                if not closed:
                    await stream.aclose()

    with FakeServer(TEXT) as server:
        anyio.run(main, server, backend=backend)


def test_what_had_come_of_a_complete_answer_is_still_given_after_the_close():
    with (
        FakeServer("one two") as server,
        midstream.Client(server.endpoint("ollama")) as client,
        client.stream("hi") as stream,
    ):
        events = []
        for event in stream.events():
            events.append(event)
            if stream.complete:
                break
        stream.close()
        events += stream.events()
    assert "".join(getattr(event, "text", "") for event in events) == "one two"


@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_close_beside_the_first_request_is_not_overwritten(family, when, monkeypatch):
    """K13: whether `connect` moves the deadline before or behind the interrupt."""
    limits = Timeouts(first_token=60, connect=60)
    with (
        FakeServer(TEXT, faults=[Stall()]) as server,
        midstream.Client(server.endpoint(family), timeouts=limits) as client,
        client.stream("hi") as stream,
    ):
        session = stream._session
        connect = session.connect

        def closed_beside(now):
            if when == "before":
                stream.close()
            call = yield from connect(now)
            if when == "behind":
                stream.close()
            return call

        monkeypatch.setattr(session, "connect", closed_beside)
        began = time.monotonic()
        with left():
            stream.read()
        assert time.monotonic() - began < 10


def test_closing_in_the_pause_before_a_new_connection(wait_until):
    resume = Resume(backoff=Backoff(initial=60, maximum=60, jitter=False))
    with (
        FakeServer(TEXT, faults=[Status(503)]) as server,
        midstream.Client(server.endpoint("ollama"), resume=resume) as client,
        client.stream("hi") as stream,
    ):

        def close():
            wait_until(lambda: stream._session.pause)
            stream.close()

        closer = threading.Thread(target=close)
        closer.start()
        began = time.monotonic()
        with left():
            stream.read()
        closer.join()
        assert time.monotonic() - began < 10


def test_closing_in_that_pause_without_blocking(backend):
    async def main(server):
        resume = Resume(backoff=Backoff(initial=60, maximum=60, jitter=False))
        async with (
            midstream.AsyncClient(server.endpoint("ollama"), resume=resume) as client,
            client.stream("hi") as stream,
            anyio.create_task_group() as tasks,
        ):

            async def close():
                while not stream._session.pause:  # noqa: ASYNC110 - no event tells
                    await anyio.sleep(0.005)
                await stream.aclose()

            tasks.start_soon(close)
            began = time.monotonic()
            with left():
                await stream.read()
            assert time.monotonic() - began < 10

    with FakeServer(TEXT, faults=[Status(503)]) as server:
        anyio.run(main, server, backend=backend)


def test_what_was_read_ahead_of_a_complete_stream_is_given_after_its_close(wait_until):
    """The end may be read beside while a consumer still has the middle (K4)."""
    text = "The last words wait."
    with (
        FakeServer(text, always=Slow(0.002)) as server,
        midstream.Client(server.endpoint("ollama")) as client,
        client.stream("hi") as stream,
    ):
        chunks = stream.chunks(Words(max_wait=5))
        first = next(chunks)
        wait_until(lambda: stream.complete)
        stream.close()
        assert first + "".join(chunks) == text
