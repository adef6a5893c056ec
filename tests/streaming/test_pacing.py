"""Regrouping, driven: deadlines that fire, readers that end, errors that arrive."""

import threading
import time

import anyio
import pytest

import midstream
from midstream import Lines, Sentences, Tokens, Words, aregroup, regroup
from midstream._streaming import pacing
from midstream._streaming.beside import AHEAD, AsyncReader, Late, ThreadReader
from midstream.testing import FakeServer, Stall


class Source:
    """Reads as it is told."""

    ahead = AHEAD

    def __init__(self, read):
        self.read = read

    async def end(self):
        pass


async def end(reader):
    reader.stop()
    reader.loop.cancel()
    await reader.over.wait()


BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class Whole:
    """A regrouper of a user's own: all in one piece."""

    deadline = None

    def __init__(self):
        self._parts = []

    def feed(self, text, now):
        self._parts.append(text)
        return []

    def flush(self):
        parts, self._parts = self._parts, []
        return ["".join(parts)]


class Late2:
    """Texts that come when they are let go."""

    def __init__(self, texts):
        self._texts = texts
        self.go = threading.Event()

    def __iter__(self):
        first, *rest = self._texts
        yield first
        self.go.wait(5)
        yield from rest


def test_the_joined_pieces_are_the_text():
    texts = ["To be ", "or not", " to be: ", "", "日本", "語", "."]
    assert "".join(regroup(texts, Words())) == "".join(texts)
    assert list(regroup([], Words())) == []


def test_without_a_deadline_no_thread_is_started():
    before = threading.active_count()
    lines = regroup(iter(["a\nb", "c\nd"]), Lines())
    assert next(lines) == "a\n"
    assert threading.active_count() == before
    assert list(lines) == ["bc\n", "d"]


def test_what_waits_goes_out_though_nothing_comes():
    texts = Late2(["hel", "lo world"])
    pieces = regroup(texts, Words(max_wait=0.02))
    assert next(pieces) == "hel"
    texts.go.set()
    assert "".join(pieces) == "lo world"


def _slowly(by):
    return regroup(iter(["one tw", "o thr", "ee"]), by)


@pytest.mark.parametrize("by", [Words(None), Lines(), Sentences(), Whole()])
def test_one_regrouper_serves_many_runs(by):
    left = _slowly(by)
    next(left)
    left.close()
    assert "".join(_slowly(by)) == "one two three"
    both = zip(_slowly(by), _slowly(by), strict=True)
    assert ["".join(run) for run in zip(*both, strict=True)] == ["one two three"] * 2


@BACKENDS
@pytest.mark.parametrize("by", [Words(None), Lines(), Sentences(), Whole()])
def test_one_regrouper_serves_many_async_runs(backend, by):
    async def texts():
        for text in ["one tw", "o thr", "ee"]:
            await anyio.lowlevel.checkpoint()
            yield text

    async def main():
        found = [""] * 4

        async def run(at):
            found[at] = "".join(await _collect(aregroup(texts(), by)))

        async with anyio.create_task_group() as group:
            for at in range(4):
                group.start_soon(run, at)
        return found

    assert anyio.run(main, backend=backend) == ["one two three"] * 4


def test_an_error_of_the_source_arrives_after_what_came_before():
    def texts():
        yield "one "
        yield "two "
        raise ZeroDivisionError("mine")

    pieces = []
    with pytest.raises(ZeroDivisionError, match="mine"):
        for piece in regroup(texts(), Words()):
            pieces.append(piece)  # noqa: PERF402 - what came before the error counts
    assert pieces in (["one "], ["one ", "two "])


def test_tokens_are_counted_as_the_source_says():
    stream = [[("a", 1), ("b", 1)], [("c", 1)], None]
    pieces = pacing.paced(lambda _: stream.pop(0), Tokens(2))
    assert list(pieces) == ["ab", "c"]


def test_a_thread_that_is_left_with_a_full_queue_ends():
    many = iter(range(1000))
    reader = ThreadReader(lambda: next(many))
    while len(reader._items) < AHEAD:
        time.sleep(0)
    reader.close(5)
    assert not reader._thread.is_alive()


