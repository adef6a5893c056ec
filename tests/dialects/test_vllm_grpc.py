"""vLLM over gRPC: requests as its own stubs read them, every kind of response."""

import copy
import io
import json
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool
from hypothesis import given
from hypothesis import strategies as st
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto.generated import common_pb2

import midstream
from midstream._dialects.base import Continuation, Generation, Received, Reply
from midstream._dialects.vllm_chunks import Asked, ChunkReader, ChunkWriter
from midstream._dialects.vllm_grpc import VLLM_GRPC
from midstream._dialects.vllm_messages import GENERATE, TOKENIZER, common, engine
from midstream._tokenizers.detokenizer import Speech
from midstream._tokenizers.hugging_face import HuggingFace
from midstream._values.endpoint import Endpoint
from midstream._values.errors import (
    BadRequest,
    NotFound,
    ServerFailed,
    UsageError,
    WireError,
)
from midstream._values.events import (
    End,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    UsageReport,
)
from midstream._values.interruptions import ResumeUnsupported
from midstream._values.request import Request
from midstream._values.usage import Usage
from midstream.testing import Cut, FakeServer, Status

TESTS = Path(__file__).parents[1]
CAPTURES = TESTS / "captures" / "vllm"
JA = TESTS / "vllm" / "models" / "ja"
JAPANESE = HuggingFace((JA / "tokenizer.json").read_bytes())
SPEECH = Speech(tokenizer=JAPANESE, silent=JAPANESE.special)
CHAT = [{"role": "user", "content": "続けて"}]
RENDERED = "<|im_start|>user\n続けて<|im_end|>\n<|im_start|>assistant\n"


def zipped(*names, **more):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.write(JA / name, name)
        for name, content in more.items():
            archive.writestr(name.replace("__", "."), content)
    return buffer.getvalue()


FILES = zipped(
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
)


def generation(prompt="吾輩は", *, endpoint=None, handle="r1", memory=None, **request):
    return Generation(
        endpoint=Endpoint(
            "vllm-grpc",
            **{
                "model": "ja",
                "base_url": "h:1",
                "api_key": "secret",
                **(endpoint or {}),
            },
        ),
        request=Request.of(prompt=prompt, **request),
        handle=handle,
        memory={} if memory is None else memory,
    )


class Server:
    """Answers the calls of a flow: hands out a tokenizer in chunks."""

    def __init__(self, files=FILES, *, size=1000, digest=None, error=None):
        self.calls = []
        self._error = error
        chunks = [files[at : at + size] for at in range(0, len(files), size)]
        self._messages = [
            common_pb2.GetTokenizerChunk(data=chunk).SerializeToString()
            for chunk in chunks[:-1]
        ]
        last = common_pb2.GetTokenizerChunk(
            data=chunks[-1], sha256=digest or sha256(files).hexdigest()
        )
        self._messages.append(last.SerializeToString())

    def run(self, flow):
        reply = None
        while True:
            try:
                call = flow.send(reply)
            except StopIteration as result:
                return result.value
            assert call.method == TOKENIZER
            self.calls.append(call)
            if self._error is not None:
                flow.throw(self._error)
            reply = Reply(200, {}, self._messages[0], self._messages)

    def begin(self, generation):
        """The call that begins, and the request in it."""
        call = self.run(VLLM_GRPC.begin(generation))
        return call, pb.GenerateRequest.FromString(call.content)

    def go_on(self, generation, strategy, **received):
        """The continuation, and the request in it."""
        given = Received(**received)
        found = self.run(VLLM_GRPC.continuation(generation, strategy, given))
        assert isinstance(found, Continuation)
        return found, pb.GenerateRequest.FromString(found.call.content)


def ids_of(text):
    return JAPANESE.encode(text, whole=False)


# -- asking ----------------------------------------------------------------------


