"""The same test in three colours: blocking, asyncio and trio.

A test asks for `colour` and says what to stream; it gets an `Outcome` that shows what a
caller of that colour would have seen.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass, field

import anyio
import pytest

import midstream
from midstream import Backoff, Resume, Timeouts

QUICK = Resume(backoff=Backoff(initial=0.01, maximum=0.05))


@dataclass
class Outcome:
    """What a caller saw."""

    stream: object
    pieces: list = field(default_factory=list)
    events: list = field(default_factory=list)
    error: BaseException | None = None

    @property
    def joined(self):
        return "".join(self.pieces)


@dataclass
class Ask:
    """What to ask: a client, a stream, and how to read it."""

    endpoints: tuple
    prompt: object = "Tell me."
    client: dict = field(default_factory=dict)
    stream: dict = field(default_factory=dict)
    by: object = None
    events: bool = False
    take: int | None = None
    loop_error: BaseException | None = None


def _client_options(ask):
    options = {"resume": QUICK, "timeouts": Timeouts(connect=5, first_token=5, idle=5)}
    return options | ask.client


def _sync(ask):
    with midstream.Client(*ask.endpoints, **_client_options(ask)) as client:
        outcome = Outcome(client.stream(ask.prompt, **ask.stream))
        with contextlib.ExitStack() as stack:
            try:
                stream = stack.enter_context(outcome.stream)
                source = _source(stream, ask)
                for item in source:
                    _note(outcome, item)
                    if ask.loop_error is not None:
                        raise ask.loop_error
                    if ask.take and len(outcome.pieces or outcome.events) >= ask.take:
                        break
            except (midstream.MidstreamError, *_extra(ask)) as error:
                outcome.error = error
        return outcome


async def _async(ask):
    async with midstream.AsyncClient(*ask.endpoints, **_client_options(ask)) as client:
        outcome = Outcome(client.stream(ask.prompt, **ask.stream))
        async with contextlib.AsyncExitStack() as stack:
            try:
                stream = await stack.enter_async_context(outcome.stream)
                async for item in _source(stream, ask):
                    _note(outcome, item)
                    if ask.loop_error is not None:
                        raise ask.loop_error
                    if ask.take and len(outcome.pieces or outcome.events) >= ask.take:
                        break
            except (midstream.MidstreamError, *_extra(ask)) as error:
                outcome.error = error
        return outcome


def _extra(ask):
    return () if ask.loop_error is None else (type(ask.loop_error),)


def _source(stream, ask):
    if ask.events:
        return stream.events()
    return stream if ask.by is None else stream.chunks(ask.by)


def _note(outcome, item):
    (outcome.pieces if isinstance(item, str) else outcome.events).append(item)


class Colour:
    """One way of running a stream."""

    def __init__(self, name):
        self.name = name

    def __call__(self, *endpoints, prompt="Tell me.", **how):
        known = {"client", "by", "events", "take", "loop_error"}
        ask = Ask(
            endpoints,
            prompt,
            stream={k: v for k, v in how.items() if k not in known},
            **{k: v for k, v in how.items() if k in known},
        )
        if self.name == "sync":
            return _sync(ask)
        return anyio.run(functools.partial(_async, ask), backend=self.name)

    def run(self, function, *args):
        """Run an async function in this colour's loop."""
        return anyio.run(functools.partial(function, *args), backend=self.name)


COLOURS = ("sync", "asyncio", "trio")
DIALECTS = sorted(midstream.dialects())
# One dialect for each kind of line: what leaves and waits is not the dialect.
FAMILIES = ("openai", "llama.cpp", "ollama", "triton-grpc")


def pytest_generate_tests(metafunc):
    """Every dialect by blocking and under asyncio; trio for each kind of line.

    The three colours share all but the lines that await, and so a third run of every
    dialect would show nothing new.
    """
    own = {mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")}
    wanted = {"colour", "dialect"} & set(metafunc.fixturenames) - own
    if wanted == {"colour", "dialect"}:
        pairs = [(c, d) for c in COLOURS for d in DIALECTS]
        pairs = [(c, d) for c, d in pairs if c != "trio" or d in FAMILIES]
        metafunc.parametrize(("colour", "dialect"), pairs, indirect=True)
    elif "colour" in wanted:
        metafunc.parametrize("colour", COLOURS, indirect=True)
    elif "dialect" in wanted:
        metafunc.parametrize("dialect", DIALECTS, indirect=True)


@pytest.fixture
def colour(request):
    return Colour(request.param)


@pytest.fixture(params=["asyncio", "trio"])
def async_colour(request):
    return Colour(request.param)


@pytest.fixture
def dialect(request):
    """Every dialect."""
    return request.param


@pytest.fixture(params=FAMILIES)
def family(request):
    """One dialect for each kind of line."""
    return request.param