def test_a_source_that_cannot_be_closed_does_not_hold_the_reader():
    texts = Late2(["hello", "never"])
    pieces = regroup(texts, Words(max_wait=0.01))
    assert next(pieces) == "hello"
    pieces.close()
    texts.go.set()


async def _collect(iterator):
    return [piece async for piece in iterator]


@BACKENDS
def test_async_regrouping(backend):
    async def texts():
        for text in ["To be ", "or not", " to be: ", "日本語."]:
            await anyio.lowlevel.checkpoint()
            yield text

    async def main():
        words = await _collect(aregroup(texts(), Words()))
        lines = await _collect(aregroup(texts(), Lines()))
        return "".join(words), "".join(lines)

    expected = "To be or not to be: 日本語."
    assert anyio.run(main, backend=backend) == (expected, expected)


@BACKENDS
def test_async_deadlines_fire_while_a_read_is_pending(backend):
    async def main():
        go = anyio.Event()

        class Texts:
            def __init__(self):
                self.left = ["hel", "lo world"]

            def __aiter__(self):
                return self

            async def __anext__(self):
                if len(self.left) == 1:
                    await go.wait()
                if not self.left:
                    raise StopAsyncIteration
                return self.left.pop(0)

        pieces = aregroup(Texts(), Words(max_wait=0.02))
        first = await anext(pieces)
        go.set()
        return first, "".join(await _collect(pieces))

    assert anyio.run(main, backend=backend) == ("hel", "lo world")


@BACKENDS
def test_an_async_iterator_may_be_left_half_way(backend):
    async def main():
        class Forever:
            def __aiter__(self):
                return self

            async def __anext__(self):
                await anyio.lowlevel.checkpoint()
                return "word "

        pieces = aregroup(Forever(), Words())
        first = await anext(pieces)
        await pieces.aclose()
        await pieces.aclose()
        with pytest.raises(StopAsyncIteration):
            while True:
                await anext(pieces)
        return first

    assert anyio.run(main, backend=backend) == "word "


@BACKENDS
def test_an_async_error_arrives_where_it_is_awaited(backend):
    async def main():
        async def read():
            raise ZeroDivisionError("mine")

        reader = AsyncReader(Source(read))
        with pytest.raises(ZeroDivisionError, match="mine"):
            await reader.next(None)
        await end(reader)

    anyio.run(main, backend=backend)


@BACKENDS
def test_a_reader_beside_waits_for_room(backend):
    async def main():
        read = 0

        async def one_more():
            nonlocal read
            await anyio.lowlevel.checkpoint()
            read += 1
            return read

        reader = AsyncReader(Source(one_more))
        for _ in range(200):
            await anyio.lowlevel.checkpoint()
        assert read == AHEAD
        assert [await reader.next(None) for _ in range(40)] == list(range(1, 41))
        await end(reader)
        assert [await reader.next() for _ in range(17)][-1] is None

    anyio.run(main, backend=backend)


@BACKENDS
def test_a_deadline_that_passes_leaves_the_read_to_the_next(backend):
    async def main():
        go = anyio.Event()
        reads = 0

        async def when_let_go():
            nonlocal reads
            reads += 1
            await go.wait()
            return "came"

        reader = AsyncReader(Source(when_let_go))
        for _ in range(3):
            with pytest.raises(Late):
                await reader.next(time.monotonic())
        go.set()
        assert await reader.next() == "came"
        await end(reader)
        return reads

    # The reader may have gone on behind what was taken.
    assert anyio.run(main, backend=backend) <= 1 + AHEAD


def test_a_class_in_place_of_an_instance_is_refused():
    with pytest.raises(midstream.UsageError, match=r"Words\(\), not Words"):
        next(regroup(["a b"], Words))

    async def texts():
        yield "a b"

    with pytest.raises(midstream.UsageError, match=r"Words\(\), not Words"):
        aregroup(texts(), Words)


WORDS = "one two three four five six seven eight nine ten. "


