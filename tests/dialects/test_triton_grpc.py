"""Triton over gRPC: requests that fit each backend, and every kind of response."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._dialects.base import Continuation, Generation, Received, Reply
from midstream._dialects.grpc_call import address
from midstream._dialects.kserve import (
    CONFIG,
    METADATA,
    STREAM,
    TensorSpec,
    messages,
    parse_request,
    put_parameter,
    put_tensor,
    write_config,
    write_metadata,
)
from midstream._dialects.triton_grpc import TRITON_GRPC, fault
from midstream._frames.messages import MessageFramer
from midstream._utf8 import Utf8Decoder
from midstream._values.endpoint import Endpoint
from midstream._values.errors import (
    BadRequest,
    ContextOverflow,
    NotFound,
    Overloaded,
    ServerFailed,
    UsageError,
    WireError,
)
from midstream._values.events import (
    End,
    Failure,
    Finish,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReport,
)
from midstream._values.request import Request
from midstream._values.usage import Usage

CAPTURES = Path(__file__).parents[1] / "captures" / "triton"

VLLM = {
    "text_input": ("BYTES", (1,)),
    "image": ("BYTES", (-1,)),
    "stream": ("BOOL", (1,)),
    "sampling_parameters": ("BYTES", (1,)),
    "exclude_input_in_output": ("BOOL", (1,)),
    "return_finish_reason": ("BOOL", (1,)),
    "return_num_input_tokens": ("BOOL", (1,)),
    "return_num_output_tokens": ("BOOL", (1,)),
}
ENSEMBLE = {
    "text_input": ("BYTES", (-1, 1)),
    "max_tokens": ("INT32", (-1, 1)),
    "stream": ("BOOL", (-1, 1)),
    "stop_words": ("BYTES", (-1, -1)),
    "bad_words": ("BYTES", (-1, -1)),
    "top_k": ("INT32", (-1, 1)),
    "top_p": ("FP32", (-1, 1)),
    "temperature": ("FP32", (-1, 1)),
    "seed": ("UINT64", (-1, 1)),
    "exclude_input_in_output": ("BOOL", (-1, 1)),
}
LLM_API = {
    "text_input": ("BYTES", (-1,)),
    "streaming": ("BOOL", (1,)),
    "stop": ("BOOL", (1,)),
    "sampling_param_max_tokens": ("INT32", (1,)),
    "sampling_param_temperature": ("FP32", (1,)),
    "sampling_param_stop": ("BYTES", (-1,)),
    "sampling_param_seed": ("UINT64", (1,)),
    "sampling_param_exclude_input_from_output": ("BOOL", (1,)),
    "return_finish_reason": ("BOOL", (1,)),
}
OWN = {"text_input": ("BYTES", (1,))}
OUTPUTS = ("text_output", "finish_reason", "cumulative_logprob")


def generation(prompt="Q: ", *, model="llm", text="auto", template=None, **request):
    return Generation(
        endpoint=Endpoint(
            "triton-grpc",
            model=model,
            base_url="localhost:8001",
            api_key="secret",
            headers={"X-Team": "a"},
            text=text,
            template=template,
        ),
        request=Request.of(prompt=prompt, **request),
        handle="r1",
    )


class Model:
    """Answers the calls of a flow as a Triton that serves this model."""

    def __init__(self, inputs, outputs=OUTPUTS, config=()):
        self.calls = []
        specs = [TensorSpec(name, *spec) for name, spec in inputs.items()]
        gives = [TensorSpec(name) for name in outputs]
        self._replies = {
            METADATA: write_metadata("llm", specs, gives),
            CONFIG: write_config("llm", dict(config)),
        }

    def run(self, flow):
        reply = None
        while True:
            try:
                call = flow.send(reply)
            except StopIteration as result:
                return result.value
            self.calls.append(call)
            reply = Reply(200, {}, self._replies[call.method])

    def ask(self, generation):
        """The call that begins, and the request in it."""
        call = self.run(TRITON_GRPC.begin(generation))
        return call, parse_request(call.content)


FULL = {
    "max_tokens": 9,
    "temperature": 0.5,
    "top_p": 0.25,
    "seed": 7,
    "stop": ["a", "b"],
}


def test_vllm_gets_its_document_of_sampling_parameters():
    call, request = Model(VLLM).ask(generation(**FULL, extra={"top_k": 5}))
    assert call.url == "grpc://localhost:8001"
    assert call.method == STREAM
    assert call.secrets == {"authorization": "Bearer secret", "x-team": "a"}
    assert request.inputs.keys() == VLLM.keys() - {"image"}
    assert (request.model, request.id, request.text_input) == ("llm", "r1", "Q: ")
    assert request.parameters == {"triton_enable_empty_final_response": True}
    for flag in VLLM.keys() - {"text_input", "image", "sampling_parameters"}:
        assert request.inputs[flag] == [True]
    assert {k: request.sampling[k] for k in FULL} == FULL
    assert request.sampling["top_k"] == 5
    assert list(request.outputs) == ["text_output", "finish_reason"]


def test_the_ensemble_gets_tensors_with_a_batch():
    call, request = Model(ENSEMBLE).ask(generation(**FULL, extra={"top_k": 5}))
    assert request.inputs == {
        "text_input": [b"Q: "],
        "max_tokens": [9],
        "stream": [True],
        "stop_words": [b"a", b"b"],
        "top_k": [5],
        "top_p": [0.25],
        "temperature": [0.5],
        "seed": [7],
        "exclude_input_in_output": [True],
    }
    message = messages().ModelInferRequest.FromString(call.content)
    shapes = {tensor.name: list(tensor.shape) for tensor in message.inputs}
    assert shapes["text_input"] == [1, 1]
    assert shapes["stop_words"] == [1, 2]
    assert {t.name: t.datatype for t in message.inputs}["seed"] == "UINT64"


def test_the_llm_api_gets_its_own_names():
    given = {**FULL, "top_p": None}
    call, request = Model(LLM_API).ask(generation(**given))
    assert request.inputs["streaming"] == [True]
    assert request.inputs["sampling_param_max_tokens"] == [9]
    assert request.inputs["sampling_param_stop"] == [b"a", b"b"]
    assert request.inputs["sampling_param_exclude_input_from_output"] == [True]
    assert "stop" not in request.inputs  # a BOOL, which cancels
    message = messages().ModelInferRequest.FromString(call.content)
    assert [list(t.shape) for t in message.inputs if t.name == "text_input"] == [[1]]


def test_an_own_model_gets_request_parameters():
    given = generation(max_tokens=9, stop="a", extra={"parameters": {"x": 1}, "y": 0.5})
    _, request = Model(OWN).ask(given)
    assert request.inputs == {"text_input": [b"Q: "]}
    assert request.parameters == {
        "triton_enable_empty_final_response": True,
        "max_tokens": 9,
        "stop": "a",
        "x": 1,
        "y": 0.5,
    }


def test_what_an_own_model_cannot_be_told():
    for more in {"stop": ["a", "b"]}, {"extra": {"sampling_parameters": {"n": 2}}}:
        with pytest.raises(UsageError, match="has no input of this name"):
            Model(OWN).ask(generation(**more))
    with pytest.raises(UsageError, match="no UINT64"):
        Model(ENSEMBLE).ask(generation(seed=-1))


@pytest.mark.parametrize("document", [{"n": 2, "top_k": 5}, '{"n": 2, "top_k": 5}'])
def test_sampling_parameters_of_the_callers_own(document):
    extra = {"sampling_parameters": document, "image": ["cG5n"]}
    _, request = Model(VLLM).ask(generation(max_tokens=9, extra=extra))
    assert request.inputs["sampling_parameters"] == [
        b'{"max_tokens":9,"n":2,"top_k":5}'
    ]
    assert request.inputs["image"] == [b"cG5n"]
    with pytest.raises(UsageError, match="no JSON object"):
        Model(VLLM).ask(generation(extra={"sampling_parameters": "[]"}))


def test_metadata_is_asked_once_per_model():
    model, given = Model(VLLM), generation()
    model.ask(given)
    model.ask(given)
    assert [call.method for call in model.calls] == [METADATA]
    assert model.calls[0].secrets == {"authorization": "Bearer secret", "x-team": "a"}


def test_a_model_of_another_kind():
    with pytest.raises(UsageError, match="no text_input, only image"):
        Model({"image": ("BYTES", (1,))}).ask(generation())
    with pytest.raises(UsageError, match="no text_output, only nothing"):
        Model(VLLM, outputs=()).ask(generation())


def test_what_the_dialect_cannot_say():
    with pytest.raises(UsageError, match='"triton-grpc:llm"'):
        Model(VLLM).ask(generation(model=None))
    with pytest.raises(UsageError, match="no tools"):
        Model(VLLM).ask(generation(tools=[{}]))
    with pytest.raises(UsageError, match="template"):
        Model(VLLM).ask(generation([{"role": "user", "content": "Q"}]))


def test_messages_with_a_template():
    given = generation(
        [{"role": "user", "content": "Q"}],
        template=lambda turns: f"<{turns[0].content}>",
    )
    assert Model(VLLM).ask(given)[1].text_input == "<Q>"


def test_a_continuation_appends_the_text_and_counts_down():
    given = generation(max_tokens=9)
    received = Received(text="東京", tokens=4, left=5)
    flow = TRITON_GRPC.continuation(given, "text", received)
    continuation = Model(VLLM).run(flow)
    assert isinstance(continuation, Continuation)
    assert (continuation.sent, continuation.echo) == ("東京", "none")
    request = parse_request(continuation.call.content)
    assert (request.text_input, request.max_tokens) == ("Q: 東京", 5)


def test_nothing_is_left_behind():
    assert list(TRITON_GRPC.leave(generation(), Received())) == []


def test_constraints_refuse_a_prefix():
    def why(**extra):
        return TRITON_GRPC.no_prefix(Request.of(prompt="Q", extra=extra))

    assert why() is None
    assert "guided_json" in why(guided_json={})
    assert "guided_decoding" in why(sampling_parameters='{"guided_decoding": {}}')
    assert why(sampling_parameters={"n": 2}) is None


def test_the_row():
    assert TRITON_GRPC.name == "triton-grpc"
    assert TRITON_GRPC.transport == "grpc"
    assert isinstance(TRITON_GRPC.framer(), MessageFramer)
    assert TRITON_GRPC.strategies == ("text",)
    assert address(TRITON_GRPC.default_url, 8001) == "grpc://localhost:8001"


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("host:1", "grpc://host:1"),
        ("host", "grpc://host:8001"),
        ("http://host:1/", "grpc://host:1"),
        ("https://host", "grpcs://host:8001"),
        ("grpcs://user:key@host:1/v2", "grpcs://host:1"),
        ("[::1]", "grpc://[::1]:8001"),
        ("[::1]:9", "grpc://[::1]:9"),
    ],
)
def test_addresses(url, want):
    assert address(url, 8001) == want


def test_no_address():
    with pytest.raises(UsageError, match="has no host"):
        address("grpc://", 8001)


@pytest.mark.parametrize(
    ("words", "kind", "retryable"),
    [
        ("Request for unknown model: 'nope' is not found", NotFound, False),
        ("Request for unknown model: 'm' has no available versions", Overloaded, True),
        ("[request id: b1] Exceeds maximum queue size", Overloaded, True),
        ("Request timeout expired", Overloaded, True),
        ("Stub process 'llm_0_0' is not healthy.", Overloaded, True),
        ("Model is unavailable due to unhealthy vLLM engine", Overloaded, True),
        ("unexpected inference input 'streem' for model 'llm'", BadRequest, False),
        ("[request id: r1] incomplete string length indicator", BadRequest, False),
        ("expected 2 inputs but got 1 inputs for model 'm'", BadRequest, False),
        ("prompt (length 9) exceeds maximum model length", ContextOverflow, False),
        ("Error generating stream: CUDA out of memory", ServerFailed, False),
    ],
)
def test_faults(words, kind, retryable):
    error = fault(words)
    assert type(error) is kind
    assert (error.message, error.retryable) == (words, retryable)


def read(messages_, generation=None):
    reader = TRITON_GRPC.reader(generation)
    return [event for data in messages_ for event in reader.read(data, "")]


def captured():
    lines = (CAPTURES / "grpc_stream_messages.txt").read_text().split()
    return [bytes.fromhex(line) for line in lines]


def test_captured_messages():
    events = read(captured())
    assert events == [
        Started("r1", "llm"),
        TextDelta("\udce6"),
        TextDelta("\udc9d\udcb1"),
        TextDelta("京"),
        TextDelta("\udce3"),
        End(),
    ]
    decoder = Utf8Decoder()
    texts = [decoder.decode(e.text) for e in events if isinstance(e, TextDelta)]
    assert texts == ["", "東", "京", ""]


def test_our_messages_are_tritons():
    writer = TRITON_GRPC.writer()
    written = [m for event in read(captured()) for m in writer.write(event)]
    assert written == captured()


def response(*texts, final=False, **tensors):
    message = messages().ModelStreamInferResponse()
    inner = message.infer_response
    inner.model_name = "llm"
    put_parameter(inner.parameters, "triton_final_response", final)
    given = {"text_output": texts, **tensors} if texts else tensors
    for name, values in given.items():
        datatype = "UINT32" if name.startswith("num_") else "BYTES"
        spec = TensorSpec(name, datatype, (len(values),))
        put_tensor(inner, "output", spec, values)
    return message.SerializeToString()


def error(words):
    message = messages().ModelStreamInferResponse(error_message=words)
    message.infer_response.id = "r1"
    return message.SerializeToString()


def test_the_final_response_may_hold_the_last_text():
    assert read([response("a"), response("b", final=True)]) == [
        Started(None, "llm"),
        TextDelta("a"),
        TextDelta("b"),
        End(),
    ]


def vllm(text, tokens, reason="None"):
    counts = {"num_output_tokens": [tokens], "num_input_tokens": [5]}
    return response(text, finish_reason=[reason], **counts)


def test_vllm_counts_and_reasons():
    told = [vllm("a", 2), vllm("", 1), vllm("b", 1), vllm("", 0, "length")]
    got = read([*told, response(final=True)])
    assert got == [
        Started(None, "llm"),
        TextDelta("a", tokens=2),
        TextDelta("b", tokens=2),  # a token whose text was held back comes with it
        Finish("length", "length"),
        UsageReport(Usage(5, 4)),
        End(),
    ]


def test_only_input_tokens_are_told():
    got = read([response("a", num_input_tokens=[5]), response(final=True)])
    assert UsageReport(Usage(5, None)) in got


def test_several_choices():
    got = read(
        [
            response("a", "x", finish_reason=["None", "None"]),
            response("", "y", finish_reason=["stop", "None"]),
            response("", "", finish_reason=["stop", "length"], final=True),
        ]
    )
    assert got == [
        Started(None, "llm"),
        TextDelta("a"),
        TextDelta("x", choice=1),
        TextDelta("y", choice=1),
        Finish("stop", "stop"),
        Finish("length", "length", 1),
        End(),
    ]


def test_an_aborted_answer_is_no_end():
    got = read([response("a", finish_reason=["abort"], final=True)])
    assert got[:2] == [Started(None, "llm"), TextDelta("a")]
    assert isinstance(got[2], Failure)
    assert got[2].error.retryable
    assert len(got) == 3


def test_an_rpc_that_just_ends_is_a_drop():
    assert TRITON_GRPC.reader().eof() == []


def test_errors_come_inside_the_stream():
    (failure,) = read([error("Error generating stream: out of memory")])
    assert isinstance(failure.error, ServerFailed)


def test_an_outdated_signature_is_forgotten():
    given = generation()
    Model(VLLM).ask(given)
    read([error("Request timeout expired")], given)
    assert given.memory
    read([error("unexpected inference input 'stream' for model 'llm'")], given)
    assert not given.memory


@pytest.mark.parametrize("data", [b"\xff", b"not a message"])
def test_what_is_no_message(data):
    with pytest.raises(WireError):
        read([data])


WHOLES = [
    response("ha"),
    response("haha\ufffd"),
    response("haha東"),
    response(final=True),
]


def joined(messages_, given):
    return "".join(e.text for e in read(messages_, given) if isinstance(e, TextDelta))


def test_auto_never_takes_a_repetition_for_cumulative_text():
    given = generation()
    Model(VLLM).ask(given)
    assert (
        joined([response("ha"), response("haha"), response("ha")], given) == "hahahaha"
    )
    assert joined(WHOLES, generation()) == "hahaha\ufffdhaha東"  # nothing is known yet


def test_cumulative_where_the_server_or_the_caller_says_so():
    llm_api = generation()
    Model(LLM_API).ask(llm_api)
    bls = generation()
    model = Model(ENSEMBLE, config={"accumulate_tokens": "true"})
    model.ask(bls)
    assert [call.method for call in model.calls] == [METADATA, CONFIG]
    for one in llm_api, bls, generation(text="cumulative"):
        assert joined(WHOLES, one) == "haha東"


def test_delta_where_the_server_or_the_caller_says_so():
    bls = generation()
    Model(ENSEMBLE).ask(bls)
    told = generation(text="delta")
    model = Model(ENSEMBLE, config={"accumulate_tokens": "true"})
    model.ask(told)
    assert [call.method for call in model.calls] == [METADATA]
    llm_api = generation(text="delta")
    Model(LLM_API).ask(llm_api)
    for one in bls, told, llm_api:
        assert joined([response("ha"), response("haha")], one) == "hahaha"


def test_the_unsure_end_of_cumulative_text():
    given = generation(text="cumulative")
    got = read([response("a\ufffd", finish_reason=["stop"], final=True)], given)
    assert got[1:] == [
        TextDelta("a"),
        TextDelta("\ufffd", tokens=0),
        Finish("stop", "stop"),
        End(),
    ]


def test_writing_failures_and_what_triton_has_not():
    writer = TRITON_GRPC.writer()
    assert writer.write(ReasoningDelta("hm")) == []
    (data,) = writer.write(Failure(BadRequest("unexpected inference input")))
    (failure,) = read([data])
    assert isinstance(failure.error, BadRequest)
    assert writer.write(Started(None, None)) == []


texts = st.builds(
    TextDelta,
    st.binary(min_size=1).map(lambda b: b.decode("utf-8", "surrogateescape")),
    st.just(0),
    st.one_of(st.none(), st.integers(0, 9)),
)


@given(
    st.lists(texts),
    st.one_of(st.none(), st.builds(Finish, st.just("stop"), st.just("stop"))),
    st.one_of(st.none(), st.integers(0, 99)),
    st.integers(0, 2),
)
def test_what_is_written_is_read_back(deltas, finish, input_tokens, choice):
    for delta in deltas:
        delta.choice = choice
        if choice and delta.tokens is None:
            delta.tokens = 1  # one count in a message tells of all its choices
    total = sum(1 if delta.tokens is None else delta.tokens for delta in deltas)
    events = [Started("r1", "llm"), *deltas]
    if finish is not None:
        finish.choice = choice
        events.append(finish)
    if input_tokens is not None:
        events.append(UsageReport(Usage(input_tokens, total)))
    events.append(End())
    writer = TRITON_GRPC.writer()
    got = read([data for event in events for data in writer.write(event)])
    if input_tokens is None:
        got = [event for event in got if not isinstance(event, UsageReport)]
    assert got == events


@pytest.mark.parametrize("usage", [Usage(3, None), Usage(None, 3)])
def test_half_a_usage(usage):
    writer = TRITON_GRPC.writer()
    written = [*writer.write(UsageReport(usage)), *writer.write(End())]
    assert read(written)[1:] == [UsageReport(usage), End()]


def test_a_finish_without_a_reason():
    writer = TRITON_GRPC.writer()
    written = [*writer.write(Finish(None)), *writer.write(End())]
    assert read(written)[1:] == [End()]
