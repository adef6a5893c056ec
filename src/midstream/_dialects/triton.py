"""What Triton's two transports share: which inputs a model takes, and what it gives.

Sources: triton-inference-server/server ``docs/protocol``, vllm_backend
``src/utils/request.py``, TensorRT-LLM ``triton_backend``.

Backends name their tensors as they like, so the model's metadata is asked first and
remembered: what it has an input for goes there, else into its ``sampling_parameters``
document, else into request parameters. ``request.extra`` goes the same way.

Delta or cumulative text is the model's choice. ``Endpoint(text="auto")`` never guesses
from the text, which could lose a true repetition: it means deltas, except where the
server says otherwise: the TensorRT-LLM LLM-API backend (told by its
``sampling_param_…`` inputs) and its BLS with ``accumulate_tokens``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midstream._dialects.asking import parameters
from midstream._dialects.base import CONSTRAINTS
from midstream._dialects.cumulative import Cumulative
from midstream._dialects.documents import dumps, load_object
from midstream._dialects.finish import finish
from midstream._values.api_names import ApiNames
from midstream._values.errors import (
    BadRequest,
    ContextOverflow,
    NotFound,
    Overloaded,
    ServerError,
    ServerFailed,
    UsageError,
    WireError,
)
from midstream._values.events import Failure, Finish, TextDelta, UsageReport
from midstream._values.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midstream._dialects.base import Generation
    from midstream._dialects.kserve import Metadata, TensorSpec
    from midstream._values.request import Request

OUTPUTS = (
    "text_output",
    "finish_reason",
    "num_input_tokens",
    "num_output_tokens",
)
SAMPLING = "sampling_parameters"
_ECHOES = (
    "exclude_input_in_output",
    "sampling_param_exclude_input_from_output",
)
_FLAGS = (
    "stream",
    "streaming",
    *_ECHOES,
    "return_finish_reason",
    "return_num_input_tokens",
    "return_num_output_tokens",
)
_OPTIONS: dict[str, tuple[str, ...]] = {
    "max_tokens": ("max_tokens", "sampling_param_max_tokens"),
    "temperature": ("temperature", "sampling_param_temperature"),
    "top_p": ("top_p", "sampling_param_top_p"),
    "seed": ("seed", "sampling_param_seed"),
    "stop": ("stop_words", "sampling_param_stop", "stop"),
}
_PROMPT = frozenset({"text_input", *_ECHOES, "stream", "streaming"})
_PLACES = {
    f"{head}{theirs}": ours
    for head in ("", f"{SAMPLING}.", "parameters.")
    for ours, names in _OPTIONS.items()
    for theirs in names
}
_CONSTRAINTS = frozenset(
    {"guided_decoding", "guided_decoding_guide", "sampling_param_guided_decoding"}
)
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
    r"|is not allowed|failed to parse|unable to parse|has invalid type",
    re.IGNORECASE,
)
_FAULTS: tuple[tuple[re.Pattern[str], type[ServerError]], ...] = (
    (_PASSING, Overloaded),
    (_UNKNOWN, NotFound),
    (_OVERFLOW, ContextOverflow),
    (_MISTAKE, BadRequest),
)


def known_fault(message: str) -> type[ServerError] | None:
    """The class of an error whose words are known; Triton gives no code."""
    found = (cls for pattern, cls in _FAULTS if pattern.search(message))
    return next(found, None)


def fault(message: str) -> ServerError:
    """The typed error for Triton's words in mid-stream.

    Triton marks nothing as retryable. A full queue, a queue timeout, a model that is
    just loading and an unhealthy engine pass; an exception in the model
    (``Error generating stream: …``) would only happen again.
    """
    cls = known_fault(message) or ServerFailed
    return cls(message, retryable=cls is Overloaded)


@dataclass(frozen=True, slots=True)
class Served:
    """What was learned of a model.

    Attributes:
        metadata: What it takes and gives.
        cumulative: Whether its texts hold all so far.
    """

    metadata: Metadata
    cumulative: bool


def accumulates(metadata: Metadata) -> bool:
    """Whether a model of this signature always sends all of its text so far."""
    return any(name.startswith("sampling_param_") for name in metadata.inputs)


def may_accumulate(generation: Generation, metadata: Metadata) -> bool:
    """Whether its configuration must be asked for that: TensorRT-LLM's BLS."""
    return "bad_words" in metadata.inputs and generation.endpoint.text == "auto"


def says_accumulates(value: str) -> bool:
    """The configuration's ``accumulate_tokens``."""
    return value.lower() in {"true", "1"}


def cumulative(generation: Generation, served: object) -> bool:
    """Whether texts hold all so far, as the endpoint or the server says."""
    mode = generation.endpoint.text
    known = isinstance(served, Served) and served.cumulative
    return mode == "cumulative" or (mode == "auto" and known)


def api_names() -> ApiNames:
    """Inputs, the document of sampling parameters, and request parameters."""
    return ApiNames(_PLACES, _PROMPT)


def no_prefix(request: Request) -> str | None:
    """Constraints may be inside the document of sampling parameters, too."""
    inside = _document(request.extra.get(SAMPLING, {}))
    names = {*request.extra, *inside} & (CONSTRAINTS | _CONSTRAINTS)
    if names:
        return f"a grammar restarts at the prefix ({', '.join(sorted(names))})"
    return None


