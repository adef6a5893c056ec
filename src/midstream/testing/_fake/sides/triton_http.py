"""Triton over HTTP: the model of `sides.triton`, through the generate extension."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from midstream._dialects.documents import load_object
from midstream._values.events import Finish, TextDelta
from midstream.testing._fake import asked as ask
from midstream.testing._fake.sides.base import Answer, Side, World, document
from midstream.testing._fake.sides.chat import joined
from midstream.testing._fake.sides.triton import INPUTS, OUTPUTS, WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midstream._dialects.kserve import TensorSpec
    from midstream._values.events import Event, Signal
    from midstream.testing._fake.voice import Why
    from midstream.testing._fake.wire import HttpRequest

_MODEL = r"/v2/models/([^/]+)(?:/versions/[^/]+)?"
_ROUTE = re.compile(_MODEL + "/generate(_stream)?")
_ABOUT = re.compile(_MODEL + "(/config)?")


@dataclass(frozen=True, kw_only=True)
class TritonHttpSide(Side):
    """``generate_stream``, and ``generate`` for the whole answer."""

    name: str = "triton"
    route: str = "/v2/models/{model}/generate_stream"
    whole: ClassVar[bool] = False
    words: ClassVar[Mapping[Why, str]] = WORDS

    def serves(self, path: str) -> bool:
        """Any model has its own route."""
        return _ROUTE.fullmatch(path) is not None

    def addressed(
        self, body: Mapping[str, Any], request: HttpRequest
    ) -> Mapping[str, Any]:
        """Which of the two routes it is."""
        found = _ROUTE.fullmatch(request.path)
        return {**body, "_streams": bool(found and found[2])}

    def asked(self, body: Mapping[str, Any], world: World) -> ask.Asked:
        """A raw prompt, with sampling parameters from wherever they are."""
        if not isinstance(body.get("text_input"), str):
            raise ask.Refusal(
                400, "expected 1 inputs but got 0 inputs for model 'fake'"
            )
        prompt = ask.words(body["text_input"])
        sampling = dict(body) | dict(body.get("parameters") or {})
        document_ = body.get("sampling_parameters")
        if document_ is not None:
            sampling |= load_object(str(document_).encode())
        return ask.Asked(
            opening=prompt,
            raw=True,
            max_tokens=ask.limit(sampling.get("max_tokens")),
            stop=ask.stops(sampling.get("stop")),
            n=int(sampling.get("n") or 1),
            streams=body["_streams"],
            prompt_tokens=len(world.model.tokenize(prompt)),
        )

    def error(self, status: int, message: str, type: str | None) -> Any:  # noqa: A002 - as all APIs call it
        """Words and nothing else."""
        del status, type
        return {"error": message}

    def complete(self, events: Sequence[Event | Signal]) -> Any:
        """One response."""
        finish = next((e.raw for e in events if isinstance(e, Finish)), None)
        return {
            "finish_reason": finish,
            "model_name": "fake",
            "model_version": "1",
            "text_output": joined(events, TextDelta),
        }

    def other(self, request: HttpRequest, world: World) -> Answer | None:
        """Health, and what the model takes and gives."""
        del world
        if request.method != "GET":
            return None
        if request.path in ("/v2/health/live", "/v2/health/ready"):
            return document({})
        found = _ABOUT.fullmatch(request.path)
        if found is None:
            return None
        if found[2]:
            return document({"name": found[1], "parameters": {}})
        return document(
            {
                "name": found[1],
                "versions": ["1"],
                "platform": "python",
                "inputs": list(map(_tensor, INPUTS)),
                "outputs": list(map(_tensor, OUTPUTS)),
            }
        )


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "datatype": spec.datatype,
        "shape": list(spec.shape),
    }
