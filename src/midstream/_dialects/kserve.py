"""Messages and tensors of the KServe v2 gRPC service, as NVIDIA Triton speaks it.

Source: triton-inference-server/common ``protobuf/grpc_service.proto`` and
``model_config.proto``; only the fields that streams of text need. BYTES elements are
a 4-byte little-endian length and that many bytes, all other types are packed little
endian. Text stays bytes here: Triton passes half characters through.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from midstream._dialects.documents import load_object
from midstream._dialects.protobuf import Package, parse
from midstream._values.errors import UsageError, WireError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SERVICE = "/inference.GRPCInferenceService/"
METADATA = SERVICE + "ModelMetadata"
CONFIG = SERVICE + "ModelConfig"
STREAM = SERVICE + "ModelStreamInfer"

Value: TypeAlias = "bool | int | float | str | bytes"

_TEXT = """
message InferParameter {
  oneof parameter_choice {
    bool bool_param = 1;
    int64 int64_param = 2;
    string string_param = 3;
    double double_param = 4;
    uint64 uint64_param = 5;
  }
}
message InferTensorContents {
  repeated bool bool_contents = 1;
  repeated int32 int_contents = 2;
  repeated int64 int64_contents = 3;
  repeated uint32 uint_contents = 4;
  repeated uint64 uint64_contents = 5;
  repeated float fp32_contents = 6;
  repeated double fp64_contents = 7;
  repeated bytes bytes_contents = 8;
}
message Tensor {  // InferInputTensor and InferOutputTensor
  string name = 1;
  string datatype = 2;
  repeated int64 shape = 3;
  map<string, InferParameter> parameters = 4;
  InferTensorContents contents = 5;
}
message InferRequestedOutputTensor {
  string name = 1;
  map<string, InferParameter> parameters = 2;
}
message ModelInferRequest {
  string model_name = 1;
  string model_version = 2;
  string id = 3;
  map<string, InferParameter> parameters = 4;
  repeated Tensor inputs = 5;
  repeated InferRequestedOutputTensor outputs = 6;
  repeated bytes raw_input_contents = 7;
}
message ModelInferResponse {
  string model_name = 1;
  string model_version = 2;
  string id = 3;
  map<string, InferParameter> parameters = 4;
  repeated Tensor outputs = 5;
  repeated bytes raw_output_contents = 6;
}
message ModelStreamInferResponse {
  string error_message = 1;
  ModelInferResponse infer_response = 2;
}
message ModelMetadataRequest {
  string name = 1;
  string version = 2;
}
message TensorMetadata {
  string name = 1;
  string datatype = 2;
  repeated int64 shape = 3;
}
message ModelMetadataResponse {
  string name = 1;
  repeated string versions = 2;
  string platform = 3;
  repeated TensorMetadata inputs = 4;
  repeated TensorMetadata outputs = 5;
}
message ModelConfigRequest {
  string name = 1;
  string version = 2;
}
message ModelParameter {
  string string_value = 1;
}
message ModelConfig {
  string name = 1;
  map<string, ModelParameter> parameters = 14;
}
message ModelConfigResponse {
  ModelConfig config = 1;
}
"""
_PACKED = {
    "BOOL": "?",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
_INT64 = 1 << 63
_LENGTH = struct.Struct("<I")


@cache
def messages() -> Package:
    """The messages, built once.

    Raises:
        UsageError: protobuf is not installed.
    """
    return Package("inference", _TEXT)


def raw_bytes(text: str) -> bytes:
    """UTF-8, with the raw bytes that surrogates stand for.

    Raises:
        UsageError: There are surrogates that stand for none.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"text with lone surrogates: {error.reason}") from error


