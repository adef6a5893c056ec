"""Tensors, parameters, metadata and requests of the KServe messages."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._dialects.kserve import (
    TensorSpec,
    messages,
    pack,
    parse_request,
    put_parameter,
    put_tensor,
    raw_bytes,
    read_config,
    read_metadata,
    read_parameters,
    read_tensors,
    unpack,
    write_config,
    write_metadata,
)
from midstream._values.errors import UsageError, WireError

CAPTURES = Path(__file__).parents[1] / "captures" / "triton"


@pytest.mark.parametrize(
    ("datatype", "values", "data"),
    [
        ("BYTES", ["é", b"\xe6"], b"\x02\0\0\0\xc3\xa9\x01\0\0\0\xe6"),
        ("BYTES", ["\udce6"], b"\x01\0\0\0\xe6"),
        ("BOOL", [True, False], b"\x01\x00"),
        ("INT32", [4], b"\x04\0\0\0"),
        ("UINT64", [2**63], b"\0" * 7 + b"\x80"),
        ("FP32", [0.5], b"\0\0\0?"),
        ("FP16", [1.0], b"\x00<"),
    ],
)
def test_pack(datatype, values, data):
    assert pack(datatype, values) == data
    back = [raw_bytes(v) if isinstance(v, str) else v for v in values]
    assert unpack(datatype, data) == back


@pytest.mark.parametrize(
    ("datatype", "value"),
    [("INT32", "x"), ("UINT64", -1), ("FP16", 1e9), ("STRANGE", 1), ("INT8", 1000)],
)
def test_a_value_that_does_not_fit(datatype, value):
    with pytest.raises(UsageError, match=datatype):
        pack(datatype, [value])


def test_text_that_no_bytes_stand_behind():
    with pytest.raises(UsageError, match="surrogate"):
        raw_bytes("\ud83d")


@pytest.mark.parametrize(
    ("datatype", "data"),
    [("BYTES", b"\x01\0"), ("BYTES", b"\x02\0\0\0a"), ("INT32", b"\x01")],
)
def test_cut_contents(datatype, data):
    with pytest.raises(WireError):
        unpack(datatype, data)


def test_a_type_nobody_needs():
    assert unpack("BF16", b"\0\0") == []


@given(st.lists(st.binary()))
def test_strings_survive(values):
    assert unpack("BYTES", pack("BYTES", values)) == values


def test_typed_contents():
    response = messages().ModelInferResponse()
    response.outputs.add(name="t", datatype="BYTES").contents.bytes_contents.append(
        b"a"
    )
    response.outputs.add(name="n", datatype="UINT32").contents.uint_contents.append(7)
    response.outputs.add(name="h", datatype="FP16")
    tensors = read_tensors(response.outputs, response.raw_output_contents)
    assert tensors == {"t": [b"a"], "n": [7], "h": []}


def test_contents_are_missing():
    response = messages().ModelInferResponse()
    response.outputs.add(name="t", datatype="BYTES")
    with pytest.raises(WireError, match="1 tensors with 2"):
        read_tensors(response.outputs, [b"", b""])


def test_parameters():
    request = messages().ModelInferRequest()
    values = {"a": True, "b": -1, "c": 2**64 - 1, "d": 0.5, "e": "x"}
    for name, value in values.items():
        put_parameter(request.parameters, name, value)
    request.parameters["unset"].Clear()
    assert read_parameters(request.parameters) == values
    for value in None, [1], 2**64:
        with pytest.raises(UsageError, match="has no input of this name"):
            put_parameter(request.parameters, "f", value)


def test_metadata_and_config():
    specs = [TensorSpec("text_input", "BYTES", (-1, 1)), TensorSpec("n", "INT32", ())]
    metadata = read_metadata(write_metadata("llm", specs, [TensorSpec("text_output")]))
    assert list(metadata.inputs.values()) == specs
    assert metadata.outputs == {"text_output": TensorSpec("text_output")}
    config = read_config(write_config("bls", {"accumulate_tokens": "true"}))
    assert config == {"accumulate_tokens": "true"}


def test_a_request_that_triton_took():
    content = bytes.fromhex((CAPTURES / "grpc_request.hex").read_text())
    request = parse_request(content)
    assert (request.model, request.id, request.text_input) == ("llm", "r1", "Q: ")
    assert request.max_tokens == 4
    assert request.parameters == {"triton_enable_empty_final_response": True}
    assert request.outputs == ["text_output"]
    again = messages().ModelInferRequest.FromString(content)
    assert again.SerializeToString(deterministic=True) == content


def test_sampling_from_wherever_it_is():
    message = messages().ModelInferRequest(model_name="m")
    for name, datatype, values in [
        ("text_input", "BYTES", ["\udce6"]),
        ("sampling_parameters", "BYTES", ['{"temperature":0.5,"n":2}']),
        ("stop_words", "BYTES", ["a", "b"]),
        ("sampling_param_max_tokens", "INT32", [9]),
        ("bad_words", "BYTES", []),
    ]:
        put_tensor(message, "input", TensorSpec(name, datatype, (len(values),)), values)
    request = parse_request(message.SerializeToString())
    assert request.text_input == "\udce6"
    assert request.max_tokens == 9
    assert request.sampling == {
        "temperature": 0.5,
        "n": 2,
        "stop": ["a", "b"],
        "max_tokens": 9,
        "bad_words": None,
    }
    nothing = parse_request(messages().ModelInferRequest().SerializeToString())
    assert (nothing.text_input, nothing.max_tokens) == ("", None)
