"""Wrong arguments, answered by a `UsageError` that shows the right form.

A call that Python cannot bind (an argument that does not exist, one too many, none)
ends in a bare ``TypeError``, which knows nothing of what its writer had in mind.
`explained` binds first and says so in words. The signatures stay explicit: editors,
type checkers and ``help()`` see what is there, and no ``**kwargs``.
"""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from midstream._values.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

P = ParamSpec("P")
T = TypeVar("T")

_PROMPT = (
    'the prompt is the first argument: stream("Hello") or '
    'stream([{"role": "user", "content": "Hello"}])'
)
_ENDPOINT = (
    "the endpoint says who answers, DIALECT[:MODEL][@URL]: "
    'Client("openai:gpt-4o"), Client("llama.cpp@http://localhost:8080")'
)
_KEY = 'the key is the endpoint\'s: Client(Endpoint("openai", api_key="…"))'
_LIMIT = "it is max_tokens=… here, whatever the API"
_TIMES = "limits are Timeouts(connect=…, first_token=…, idle=…, total=…)"
_TRIES = "it is Resume(attempts=…)"
EXTRA = 'what an API has besides goes into its body by extra={"name": value}'
"""What ``stream()`` says to an argument that nobody knows."""

STREAM = {
    **dict.fromkeys(("contents", "input", "messages", "text"), _PROMPT),
    **dict.fromkeys(("base_url", "dialect", "endpoint", "model", "url"), _ENDPOINT),
    **dict.fromkeys(("max_completion_tokens", "max_new_tokens", "n_predict"), _LIMIT),
    **dict.fromkeys(("max_output_tokens", "num_predict"), _LIMIT),
    "api_key": _KEY,
    "stream": "an answer always comes as a stream: leave it out",
    "system": 'give messages: stream([{"role": "system", "content": "…"}, …])',
    "timeout": _TIMES,
}
"""What ``stream()`` has under another name, or elsewhere."""

CLIENT = {
    **dict.fromkeys(("base_url", "dialect", "endpoint", "endpoints"), _ENDPOINT),
    **dict.fromkeys(("host", "model", "provider", "url"), _ENDPOINT),
    "api_key": _KEY,
    "headers": 'headers are the endpoint\'s: Client(Endpoint("openai", headers={…}))',
    **dict.fromkeys(("max_retries", "retries"), f"{_TRIES}: Client(…, resume=…)"),
    "timeout": f"{_TIMES}: Client(…, timeouts=…)",
}
"""What clients have under another name, or elsewhere."""

ENDPOINT = {
    **dict.fromkeys(("address", "host", "server", "url"), "it is base_url=…"),
    **dict.fromkeys(("key", "token"), "it is api_key=…"),
    "name": "it is model=…",
    "timeout": f"{_TIMES}: Client(…, timeouts=…)",
}
"""What `midstream.Endpoint` has under another name, or elsewhere."""

TIMEOUTS = {
    "pool": "a connection that is waited for counts as connect=…",
    "read": "it is first_token=… until the first token, idle=… between two",
    "timeout": _TIMES,
    "write": "what is sent counts as first_token=…",
}
"""What `midstream.Timeouts` says in finer words."""

RESUME: Mapping[str, str] = dict.fromkeys(
    ("max_attempts", "max_retries", "retries"), _TRIES
)
"""What `midstream.Resume` has under another name."""


def explained(
    name: str, hints: Mapping[str, str] = {}, *, otherwise: str = ""
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function answer arguments that it does not take in words.

    Args:
        name: What its callers write.
        hints: What to say to an argument that exists elsewhere, by its name.
        otherwise: What to say to one that nobody knows.
    """

    def decorate(call: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(call)
        known = [own for own in signature.parameters if own != "self"]

        @wraps(call)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                for wrong in kwargs.keys() - signature.parameters.keys():
                    words = unknown_argument(
                        name, wrong, known, hints, otherwise=otherwise
                    )
                    raise UsageError(words) from error
                form = ", ".join(known)
                raise UsageError(f"{name}(): {error}; it takes {form}") from error
            return call(*args, **kwargs)

        return checked

    return decorate


def explained_class(hints: Mapping[str, str] = {}) -> Callable[[type[T]], type[T]]:
    """The same for the fields of a dataclass."""

    def decorate(cls: type[T]) -> type[T]:
        init = explained(cls.__name__, hints)(cls.__init__)
        type.__setattr__(cls, "__init__", init)
        return cls

    return decorate


def unknown_argument(
    name: str,
    wrong: str,
    known: Iterable[str],
    hints: Mapping[str, str] = {},
    *,
    otherwise: str = "",
) -> str:
    """What to say to an argument that does not exist.

    Args:
        name: What was called.
        wrong: The argument.
        known: Those that exist.
        hints: What to say to one that exists elsewhere, by its name.
        otherwise: What to say to one that nobody knows.
    """
    known = list(known)
    head = f"{name}({wrong}=…): "
    if wrong in hints:
        return f"{head}{hints[wrong]}"
    for near in get_close_matches(wrong, known, 1):
        return f"{head}did you mean {near}=…?"
    more = f"; {otherwise}" if otherwise else ""
    return f"{head}no such argument; there are {', '.join(known)}{more}"


def check_http_client(client: object, kind: str) -> None:
    """Refuse what is no client of httpx, or one of the other colour.

    No import of httpx: it is slow, and who gives a client has it.

    Args:
        client: What was given.
        kind: ``"Client"`` or ``"AsyncClient"``.

    Raises:
        UsageError: It is another thing.
    """
    if client is None or _is(client, "httpx", kind):
        return
    other = {"Client": "AsyncClient", "AsyncClient": "Client"}[kind]
    given = f"{type(client).__module__.partition('.')[0]}.{type(client).__qualname__}"
    if isinstance(client, type):
        given = f"the class {client.__qualname__}"
    if _is(client, "httpx", other):
        right = f"; {given} is for midstream.{other}"
    else:
        right = f", as in {kind}(…, http_client=httpx.{kind}(proxy=…)), no {given}"
    raise UsageError(f"http_client: midstream.{kind} takes an httpx.{kind}{right}")


def _is(value: object, package: str, name: str) -> bool:
    """Whether it is an instance of that class, or of a kind of it."""
    return any(
        cls.__name__ == name and cls.__module__.partition(".")[0] == package
        for cls in type(value).__mro__
    )
