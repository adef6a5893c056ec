"""NVIDIA Triton over gRPC: ModelStreamInfer, whatever backend is behind it.

Sources: WIRE §12, triton-inference-server/server ``docs/protocol``, vllm_backend
``src/utils/request.py``, TensorRT-LLM ``triton_backend``.

Backends name their tensors as they like, so the model's metadata is asked first and
remembered: what it has an input for goes there, else into its ``sampling_parameters``
document, else into request parameters. ``request.extra`` goes the same way.

Complete iff a response says ``triton_final_response``; it may hold the last text, so
text is taken first. Errors come inside the stream as words without a code, and the RPC
ends OK. Text is bytes that may stop inside a character.

Delta or cumulative text is the model's choice. ``Endpoint(text="auto")`` never guesses
from the text, which could lose a true repetition: it means deltas, except where the
server says otherwise: the TensorRT-LLM LLM-API backend (told by its
``sampling_param_…`` inputs) and its BLS with ``accumulate_tokens``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from midstream._dialects.asking import bearer, parameters, raw_prompt
from midstream._dialects.base import CONSTRAINTS, Call, Continuation, Dialect
from midstream._dialects.cumulative import Cumulative
from midstream._dialects.documents import dumps, load_object
from midstream._dialects.finish import finish
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
from midstream._errors import (
    BadRequest,
    ContextOverflow,
    NotFound,
    Overloaded,
    ServerError,
    ServerFailed,
    UsageError,
    WireError,
)
from midstream._events import (
    End,
    Failure,
    Finish,
    Started,
    TextDelta,
    Usage,
    UsageReport,
)
from midstream._frames.messages import MessageFramer

if TYPE_CHECKING:
    from collections.abc import Callable

    from midstream._dialects.base import Flow, Generation, Reader, Received, Writer
    from midstream._events import Event, Signal
    from midstream._frames import Framer
    from midstream._request import Request

_FINAL = "triton_final_response"
_ASK_FINAL = "triton_enable_empty_final_response"
_SAMPLING = "sampling_parameters"
_FLAGS = (
    "stream",
    "streaming",
    "exclude_input_in_output",
    "sampling_param_exclude_input_from_output",
    "return_finish_reason",
    "return_num_input_tokens",
    "return_num_output_tokens",
)
_OUTPUTS = (
    "text_output",
    "finish_reason",
    "num_input_tokens",
    "num_output_tokens",
)
_OPTIONS: dict[str, tuple[str, ...]] = {
    "max_tokens": ("max_tokens", "sampling_param_max_tokens"),
    "temperature": ("temperature", "sampling_param_temperature"),
    "top_p": ("top_p", "sampling_param_top_p"),
    "seed": ("seed", "sampling_param_seed"),
    "stop": ("stop_words", "sampling_param_stop", "stop"),
}
_PASSING = re.compile(
    r"exceeds maximum queue size|timeout expired|unhealthy|not healthy"
    r"|no available versions|not ready|stopped accepting|server exiting",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"unknown model", re.IGNORECASE)
_OVERFLOW = re.compile(
    r"maximum model length|max_model_len|maximum context|max_input_len"
    r"|prompt (length|is too long)",
    re.IGNORECASE,
)
_MISTAKE = re.compile(
    r"unexpected (inference input|shape|datatype)|incomplete string length"
    r"|expected .*inputs? .*but got|data-type is|doesn't support models"
    r"|is not allowed",
    re.IGNORECASE,
)
_FAULTS: tuple[tuple[re.Pattern[str], type[ServerError]], ...] = (
    (_PASSING, Overloaded),
    (_UNKNOWN, NotFound),
    (_OVERFLOW, ContextOverflow),
    (_MISTAKE, BadRequest),
)


def fault(message: str) -> ServerError:
    """The typed error for Triton's words, which come without a code.

    Triton marks nothing as retryable. A full queue, a queue timeout, a model that is
    just loading and an unhealthy engine pass; an exception in the model
    (``Error generating stream: …``) would only happen again.
    """
    for pattern, cls in _FAULTS:
        if pattern.search(message):
            return cls(message, retryable=cls is Overloaded)
    return ServerFailed(message)


@dataclass(frozen=True, slots=True)
class _Served:
    """What was learned of a model."""

    metadata: Metadata
    cumulative: bool


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

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads the responses."""
        if generation is None:
            return ResponseReader()
        key = _key(generation)
        served = generation.memory.get(key)
        mode = generation.endpoint.text
        known = isinstance(served, _Served) and served.cumulative
        return ResponseReader(
            cumulative=mode == "cumulative" or (mode == "auto" and known),
            forget=lambda: generation.memory.pop(key, None),
        )

    def writer(self) -> Writer:
        """Writes them."""
        return ResponseWriter()

    def no_prefix(self, request: Request) -> str | None:
        """Constraints may be inside the document of sampling parameters, too."""
        inside = _document(request.extra.get(_SAMPLING, {}))
        names = {*request.extra, *inside} & (CONSTRAINTS | _CONSTRAINTS)
        if names:
            return f"a grammar restarts at the prefix ({', '.join(sorted(names))})"
        return None

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

    def _served(self, generation: Generation) -> Flow[_Served]:
        """What is known of the model; asked once per endpoint."""
        key = _key(generation)
        served = generation.memory.get(key)
        if not isinstance(served, _Served):
            name = generation.endpoint.model
            ask = messages().ModelMetadataRequest(name=name).SerializeToString()
            reply = yield _call(generation, METADATA, ask)
            metadata = read_metadata(reply.content)
            cumulative = any(i.startswith("sampling_param_") for i in metadata.inputs)
            if "bad_words" in metadata.inputs and generation.endpoint.text == "auto":
                ask = messages().ModelConfigRequest(name=name).SerializeToString()
                reply = yield _call(generation, CONFIG, ask)
                accumulates = read_config(reply.content).get("accumulate_tokens", "")
                cumulative = accumulates.lower() in {"true", "1"}
            served = generation.memory[key] = _Served(metadata, cumulative)
        return served


