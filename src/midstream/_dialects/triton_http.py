"""NVIDIA Triton over HTTP: the generate extension, whatever backend is behind it.

Sources: triton-inference-server/server ``docs/protocol/extension_generate.md``,
``src/http_server.cc``, and the real server; what both of Triton's transports share is
in ``triton.py``.

There is no end marker: the proper end of the body is the end, unless the model gives
finish reasons and has not given one yet. Errors are words without a code, in an event
with status 200, or in one with status 400 where they came first.

The inside of a JSON string may be half a character, in raw bytes; prompts may hold such
halves too. Keys of the body that are inputs become tensors, those in ``parameters``
request parameters. No ``id`` is sent: vLLM's backend takes it for a parameter of
sampling, and fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from midstream._dialects.asking import bearer, post, raw_prompt, rooted
from midstream._dialects.base import Call, Continuation, Dialect, join_url
from midstream._dialects.documents import dumps, load_object
from midstream._dialects.kserve import Metadata, TensorSpec
from midstream._dialects.triton import (
    OutputReader,
    Served,
    accumulates,
    api_names,
    cumulative,
    fault,
    known_fault,
    may_accumulate,
    no_prefix,
    says_accumulates,
    sort_inputs,
)
from midstream._values.errors import BadRequest, Overloaded, UsageError
from midstream._values.events import (
    End,
    Failure,
    Finish,
    Started,
    TextDelta,
    UsageReport,
)
from midstream._values.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from midstream._dialects.base import (
        Flow,
        Generation,
        Reader,
        Received,
        Reply,
        Writer,
    )
    from midstream._values.api_names import ApiNames
    from midstream._values.endpoint import Endpoint
    from midstream._values.errors import ServerError
    from midstream._values.events import Event, Signal
    from midstream._values.request import Request

ROUTE = "/generate_stream"
_OK = 200


@dataclass(frozen=True, kw_only=True)
class TritonHttp(Dialect):
    """``/v2/models/{model}/generate_stream``."""

    name: str = "triton"
    default_url: str | None = "http://localhost:8000"
    key_variables: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ("text",)
    route: str = ROUTE

    def begin(self, generation: Generation) -> Flow[Call]:
        """One POST, after the model's metadata."""
        return (yield from self._post(generation, raw_prompt(generation), None))

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """The prompt with the received text at its end."""
        prompt = raw_prompt(generation) + received.text
        call = yield from self._post(generation, prompt, received.left)
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

    def error(self, reply: Reply) -> ServerError:
        """The words say more than the status: 500 may be the caller's mistake."""
        error = super().error(reply)
        cls = known_fault(error.message)
        if cls is None:
            return error
        return cls(
            error.message,
            status=error.status,
            retry_after=error.retry_after,
            retryable=cls is Overloaded,
        )

    def no_prefix(self, request: Request) -> str | None:
        """Constraints may be inside the document of sampling parameters, too."""
        return no_prefix(request)

    def _post(
        self, generation: Generation, prompt: str, left: int | None
    ) -> Flow[Call]:
        if generation.request.tools is not None:
            raise UsageError("triton takes a raw prompt and no tools")
        served = yield from self._served(generation)
        inputs = sort_inputs(generation, served.metadata, prompt, left)
        body = dict(inputs.tensors)
        if inputs.parameters:
            body["parameters"] = _scalars(inputs.parameters)
        return post(rooted(generation), _model(generation) + self.route, body)

    def _served(self, generation: Generation) -> Flow[Served]:
        """What is known of the model; asked once per endpoint."""
        key = _key(generation)
        served = generation.memory.get(key)
        if not isinstance(served, Served):
            metadata = _metadata((yield from self._get(generation, "")))
            whole = accumulates(metadata)
            if may_accumulate(generation, metadata):
                config = yield from self._get(generation, "/config")
                told = (config.get("parameters") or {}).get("accumulate_tokens") or {}
                whole = says_accumulates(told.get("string_value", ""))
            served = generation.memory[key] = Served(metadata, whole)
        return served

    def _get(self, generation: Generation, route: str) -> Flow[dict[str, Any]]:
        base = rooted(generation).endpoint.base_url or ""
        reply = yield Call(
            url=join_url(base, _model(generation) + route),
            method="GET",
            secrets=bearer(generation),
        )
        if reply.status != _OK:
            raise self.error(reply)
        return load_object(reply.content)


def _key(generation: Generation) -> str:
    return f"triton:{generation.endpoint.model}"