def test_a_request_as_vllms_own_stubs_read_it():
    asked = generation(
        max_tokens=9, temperature=0.5, top_p=0.25, seed=7, stop=["a", "b"]
    )
    call, request = Server().begin(asked)
    assert (call.url, call.method) == ("grpc://h:1", GENERATE)
    assert call.secrets == {"authorization": "Bearer secret"}
    assert request.request_id == "r1"
    assert request.stream
    assert list(request.tokenized.input_ids) == ids_of("吾輩は")
    params = request.sampling_params
    assert (params.max_tokens, params.temperature, params.top_p) == (9, 0.5, 0.25)
    assert (params.seed, list(params.stop)) == (7, ["a", "b"])
    unknown = copy.deepcopy(request)
    unknown.DiscardUnknownFields()
    assert unknown == request


def test_zero_is_no_neutral_value():
    params = Server().begin(generation())[1].sampling_params
    assert params.n == 1
    assert params.top_p == params.repetition_penalty == 1
    assert params.skip_special_tokens
    assert params.spaces_between_special_tokens
    for name in ("temperature", "max_tokens", "seed", "logprobs"):
        assert not params.HasField(name)


def test_greedy_is_said():
    params = Server().begin(generation(temperature=0))[1].sampling_params
    assert params.HasField("temperature")
    assert params.temperature == 0


def test_extra_goes_into_the_sampling_parameters():
    extra = {
        "top_k": 5,
        "n": 2,
        "logit_bias": {"7": -1.5},
        "stop_token_ids": [3],
        "choice": {"choices": ["a", "b"]},
        "data_parallel_rank": 1,
        "ignore_eos": True,
    }
    _, request = Server().begin(generation(extra=extra))
    params = request.sampling_params
    assert (params.top_k, params.n, list(params.stop_token_ids)) == (5, 2, [3])
    assert dict(params.logit_bias) == {7: -1.5}
    assert list(params.choice.choices) == ["a", "b"]
    assert params.ignore_eos
    assert request.data_parallel_rank == 1


@pytest.mark.parametrize(
    "asked",
    [
        {"extra": {"no_such": 1}},
        {"extra": {"top_k": "many"}},
        {"extra": {"data_parallel_rank": "x"}},
        {"seed": 1 << 40},
    ],
)
def test_what_the_service_cannot_say(asked):
    with pytest.raises(UsageError, match="vllm-grpc cannot say that"):
        Server().begin(generation(**asked))


def test_ids_that_are_none():
    class Odd:
        def encode(self, text):
            return [-1]

        def token_bytes(self, id_):
            return b""

    with pytest.raises(UsageError, match="cannot say that"):
        Server().begin(generation(endpoint={"tokenizer": Odd()}))


def test_tools_are_text_or_nothing():
    with pytest.raises(UsageError, match="chat_template_kwargs"):
        Server().begin(generation(tools=[{"type": "function"}]))


def test_the_tokenizer_is_asked_for_once():
    server, memory = Server(), {}
    server.begin(generation(memory=memory))
    server.begin(generation(memory=memory, handle="r2"))
    assert len(server.calls) == 1
    assert server.calls[0].url == "grpc://h:1"


def test_a_tokenizer_that_is_not_whole():
    with pytest.raises(WireError, match="not whole"):
        Server(digest="0" * 64).begin(generation())


@pytest.mark.parametrize("error", [BadRequest("Method not found!"), NotFound("none")])
def test_a_server_that_hands_out_none(error):
    with pytest.raises(UsageError, match=r"Endpoint\(tokenizer=") as caught:
        Server(error=error).begin(generation())
    assert caught.value.__cause__ is error


def test_a_tokenizer_of_ones_own_is_not_asked_for():
    server = Server()
    _, request = server.begin(generation(endpoint={"tokenizer": JA / "tokenizer.json"}))
    assert list(request.tokenized.input_ids) == ids_of("吾輩は")
    assert server.calls == []


