"""Triton over gRPC: a byte-level decoupled model, as vLLM's backend presents itself.

Messages hold half characters. The end marker is sent only where the request asks for
it, as the real server does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from midstream._dialects.kserve import (
    CONFIG,
    METADATA,
    STREAM,
    TensorSpec,
    messages,
    parse_request,
    write_config,
    write_metadata,
)
from midstream._dialects.triton_grpc import TRITON_GRPC
from midstream._values.events import Finish, Started
from midstream.testing._fake import asked as ask
from midstream.testing._fake.script import Pen
from midstream.testing._fake.sides.grpc import Call, GrpcSide
from midstream.testing._fake.voice import Manner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from midstream.testing._fake.sides.base import World
    from midstream.testing._fake.sides.grpc import Other
    from midstream.testing._fake.voice import Why

INPUTS = (
    TensorSpec("text_input"),
    TensorSpec("stream", "BOOL"),
    TensorSpec("exclude_input_in_output", "BOOL"),
    TensorSpec("sampling_parameters"),
)
OUTPUTS = (
    TensorSpec("text_output", shape=(-1,)),
    TensorSpec("finish_reason", shape=(-1,)),
    TensorSpec("num_output_tokens", "UINT32", (-1,)),
    TensorSpec("num_input_tokens", "UINT32"),
)
WORDS: dict[Why, str] = {
    "eos": "stop",
    "word": "stop",
    "length": "length",
    "tools": "stop",
}


class TritonSide(GrpcSide):
    """``ModelStreamInfer``, and the two RPCs that tell of the model."""

    name: ClassVar[str] = "triton-grpc"
    method: ClassVar[str] = STREAM

    @property
    def manner(self) -> Manner:
        """Half characters pass."""
        return Manner(
            whole=False, ids=False, finish=lambda why: Finish(WORDS[why], WORDS[why])
        )

    @property
    def others(self) -> Mapping[str, Other]:
        """Metadata and configuration of the model."""
        return {METADATA: _metadata, CONFIG: _config}

    def understand(self, content: bytes, world: World) -> Call:
        """A raw prompt, with sampling parameters from wherever they are."""
        request = parse_request(content)
        prompt = request.text_input.encode("utf-8", "surrogateescape")
        sampling = request.sampling
        pen = Pen(writer=TRITON_GRPC.writer())
        pen.writer.write(Started(request.id, request.model))
        return Call(
            asked=ask.Asked(
                opening=prompt,
                raw=True,
                max_tokens=ask.limit(request.max_tokens),
                stop=ask.stops(sampling.get("stop")),
                n=int(sampling.get("n") or 1),
                prompt_tokens=len(world.model.tokenize(prompt)),
            ),
            pen=pen,
            body=_document(request),
            final=bool(request.parameters.get("triton_enable_empty_final_response")),
        )


def _document(request: Any) -> dict[str, object]:
    return {
        "model": request.model,
        "id": request.id,
        "text_input": request.text_input,
        "inputs": dict(request.inputs),
        "parameters": dict(request.parameters),
        "sampling": dict(request.sampling),
        "outputs": list(request.outputs),
    }


def _metadata(content: bytes, world: World) -> list[bytes]:
    del world
    name = messages().ModelMetadataRequest.FromString(content).name
    return [write_metadata(name, INPUTS, OUTPUTS)]


def _config(content: bytes, world: World) -> list[bytes]:
    del world
    return [write_config(messages().ModelConfigRequest.FromString(content).name, {})]
