"""NVIDIA Triton over gRPC: ModelStreamInfer, whatever backend is behind it.

Sources: triton-inference-server/common ``protobuf/grpc_service.proto``, server
``docs/protocol``; what both of Triton's transports share is in ``triton.py``.

Complete iff a response says ``triton_final_response``; it may hold the last text, so
text is taken first. Errors come inside the stream as words without a code, and the RPC
ends OK. Text is bytes that may stop inside a character.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from midstream._dialects.asking import raw_prompt
from midstream._dialects.base import Continuation, Dialect
from midstream._dialects.grpc_call import rpc
from midstream._dialects.kserve import (
    CONFIG,
    METADATA,
    STREAM,
    Metadata,
    TensorSpec,
    messages,
    put_parameter,
    put_tensor,
    read_config,
    read_metadata,
    read_parameters,
    read_tensors,
)
from midstream._dialects.protobuf import parse
from midstream._dialects.triton import (
    OUTPUTS,
    OutputReader,
    Served,
    accumulates,
    api_names,
    cumulative,
    fault,
    may_accumulate,
    no_prefix,
    says_accumulates,
    sort_inputs,
)
from midstream._frames.messages import MessageFramer
from midstream._values.errors import BadRequest, UsageError
from midstream._values.events import (
    End,
    Failure,
    Finish,
    Started,
    TextDelta,
    UsageReport,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from midstream._dialects.base import (
        Call,
        Flow,
        Generation,
        Reader,
        Received,
        Writer,
    )
    from midstream._frames import Framer
    from midstream._values.api_names import ApiNames
    from midstream._values.endpoint import Endpoint
    from midstream._values.events import Event, Signal
    from midstream._values.request import Request
    from midstream._values.usage import Usage

_PORT = 8001
_FINAL = "triton_final_response"
_ASK_FINAL = "triton_enable_empty_final_response"


@dataclass(frozen=True, kw_only=True)
class TritonGrpc(Dialect):
    """``inference.GRPCInferenceService/ModelStreamInfer``."""

    name: str = "triton-grpc"
    default_url: str | None = "grpc://localhost:8001"
    key_variables: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ("text",)
    transport: ClassVar = "grpc"
    framer: ClassVar[type[Framer]] = MessageFramer
    content_type: ClassVar[str] = "application/grpc"

    def begin(self, generation: Generation) -> Flow[Call]:
        """One stream, after the model's metadata."""
        return (yield from self._stream(generation, raw_prompt(generation), None))

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """The prompt with the received text at its end."""
        del strategy
        prompt = raw_prompt(generation) + received.text
        call = yield from self._stream(generation, prompt, received.left)
        return Continuation(call=call, sent=received.text)

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """As the model names its inputs."""
        del endpoint
        return api_names()

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads the responses."""
        if generation is None:
            return ResponseReader()
        key = _key(generation)
        return ResponseReader(
            cumulative=cumulative(generation, generation.memory.get(key)),
            forget=lambda: generation.memory.pop(key, None),
        )

    def writer(self) -> Writer:
        """Writes them."""
        return ResponseWriter()

    def no_prefix(self, request: Request) -> str | None:
        """Constraints may be inside the document of sampling parameters, too."""
        return no_prefix(request)

    def _stream(
        self, generation: Generation, prompt: str, left: int | None
    ) -> Flow[Call]:
        if generation.endpoint.model is None:
            raise UsageError('Triton needs a model, as in "triton-grpc:llm"')
        if generation.request.tools is not None:
            raise UsageError("triton-grpc takes a raw prompt and no tools")
        served = yield from self._served(generation)
        content = _request(generation, served.metadata, prompt, left)
        return _call(generation, STREAM, content)

    def _served(self, generation: Generation) -> Flow[Served]:
        """What is known of the model; asked once per endpoint."""
        key = _key(generation)
        served = generation.memory.get(key)
        if not isinstance(served, Served):
            name = generation.endpoint.model
            ask = messages().ModelMetadataRequest(name=name).SerializeToString()
            reply = yield _call(generation, METADATA, ask)
            metadata = read_metadata(reply.content)
            whole = accumulates(metadata)
            if may_accumulate(generation, metadata):
                ask = messages().ModelConfigRequest(name=name).SerializeToString()
                reply = yield _call(generation, CONFIG, ask)
                config = read_config(reply.content)
                whole = says_accumulates(config.get("accumulate_tokens", ""))
            served = generation.memory[key] = Served(metadata, whole)
        return served


def _key(generation: Generation) -> str:
    return f"triton-grpc:{generation.endpoint.model}"


def _call(generation: Generation, method: str, content: bytes) -> Call:
    return rpc(generation, method, content, port=_PORT)


def _request(
    generation: Generation, metadata: Metadata, prompt: str, left: int | None
) -> bytes:
    """The serialized ModelInferRequest that this model understands."""
    inputs = sort_inputs(generation, metadata, prompt, left)
    message = messages().ModelInferRequest(
        model_name=generation.endpoint.model, id=generation.handle
    )
    for name, value in ({_ASK_FINAL: True} | inputs.parameters).items():
        put_parameter(message.parameters, name, value)
    for name, value in inputs.tensors.items():
        spec = metadata.inputs[name]
        values = list(value) if isinstance(value, list | tuple) else [value]
        shape = (1,) * (len(spec.shape) - 1) + (len(values),)
        put_tensor(message, "input", TensorSpec(name, spec.datatype, shape), values)
    for name in OUTPUTS:
        if name in metadata.outputs:
            message.outputs.add(name=name)
    return bytes(message.SerializeToString(deterministic=True))


class ResponseReader:
    """Reads ModelStreamInferResponse messages.

    Args:
        cumulative: Each text holds the whole answer so far.
        forget: Called when the model does not understand our request: what was
            remembered of it is out of date.
    """

    __slots__ = ("_forget", "_kind", "_outputs", "_started", "cursor")

    def __init__(
        self,
        *,
        cumulative: bool = False,
        forget: Callable[[], object] = lambda: None,
    ) -> None:
        self.cursor = None
        self._kind = messages().ModelStreamInferResponse
        self._outputs = OutputReader(cumulative=cumulative)
        self._forget = forget
        self._started = False

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """One message."""
        del name
        message = parse(self._kind, data)
        response = message.infer_response
        if message.error_message:
            error = fault(message.error_message)
            if isinstance(error, BadRequest):
                self._forget()
            return [Failure(error)]
        events: list[Event | Signal] = []
        if not self._started:
            self._started = True
            events.append(Started(response.id or None, response.model_name or None))
        outputs = _texts(read_tensors(response.outputs, response.raw_output_contents))
        events += self._outputs.texts(outputs)
        reasons = self._outputs.reasons(outputs.get("finish_reason", ()))
        final = read_parameters(response.parameters).get(_FINAL, False)
        if reasons or final:
            events += self._outputs.rest()
        events += reasons
        if final and not any(isinstance(event, Failure) for event in reasons):
            events += [*self._outputs.usage(), End()]
        return events

    def eof(self) -> list[Event | Signal]:
        """An RPC that ended OK without a final response is a drop."""
        return []


def _texts(outputs: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The tensors' elements, bytes as text that keeps what is no UTF-8."""
    return {
        name: [
            value.decode("utf-8", "surrogateescape")
            if isinstance(value, bytes)
            else value
            for value in values
        ]
        for name, values in outputs.items()
    }