# -- prompts ---------------------------------------------------------------------


def test_messages_are_rendered_here():
    _, request = Server().begin(generation(CHAT))
    assert list(request.tokenized.input_ids) == ids_of(RENDERED)


def test_the_servers_template_for_a_tokenizer_that_has_none():
    server, memory = Server(), {}
    own = {"tokenizer": JA / "tokenizer.json"}
    for handle in ("r1", "r2"):
        asked = generation(CHAT, endpoint=own, memory=memory, handle=handle)
        _, request = server.begin(asked)
        assert list(request.tokenized.input_ids) == ids_of(RENDERED)
    assert len(server.calls) == 1


def test_a_folder_has_its_template():
    server = Server()
    _, request = server.begin(generation(CHAT, endpoint={"tokenizer": str(JA)}))
    assert list(request.tokenized.input_ids) == ids_of(RENDERED)
    assert server.calls == []


def test_a_template_of_ones_own():
    own = {"template": lambda messages: f"{messages[0].content}!"}
    _, request = Server().begin(generation(CHAT, endpoint=own))
    assert list(request.tokenized.input_ids) == ids_of("続けて!")


def test_messages_without_any_template():
    server = Server(zipped("tokenizer.json"))
    with pytest.raises(UsageError, match="Endpoint\\(template="):
        server.begin(generation(CHAT))


def test_what_extra_says_to_the_template():
    template = "{{ messages | length }}{{ mood }}{{ add_generation_prompt }}"
    server = Server(zipped("tokenizer.json", chat_template__jinja=template))
    extra = {"add_generation_prompt": False, "chat_template_kwargs": {"mood": "x"}}
    _, request = server.begin(generation(CHAT, extra=extra))
    assert list(request.tokenized.input_ids) == ids_of("1xFalse")


def begun(text):
    """A tokenizer.json that puts a control token before each text."""
    document = json.loads(text)
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [],
        "special_tokens": {
            "<|im_start|>": {
                "id": "<|im_start|>",
                "ids": [1],
                "tokens": ["<|im_start|>"],
            }
        },
    }
    return json.dumps(document)


def test_no_second_begin():
    files = zipped(
        "chat_template.jinja",
        tokenizer__json=begun((JA / "tokenizer.json").read_text()),
    )
    for asked, count in [
        (generation("x"), 1),
        (generation("<|im_start|>x"), 1),
        (generation(CHAT), 2),  # as often as the template says it
        (generation("x", extra={"add_special_tokens": False}), 0),
    ]:
        _, request = Server(files).begin(asked)
        assert list(request.tokenized.input_ids).count(1) == count


class Decoding:
    """Knows bytes of ids, but no ids of text."""

    def encode(self, text):
        raise UsageError("no encoder")

    def token_bytes(self, id_):
        return JAPANESE.token_bytes(id_)


def test_a_raw_prompt_that_cannot_be_encoded_goes_as_text():
    own = {"tokenizer": Decoding()}
    _, request = Server().begin(generation(endpoint=own))
    assert request.WhichOneof("input") == "text"
    assert request.text == "吾輩は"
    own["template"] = lambda _: "x"
    with pytest.raises(UsageError, match="no encoder"):
        Server().begin(generation(CHAT, endpoint=own))


# -- going on --------------------------------------------------------------------


def test_prompt_ids_and_answer_ids():
    came = ids_of("今日は")
    asked = generation(
        max_tokens=20, handle="r2", extra={"min_tokens": 5}, stop=["日本"]
    )
    found, request = Server().go_on(
        asked,
        "tokens",
        text="今日は",
        tokens=len(came),
        left=20 - len(came),
        token_ids=came,
        prompt_ids=[7, 8],
    )
    assert list(request.tokenized.input_ids) == [7, 8, *came]
    assert request.request_id == "r2"
    params = request.sampling_params
    assert params.max_tokens == 20 - len(came)
    assert params.min_tokens == max(5 - len(came), 0)
    assert list(params.stop) == ["日本"]
    assert (found.sent, found.expect, found.again) == ("今日は", "", 0)
    started = VLLM_GRPC.reader(asked).read(chunk([3]), "")[0]
    assert started.prompt_ids == (7, 8)


