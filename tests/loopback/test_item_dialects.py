"""Anthropic, Responses and kin in whole clients: replay, prefill, refusals."""

import itertools

import pytest

import midstream
from midstream import (
    Backoff,
    Exactness,
    MemoryStore,
    ReasoningDelta,
    Resume,
    ResumeUnsupported,
    TextDelta,
    ToolCallDelta,
)
from midstream.testing import Cut, ErrorEvent, FakeServer, Status

TEXT = "Line one.\n\nLine two, 日本語👩‍👩‍👧. The end, and some more of it."
PIECES = ["Line", " one", ".", "\n\n", "Line two", ", 日本", "語", " end"]
QUICK = Backoff(initial=0, maximum=0)
BY_TEXT = Resume(strategies=("text",), backoff=QUICK)


# -- replay --------------------------------------------------------------------------


def test_a_background_response_is_read_on_wherever_it_broke(colour):
    name = "openai-responses"
    for cut in range(12):
        with FakeServer(TEXT, faults=[Cut(after=cut, kind="rst"), None]) as server:
            seen = colour(server.endpoint(name), temperature=1)
            [first, *others] = server.requests
        assert seen.joined == TEXT
        assert first.body["background"] is True
        assert [r.method for r in others if r.streams] in ([], ["GET"], ["POST"])
        if cut > 0:
            assert [r.how for r in others] == ["replay"]
            assert int(others[0].query["starting_after"]) > cut
            assert seen.stream.exactness is Exactness.REPLAYED


def test_a_tool_call_is_read_on_too(colour):
    events = [
        ToolCallDelta(0, "c1", "f", '{"a"'),
        ToolCallDelta(0, arguments=":1"),
        ToolCallDelta(0, arguments="}"),
        ToolCallDelta(0, closed=True),
    ]
    with FakeServer(events=events, faults=[Cut(after=2), None]) as server:
        seen = colour(server.endpoint("openai-responses"))
    assert seen.error is None
    [call] = seen.stream.tool_calls
    assert (call.arguments, call.complete) == ('{"a":1}', True)
    assert seen.stream.finish_reason == "tool_calls"


def test_a_server_that_stores_nothing_is_asked_again_and_remembered(colour):
    faults = [Cut(after=5), None, None]
    with FakeServer(TEXT, replay=False, faults=faults) as server:
        endpoint = server.endpoint("vllm-responses")
        with midstream.Client(endpoint, resume=Resume(backoff=QUICK)) as client:
            with client.stream("Go.") as stream:
                assert stream.read() == TEXT
            assert stream.exactness is Exactness.TEXT
            assert "store" in stream.notes[0]
            with client.stream("Go.") as again:
                assert again.read() == TEXT
        refused = [r for r in server.requests if r.status == 400]
        assert len(refused) == 1
        assert [bool(r.body.get("background")) for r in server.requests] == [
            True,
            False,
            False,
            False,
        ]


def test_a_refusal_for_another_reason_is_the_callers(colour):
    refusal = Status(400, "Unknown parameter: 'shoe_size'.")
    with FakeServer(TEXT, faults=[refusal]) as server:
        seen = colour(server.endpoint("openai-responses"))
        assert len(server.requests) == 1
    assert isinstance(seen.error, midstream.BadRequest)


def test_leaving_cancels_the_response(colour):
    with FakeServer(TEXT) as server:
        seen = colour(server.endpoint("openai-responses"), take=2)
        cancel = server.wait_for(lambda r: r.path.endswith("/cancel"))
    assert seen.error is None
    assert cancel.status == 200


def test_a_response_that_the_server_lost_leaves_other_ways():
    def lost(request):
        return Status(404, "not found") if request.how == "replay" else Cut(after=5)

    with FakeServer(TEXT, faults=lost) as server:
        endpoint = server.endpoint("openai-responses")
        with (
            midstream.Client(endpoint, resume=Resume(backoff=QUICK)) as client,
            client.stream("Go.") as stream,
            pytest.raises(ResumeUnsupported) as caught,
        ):
            stream.read()
    assert caught.value.text == stream.text != ""
    assert isinstance(caught.value.__cause__, midstream.Dropped)


@pytest.mark.parametrize(
    "name", ["openai-responses", "llama.cpp-responses", "llama.cpp-messages"]
)
def test_another_process_reads_a_kept_stream_again(name):
    store = MemoryStore()
    with (
        FakeServer(TEXT) as server,
        midstream.Client(server.endpoint(name)) as client,
        client.stream("Go.") as stream,
    ):
        got = "".join(itertools.islice(stream, 4))
        store.save("k", stream.checkpoint())
        with (
            midstream.Client(server.endpoint(name), store=store) as other,
            other.resume("k", after=len(got)) as rest,
        ):
            assert got + "".join(rest) == rest.text == TEXT
        assert rest.exactness is Exactness.REPLAYED
        assert server.streams[1].how == "replay"
        assert "starting_after" not in server.streams[1].query


def test_llamas_messages_and_responses_are_replayed_by_their_bytes(colour):
    for name in "llama.cpp-messages", "llama.cpp-responses":
        with FakeServer(TEXT, faults=[Cut(after=5, kind="mid_chunk"), None]) as server:
            seen = colour(server.endpoint(name))
            assert [r.how for r in server.streams] == ["top", "replay"]
        assert seen.joined == TEXT
        assert seen.stream.exactness is Exactness.REPLAYED


