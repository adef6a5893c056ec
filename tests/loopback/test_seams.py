"""Where a continuation joins: the cases that broke other clients, over real sockets."""

import pytest

import midstream
from midstream import Backoff, Endpoint, Exactness, Resume, ToolCallDelta
from midstream import TextDelta as Text
from midstream.testing import Cut, FakeServer

NOW = Backoff(initial=0, maximum=0)
BY_TEXT = {"resume": Resume(strategies=("text",), backoff=NOW)}
CALL = [
    Text("Let me check. "),
    ToolCallDelta(0, "call_1", "weather", '{"city":'),
    ToolCallDelta(0, arguments='"東京"}'),
]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]


def endpoint(server, dialect, **more):
    return Endpoint(dialect, base_url=server.url(dialect), model="m", **more)


# -- retry after text was shown ------------------------------------------------------


def test_without_resuming_shown_text_is_never_asked_for_again(colour):
    tokens = ["The ", "quick ", "brown fox."]
    with FakeServer(tokens=tokens, faults=[Cut(2, "rst")]) as server:
        seen = colour(server.endpoint("openai"), client={"resume": None})
        assert len(server.streams) == 1
    assert type(seen.error) is midstream.StreamInterrupted
    assert seen.joined == seen.error.text == "The quick "


@pytest.mark.parametrize("kind", ["fin", "rst"])
def test_a_server_that_begins_again_is_checked_and_skipped(colour, kind):
    tokens = ["The ", "quick ", "brown fox."]
    rerun = {"resume": Resume(strategies=("rerun",), backoff=NOW)}
    with FakeServer(tokens=tokens, faults=[Cut(2, kind)]) as server:
        seen = colour(server.endpoint("openai"), client=rerun)
        assert [entry.how for entry in server.streams] == ["top", "top"]
    assert seen.error is None
    assert seen.joined == "The quick brown fox."
    assert seen.stream.exactness is Exactness.RERUN


def test_a_server_that_begins_otherwise_diverges(colour):
    rerun = {"resume": Resume(strategies=("rerun",), attempts=0, backoff=NOW)}
    with (
        FakeServer(tokens=["The ", "quick ", "fox."], faults=[Cut(2)]) as first,
        FakeServer(tokens=["The ", "slow ", "fox."]) as second,
    ):
        seen = colour(first.endpoint("openai"), second.endpoint("openai"), client=rerun)
    assert type(seen.error) is midstream.ResumeDiverged
    assert isinstance(seen.error.__cause__, midstream.Dropped)
    assert seen.joined == seen.error.text == "The quick "


# -- echo and true repetition --------------------------------------------------------


def test_a_whole_echo_is_removed_where_it_is_declared(colour):
    tokens = ["ha ", "ha ", "ha!"]
    with FakeServer(tokens=tokens, faults=[Cut(2)], echo="whole") as server:
        seen = colour(endpoint(server, "llama.cpp", echo="whole"), client=BY_TEXT)
        assert server.streams[1].text == "ha ha ha!"
    assert seen.joined == "ha ha ha!"


def test_a_true_repetition_is_never_eaten(colour):
    tokens = ["ha ", "ha ", "ha ", "ha ", "ha!"]
    with FakeServer(tokens=tokens, faults=[Cut(2)]) as server:
        seen = colour(server.endpoint("llama.cpp"), client=BY_TEXT)
    assert seen.joined == "ha ha ha ha ha!"


def test_the_echo_of_a_tail_is_removed_where_it_is_declared(colour):
    tokens = ["ha ", "ha ", "ok"]
    with FakeServer(tokens=tokens, faults=[Cut(2)], echo=3) as server:
        seen = colour(endpoint(server, "llama.cpp", echo="tail"), client=BY_TEXT)
        assert server.streams[1].text == "ha ok"
    assert seen.joined == "ha ha ok"


def test_an_endpoint_may_say_that_its_server_does_not_echo(colour):
    """Some versions of LM Studio do; this one does not, and its answer repeats."""
    tokens = ["ha ", "ha ", "ha!"]
    with FakeServer(tokens=tokens, faults=[Cut(1)]) as server:
        seen = colour(endpoint(server, "lmstudio", echo="none"), client=BY_TEXT)
    assert seen.joined == "ha ha ha!"


# -- a prefix that ends in whitespace ------------------------------------------------


@pytest.mark.parametrize("habit", ["refuse", "trim", "skip", "one"])
@pytest.mark.parametrize("name", ["anthropic", "vllm", "deepseek"])
def test_whitespace_at_the_cut_comes_once(colour, name, habit):
    tokens = ["Line one.", "\n", "\n", "Line two"]
    with FakeServer(tokens=tokens, faults=[Cut(3)], whitespace=habit) as server:
        seen = colour(server.endpoint(name), client=BY_TEXT)
        assert server.streams[1].prefix == "Line one."
    assert seen.error is None
    assert seen.joined == "Line one.\n\nLine two"


# -- servers that do not continue a turn ---------------------------------------------


@pytest.mark.parametrize("name", ["anthropic", "vllm", "vllm-responses"])
def test_a_refused_turn_leaves_the_first_drop_as_the_cause(colour, name):
    tokens = ["Hello ", "wo", "rld"]
    with FakeServer(tokens=tokens, faults=[Cut(2, "rst")], prefill="refuse") as server:
        seen = colour(server.endpoint(name), client=BY_TEXT)
        assert len(server.streams) == 2
    assert type(seen.error) is midstream.ResumeUnsupported
    assert isinstance(seen.error.__cause__, midstream.Dropped)
    assert seen.joined == seen.error.text == "Hello wo"
    assert "prefill" in str(seen.error)