def test_text_that_came_before_its_ids_comes_again():
    came = ids_of("今日")
    found, request = Server().go_on(
        generation(),
        "tokens",
        text="今日 は",
        tokens=len(came),
        token_ids=came,
        prompt_ids=[7],
    )
    assert list(request.tokenized.input_ids) == [7, *came]
    assert (found.sent, found.expect, found.again) == ("今日", " は", 0)
    assert not request.sampling_params.HasField("max_tokens")


def test_prompt_ids_are_made_again_where_nobody_told_them():
    came = ids_of("今日")
    _, request = Server().go_on(
        generation(), "tokens", text="今日", tokens=len(came), token_ids=came
    )
    assert list(request.tokenized.input_ids) == [*ids_of("吾輩は"), *came]


TEXT = "The quick brown fox jumps over the lazy dog. 吾輩は猫である。"


@pytest.mark.parametrize("unknown", [{}, {"token_ids": [-1] * 30}])
def test_ids_unknown_are_made_of_the_text_but_for_its_end(unknown):
    ids = ids_of(TEXT)
    found, request = Server().go_on(
        generation(), "tokens", text=TEXT, tokens=30, left=10, **unknown
    )
    sent = list(request.tokenized.input_ids)[len(ids_of("吾輩は")) :]
    assert sent == ids[: len(sent)]
    assert len(ids) - len(sent) >= 8
    assert found.sent + found.expect == TEXT
    assert SPEECH.spell(sent).decode() == found.sent
    assert found.again == len(ids) - len(sent)
    assert request.sampling_params.max_tokens == 10 + found.again


def test_a_short_text_is_made_all_anew():
    found, request = Server().go_on(generation(), "tokens", text="ab", tokens=3, left=1)
    assert list(request.tokenized.input_ids) == ids_of("吾輩は")
    assert (found.sent, found.expect) == ("", "ab")


def test_control_tokens_among_the_ids_are_silent():
    came = [*ids_of("a"), 2]
    found, _ = Server().go_on(
        generation(), "tokens", text="a", tokens=2, token_ids=came
    )
    assert found.sent == "a"


def test_ids_that_do_not_spell_what_came():
    with pytest.raises(ResumeUnsupported, match="do not spell"):
        Server().go_on(
            generation(), "tokens", text="z" * 30, tokens=30, token_ids=[5] * 30
        )


def test_reasoning_has_no_ids():
    with pytest.raises(ResumeUnsupported, match="reasoning"):
        Server().go_on(generation(), "tokens", text="a", reasoning="b", tokens=9)


@pytest.mark.parametrize("told", [{}, {"prompt_ids": [7]}])
def test_without_an_encoder_text_is_all_there_is(told):
    asked = generation(endpoint={"tokenizer": Decoding()})
    with pytest.raises(ResumeUnsupported, match=r"ids are not known|no encoder"):
        Server().go_on(asked, "tokens", text="今日", tokens=9, **told)
    found, request = Server().go_on(asked, "text", text="今日", tokens=9, left=3)
    assert request.text == "吾輩は今日"
    assert found.sent == "今日"
    assert request.sampling_params.max_tokens == 3


def test_text_is_encoded_with_the_prompt():
    found, request = Server().go_on(generation(CHAT), "text", text="今日")
    assert list(request.tokenized.input_ids) == ids_of(RENDERED + "今日")
    assert (found.sent, found.expect, found.again) == ("今日", "", 0)


