"""Limits larger than any wait are no limits, whoever waits; none escapes as a fault."""

from math import inf, nan

import anyio
import httpx
import pytest

from midstream import AsyncClient, Backoff, Client, Resume, Timeouts, UsageError, Words
from midstream.testing import Cut, FakeServer

TEXT = "one two three four five"
LIMITS = [1e10, 1e300, inf, 10**400]
DIALECTS = ["llama.cpp", "triton-grpc"]


def timeouts(limit):
    return Timeouts(
        connect=limit, first_token=limit, idle=limit, total=limit, idle_with_pings=limit
    )


def resume(limit):
    return Resume(attempts=inf, backoff=Backoff(initial=0, maximum=limit))


@pytest.fixture(params=DIALECTS)
def endpoint(request):
    with FakeServer(TEXT, faults=[Cut(after=2)]) as server:
        yield server.endpoint(request.param)


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
@pytest.mark.parametrize("own", [False, True])
def test_sync(endpoint, limit, own):
    http = httpx.Client() if own else None
    with (
        Client(
            endpoint, timeouts=timeouts(limit), resume=resume(limit), http_client=http
        ) as client,
        client.stream("hi") as stream,
    ):
        assert "".join(stream.chunks(Words())) == TEXT
    if http is not None:
        http.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("limit", LIMITS, ids=repr)
@pytest.mark.parametrize("own", [False, True])
def test_async(endpoint, limit, own, backend):
    async def main():
        http = httpx.AsyncClient() if own else None
        options = {"timeouts": timeouts(limit), "resume": resume(limit)}
        async with (
            AsyncClient(endpoint, http_client=http, **options) as client,
            client.stream("hi") as stream,
        ):
            assert await stream.read() == TEXT
        if http is not None:
            await http.aclose()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("wrong", [nan, -1, -inf, "1", True])
def test_what_is_no_length_of_time_is_refused(wrong):
    for fields in {"initial": wrong}, {"maximum": wrong}:
        with pytest.raises(UsageError, match="Backoff"):
            Backoff(**fields)
    with pytest.raises(UsageError, match="Resume"):
        Resume(attempts=wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 2.5},
        {"backoff": 3},
        {"strategies": None},
        {"strategies": "text"},
        {"strategies": [["text"]]},
        {"strategies": ["txt"]},
    ],
)
def test_a_resume_of_the_wrong_kind_is_refused(wrong):
    with pytest.raises(UsageError, match=rf"Resume\({next(iter(wrong))}="):
        Resume(**wrong)


def test_a_wait_that_no_sleep_can_take_is_shortened():
    class Whole:
        def uniform(self, low, high):
            return high

    for limit in LIMITS:
        assert 0 < Backoff(initial=limit, maximum=limit).delay(99, Whole()) < 2**31
