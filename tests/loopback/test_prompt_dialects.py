"""Gemini and the dialects of raw prompts in whole clients: how each is continued."""

from dataclasses import replace

import pytest

import midstream
from midstream import (
    Backoff,
    Endpoint,
    Exactness,
    ReasoningDelta,
    Resume,
    ResumeUnsupported,
    TextDelta,
    ToolCallDelta,
    ToolCallInterrupted,
    _dialects,
)
from midstream._dialects.documents import loads
from midstream._dialects.gemini import Gemini
from midstream.testing import Cut, ErrorEvent, FakeServer, Status

TEXT = "Line one.\n\n日本語👩‍👩‍👧e\u0301 ha ha ha, the end."
QUICK = Backoff(initial=0, maximum=0)
RAW = ["tgi", "sglang", "triton", "ollama-generate"]
FLASH = "gemini-2.5-flash"


def by(*strategies, **more):
    return {"resume": Resume(strategies=strategies, backoff=QUICK, **more)}


def endpoint(server, name):
    return server.endpoint(name, FLASH if name == "gemini" else "fake")


# -- the same answer, wherever it broke ------------------------------------------------


@pytest.mark.parametrize("split", ["text", "bytes"])
@pytest.mark.parametrize("name", [*RAW, "gemini"])
def test_cut_after_every_delta(name, split):
    with FakeServer(TEXT, split=split) as server:
        with (
            midstream.Client(endpoint(server, name)) as client,
            client.stream("Tell me.") as stream,
        ):
            assert stream.read() == TEXT
        deltas = server.streams[0].deltas
    assert deltas > 10
    for cut in range(1, deltas):
        faults = [Cut(after=cut, kind="rst"), None]
        with FakeServer(TEXT, split=split, faults=faults) as server:
            with (
                midstream.Client(endpoint(server, name), **by("text")) as client,
                client.stream("Tell me.") as stream,
            ):
                assert stream.read() == TEXT
            if stream.resumes:
                assert server.streams[1].how == "text"
                assert stream.exactness is Exactness.TEXT


@pytest.mark.parametrize("split", ["text", "bytes"])
def test_ids_of_sglang_cut_after_every_delta(split):
    for cut in range(1, 40):
        faults = [Cut(after=cut, kind="rst"), None]
        with FakeServer(TEXT, split=split, faults=faults) as server:
            with (
                midstream.Client(server.endpoint("sglang"), **by("tokens")) as client,
                client.stream("Tell me.", max_tokens=200) as stream,
            ):
                assert stream.read() == TEXT
            hows = [entry.how for entry in server.streams]
        if stream.resumes:
            assert hows == ["top", "tokens"]
            assert stream.exactness is Exactness.TOKENS


def test_sglang_without_a_tokenizer_goes_on_from_the_text(colour):
    routes = {"/v1/tokenize": Status(404), "/v1/detokenize": Status(404)}
    with FakeServer(TEXT, faults=[Cut(after=6), None], routes=routes) as server:
        seen = colour(server.endpoint("sglang"), client=by("tokens", "text"))
        assert [entry.how for entry in server.streams] == ["top", "text"]
    assert seen.joined == TEXT
    assert seen.stream.exactness is Exactness.TEXT
    assert any("tokenize" in note for note in seen.stream.notes)


@pytest.mark.parametrize("name", RAW)
def test_the_budget_shrinks_by_what_came(colour, name):
    tokens = [f"{n} " for n in range(20)]
    with FakeServer(tokens=tokens, faults=[Cut(after=6), None]) as server:
        seen = colour(server.endpoint(name), client=by("text"), max_tokens=10)
        bodies = [entry.body for entry in server.streams]
    limits = [_limit(body) for body in bodies]
    assert limits == [10, 4]
    assert seen.joined == "".join(tokens[:10])
    assert seen.stream.finish_reason == "length"


def _limit(body):
    for name in "parameters", "sampling_params", "options":
        if name in body:
            given = body[name]
            return given.get("max_new_tokens", given.get("num_predict"))
    return loads(body["sampling_parameters"].encode())["max_tokens"]