# -- an open turn --------------------------------------------------------------------


@pytest.mark.parametrize("whitespace", ["refuse", "trim", "skip", "one"])
@pytest.mark.parametrize("name", ["anthropic", "vllm-responses"])
def test_whitespace_at_the_seam_is_neither_lost_nor_doubled(colour, name, whitespace):
    dropped = whitespace in ("skip", "one")  # then only what the client has may be
    for cut in [4] if dropped else range(1, len(PIECES)):
        with FakeServer(
            tokens=PIECES, whitespace=whitespace, faults=[Cut(after=cut), None]
        ) as server:
            seen = colour(server.endpoint(name), client={"resume": BY_TEXT})
            prefix = server.streams[1].prefix
        assert seen.error is None
        assert seen.joined == "".join(PIECES)
        assert prefix == "".join(PIECES[:cut]).rstrip()
        assert seen.stream.exactness is Exactness.TEXT


@pytest.mark.parametrize("whitespace", ["refuse", "trim"])
def test_an_answer_that_was_only_whitespace_so_far(colour, whitespace):
    with FakeServer(
        tokens=["\n", "\n", "So."], whitespace=whitespace, faults=[Cut(after=1), None]
    ) as server:
        seen = colour(server.endpoint("anthropic"), client={"resume": BY_TEXT})
    assert seen.joined == "\n\nSo."


def test_a_later_claude_is_not_asked_to_go_on(colour):
    with FakeServer(TEXT, faults=[Cut(after=3)]) as server:
        endpoint = server.endpoint("anthropic", "claude-opus-4-6")
        seen = colour(endpoint, client={"resume": BY_TEXT})
        assert len(server.requests) == 1
    assert isinstance(seen.error, ResumeUnsupported)
    assert isinstance(seen.error.__cause__, midstream.Dropped)
    assert seen.error.text == seen.joined != ""


def test_a_refused_prefix_is_remembered_and_asking_is_left():
    resume = Resume(strategies=("text",), approximate=True, backoff=QUICK)
    first = [Cut(after=3), None, None]  # the second request is the refused one
    faults = [*first, Cut(after=3), None]
    with FakeServer(TEXT, prefill="refuse", faults=faults) as server:
        endpoint = server.endpoint("anthropic", "someones-model")
        with midstream.Client(endpoint, resume=resume) as client:
            for _ in range(2):
                with client.stream("Go.") as stream:
                    assert stream.read() == TEXT
                assert stream.exactness is Exactness.APPROXIMATE
        assert sum(r.status == 400 for r in server.requests) == 1


@pytest.mark.parametrize(
    "name", ["anthropic", "openai-responses", "cohere", "lmstudio-native"]
)
def test_asking_goes_on_where_nothing_better_is_allowed(colour, name):
    resume = Resume(strategies=(), approximate=True, backoff=QUICK)
    with FakeServer(TEXT, faults=[Cut(after=6), None]) as server:
        seen = colour(server.endpoint(name), client={"resume": resume})
        assert [r.how for r in server.streams] == ["top", "ask"]
    assert seen.joined == TEXT
    assert seen.stream.exactness is Exactness.APPROXIMATE


def test_the_tokens_of_a_broken_connection_are_estimated(colour):
    with FakeServer(TEXT, faults=[Cut(after=6), None]) as server:
        seen = colour(server.endpoint("anthropic"), client={"resume": BY_TEXT})
        second = server.streams[1]
    usage = seen.stream.usage
    assert usage.estimated
    assert usage.output_tokens == 6 + second.tokens


# -- other events --------------------------------------------------------------------


def test_a_signature_is_shown_though_it_has_no_text(colour):
    events = [
        ReasoningDelta("hm", tokens=1),
        ReasoningDelta("", tokens=0, signature="c2ln"),
        TextDelta("Yes.", tokens=1),
    ]
    for name in "anthropic", "openai-responses":
        with FakeServer(events=events) as server:
            seen = colour(server.endpoint(name), events=True)
        thoughts = [e for e in seen.events if isinstance(e, ReasoningDelta)]
        assert [(e.text, e.signature) for e in thoughts] == [
            ("hm", None),
            ("", "c2ln"),
        ]
        assert seen.stream.text == "Yes."


def test_thinking_that_broke_is_not_continued(colour):
    events = [ReasoningDelta("hm", tokens=1), TextDelta("Yes.", tokens=1)]
    with FakeServer(events=events, faults=[Cut(after=1)]) as server:
        seen = colour(server.endpoint("anthropic"), client={"resume": BY_TEXT})
    assert isinstance(seen.error, ResumeUnsupported)
    assert seen.stream.reasoning == "hm"


def test_overloaded_in_mid_answer_is_a_drop(colour):
    faults = [ErrorEvent("busy", after=3, type="overloaded_error"), None]
    for name in "anthropic", "vllm-responses":
        with FakeServer(TEXT, faults=faults, replay=False) as server:
            seen = colour(server.endpoint(name), client={"resume": BY_TEXT})
        assert seen.error is None
        assert seen.joined == TEXT
        assert "busy" in seen.stream.resumes[0].reason
