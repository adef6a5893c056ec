"""What a stream is asked with of its own, and what is told of it."""

import logging
import subprocess
import sys
import time
from email.utils import formatdate

import anyio
import pytest

import midstream
from midstream import AsyncClient, Client, Resume, Timeouts
from midstream.testing import Cut, FakeServer, Stall, Status

TEXT = "The answer that arrives whole, whatever becomes of the line. " * 4


def test_headers_are_this_streams_alone():
    with FakeServer(TEXT) as server, Client(server.endpoint("ollama")) as client:
        headers = {"X-Trace": "of-this-stream-alone"}
        with client.stream("a", headers=headers) as stream:
            assert stream.read() == TEXT
        with client.stream("b") as other:
            other.read()
        traces = [asked.headers.get("x-trace") for asked in server.requests]
    assert traces == ["of-this-stream-alone", None]


def test_headers_go_along_on_a_resume_and_are_never_shown():
    headers = {"X-Secret": "a-secret-of-the-caller"}
    with FakeServer(TEXT, faults=[Cut(after=9)]) as server:
        client = Client(server.endpoint("llama.cpp"))
        with client, client.stream("a", headers=headers) as stream:
            assert stream.read() == TEXT
            shown = f"{stream!r} {stream.endpoint!r} {stream.checkpoint()}"
        assert {a.headers.get("x-secret") for a in server.requests} == {
            "a-secret-of-the-caller"
        }
    assert "a-secret-of-the-caller" not in shown


def test_what_is_learned_of_a_server_is_learned_for_all_streams():
    """A stream with headers of its own is no other server."""
    with FakeServer(TEXT) as server, Client(server.endpoint("ollama")) as client:
        mine, own = client._servers[0], client._servers[0].with_headers({"X-A": "b"})
        own.refused.add(("m", "text"))
        own.health.down_until = 7
        assert mine.refused == {("m", "text")}
        assert mine.health.down_until == 7
        assert "X-A" not in mine.endpoint.headers


@pytest.mark.parametrize("dialect", ["ollama", "triton-grpc"])
def test_limits_are_this_streams_own(dialect):
    faults = [Stall(after=1)] * 3
    with FakeServer(TEXT, faults=faults) as server:
        client = Client(server.endpoint(dialect), resume=None)
        with client, client.stream("a", timeouts=Timeouts(idle=0.2)) as stream:
            with pytest.raises(midstream.StreamInterrupted) as caught:
                stream.read()
            assert caught.value.__cause__.kind == "idle"


@pytest.mark.parametrize("wrong", [{"timeouts": 5}, {"existing": "maybe"}])
def test_wrong_values_are_refused(wrong):
    with Client("ollama") as client, pytest.raises(midstream.UsageError):
        client.stream("a", **wrong)


@pytest.mark.parametrize("word", [{"existing": "resume"}, {"take_over": True}])
def test_words_of_keyed_streams_need_a_key(word):
    with Client("ollama") as client, pytest.raises(midstream.UsageError, match="key="):
        client.stream("a", **word)


def test_a_drop_is_logged_and_so_is_what_became_of_it(caplog):
    caplog.set_level(logging.DEBUG, "midstream")
    with FakeServer(TEXT, faults=[Cut(after=9)]) as server:
        endpoint = midstream.Endpoint(
            "llama.cpp", base_url=server.url("llama.cpp"), api_key="sk-a-secret-key"
        )
        with Client(endpoint) as client, client.stream("a question") as stream:
            assert stream.read() == TEXT
    records = [(r.levelname, r.getMessage()) for r in caplog.records]
    [dropped] = [words for level, words in records if level == "WARNING"]
    assert "dropped at character" in dropped
    [resumed] = [words for level, words in records if level == "INFO"]
    assert f"character {stream.resumes[0].at}" in resumed
    assert stream.resumes[0].strategy in resumed
    assert sum(level == "DEBUG" and "request" in words for level, words in records) == 2
    for _, words in records:
        assert "sk-a-secret-key" not in words
        assert "a question" not in words
        assert "answer" not in words


def test_who_sets_up_no_logging_reads_the_answer_alone():
    program = """
from midstream import Client
from midstream.testing import Cut, FakeServer

with FakeServer("An answer that is cut.", faults=[Cut(after=3)]) as server:
    with Client(server.endpoint("ollama")) as client, client.stream("a") as stream:
        print(stream.read())
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (run.stdout, run.stderr) == ("An answer that is cut.\n", "")


def test_no_log_says_what_a_server_said(caplog):
    caplog.set_level(logging.DEBUG, "midstream")
    with FakeServer(TEXT, faults=[Status(500)]) as server:
        client = Client(server.endpoint("openai"), resume=Resume(attempts=1))
        with client, client.stream("a") as stream:
            stream.read()
    assert "ServerFailed 500" in caplog.text


@pytest.mark.parametrize("seconds", [2, 3])
def test_a_date_to_come_back_at_is_kept_without_a_date_of_the_servers(seconds):
    """Some servers, and gateways, send no Date header (K22)."""
    when = formatdate(time.time() + seconds, usegmt=True)
    busy = Status(429, headers={"retry-after": when})
    with FakeServer(TEXT, faults=[busy]) as server:
        began = time.monotonic()
        with Client(server.endpoint("openai")) as client, client.stream("a") as stream:
            assert stream.read() == TEXT
        assert time.monotonic() - began > seconds - 1.2


def test_the_event_loop_is_not_held_by_imports():
    """The first stream of a process imports httpx, in a thread."""
    program = """
import sys, threading
import anyio, midstream

async def main():
    where = []
    class Spy:
        def find_spec(self, name, path=None, target=None):
            if name == "httpx":
                where.append(threading.current_thread() is threading.main_thread())
            return None
    sys.meta_path.insert(0, Spy())
    async with midstream.AsyncClient("ollama"):
        assert "httpx" in sys.modules
    sys.exit(where != [False])

anyio.run(main)
"""
    run = subprocess.run([sys.executable, "-c", program], check=False)
    assert run.returncode == 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_same_in_another_colour(backend):
    async def ask():
        with FakeServer(TEXT, faults=[Cut(after=9)]) as server:
            async with AsyncClient(server.endpoint("ollama")) as client:
                own = {"headers": {"X-Trace": "mine"}, "timeouts": Timeouts(total=60)}
                async with client.stream("a", **own) as stream:
                    assert await stream.read() == TEXT
            return {asked.headers.get("x-trace") for asked in server.requests}

    assert anyio.run(ask, backend=backend) == {"mine"}