def test_what_a_left_reader_had_read_goes_to_the_next_consumer():
    with (
        FakeServer(WORDS * 5) as server,
        midstream.Client(server.endpoint("ollama"), resume=None) as client,
        client.stream("hi") as stream,
    ):
        shown = ""
        for piece in stream.chunks(Words(max_wait=0.05)):
            shown += piece
            break
        rest = "".join(stream)
        assert stream.text == WORDS * 5
        assert stream.complete
        assert stream.text.endswith(rest)
        # The regrouper that was left keeps what it held back, and nothing more.
        assert len(shown) + len(rest) > len(stream.text) - 60


@BACKENDS
def test_the_same_without_blocking(backend):
    async def main(endpoint):
        async with (
            midstream.AsyncClient(endpoint, resume=None) as client,
            client.stream("hi") as stream,
        ):
            async for _ in stream.chunks(Words(max_wait=0.05)):
                break
            assert await stream.read() == WORDS * 5
            return stream.complete

    with FakeServer(WORDS * 5) as server:
        assert anyio.run(main, server.endpoint("ollama"), backend=backend)


async def left_before_its_end(read):
    with pytest.raises(midstream.UsageError, match="left before its end"):
        await read()


@BACKENDS
def test_two_tasks_that_read_at_once_are_told(backend):
    async def main(endpoint):
        async with (
            midstream.AsyncClient(endpoint, resume=None) as client,
            client.stream("hi") as stream,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(left_before_its_end, stream.read)
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            with pytest.raises(midstream.UsageError, match="one at a time"):
                await anext(aiter(stream))
            await stream.aclose()

    with FakeServer(WORDS, faults=[Stall(after=2)]) as server:
        anyio.run(main, server.endpoint("ollama"), backend=backend)


def test_a_consumer_in_another_thread_ends_with_the_stream():
    with (
        FakeServer(WORDS, faults=[Stall(after=2)]) as server,
        midstream.Client(server.endpoint("ollama")) as client,
        client.stream("hi") as stream,
    ):
        errors = []

        def consume():
            try:
                list(stream.chunks(Words(max_wait=0.05)))
            except midstream.UsageError as error:
                errors.append(str(error))

        consumer = threading.Thread(target=consume)
        consumer.start()
        server.wait_for(lambda entry: entry.deltas >= 2)
        stream.close()
        consumer.join(5)
        assert not consumer.is_alive()
        assert "left before its end" in errors[0]


class Halves:
    """A regrouper of a user's own, which holds half of what came."""

    deadline = None

    def __init__(self):
        self.held = ""

    def feed(self, text, now):
        text = self.held + text
        half = len(text) // 2
        self.held = text[half:]
        return [text[:half]] if half else []

    def flush(self):
        held, self.held = self.held, ""
        return [held] if held else []


OURS = [Words(), Words(max_wait=None), Lines(), Halves()]


@pytest.mark.parametrize("by", OURS, ids=lambda by: type(by).__name__)
def test_one_regrouper_for_two_texts_mixes_nothing(by):
    """K7: one after the other, the first left half-way, and at once."""
    first = regroup(["left half", "-way\nand held "], by)
    next(first)
    first.close()
    assert "".join(regroup(["one two\n", "three"], by)) == "one two\nthree"
    one, two = ["aa ", "bb\n", "cc"], ["11 ", "22\n", "33"]
    pairs = list(zip(regroup(one, by), regroup(two, by), strict=True))
    assert "".join(a for a, _ in pairs) == "aa bb\ncc"
    assert "".join(b for _, b in pairs) == "11 22\n33"


@BACKENDS
def test_one_regrouper_for_two_streams_at_once_mixes_nothing(backend):
    async def main(one, two):
        words, seen = Words(), {}

        async def talk(server):
            async with (
                midstream.AsyncClient(server.endpoint("ollama")) as client,
                client.stream("hi") as stream,
            ):
                seen[server] = "".join(await _collect(stream.chunks(words)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk, one)
            tasks.start_soon(talk, two)
        return seen[one], seen[two]

    with FakeServer("one " * 30) as one, FakeServer("two " * 30) as two:
        told = anyio.run(main, one, two, backend=backend)
    assert told == ("one " * 30, "two " * 30)


def test_a_regrouper_that_cannot_be_copied_says_so():
    by = Halves()
    by.lock = threading.Lock()
    with pytest.raises(midstream.UsageError, match=r"fresh\(\)"):
        next(regroup(["a b"], by))