@pytest.mark.parametrize("name", RAW)
def test_messages_are_rendered_by_the_endpoints_template(colour, name):
    def template(turns):
        return "".join(f"<{turn.role}>{turn.content}" for turn in turns) + "<model>"

    messages = [{"role": "user", "content": "Hi"}]
    with FakeServer(TEXT, faults=[Cut(after=5), None]) as server:
        spelled = Endpoint(
            name, model="fake", base_url=server.url(name), template=template
        )
        seen = colour(spelled, prompt=messages, client=by("text"))
        prompts = [_prompt(entry.body) for entry in server.streams]
    assert seen.joined == TEXT
    assert prompts[0] == "<user>Hi<model>"
    assert prompts[1].startswith("<user>Hi<model>Line")


def _prompt(body):
    names = "inputs", "text", "text_input", "prompt"
    return next(body[name] for name in names if name in body)


# -- Triton ----------------------------------------------------------------------------


def test_a_clean_end_without_a_reason_is_a_drop_where_the_model_gives_reasons(colour):
    with FakeServer(TEXT, faults=[Cut(after=5, kind="eof"), None]) as server:
        seen = colour(server.endpoint("triton"), client=by("text"))
    assert seen.joined == TEXT
    assert len(seen.stream.resumes) == 1


def test_an_error_of_the_model_is_not_retried(colour):
    fault = ErrorEvent("Error generating stream: out of memory", after=3)
    with FakeServer(TEXT, faults=[fault]) as server:
        seen = colour(server.endpoint("triton"), client=by("text"))
        assert len(server.streams) == 1
    assert type(seen.error) is midstream.ServerFailed
    assert seen.error.text == seen.joined != ""


# -- Ollama's raw prompts --------------------------------------------------------------


def test_ollamas_template_is_asked_for(colour):
    with FakeServer(TEXT, faults=[Cut(after=5), None]) as server:
        seen = colour(server.endpoint("ollama-generate"), client=by("text"))
        first, rendering, second = server.requests
    assert seen.joined == TEXT
    assert "raw" not in first.body
    assert rendering.body["_debug_render_only"] is True
    assert not rendering.streams
    assert second.body["raw"] is True
    assert "Tell me." in second.body["prompt"]


def test_a_raw_prompt_needs_no_template(colour):
    with FakeServer(TEXT, faults=[Cut(after=5), None]) as server:
        spelled = server.endpoint("ollama-generate")
        seen = colour(spelled, client=by("text"), extra={"raw": True})
        assert len(server.requests) == 2
    assert seen.joined == TEXT


def test_thinking_is_not_continued_raw(colour):
    events = [ReasoningDelta("hm"), TextDelta("Yes, "), TextDelta("it is.")]
    with FakeServer(events=events, faults=[Cut(after=2), None]) as server:
        seen = colour(server.endpoint("ollama-generate"), client=by("text"))
    assert type(seen.error) is ResumeUnsupported
    assert "thinking" in str(seen.error)
    assert seen.error.text == "Yes, "


# -- Gemini ----------------------------------------------------------------------------


def test_a_model_that_continues_turns(colour):
    with FakeServer(TEXT, faults=[Cut(after=5), None]) as server:
        seen = colour(server.endpoint("gemini", FLASH), client=by("text"))
        assert [entry.how for entry in server.streams] == ["top", "text"]
        assert server.streams[1].body["contents"][-1]["role"] == "model"
    assert seen.joined == TEXT


def test_a_model_that_does_not_is_not_asked_to(colour):
    with FakeServer(TEXT, faults=[Cut(after=5), None]) as server:
        spelled = server.endpoint("gemini", "gemini-3.6-flash")
        seen = colour(spelled, client=by("text"))
        assert len(server.streams) == 1
    assert type(seen.error) is ResumeUnsupported
    assert "gemini-3.6-flash is not known to continue a model turn" in str(seen.error)
    assert isinstance(seen.error.__cause__, midstream.Dropped)