def test_a_grammar_is_not_continued():
    for name in ("regex", "json_object", "choice", "json_schema", "grammar"):
        request = Request.of(prompt="x", extra={name: "y"})
        assert name in VLLM_GRPC.no_prefix(request)
    assert VLLM_GRPC.no_prefix(Request.of(prompt="x", extra={"top_k": 1})) is None


def test_what_a_refusal_means():
    unknown = BadRequest("Token id 999999 is out of vocabulary")
    assert VLLM_GRPC.refuses("tokens", unknown)
    assert not VLLM_GRPC.refuses("text", unknown)
    assert not VLLM_GRPC.refuses("tokens", BadRequest("no"))
    assert not VLLM_GRPC.refuses("tokens", ServerFailed("vocabulary"))


def test_a_dead_engine_is_worth_another_try():
    words = "EngineCore encountered an issue. See stack trace (above)"
    assert VLLM_GRPC.passes(ServerFailed(words))
    assert not VLLM_GRPC.passes(ServerFailed("boom"))
    assert not VLLM_GRPC.passes(BadRequest(words))


# -- reading ---------------------------------------------------------------------


def chunk(ids, *, index=0, logprobs=None, prompt=9, cached=0):
    part = pb.GenerateStreamChunk(
        token_ids=ids,
        prompt_tokens=prompt,
        completion_tokens=len(ids),
        cached_tokens=cached,
        index=index,
        output_logprobs=logprobs,
    )
    return pb.GenerateResponse(chunk=part).SerializeToString()


def complete(reason="stop", ids=(), *, index=0, **more):
    part = pb.GenerateComplete(
        output_ids=ids, finish_reason=reason, prompt_tokens=9, index=index, **more
    )
    return pb.GenerateResponse(complete=part).SerializeToString()


def reader(*, answers=1, **how):
    speech = Speech(tokenizer=JAPANESE, silent={0, 1, 2}, **how)
    return ChunkReader(Asked(id="r1", speech=speech, model="ja", answers=answers))


def read(machine, *messages):
    return [event for message in messages for event in machine.read(message, "")]


# The messages of a real server, in hex: "たくさん…", ended by max_tokens=5.
CAPTURED = (CAPTURES / "grpc_length.hex").read_text().split()


def joined(events):
    text = "".join(e.text for e in events if isinstance(e, TextDelta))
    return text.encode("utf-8", "surrogateescape")


def ids_in(events):
    deltas = [e for e in events if isinstance(e, TextDelta)]
    return [id_ for delta in deltas for id_ in delta.token_ids]


def test_what_a_real_server_sent():
    events = read(reader(), *map(bytes.fromhex, CAPTURED))
    assert joined(events).decode() == "たくさ"
    assert ids_in(events) == [277, 259, 240, 259, 246]  # not the last one again
    assert events[0] == Started("r1", "ja", ())
    assert events[-3:] == [
        Finish("length", "length"),
        UsageReport(Usage(9, 5)),
        End(),
    ]
    (logprob,) = events[1].logprobs
    assert logprob["token_id"] == 277
    assert logprob["top_logprobs"][0]["logprob"] == pytest.approx(-0.005949407)


def test_read_then_written_then_read_is_the_same():
    events = read(reader(), *map(bytes.fromhex, CAPTURED))
    writer = ChunkWriter()
    again = read(reader(), *[m for e in events for m in writer.write(e)])
    assert joined(again) == joined(events)
    assert ids_in(again) == ids_in(events)
    assert again[-3:] == events[-3:]


def test_the_end_token_has_no_text_but_counts():
    events = read(reader(), chunk(ids_of("a")), chunk([2]), complete(ids=[2]))
    assert joined(events) == b"a"
    assert events[-2] == UsageReport(Usage(9, 2))


def test_a_token_that_ends_the_answer_has_no_text():
    extra = {"stop_token_ids": ids_of("b")}
    for more, want in [
        ({}, b"a"),
        ({"include_stop_str_in_output": True}, b"ab"),
    ]:
        asked = generation(extra=extra | more)
        Server().begin(asked)
        machine = VLLM_GRPC.reader(asked)
        events = read(machine, chunk(ids_of("a")), chunk(ids_of("b")), complete())
        assert joined(events) == want