def _model(generation: Generation) -> str:
    model = generation.endpoint.model
    if model is None:
        raise UsageError('Triton needs a model, as in "triton:llm"')
    return f"/v2/models/{quote(model, safe='')}"


def _metadata(document: Mapping[str, Any]) -> Metadata:
    inputs, outputs = (
        {
            tensor["name"]: TensorSpec(
                tensor["name"], tensor["datatype"], tuple(tensor["shape"])
            )
            for tensor in document.get(side) or ()
        }
        for side in ("inputs", "outputs")
    )
    return Metadata(inputs, outputs)


def _scalars(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Request parameters, which hold one value each.

    Raises:
        UsageError: One is a list or an object.
    """
    for name, value in parameters.items():
        if not isinstance(value, bool | int | float | str):
            raise UsageError(
                f"{name}={value!r}: the model has no input of this name, and a "
                "request parameter is a bool, int, float or str"
            )
    return dict(parameters)


class ResponseReader:
    """Reads the events.

    Args:
        cumulative: Each text holds the whole answer so far.
        forget: Called when the model does not understand our request: what was
            remembered of it is out of date.
    """

    __slots__ = ("_forget", "_outputs", "_started", "cursor")

    def __init__(
        self,
        *,
        cumulative: bool = False,
        forget: Callable[[], object] = lambda: None,
    ) -> None:
        self.cursor = None
        self._outputs = OutputReader(cumulative=cumulative)
        self._forget = forget
        self._started = False

    def read(self, data: bytes, name: str) -> list[Event | Signal]:
        """One event; the inside of its text may be half a character."""
        del name
        record = load_object(data)
        if record.get("error"):
            error = fault(str(record["error"]))
            if isinstance(error, BadRequest):
                self._forget()
            return [Failure(error)]
        events: list[Event | Signal] = []
        if not self._started:
            self._started = True
            events.append(Started(record.get("id"), record.get("model_name")))
        outputs = {key: _elements(value) for key, value in record.items()}
        events += self._outputs.texts(outputs)
        reasons = self._outputs.reasons(outputs.get("finish_reason", ()))
        if reasons:
            events += self._outputs.rest()
        return [*events, *reasons]

    def eof(self) -> list[Event | Signal]:
        """The end of the answer, unless a reason is yet to come."""
        if self._outputs.waits:
            return []
        return [*self._outputs.rest(), *self._outputs.usage(), End()]


def _elements(value: Any) -> list[Any]:
    """A tensor of one element is written as that element."""
    return value if isinstance(value, list) else [value]


class ResponseWriter:
    """Writes the events; finish and usage go with the last one."""

    __slots__ = ("_finish", "_id", "_model", "_output", "_usage")

    def __init__(self) -> None:
        self._id: str | None = None
        self._model = "llm"
        self._finish: Finish | None = None
        self._usage: Usage | None = None
        self._output = 0

    def write(self, event: Event | Signal) -> list[bytes]:
        """One event for a text, one for the end."""
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
                return [_event({"error": event.error.message})]
            case End():
                return [self._last()]
            case _:
                pass
        return []

    def _text(self, event: TextDelta) -> bytes:
        tokens = 1 if event.tokens is None else event.tokens
        self._output += tokens
        before, texts = [0] * event.choice, [""] * event.choice
        told = event.tokens is not None or event.choice > 0
        return self._response(
            finish_reason=["None"] * (event.choice + 1),
            num_output_tokens=[*before, tokens] if told else [],
            text_output=[*texts, event.text],
        )

    def _last(self) -> bytes:
        usage, ended = self._usage or Usage(), self._finish
        choice = 0 if ended is None else ended.choice
        word = None if ended is None else ended.raw or ended.reason
        rest = [0] * choice
        if usage.output_tokens is not None:
            rest.append(max(usage.output_tokens - self._output, 0))
        return self._response(
            finish_reason=["None"] * choice + [word or ""],
            num_input_tokens=[usage.input_tokens] if usage.input_tokens else [],
            num_output_tokens=rest,
            text_output=[""] * (choice + 1),
        )

    def _response(self, **outputs: list[Any]) -> bytes:
        """Keys are sorted, and one element is written without its list."""
        named = {"model_name": self._model, "model_version": "1"}
        if self._id is not None:
            named["id"] = self._id
        given = {
            key: value[0] if len(value) == 1 else value
            for key, value in outputs.items()
            if value
        }
        return _event(dict(sorted((named | given).items())))


def _event(record: dict[str, Any]) -> bytes:
    return b"data: " + dumps(record) + b"\n\n"
