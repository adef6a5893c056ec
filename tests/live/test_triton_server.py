"""The real Triton with the fake model does what the tests of resuming rely on."""

from __future__ import annotations

import importlib.util
import json
import threading
import time
from pathlib import Path

import grpc
import httpx
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

MODEL = Path(__file__).parent / "triton_models/llm/1/fake_llm.py"
STREAM = "/v2/models/llm/generate_stream"
INFER = "/inference.GRPCInferenceService/ModelStreamInfer"


@pytest.fixture(scope="module")
def fake():
    """The model's own module, for what it will say."""
    spec = importlib.util.spec_from_file_location("fake_llm", MODEL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def events(response):
    """Triton's events, text as bytes: they hold raw halves of characters."""
    for line in response.content.split(b"\n\n"):
        if line:
            event = json.loads(
                line.removeprefix(b"data: ").decode("utf-8", "surrogateescape")
            )
            if "text_output" in event:
                text = event["text_output"].encode("utf-8", "surrogateescape")
                event["text_output"] = text
            yield event


@pytest.fixture
def http(triton_http_url):
    with httpx.Client(base_url=triton_http_url, timeout=60, trust_env=False) as client:
        yield client


def generate(http, **inputs):
    body = json.dumps(inputs, ensure_ascii=False).encode("utf-8", "surrogateescape")
    response = http.post(STREAM, content=body)
    return response, list(events(response))


def test_pieces_end_inside_characters(http, fake):
    response, got = generate(http, text_input="Q: ", max_tokens=300)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    pieces = [event["text_output"] for event in got]
    assert len(pieces) == 300
    assert b"".join(pieces) == fake.TEXT[: fake.BORDERS[300]]
    assert sum(piece != piece.decode("utf-8", "ignore").encode() for piece in pieces)


@pytest.mark.parametrize("tokens", [1, 2, 5, 40, 41, 42, 43, 44, 45, 199])
def test_continues_at_any_token(http, fake, tokens):
    received = fake.TEXT[: fake.BORDERS[tokens]].decode("utf-8", "surrogateescape")
    _, got = generate(http, text_input="Q: " + received, max_tokens=200 - tokens)
    rest = b"".join(event["text_output"] for event in got)
    assert rest == fake.TEXT[fake.BORDERS[tokens] : fake.BORDERS[200]]


def test_borders_do_not_depend_on_where_it_continues(fake):
    whole = [piece for piece, _ in fake.answer(b"")]
    assert b"".join(whole) == fake.TEXT
    for at in range(1, 2000):
        pieces = [piece for piece, _ in fake.answer(b"prompt" + fake.TEXT[:at], 3)]
        end = fake.BORDERS.index(at + len(b"".join(pieces)))
        assert whole[end - len(pieces) + 1 : end] == pieces[1:]


def test_stop_and_finish_reasons(http, fake):
    options = {"return_finish_reason": True, "return_num_output_tokens": True}
    stopped = generate(http, text_input="Q: ", stop=["lighthouse"], **options)[1]
    text = b"".join(event["text_output"] for event in stopped)
    assert text == fake.TEXT[: fake.TEXT.index(b"lighthouse")]
    assert stopped[-1]["finish_reason"] == "stop"
    assert {event["finish_reason"] for event in stopped[:-1]} == {"None"}
    document = json.dumps({"stop": ["lighthouse"], "max_tokens": 5})
    _, few = generate(http, text_input="", sampling_parameters=document, **options)
    assert [event["finish_reason"] for event in few] == ["None"] * 4 + ["length"]
    assert sum(event["num_output_tokens"] for event in few) == 5


def test_errors(http):
    _, got = generate(http, text_input="", parameters={"fail_after": 3})
    assert len(got) == 4
    assert "CUDA out of memory (simulated) after 3" in got[-1]["error"]
    response, got = generate(http, text_input="", parameters={"fail_after": 0})
    assert response.status_code == 400
    assert "(日本)" in got[0]["error"]


def until(condition):
    """What a condition gives once it gives something, within 30 seconds."""
    end = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def test_leaving_stops_generation(triton, http):
    body = {
        "id": "leaves",
        "text_input": "",
        "parameters": {"delay": 0.005},
        "max_tokens": 5000,
    }
    with http.stream("POST", STREAM, json=body) as response:
        next(response.iter_raw())
    left = time.time()
    (note,) = until(lambda: [r for r in triton.requests() if r["id"] == "leaves"])
    assert note["end"] == "cancelled"
    assert sum(at > left for at in note["times"]) <= 200  # of 5,000


# The messages of ModelStreamInfer that are needed here, written down by hand.
FIELDS = {
    "Value": [("flag", 1, "BOOL")],
    "Tensor": [
        ("name", 1, "STRING"),
        ("datatype", 2, "STRING"),
        ("shape", 3, "*INT64"),
    ],
    "Ask": [
        *[("model_name", 1, "STRING"), ("id", 3, "STRING"), ("inputs", 5, "*Tensor")],
        ("raw", 7, "*BYTES"),
    ],
    "Answer": [("id", 3, "STRING"), ("outputs", 5, "*Tensor"), ("raw", 6, "*BYTES")],
    "Reply": [("error", 1, "STRING"), ("answer", 2, "Answer")],
}


@pytest.fixture(scope="module")
def messages():
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t")
    for message, fields in FIELDS.items():
        made = file.message_type.add(name=message)
        for name, number, kind in fields:
            field = made.field.add(name=name, number=number)
            plain = kind.removeprefix("*")
            field.label = (
                kinds.LABEL_REPEATED if kind[0] == "*" else kinds.LABEL_OPTIONAL
            )
            if plain in FIELDS:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".t.{plain}"
            else:
                field.type = getattr(kinds, f"TYPE_{plain}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return {n: message_factory.GetMessageClass(find(f"t.{n}")) for n in FIELDS}


def ask(messages, identifier, max_tokens, options):
    words = [b"Q: ", json.dumps(options).encode()]
    return messages["Ask"](
        model_name="llm",
        id=identifier,
        inputs=[
            messages["Tensor"](name="text_input", datatype="BYTES", shape=[1]),
            messages["Tensor"](name="sampling_parameters", datatype="BYTES", shape=[1]),
            messages["Tensor"](name="max_tokens", datatype="INT32", shape=[1]),
        ],
        raw=[
            *(len(word).to_bytes(4, "little") + word for word in words),
            max_tokens.to_bytes(4, "little"),
        ],
    ).SerializeToString()


def test_grpc_streams_bytes_and_cancels(triton, triton_grpc_url, messages, fake):
    with grpc.insecure_channel(triton_grpc_url) as channel:
        infer = channel.stream_stream(
            INFER, response_deserializer=messages["Reply"].FromString
        )
        call = infer(iter([ask(messages, "all", 100, {})]), timeout=60)
        replies = list(call)
        assert (
            b"".join(r.answer.raw[0][4:] for r in replies)
            == (fake.TEXT[: fake.BORDERS[100]])
        )
        never = threading.Event()  # a request stream that stays open

        def requests():
            yield ask(messages, "cancelled", 5000, {"delay": 0.005})
            never.wait(60)

        call = infer(requests(), timeout=60)
        next(call)
        call.cancel()
        cancelled = time.time()
        never.set()
    (note,) = until(lambda: [r for r in triton.requests() if r["id"] == "cancelled"])
    assert note["end"] == "cancelled"
    assert sum(at > cancelled for at in note["times"]) <= 200  # of 5,000