@pytest.mark.parametrize(
    ("extra", "want"),
    [
        ({}, b"a"),
        ({"skip_special_tokens": False}, b"a"),
        ({"skip_special_tokens": False, "ignore_eos": True}, b"a<|im_end|>"),
        ({"ignore_eos": True}, b"a"),
    ],
)
def test_control_tokens_where_they_are_asked_for(extra, want):
    asked = generation(extra=extra)
    Server().begin(asked)
    events = read(VLLM_GRPC.reader(asked), chunk(ids_of("a")), chunk([2]), complete())
    assert joined(events) == want


def test_stop_text_is_kept_from_the_answer():
    machine = reader(stop=("使",))
    tokens = ids_of("た使")
    events = read(machine, *[chunk([id_]) for id_ in tokens])
    events += read(machine, complete(ids=tokens[-1:], matched_stop_str="使"))
    assert joined(events).decode() == "た"
    assert ids_in(events) == tokens
    assert Finish("stop", "stop") in events


def test_a_server_that_goes_on_behind_a_stop_string():
    machine = reader(stop=("b",))
    events = read(machine, chunk(ids_of("ab")), chunk(ids_of("c")))
    assert joined(events) == b"a"
    assert events[-3] == Finish("stop", "stop")
    assert events[-1] == End()
    assert read(machine, chunk(ids_of("d")), complete()) == []


def test_what_may_begin_a_stop_string_is_text_at_the_end():
    machine = reader(stop=("bx",))
    events = read(machine, chunk(ids_of("ab")), complete("length"))
    assert joined(events) == b"ab"


@pytest.mark.parametrize("reason", ["abort", "error", ""])
def test_an_answer_that_broke_is_no_end(reason):
    events = read(reader(), chunk([5]), complete(reason))
    assert isinstance(events[-1], Failure)
    assert events[-1].error.retryable
    assert not any(isinstance(event, Finish | End) for event in events)


def test_several_answers_end_each_for_itself():
    machine = reader(answers=2)
    events = read(
        machine,
        chunk(ids_of("a"), index=1),
        chunk(ids_of("b"), index=0),
        complete(index=1),
    )
    assert not any(isinstance(event, End) for event in events)
    events += read(machine, chunk(ids_of("c")), complete("length"))
    assert [(e.text, e.choice) for e in events if isinstance(e, TextDelta)] == [
        ("a", 1),
        ("b", 0),
        ("c", 0),
    ]
    assert Finish("stop", "stop", 1) in events
    assert events[-3:] == [Finish("length", "length"), UsageReport(Usage(9, 3)), End()]


def test_cached_tokens_are_told():
    events = read(reader(), chunk([5], cached=4), complete())
    assert events[-2].usage.cached_tokens == 4


def test_an_answer_of_nothing():
    events = read(reader(), complete("length"))
    assert events[1:] == [Finish("length", "length"), UsageReport(Usage(9, 0)), End()]


def test_an_end_without_complete_is_a_drop():
    machine = reader()
    read(machine, chunk([5]))
    assert machine.eof() == []


@pytest.mark.parametrize("message", [b"", b"\xff", b"\x0a\x05"])
def test_no_response(message):
    with pytest.raises(WireError):
        reader().read(message, "")


def test_a_reader_that_knows_of_no_request_tells_ids_only():
    machine = VLLM_GRPC.reader()
    assert read(machine, chunk([5, 6])) == [Started(), TextDelta("", 0, 2, (5, 6))]
    unasked = VLLM_GRPC.reader(generation())
    assert read(unasked, chunk([5]), complete())[-1] == End()