def test_a_refused_turn_is_remembered_for_the_model_and_the_next_way_goes_on():
    faults = [Cut(2), None, None, Cut(2), None]
    resume = Resume(strategies=("text", "rerun"), backoff=NOW)
    with (
        FakeServer("Hello world", faults=faults, prefill="refuse") as server,
        midstream.Client(server.endpoint("anthropic"), resume=resume) as client,
    ):
        for requests in (3, 5):  # the second time nobody asks what is known
            with client.stream("Hi") as stream:
                assert stream.read() == "Hello world"
            assert [r.strategy for r in stream.resumes] == ["rerun"]
            assert len(server.streams) == requests


@pytest.mark.parametrize("name", ["vllm", "sglang-chat"])
def test_a_turn_is_left_open_by_both_flags(colour, name):
    with FakeServer("Hello world", faults=[Cut(2)]) as server:
        seen = colour(server.endpoint(name), client=BY_TEXT)
        body = server.streams[1].body
    assert body["continue_final_message"] is True
    assert body["add_generation_prompt"] is False
    assert seen.joined == "Hello world"


@pytest.mark.parametrize("name", ["openai-completions", "llama.cpp-completion"])
def test_a_raw_prompt_ends_exactly_with_the_prefix(colour, name):
    tokens = ["One", " two", " three"]
    with FakeServer(tokens=tokens, faults=[Cut(2)]) as server:
        seen = colour(server.endpoint(name), client=BY_TEXT)
        prompt = server.streams[1].body["prompt"]
    sent = prompt if isinstance(prompt, str) else prompt[-1]
    assert sent.endswith("One two")
    assert seen.joined == "One two three"


# -- the budget ----------------------------------------------------------------------


def test_usage_tells_both_prompts_and_no_token_too_many(colour):
    tokens = [f" {n}" for n in range(20)]
    with FakeServer(tokens=tokens, faults=[Cut(6)]) as server:
        seen = colour(server.endpoint("sglang-chat"), client=BY_TEXT, max_tokens=10)
        budgets = [entry.body["max_tokens"] for entry in server.streams]
    assert budgets == [10, 4]
    assert seen.joined == "".join(tokens[:10])
    assert seen.stream.finish_reason == "length"
    assert seen.stream.usage.output_tokens == 10
    assert seen.stream.usage.input_tokens > 1


# -- tools ---------------------------------------------------------------------------


@pytest.mark.parametrize("tools", [True, False])
def test_text_before_a_tool_call_is_continued_if_the_policy_allows(colour, tools):
    policy = {"resume": Resume(strategies=("text",), backoff=NOW, tools=tools)}
    tokens = ["Let ", "me ", "check"]
    with FakeServer(tokens=tokens, faults=[Cut(2)]) as server:
        seen = colour(server.endpoint("vllm"), client=policy, tools=TOOLS)
    assert seen.joined == ("Let me check" if tools else "Let me ")
    assert (seen.error is None) is tools
    if not tools:
        assert type(seen.error) is midstream.ResumeUnsupported


def test_a_cut_tool_call_is_not_continued_from_a_prefix(colour):
    with FakeServer(events=CALL, faults=[Cut(2)]) as server:
        seen = colour(server.endpoint("vllm"), client=BY_TEXT, tools=TOOLS)
        assert len(server.streams) == 1
    assert type(seen.error) is midstream.ToolCallInterrupted
    (call,) = seen.error.tool_calls
    assert call.arguments == '{"city":'
    assert not call.complete


def test_a_tool_call_that_was_cut_comes_once_when_it_is_replayed(colour):
    with FakeServer(events=CALL, faults=[Cut(2)]) as server:
        seen = colour(server.endpoint("llama.cpp"), tools=TOOLS)
        assert [entry.how for entry in server.streams] == ["top", "replay"]
    (call,) = seen.stream.tool_calls
    assert call.arguments == '{"city":"東京"}'
    assert call.complete


# -- inside words, clusters and fences -----------------------------------------------


@pytest.mark.parametrize(
    "tokens",
    [
        ["dar", "kness"],
        ["👩‍", "👩‍👧", " e", "\u0301"],
        ["```p", "y\nx = ", "1\n``", "`\n"],
        [b"\xe6\x97", b"\xa5\xe6", b"\x9c\xac", b"\xf0\x9f", b"\x8e\x89"],
    ],
)
def test_every_place_of_a_cut_gives_the_same_text(colour, tokens):
    whole = b"".join(t if isinstance(t, bytes) else t.encode() for t in tokens)
    for after in range(1, len(tokens)):
        with FakeServer(tokens=tokens, faults=[Cut(after)]) as server:
            seen = colour(server.endpoint("ollama"), client=BY_TEXT)
        assert seen.joined == whole.decode()


def test_a_stop_string_over_the_seam_stops(colour):
    """Its first character had been shown; nobody unsays it, and nothing follows."""
    resume = Resume(attempts=0, backoff=NOW)
    with (
        FakeServer(tokens=["one E"], faults=[Cut(2, "eof")]) as first,
        FakeServer(tokens=["one E", "ND two"]) as second,
    ):
        seen = colour(
            first.endpoint("ollama"),
            second.endpoint("llama.cpp"),
            client={"resume": resume},
            stop="END",
        )
        assert second.streams[0].text == "ND two"
    assert seen.error is None
    assert seen.joined == "one E"
    assert seen.stream.finish_reason == "stop"