class ResponseWriter:
    """Writes ModelStreamInferResponse messages; finish and usage go with the end."""

    __slots__ = ("_finish", "_id", "_model", "_output", "_usage")

    def __init__(self) -> None:
        self._id = ""
        self._model = "llm"
        self._finish: Finish | None = None
        self._usage: Usage | None = None
        self._output = 0

    def write(self, event: Event | Signal) -> list[bytes]:
        """One message for a text, two for the end."""
        match event:
            case Started():
                self._id = event.id or self._id
                self._model = event.model or self._model
            case TextDelta():
                return [self._text(event)]
            case Finish():
                self._finish = event
            case UsageReport():
                self._usage = event.usage
            case Failure():
                message = self._message(final=True)
                message.error_message = event.error.message
                return [_bytes(message)]
            case End():
                return [*self._last(), _bytes(self._message(final=True))]
            case _:
                pass
        return []

    def _message(self, *, final: bool) -> Any:
        message = messages().ModelStreamInferResponse()
        response = message.infer_response
        response.model_name, response.id = self._model, self._id
        put_parameter(response.parameters, _FINAL, final)
        return message

    def _data(self, *texts: str) -> Any:
        message = self._message(final=False)
        message.infer_response.model_version = "1"
        _tensor(message, "text_output", "BYTES", texts)
        return message

    def _text(self, event: TextDelta) -> bytes:
        before = [""] * event.choice
        message = self._data(*before, event.text)
        tokens = 1 if event.tokens is None else event.tokens
        self._output += tokens
        if event.tokens is not None or before:
            counts = [0] * len(before) + [tokens]
            _tensor(message, "num_output_tokens", "UINT32", counts)
        return _bytes(message)

    def _last(self) -> list[bytes]:
        """The data message that holds reason and usage, if there are any."""
        if self._finish is None and self._usage is None:
            return []
        choice = self._finish.choice if self._finish else 0
        message = self._data(*[""] * (choice + 1))
        if self._finish is not None:
            reason = self._finish.raw or self._finish.reason or "None"
            words = ["None"] * choice + [reason]
            _tensor(message, "finish_reason", "BYTES", words)
        if self._usage is not None:
            if self._usage.input_tokens is not None:
                count = [self._usage.input_tokens]
                _tensor(message, "num_input_tokens", "UINT32", count)
            if self._usage.output_tokens is not None:
                rest = max(self._usage.output_tokens - self._output, 0)
                counts = [0] * choice + [rest]
                _tensor(message, "num_output_tokens", "UINT32", counts)
        return [_bytes(message)]


def _tensor(message: Any, name: str, datatype: str, values: Sequence[Any]) -> None:
    spec = TensorSpec(name, datatype, (len(values),))
    put_tensor(message.infer_response, "output", spec, values)


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


TRITON_GRPC = TritonGrpc()