def test_nothing_is_left_in_the_memory():
    asked = generation()
    Server().begin(asked)
    VLLM_GRPC.reader(asked)
    assert list(asked.memory) == ["vllm-grpc"]


# -- writing ---------------------------------------------------------------------


def written(*events):
    writer = VLLM_GRPC.writer()
    return [
        pb.GenerateResponse.FromString(message)
        for event in events
        for message in writer.write(event)
    ]


def test_messages_as_vllms_own_stubs_read_them():
    logprobs = [
        {
            "token_id": 5,
            "logprob": -0.5,
            "top_logprobs": [{"token_id": 6, "logprob": -1.5}],
        }
    ]
    first, second, third, last = written(
        Started("r"),
        TextDelta("a", 0, 1, (5,), logprobs),
        RefusalDelta("no"),
        TextDelta("no ids"),
        TextDelta("", 0, 0, (5,)),
        ReasoningDelta("b", 0, 1, (6,)),
        TextDelta("c", 1, 1, (7,), [{"token_id": 7, "logprob": -0.25}]),
        Finish("stop", "stop"),
        UsageReport(Usage(3, 2)),
        End(),
    )
    assert list(first.chunk.token_ids) == [5]
    assert first.chunk.completion_tokens == 1
    told = first.chunk.output_logprobs
    assert list(told.token_ids) == [5]
    assert list(told.token_logprobs) == [-0.5]
    assert list(told.top_logprobs[0].token_ids) == [6]
    assert list(second.chunk.token_ids) == [6]
    assert third.chunk.index == 1
    assert list(third.chunk.output_logprobs.token_logprobs) == [-0.25]
    done = last.complete
    assert list(done.output_ids) == [6]
    assert (done.finish_reason, done.prompt_tokens, done.completion_tokens) == (
        "stop",
        3,
        1,
    )


def test_an_error_breaks_the_answer():
    (broken,) = written(Failure(ServerFailed("boom")))
    assert broken.complete.finish_reason == "error"


def test_descriptors_live_side_by_side():
    default = descriptor_pool.Default()
    for ours, theirs in [
        (engine().GenerateRequest, pb.GenerateRequest),
        (engine().GenerateResponse, pb.GenerateResponse),
        (engine().SamplingParams, pb.SamplingParams),
        (common().GetTokenizerChunk, common_pb2.GetTokenizerChunk),
    ]:
        mine, real = ours.DESCRIPTOR, theirs.DESCRIPTOR
        assert mine.full_name == real.full_name
        assert mine is not real
        assert default.FindMessageTypeByName(real.full_name) is real


def fields(descriptor):
    return {
        field.name: (
            field.number,
            field.type,
            field.is_repeated,
            field.has_presence,
            field.containing_oneof and field.containing_oneof.name,
        )
        for field in descriptor.fields
    }


def test_the_messages_are_those_of_the_real_proto():
    for name in vars(engine()):
        mine = fields(getattr(engine(), name).DESCRIPTOR)
        real = fields(getattr(pb, name).DESCRIPTOR)
        assert {field: real[field] for field in mine} == mine
    params = fields(engine().SamplingParams.DESCRIPTOR)
    assert params == fields(pb.SamplingParams.DESCRIPTOR)


# -- over the wire ---------------------------------------------------------------

WIRE = "Hello, world. 日本語 👩‍👩‍👧 done."
QUICK = midstream.Resume(attempts=3, backoff=midstream.Backoff(initial=0, maximum=0))


@given(st.lists(st.binary(min_size=1, max_size=5), max_size=9))
def test_any_tokens_even_those_that_cross_characters(tokens):
    text = b"".join(tokens).decode("utf-8", "ignore")
    pieces = [bytes(piece) for piece in tokens]
    speech = Speech(tokenizer=Table(pieces), silent=())
    machine = ChunkReader(Asked(id="", speech=speech))
    events = read(machine, *[chunk([nth]) for nth in range(len(pieces))], complete())
    assert joined(events) == b"".join(pieces)
    assert ids_in(events) == list(range(len(pieces)))
    assert joined(events).decode("utf-8", "ignore") == text