def pack(datatype: str, values: Sequence[Any]) -> bytes:
    """A tensor's elements as raw contents.

    Raises:
        UsageError: A value does not fit the type, or the type is not known.
    """
    if datatype == "BYTES":
        parts: list[bytes] = []
        for value in values:
            data = value if isinstance(value, bytes) else raw_bytes(str(value))
            parts += _LENGTH.pack(len(data)), data
        return b"".join(parts)
    try:
        return struct.pack(f"<{len(values)}{_PACKED[datatype]}", *values)
    except (KeyError, struct.error, OverflowError) as error:
        raise UsageError(f"{values!r} is no {datatype} tensor: {error}") from error


def unpack(datatype: str, data: bytes) -> list[Any]:
    """A tensor's elements from raw contents; BYTES stay bytes.

    Raises:
        WireError: The contents are cut.
    """
    if datatype == "BYTES":
        return _strings(data)
    code = _PACKED.get(datatype)
    if code is None:
        return []
    try:
        return [value for (value,) in struct.iter_unpack(f"<{code}", data)]
    except struct.error as error:
        raise WireError(f"a {datatype} tensor of {len(data)} bytes") from error


def _strings(data: bytes) -> list[bytes]:
    elements, at = [], 0
    while at < len(data):
        begin = at + _LENGTH.size
        if begin > len(data):
            raise WireError("a BYTES tensor cut in a length")
        at = begin + _LENGTH.unpack_from(data, at)[0]
        if at > len(data):
            raise WireError("a BYTES tensor cut in an element")
        elements.append(data[begin:at])
    return elements


def read_tensors(tensors: Any, raw: Sequence[bytes]) -> dict[str, list[Any]]:
    """The elements of each tensor of a request or response, by name.

    Args:
        tensors: ``inputs`` or ``outputs``.
        raw: ``raw_input_contents`` or ``raw_output_contents``; empty where the
            tensors hold their contents themselves.

    Raises:
        WireError: Contents are cut or missing.
    """
    if not raw:
        return {t.name: _typed(t) for t in tensors}
    if len(raw) != len(tensors):
        raise WireError(f"{len(tensors)} tensors with {len(raw)} raw contents")
    return {
        tensor.name: unpack(tensor.datatype, data)
        for tensor, data in zip(tensors, raw, strict=True)
    }


def _typed(tensor: Any) -> list[Any]:
    name = _CONTENTS.get(tensor.datatype)
    return list(getattr(tensor.contents, name)) if name else []


def put_tensor(
    message: Any,
    side: Literal["input", "output"],
    spec: TensorSpec,
    values: Sequence[Any],
) -> None:
    """Add a tensor with raw contents.

    Args:
        message: A ``ModelInferRequest`` or ``ModelInferResponse``.
        side: Which it is.
        spec: The tensor's name, type and shape.
        values: Its elements.

    Raises:
        UsageError: They do not fit the type.
    """
    data = pack(spec.datatype, values)
    getattr(message, f"{side}s").add(
        name=spec.name, datatype=spec.datatype, shape=spec.shape
    )
    getattr(message, f"raw_{side}_contents").append(data)


def put_parameter(parameters: Any, name: str, value: Any) -> None:
    """Set one parameter of a request or response.

    Raises:
        UsageError: Parameters hold no such value.
    """
    match value:
        case bool():
            parameters[name].bool_param = value
        case int() if -_INT64 <= value < _INT64:
            parameters[name].int64_param = value
        case int() if 0 <= value < 2 * _INT64:
            parameters[name].uint64_param = value
        case float():
            parameters[name].double_param = value
        case str():
            parameters[name].string_param = value
        case _:
            raise UsageError(
                f"{name}={value!r}: the model has no input of this name, and a "
                "request parameter is a bool, int, float or str"
            )


