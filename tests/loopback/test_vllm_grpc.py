"""vLLM over gRPC in every colour: cut behind each token, also in mid-character."""

import pytest

import midstream
from midstream import Backoff, Exactness, Resume
from midstream.testing import Cut, ErrorEvent, FakeServer

# Tokens that end, begin and do both in the middle of a character.
TOKENS = [b"The q", b"uick \xe6", b"\x97\xa5\xe6", b"\x9c", b"\xac!", b" \xf0\x9f"]
TOKENS += [b"\x98", b"\x80<", b"|", b"x", b" done"]
TEXT = b"".join(TOKENS).decode()
CHAT = [{"role": "user", "content": "Why?"}]


def by(*ways):
    return {"resume": Resume(strategies=ways, backoff=Backoff(initial=0, maximum=0))}


@pytest.mark.parametrize("cut", range(1, len(TOKENS)))
def test_cut_behind_every_token(colour, cut):
    with FakeServer(tokens=TOKENS, faults=[Cut(after=cut)]) as server:
        seen = colour(
            server.endpoint("vllm-grpc"), prompt=CHAT, client=by("tokens"), stop=["<|e"]
        )
        first, second = (entry.body["input_ids"] for entry in server.streams)
    assert seen.joined == seen.stream.text == TEXT
    assert seen.stream.exactness is Exactness.TOKENS
    assert second[: len(first)] == first
    assert len(second) - len(first) <= cut


@pytest.mark.parametrize("kind", ["fin", "rst", "eof"])
def test_cut_again_and_again(colour, kind):
    faults = [Cut(after=3, kind=kind)] * 3
    with FakeServer(tokens=TOKENS, faults=faults) as server:
        seen = colour(server.endpoint("vllm-grpc"), client=by("tokens"))
    assert seen.joined == TEXT
    assert len(seen.stream.resumes) == 3


def test_another_server_makes_the_ids_of_the_text(colour):
    fault = Cut(after=8, refuse_for=60)
    with (
        FakeServer(tokens=TOKENS, faults=[fault]) as first,
        FakeServer(tokens=TOKENS, prompt="Tell me.") as second,
    ):
        seen = colour(
            first.endpoint("vllm-grpc"),
            second.endpoint("vllm-grpc"),
            client=by("tokens", "text"),
        )
    assert seen.joined == TEXT
    assert len(seen.stream.resumes) == 1


def test_a_dead_engine_is_tried_again(colour):
    fault = ErrorEvent("EngineCore encountered an issue.", after=3, status=500)
    with FakeServer(tokens=TOKENS, faults=[fault]) as server:
        seen = colour(server.endpoint("vllm-grpc"), client=by("tokens"))
    assert seen.joined == TEXT


def test_another_process_goes_on_from_the_stored_ids():
    store = midstream.MemoryStore()
    with FakeServer(tokens=TOKENS) as server:
        endpoint = server.endpoint("vllm-grpc")
        with midstream.Client(endpoint, store=store) as client:
            with client.stream("Why?", key="k") as stream:
                pieces = [next(iter(stream)) for _ in range(2)]
            with client.resume("k", after=len("".join(pieces))) as rest:
                rest.read()
        hows = [entry.how for entry in server.streams]
    assert rest.text == TEXT
    assert rest.exactness is Exactness.TOKENS
    assert hows == ["top", "tokens"]