class Table:
    special = frozenset()

    def __init__(self, pieces):
        self._pieces = pieces

    def token_bytes(self, id_):
        return self._pieces[id_]

    def encode(self, text, *, whole):
        raise UsageError("no encoder")


ACROSS = [b"The q", b"uick \xe6", b"\x97\xa5\xe6", b"\x9c", b"\xac!", b" \xf0\x9f"]
ACROSS += [b"\x98", b"\x80<", b"|", b"x <|e", b"nd|> gone"]


@pytest.mark.parametrize("way", ["tokens", "text"])
@pytest.mark.parametrize("prompt", ["Why?", CHAT], ids=["raw", "chat"])
@pytest.mark.parametrize("stop", [None, ["<|end|>", "gone"]], ids=["whole", "stop"])
def test_cut_behind_every_token_that_crosses_characters(way, prompt, stop):
    text = b"".join(ACROSS).decode()
    want = text.partition("<|end|>")[0] if stop else text
    resume = midstream.Resume(strategies=(way,), backoff=QUICK.backoff)
    cuts = range(1, len(ACROSS))
    faults = [fault for cut in cuts for fault in (Cut(after=cut), None)]
    with (
        FakeServer(tokens=ACROSS, faults=faults) as server,
        midstream.Client(server.endpoint("vllm-grpc"), resume=resume) as client,
    ):
        for _ in cuts:
            with client.stream(prompt, stop=stop, max_tokens=40) as stream:
                assert stream.read() == want
            # A connection that breaks may take its first messages with it.
            [one] = stream.resumes
            assert one.strategy == (way if one.at else "begin")
            assert stream.finish_reason == "stop"
        hows = {entry.how for entry in server.streams}
        tokenizers = [r for r in server.requests if r.path == TOKENIZER]
    assert hows == {"top", "tokens"}
    assert len(tokenizers) == 1


def test_cut_twice_and_the_limit_holds():
    with (
        FakeServer(tokens=ACROSS, faults=[Cut(after=3), Cut(after=3)]) as server,
        midstream.Client(server.endpoint("vllm-grpc"), resume=QUICK) as client,
        client.stream("Why?", max_tokens=8) as stream,
    ):
        assert stream.read() == b"".join(ACROSS[:8]).decode()
        assert stream.finish_reason == "length"
        limits = [s.body["sampling_params"]["max_tokens"] for s in server.streams]
    assert limits == [8, 7, 7]  # text of one token came; then none of the others'


def test_a_tokenizer_that_nobody_hands_out():
    routes = {TOKENIZER: Status(501, "Method not found!")}
    with FakeServer("Hello", routes=routes) as server:
        with (
            midstream.Client(server.endpoint("vllm-grpc")) as client,
            client.stream("Why?") as stream,
            pytest.raises(UsageError, match=r"Endpoint\(tokenizer="),
        ):
            stream.read()
        endpoint = midstream.Endpoint(
            "vllm-grpc", base_url=server.url("vllm-grpc"), tokenizer=str(JA)
        )
        with (
            midstream.Client(endpoint) as client,
            client.stream("吾輩は猫") as stream,
            pytest.raises(midstream.BadRequest, match="out of vocabulary"),
        ):
            stream.read()


def test_a_busy_server_that_hands_out_a_tokenizer_later():
    routes = {TOKENIZER: Status(503, "loading")}
    with (
        FakeServer("Hello", routes=routes) as server,
        midstream.Client(server.endpoint("vllm-grpc"), resume=QUICK) as client,
        client.stream("Why?") as stream,
        pytest.raises(midstream.MidstreamError),
    ):
        stream.read()
    assert len([r for r in server.requests if r.path == TOKENIZER]) == 4