def test_such_a_model_is_asked_to_go_on_where_that_is_wanted(colour):
    with FakeServer("Hello, wide world.", faults=[Cut(after=2), None]) as server:
        spelled = server.endpoint("gemini", "gemini-3.6-flash")
        seen = colour(spelled, client=by("text", approximate=True))
        assert [entry.how for entry in server.streams] == ["top", "ask"]
    assert seen.joined == "Hello, wide world."
    assert seen.stream.exactness is Exactness.APPROXIMATE


def test_a_refusal_is_remembered(colour):
    """B52: a server that refuses what its model's name promised."""
    faults = [Cut(after=3), Status(400, "Requests ending with a model turn are not …")]
    with FakeServer("Hello world", faults=faults) as server:
        seen = colour(server.endpoint("gemini", FLASH), client=by("text"))
        assert len(server.streams) == 2
    assert type(seen.error) is ResumeUnsupported
    assert isinstance(seen.error.__cause__, midstream.Dropped)
    assert seen.error.text == seen.joined != ""


@pytest.mark.parametrize("habit", ["trim", "skip", "one", "refuse"])
def test_whitespace_at_the_end_of_a_turn(colour, habit):
    """B50."""
    tokens = ["Line one.", "\n\n", "Line two"]
    with FakeServer(
        tokens=tokens, faults=[Cut(after=2), None], whitespace=habit
    ) as server:
        seen = colour(server.endpoint("gemini", FLASH), client=by("text"))
        [part] = server.streams[1].body["contents"][-1]["parts"]
    assert part == {"text": "Line one."}
    assert seen.joined == "Line one.\n\nLine two"


def test_open_thoughts_are_not_replayed(colour):
    events = [ReasoningDelta("hm, "), ReasoningDelta("so"), TextDelta("Yes.")]
    with FakeServer(events=events, faults=[Cut(after=1), None]) as server:
        seen = colour(server.endpoint("gemini", FLASH), client=by("text"))
        assert len(server.streams) == 1
    assert type(seen.error) is ResumeUnsupported
    assert "thought" in str(seen.error)


def test_a_function_call_is_not_called_twice(colour):
    """B56."""
    call = ToolCallDelta(0, "c1", "f", '{"a":1}', closed=True)
    events = [TextDelta("I look. "), call, TextDelta("So.")]
    with FakeServer(events=events, faults=[Cut(after=2), None]) as server:
        seen = colour(server.endpoint("gemini", FLASH), client=by("text"))
    assert type(seen.error) is ToolCallInterrupted
    [kept] = seen.error.tool_calls
    assert (kept.id, kept.arguments, kept.complete) == ("c1", '{"a":1}', True)


def test_an_answer_with_everything(colour):
    events = [
        ReasoningDelta("hm", signature="s1"),
        TextDelta("I look."),
        ToolCallDelta(0, "c1", "f", '{"a"'),
        ToolCallDelta(0, arguments=":1}"),
    ]
    with FakeServer(events=events) as server:
        seen = colour(server.endpoint("gemini", FLASH))
    stream = seen.stream
    assert (stream.text, stream.reasoning) == ("I look.", "hm")
    [call] = stream.tool_calls
    assert (call.name, call.parsed(), call.complete) == ("f", {"a": 1}, True)
    assert stream.finish_reason == "tool_calls"
    assert stream.usage.input_tokens > 0


@pytest.mark.parametrize("kind", ["rst", "half", "fin"])
def test_the_array_form_is_read_and_resumed_as_well(colour, kind):
    """As from a proxy that drops the query: the body itself tells what it is."""

    class Plain(Gemini):
        def _post(self, *given):
            call = super()._post(*given)
            return replace(call, url=call.url.removesuffix("?alt=sse"))

    midstream.register(Plain(name="gemini-plain"))
    try:
        with FakeServer(TEXT, faults=[Cut(after=5, kind=kind), None]) as server:
            url = server.url("gemini")
            spelled = Endpoint("gemini-plain", model=FLASH, base_url=url)
            seen = colour(spelled, client=by("text"))
    finally:
        del _dialects._TABLE["gemini-plain"]
    assert seen.joined == TEXT
    assert len(seen.stream.resumes) == 1