def read_parameters(parameters: Mapping[str, Any]) -> dict[str, Value]:
    """The parameters of a request or response as plain values."""
    chosen = {
        name: parameter.WhichOneof("parameter_choice")
        for name, parameter in parameters.items()
    }
    return {name: getattr(parameters[name], arm) for name, arm in chosen.items() if arm}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a model says of one input or output.

    Attributes:
        name: Its name.
        datatype: Its type, as ``"BYTES"``, ``"INT32"``.
        shape: Its shape, -1 where any length goes; with the batch, where there is one.
    """

    name: str
    datatype: str = "BYTES"
    shape: tuple[int, ...] = (1,)


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a model takes and gives, by name.

    Attributes:
        inputs: Its inputs.
        outputs: Its outputs.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]


def read_metadata(content: bytes) -> Metadata:
    """Read a serialized ``ModelMetadataResponse``.

    Raises:
        WireError: It is none.
    """
    response = parse(messages().ModelMetadataResponse, content)
    inputs, outputs = (
        {t.name: TensorSpec(t.name, t.datatype, tuple(t.shape)) for t in tensors}
        for tensors in (response.inputs, response.outputs)
    )
    return Metadata(inputs, outputs)


def write_metadata(
    model: str,
    inputs: Iterable[TensorSpec],
    outputs: Iterable[TensorSpec],
    *,
    platform: str = "python",
) -> bytes:
    """A serialized ``ModelMetadataResponse``, as a server would send it."""
    response = messages().ModelMetadataResponse(
        name=model, versions=["1"], platform=platform
    )
    for field_, specs in (response.inputs, inputs), (response.outputs, outputs):
        for spec in specs:
            field_.add(name=spec.name, datatype=spec.datatype, shape=spec.shape)
    return bytes(response.SerializeToString(deterministic=True))


def read_config(content: bytes) -> dict[str, str]:
    """The parameters in a serialized ``ModelConfigResponse``.

    Raises:
        WireError: It is none.
    """
    response = parse(messages().ModelConfigResponse, content)
    return {k: v.string_value for k, v in response.config.parameters.items()}


def write_config(model: str, parameters: Mapping[str, str]) -> bytes:
    """A serialized ``ModelConfigResponse``, as a server would send it."""
    response = messages().ModelConfigResponse()
    response.config.name = model
    for name, value in parameters.items():
        response.config.parameters[name].string_value = value
    return bytes(response.SerializeToString(deterministic=True))


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A generation as a server reads it.

    Attributes:
        model: Which model.
        id: The request's id, echoed in each response.
        text_input: The prompt; half characters as lone surrogates.
        inputs: All input tensors' elements, by name; BYTES as bytes.
        parameters: The request's parameters.
        sampling: The sampling parameters from wherever they were: parameters, the
            ``sampling_parameters`` document, input tensors, under their plain names.
        outputs: The outputs asked for; empty for all.
    """

    model: str
    id: str
    text_input: str
    inputs: Mapping[str, list[Any]] = field(default_factory=dict)
    parameters: Mapping[str, Value] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[str] = ()

    @property
    def max_tokens(self) -> int | None:
        """The most tokens asked for; None where nothing was said."""
        limit = self.sampling.get("max_tokens")
        return None if limit is None else int(limit)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


_NOT_SAMPLING = frozenset({"text_input", "sampling_parameters"})


def parse_request(content: bytes) -> InferRequest:
    """Read a serialized ``ModelInferRequest``; the fake server lives on it.

    Raises:
        WireError: It is none.
    """
    request = parse(messages().ModelInferRequest, content)
    inputs = read_tensors(request.inputs, request.raw_input_contents)
    parameters = read_parameters(request.parameters)
    sampling: dict[str, Any] = dict(parameters)
    for document in inputs.get("sampling_parameters", ())[:1]:
        sampling |= load_object(document)
    for name, values in inputs.items():
        if name not in _NOT_SAMPLING:
            plain = name.removeprefix("sampling_param_")
            plain = {"stop_words": "stop"}.get(plain, plain)
            plains = [_text(v) if isinstance(v, bytes) else v for v in values]
            sampling[plain] = plains if plain == "stop" else next(iter(plains), None)
    text = inputs.get("text_input") or [b""]
    return InferRequest(
        request.model_name,
        request.id,
        _text(text[0]),
        inputs,
        parameters,
        sampling,
        [output.name for output in request.outputs],
    )
