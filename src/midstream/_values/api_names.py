"""What APIs call the standard parameters, and a request that has them as its own.

A limit that is given through ``extra`` under an API's own name would not shrink when
the stream is resumed, and a prompt given there would take the place of the
continuation's. So, before a stream begins, the standard parameters are taken out of
``extra``, and what carries the prompt is refused. Each dialect says its names in a
table; what of ``extra`` is no standard value (``n_predict: -1``) stays there, for the
server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from midstream._values.errors import UsageError
from midstream._values.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class ApiNames:
    """How the body of one API's requests is named.

    Attributes:
        standard: The place of a parameter in the body, dots between its levels, → its
            standard name, as in ``{"options.num_predict": "max_tokens"}``.
        prompt: What a continuation must fill itself: the fields of the prompt, and the
            flags of streaming.
    """

    standard: Mapping[str, str] = field(default_factory=dict)
    prompt: frozenset[str] = frozenset()


def places(names: Mapping[str, str], *inside: str) -> dict[str, str]:
    """The places of parameters, out of a table of standard name → API's name.

    Args:
        names: The table that a dialect writes its requests with.
        inside: The objects that hold them; none: the body itself.
    """
    heads = [f"{part}." for part in inside] or [""]
    return {f"{head}{theirs}": ours for head in heads for ours, theirs in names.items()}


def normalised(request: Request, names: Iterable[ApiNames]) -> Request:
    """The request, its standard parameters taken out of ``extra``.

    Args:
        request: As it was asked.
        names: Those of all APIs that may be asked.

    Raises:
        UsageError: ``extra`` has what carries the prompt, or gives a parameter that is
            given otherwise as well.
    """
    if not request.extra:
        return request
    extra = request.extra
    found: dict[str, Any] = {}
    for api in names:
        _refuse_prompt(extra, api.prompt)
        for place, name in api.standard.items():
            for value in _values(extra, place.split(".")):
                said = _standard(name, value)
                mine = found.get(name, getattr(request, name))
                if mine is not None and said != mine:
                    raise UsageError(
                        f"stream(): {name}={mine!r} and extra's {place}={value!r} "
                        f"are two words for one thing: give {name}=… alone"
                    )
                if said is not None:
                    found[name] = said
                    extra = _without(extra, place.split("."))
    return request.model_copy(update={**found, "extra": extra})


def _refuse_prompt(extra: Mapping[str, Any], prompt: frozenset[str]) -> None:
    for name in sorted(prompt & extra.keys()):
        if extra[name] is not True:  # a flag as it is sent anyway
            raise UsageError(
                f"stream(): extra={{{name!r}: …}} would take the place of what a "
                "continuation sends. The prompt is the first argument, text or "
                'messages, as in stream("Hello") or '
                'stream([{"role": "user", "content": "Hello"}]); an answer always '
                "comes as a stream"
            )


def _standard(name: str, value: Any) -> Any:
    """The value as `Request` has it, or None where it is no such value."""
    try:
        return getattr(Request.model_validate({"prompt": "", name: value}), name)
    except ValidationError:
        return None


def _values(part: Any, path: list[str]) -> Iterator[Any]:
    """What is at the path, if anything."""
    for name in path:
        part = _object(part)
        if name not in part:
            return
        part = part[name]
    yield part


def _without(part: Any, path: list[str]) -> dict[str, Any]:
    """An object without what is at the path, and without what is empty then."""
    name, *rest = path
    left = dict(_object(part))
    inner = _without(left[name], rest) if rest else None
    if inner:
        left[name] = inner
    else:
        del left[name]
    return left


def _object(part: Any) -> Mapping[str, Any]:
    """An object, which Triton takes as its JSON, too."""
    if isinstance(part, str):
        try:
            part = json.loads(part)
        except ValueError:
            return {}
    return part if isinstance(part, Mapping) else {}