_CONSTRAINTS = frozenset(
    {"guided_decoding", "guided_decoding_guide", "sampling_param_guided_decoding"}
)


def _key(generation: Generation) -> str:
    return f"triton-grpc:{generation.endpoint.model}"


def _call(generation: Generation, method: str, content: bytes) -> Call:
    return Call(
        url=address(generation.endpoint.base_url or ""),
        method=method,
        content=content,
        secrets=bearer(generation),
    )


def address(url: str, port: int = 8001) -> str:
    """``grpc://host:port`` or ``grpcs://host:port`` for any way to write it.

    Raises:
        UsageError: There is no host in it.
    """
    scheme, _, rest = url.rpartition("://")
    host = rest.partition("/")[0].rpartition("@")[2]
    if not host:
        raise UsageError(f"{url!r} has no host; write HOST:PORT, grpc:// or grpcs://")
    if ":" not in host.rpartition("]")[2]:
        host = f"{host}:{port}"
    return f"{'grpcs' if scheme in {'grpcs', 'https'} else 'grpc'}://{host}"


def _request(
    generation: Generation, metadata: Metadata, prompt: str, left: int | None
) -> bytes:
    """The serialized ModelInferRequest that this model understands."""
    endpoint, inputs = generation.endpoint, metadata.inputs
    for name, there in (
        ("text_input", inputs),
        ("text_output", metadata.outputs),
    ):
        if name not in there:
            raise UsageError(
                f"Triton's model {endpoint.model!r} has no {name}, "
                f"only {', '.join(there) or 'nothing'}"
            )
    tensors: dict[str, Any] = {"text_input": prompt}
    tensors |= {
        name: True
        for name in _FLAGS
        if name in inputs and inputs[name].datatype == "BOOL"
    }
    sampling: dict[str, Any] = {}
    others: dict[str, Any] = {_ASK_FINAL: True}
    _place(
        _options(generation.request, inputs, left), inputs, tensors, sampling, others
    )
    _place(generation.request.extra, inputs, tensors, sampling, others)
    if sampling:
        tensors[_SAMPLING] = dumps(sampling)
    message = messages().ModelInferRequest(
        model_name=endpoint.model, id=generation.handle
    )
    for name, value in others.items():
        put_parameter(message.parameters, name, value)
    for name, value in tensors.items():
        spec = inputs[name]
        values = list(value) if isinstance(value, list | tuple) else [value]
        shape = (1,) * (len(spec.shape) - 1) + (len(values),)
        put_tensor(message, "input", TensorSpec(name, spec.datatype, shape), values)
    for name in _OUTPUTS:
        if name in metadata.outputs:
            message.outputs.add(name=name)
    return bytes(message.SerializeToString(deterministic=True))


def _options(
    request: Request, inputs: Mapping[str, Any], left: int | None
) -> dict[str, Any]:
    """The standard options under the names of the model's inputs for them."""
    given = parameters(request, {name: name for name in _OPTIONS}, left=left)
    named: dict[str, Any] = {}
    for name, value in given.items():
        # The LLM-API backend has a BOOL input "stop", which cancels.
        has = (n for n in _OPTIONS[name] if n in inputs and _fits(name, inputs[n]))
        named[next(has, name)] = value
    return named


