"""One answer of the real llama.cpp, cut at every place it has.

After every event, where it is continued by prefix: the connection is really closed, and
the server stops. One stream is cut at all of these places; further streams are cut once
each, at every fourth place (``MIDSTREAM_STEP=1``: at every one), since that takes a
whole generation. At every byte, where it is replayed: the server generates once, and is
asked for the rest of the same kept stream three thousand times.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

import midstream
from midstream import Backoff, Exactness, Resume

NOW = Backoff(initial=0, maximum=0)
STORY = "Write a short story about a lighthouse keeper."
RAW = "The lighthouse keeper"
JAPANESE = "ライラ 🍜"  # every other event of its answer holds several tokens
JAPANESE_CHAT = "Repeat: 東京タワー 🗼 日本語 ラーメン"
GREEDY = {"temperature": 0, "seed": 7}
SAMPLED = {"temperature": 0.8}  # and a random seed: no second run would say the same
STEP = int(os.environ.get("MIDSTREAM_STEP", "4"))  # events from one cut to the next
BYTES = 3000  # and as many cuts that bring a few characters each
AT_ONCE = 2  # the server's slots


class AfterEvents:
    """Breaks a body after so many events."""

    def __init__(self, events):
        self._left = events

    def take(self, piece):
        """What of a piece may pass, and whether that was all."""
        at = 0
        while self._left and (end := piece.find(b"\n\n", at)) >= 0:
            at, self._left = end + 2, self._left - 1
        return (piece, False) if self._left else (piece[:at], True)


class AtByte:
    """Breaks a body at a byte."""

    def __init__(self, at):
        self._left = at

    def take(self, piece):
        """What of a piece may pass, and whether that was all."""
        part = piece[: self._left]
        self._left -= len(part)
        return part, not self._left


class Tape:
    """Writes down a body that passes."""

    def __init__(self):
        self.body = b""

    def take(self, piece):
        """All of it."""
        self.body += piece
        return piece, False


class Broken(httpx.SyncByteStream):
    """A body that passes until it is cut; then the connection is closed."""

    def __init__(self, stream, cut):
        self._stream, self._cut = stream, cut

    def __iter__(self):
        for piece in self._stream:
            part, over = self._cut.take(piece)
            if part:
                yield part
            if over:
                self._stream.close()
                raise httpx.ReadError("cut by the test")

    def close(self):
        self._stream.close()


class Line(httpx.BaseTransport):
    """Real connections whose first streams are cut.

    Args:
        inner: Makes them.
        cuts: One item a stream.
        kept: A stream at the server that is fetched where a new one is asked for.

    Attributes:
        handle: The name of the last stream that was asked for.
    """

    def __init__(self, inner, cuts, kept=None):
        self._inner, self._cuts, self._kept = inner, iter(cuts), kept
        self.handle = None

    def handle_request(self, request):
        self.handle = request.headers.get("x-conversation-id", self.handle)
        if self._kept is not None:
            if request.method == "DELETE":  # others want to fetch it, too
                return httpx.Response(204)
            start = request.url.params.get("from", "0")
            where = request.url.copy_with(path="/v1/stream", query=None)
            which = {"conv_id": self._kept, "from": start}
            request = httpx.Request("GET", where.copy_merge_params(which))
        response = self._inner.handle_request(request)
        if response.headers.get("content-type") != "text/event-stream":
            return response
        cut = next(self._cuts, None)
        if cut is not None:
            response.stream = Broken(response.stream, cut)
        return response


@pytest.fixture
def inner():
    with httpx.HTTPTransport(verify=False) as transport:
        yield transport


def answer(line, endpoint, prompt, ask, resume=None):
    """One answer over a line."""
    http = httpx.Client(transport=line, timeout=60)
    with (
        midstream.Client(endpoint, resume=resume, http_client=http) as client,
        client.stream(prompt, **ask) as stream,
    ):
        stream.read()
    return stream


@pytest.mark.parametrize(
    ("dialect", "prompt", "tokens", "way"),
    [
        ("llama.cpp", STORY, 60, "text"),
        ("llama.cpp", JAPANESE_CHAT, 30, "text"),
        ("llama.cpp-completion", RAW, 60, "text"),
        ("llama.cpp-completion", RAW, 60, "tokens"),
        ("llama.cpp-completion", JAPANESE, 30, "tokens"),
    ],
)
def test_cut_after_every_event(llama_url, inner, dialect, prompt, tokens, way):
    """Greedy, so a prefix has one continuation."""
    asked = f"{dialect}@{llama_url}", prompt, {**GREEDY, "max_tokens": tokens}
    answer(Line(inner, []), *asked)  # the prompt is evaluated once, and kept
    whole = answer(Line(inner, []), *asked)
    resume = Resume(strategies=(way,), attempts=BYTES, backoff=NOW)
    first = 2 if dialect == "llama.cpp" else 1  # a chat's first event is the role

    def cut(*after):
        line = Line(inner, map(AfterEvents, after))
        stream = answer(line, *asked, resume)
        return stream.text, stream.complete, {r.strategy for r in stream.resumes}

    everywhere = cut(*[first] * whole.metrics.chunks)
    places = range(first, whole.metrics.chunks, STEP)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        one_by_one = list(pool.map(cut, places))
    assert [everywhere, *one_by_one] == [(whole.text, True, {way})] * (len(places) + 1)


class Kept:
    """A stream that the server generated once, and keeps for whoever fetches it.

    Args:
        inner: Makes connections.
        asked: Of whom, what, with which limits.
    """

    def __init__(self, inner, *asked):
        tape = Tape()
        line = Line(inner, [tape])
        self.text = answer(line, *asked, Resume(strategies=("replay",))).text
        self.body = tape.body
        self._handle, self._inner, self._asked = line.handle, inner, asked

    def read(self, *cuts):
        """It, read by a client whose first connections are cut."""
        line = Line(self._inner, cuts, self._handle)
        resume = Resume(strategies=("replay",), attempts=BYTES, backoff=NOW)
        return answer(line, *self._asked, resume)


@pytest.fixture(params=[("llama.cpp", STORY), ("llama.cpp-completion", JAPANESE)])
def kept(request, inner, llama_url):
    dialect, prompt = request.param
    return Kept(inner, f"{dialect}@{llama_url}", prompt, {**SAMPLED, "max_tokens": 40})


def test_cut_after_every_event_and_replayed(kept):
    stream = kept.read(*(AfterEvents(1) for _ in range(100)))
    assert stream.text == kept.text
    assert stream.complete
    assert len(stream.resumes) > 10
    assert stream.exactness is Exactness.REPLAYED


def test_cut_at_every_byte_and_replayed(kept):
    places = range(1, min(BYTES, len(kept.body)))
    assert len(places) > BYTES // 2

    def resumes(at):
        """How often it was resumed; None where it is not what it should be."""
        stream = kept.read(AtByte(at))
        well = stream.text == kept.text and stream.complete
        return len(stream.resumes) if well else None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(resumes, places))
    # Behind the last token of its limit, an answer has ended whatever breaks.
    wrong = [at for at, n in zip(places, results, strict=True) if n not in {0, 1}]
    assert wrong == []
    assert results == sorted(results, reverse=True)
    assert results.count(1) > BYTES // 3