@dataclass(frozen=True, slots=True)
class Inputs:
    """A request, sorted by where this model reads each value.

    Attributes:
        tensors: Values of its inputs: one, or a list of several.
        parameters: Request parameters.
    """

    tensors: dict[str, Any]
    parameters: dict[str, Any]


def sort_inputs(
    generation: Generation, metadata: Metadata, prompt: str, left: int | None
) -> Inputs:
    """The request that this model understands.

    Args:
        generation: What is asked.
        metadata: The model's own signature.
        prompt: The prompt.
        left: What is left of ``max_tokens`` in a continuation.

    Raises:
        UsageError: It is a model of another kind.
    """
    request, inputs = generation.request, metadata.inputs
    for name, there in (
        ("text_input", inputs),
        ("text_output", metadata.outputs),
    ):
        if name not in there:
            raise UsageError(
                f"Triton's model {generation.endpoint.model!r} has no {name}, "
                f"only {', '.join(there) or 'nothing'}"
            )
    tensors: dict[str, Any] = {"text_input": prompt}
    tensors |= {
        name: True
        for name in _FLAGS
        if name in inputs and inputs[name].datatype == "BOOL"
    }
    sampling: dict[str, Any] = {}
    found = Inputs(tensors, {})
    _place(_options(request, inputs, left), inputs, found, sampling)
    _place(request.extra, inputs, found, sampling)
    if sampling:
        tensors[SAMPLING] = dumps(sampling).decode("utf-8", "surrogateescape")
    return found


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
    found: Inputs,
    sampling: dict[str, Any],
) -> None:
    """Put each value where this model reads it.

    vLLM's backend looks at request parameters only when there is no document of
    sampling parameters, so what is no tensor belongs into that where there is one.
    """
    for name, value in given.items():
        if name == SAMPLING and name in inputs:
            sampling.update(_document(value))
        elif name in inputs and (name != "stop" or _fits(name, inputs[name])):
            found.tensors[name] = value
        elif name == "parameters" and isinstance(value, Mapping):
            found.parameters.update(value)
        elif SAMPLING in inputs:
            sampling[name] = value
        else:
            single = isinstance(value, list) and len(value) == 1
            found.parameters[name] = value[0] if single else value


def _document(value: Any) -> Mapping[str, Any]:
    """Sampling parameters, given as an object or as its JSON."""
    if isinstance(value, Mapping):
        return value
    try:
        return load_object(str(value).encode())
    except WireError as error:
        raise UsageError(f"{SAMPLING} is no JSON object") from error


class OutputReader:
    """Reads the outputs of one answer, whatever transport they came by.

    Args:
        cumulative: Each text holds the whole answer so far.

    Attributes:
        waits: Whether the model gives reasons and one is yet to come.
    """

    __slots__ = (
        "_cumulative",
        "_finished",
        "_input",
        "_output",
        "_texts",
        "_told",
        "_waiting",
        "waits",
    )

    def __init__(self, *, cumulative: bool) -> None:
        self.waits = False
        self._cumulative = cumulative
        self._texts: dict[int, Cumulative] = {}
        self._waiting: dict[int, int] = {}
        self._finished: set[int] = set()
        self._input: int | None = None
        self._output = 0
        self._told = False

    def texts(self, outputs: Mapping[str, Sequence[Any]]) -> list[TextDelta]:
        """The texts of one response, each with the tokens since the last one.

        Args:
            outputs: Elements by output; texts are `str`, raw bytes in them surrogates.
        """
        counts = outputs.get("num_output_tokens", ())
        if counts:
            self._told = True
        for count in outputs.get("num_input_tokens", ()):
            self._input = count
        deltas = []
        for choice, whole in enumerate(outputs.get("text_output", ())):
            text = whole
            if self._cumulative:
                text = self._texts.setdefault(choice, Cumulative()).feed(text)
            tokens = counts[choice] if choice < len(counts) else None
            spent = 1 if tokens is None else tokens
            self._output += spent
            # Tokens whose text is held back are not received: they come again.
            waiting = self._waiting.pop(choice, 0)
            if text:
                told = waiting + spent if waiting else tokens
                deltas.append(TextDelta(text, choice, told))
            else:
                self._waiting[choice] = waiting + spent
        return deltas

    def rest(self) -> list[TextDelta]:
        """The unsure ends of cumulative texts, now that nothing follows."""
        rests = [(choice, text.flush()) for choice, text in self._texts.items()]
        return [
            TextDelta(rest, choice, self._waiting.pop(choice, 0))
            for choice, rest in rests
            if rest
        ]

    def reasons(self, words: Sequence[str]) -> list[Finish | Failure]:
        """Finish reasons; Python's ``"None"`` until there is one."""
        found: list[Finish | Failure] = []
        for choice, word in enumerate(words):
            if word not in {"", "None"} and choice not in self._finished:
                self._finished.add(choice)
                found.append(finish(word, choice))
        if words:
            unfinished = set(range(len(words))) - self._finished
            self.waits = any(words[choice] == "None" for choice in unfinished)
        return found

    def usage(self) -> list[UsageReport]:
        """What the model told of its tokens."""
        if not self._told and self._input is None:
            return []
        return [UsageReport(Usage(self._input, self._output if self._told else None))]