def _fits(option: str, spec: TensorSpec) -> bool:
    return option != "stop" or spec.datatype == "BYTES"


def _place(
    given: Mapping[str, Any],
    inputs: Mapping[str, TensorSpec],
    tensors: dict[str, Any],
    sampling: dict[str, Any],
    others: dict[str, Any],
) -> None:
    """Put each value where this model reads it.

    vLLM's backend looks at request parameters only when there is no document of
    sampling parameters, so what is no tensor belongs into that where there is one.
    """
    for name, value in given.items():
        if name == _SAMPLING and name in inputs:
            sampling.update(_document(value))
        elif name in inputs and (name != "stop" or _fits(name, inputs[name])):
            tensors[name] = value
        elif name == "parameters" and isinstance(value, Mapping):
            others.update(value)
        elif _SAMPLING in inputs:
            sampling[name] = value
        else:
            single = isinstance(value, list) and len(value) == 1
            others[name] = value[0] if single else value


def _document(value: Any) -> Mapping[str, Any]:
    """Sampling parameters, given as an object or as its JSON."""
    if isinstance(value, Mapping):
        return value
    try:
        return load_object(str(value).encode())
    except WireError as error:
        raise UsageError(f"{_SAMPLING} is no JSON object") from error


class ResponseReader:
    """Reads ModelStreamInferResponse messages.

    Args:
        cumulative: Each text holds the whole answer so far.
        forget: Called when the model does not understand our request: what was
            remembered of it is out of date.
    """

    __slots__ = (
        "_cumulative",
        "_finished",
        "_forget",
        "_input",
        "_kind",
        "_output",
        "_started",
        "_texts",
        "_told",
        "_waiting",
        "cursor",
    )

    def __init__(
        self,
        *,
        cumulative: bool = False,
        forget: Callable[[], object] = lambda: None,
    ) -> None:
        self.cursor = None
        self._kind = messages().ModelStreamInferResponse
        self._cumulative = cumulative
        self._forget = forget
        self._started = False
        self._texts: dict[int, Cumulative] = {}
        self._waiting: dict[int, int] = {}
        self._finished: set[int] = set()
        self._input: int | None = None
        self._output = 0
        self._told = False

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
        outputs = read_tensors(response.outputs, response.raw_output_contents)
        events += self._new(outputs)
        reasons = self._reasons(outputs.get("finish_reason", ()))
        final = read_parameters(response.parameters).get(_FINAL, False)
        if reasons or final:
            events += self._rest()
        events += reasons
        if final and not any(isinstance(event, Failure) for event in reasons):
            if self._told or self._input is not None:
                output = self._output if self._told else None
                events.append(UsageReport(Usage(self._input, output)))
            events.append(End())
        return events

    def eof(self) -> list[Event | Signal]:
        """An RPC that ended OK without a final response is a drop."""
        return []

    def _new(self, outputs: Mapping[str, list[Any]]) -> list[TextDelta]:
        """The texts, each with the tokens since the last one."""
        counts = outputs.get("num_output_tokens", ())
        if counts:
            self._told = True
        for count in outputs.get("num_input_tokens", ()):
            self._input = count
        deltas = []
        for choice, raw in enumerate(outputs.get("text_output", ())):
            text = raw.decode("utf-8", "surrogateescape")
            if self._cumulative:
                text = self._texts.setdefault(choice, Cumulative()).feed(text)
            tokens = counts[choice] if choice < len(counts) else None
            self._output += 1 if tokens is None else tokens
            # Tokens whose text is held back are not received: they come again.
            waiting = self._waiting.pop(choice, 0)
            if text:
                told = waiting + (tokens or 0) if waiting else tokens
                deltas.append(TextDelta(text, choice, told))
            elif tokens is not None:
                self._waiting[choice] = waiting + tokens
        return deltas

    def _rest(self) -> list[TextDelta]:
        """The unsure ends of cumulative texts."""
        rests = [(choice, text.flush()) for choice, text in self._texts.items()]
        return [
            TextDelta(rest, choice, self._waiting.pop(choice, 0))
            for choice, rest in rests
            if rest
        ]

    def _reasons(self, words: Sequence[bytes]) -> list[Finish | Failure]:
        """Finish reasons; Python's ``"None"`` until there is one."""
        found = []
        for choice, raw in enumerate(words):
            word = raw.decode("utf-8", "replace")
            if word not in {"", "None"} and choice not in self._finished:
                self._finished.add(choice)
                found.append(finish(word, choice))
        return found


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
