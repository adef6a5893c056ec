"""Request bodies: standard parameter names, prefixes, and the plea to go on."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from midstream._dialects.base import Call, join_url
from midstream._dialects.documents import dumps
from midstream._values.errors import BadRequest, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midstream._dialects.base import Generation, Received
    from midstream._values.errors import ServerError
    from midstream._values.message import Message
    from midstream._values.request import Request

OPENAI_NAMES = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
    "seed": "seed",
    "tools": "tools",
}

COMPLETION_NAMES = {
    name: theirs for name, theirs in OPENAI_NAMES.items() if name != "tools"
}

LIMITS = ("max_tokens", "max_completion_tokens", "n_predict")
"""What servers that speak OpenAI's routes call the limit: the last is llama.cpp's."""

GO_ON = (
    "Your previous reply was cut off at the end of the text above. "
    "Continue exactly from there; do not repeat anything."
)

_NO_PREFILL = re.compile(
    r"prefill|continue_final_message|add_generation_prompt|trailing assistant"
    r"|(end|ending) with an? (user|model|assistant)",
    re.IGNORECASE,
)


def parameters(
    request: Request, names: Mapping[str, str], *, left: int | None = None
) -> dict[str, Any]:
    """What the caller set, under the dialect's names.

    Args:
        request: What was asked.
        names: Standard name → the dialect's name; what is not listed is not sent.
        left: What is left of ``max_tokens`` in a continuation.
    """
    given = {name: getattr(request, name) for name in names}
    if left is not None:
        given["max_tokens"] = left
    return {names[name]: value for name, value in given.items() if value is not None}


def merge(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """``extra`` over ``body``; objects in both are merged, all else is replaced."""
    for key, value in extra.items():
        mine = body.get(key)
        if isinstance(mine, dict) and isinstance(value, dict):
            body[key] = merge(dict(mine), value)
        else:
            body[key] = value
    return body


def least_tokens(body: dict[str, Any], received: Received | None) -> dict[str, Any]:
    """``body`` with what is left of ``min_tokens``, where the caller gave that.

    Args:
        body: The request's body.
        received: What came before, for a continuation.
    """
    if received is not None and isinstance(body.get("min_tokens"), int):
        body["min_tokens"] = max(body["min_tokens"] - received.tokens, 0)
    return body


def with_prefix(
    messages: Sequence[Message], text: str, **more: Any
) -> list[dict[str, Any]]:
    """The conversation with the received text as its open assistant turn.

    Args:
        messages: The conversation as it was asked.
        text: What came.
        more: Further keys of the assistant turn.
    """
    bodies = [message.body() for message in messages]
    last = bodies[-1] if bodies else {}
    if last.get("role") == "assistant" and isinstance(last.get("content"), str):
        return [*bodies[:-1], {**last, "content": last["content"] + text, **more}]
    return [*bodies, {"role": "assistant", "content": text, **more}]


def post(generation: Generation, route: str, body: Any, **headers: str) -> Call:
    """A JSON request to one of the endpoint's routes, its key in a header.

    Args:
        generation: Whose endpoint is asked.
        route: The path below the base URL.
        body: The JSON document.
        headers: Further headers that are no secret.
    """
    return Call(
        url=join_url(generation.endpoint.base_url or "", route),
        content=dumps(body),
        headers={"content-type": "application/json", **headers},
        secrets=bearer(generation),
    )


def rooted(generation: Generation) -> Generation:
    """The generation, its base URL without ``/v1``, for routes that stand beside it."""
    base = (generation.endpoint.base_url or "").rstrip("/").removesuffix("/v1")
    endpoint = generation.endpoint.model_copy(update={"base_url": base})
    return replace(generation, endpoint=endpoint)


def bearer(generation: Generation) -> dict[str, str]:
    """The endpoint's key and its own headers."""
    return keyed(generation, "authorization", "Bearer ")


def keyed(generation: Generation, header: str, scheme: str = "") -> dict[str, str]:
    """The endpoint's key, in the header that its API reads, and its own headers.

    Args:
        generation: Whose endpoint is asked.
        header: The key's header, in lower case.
        scheme: What stands before the key.
    """
    key = generation.endpoint.api_key
    own = {name.lower(): value for name, value in generation.endpoint.headers.items()}
    if key is None:
        return own
    return {header: f"{scheme}{key.get_secret_value()}", **own}


def raw_prompt(generation: Generation) -> str:
    """The prompt of a dialect that takes one string.

    Raises:
        UsageError: There are messages and nothing to render them with.
    """
    prompt, template = generation.request.prompt, generation.endpoint.template
    if isinstance(prompt, str):
        return prompt
    if template is None:
        raise UsageError(
            f"{generation.endpoint.dialect} takes a raw prompt: give a str, or "
            "Endpoint(template=…) with a function that renders the messages"
        )
    return template(prompt)


def refuses_prefill(error: ServerError) -> bool:
    """Whether a server says that it does not continue an assistant turn."""
    return isinstance(error, BadRequest) and bool(_NO_PREFILL.search(error.message))
