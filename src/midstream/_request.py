"""What a caller asks for, and of whom: pydantic at the edge, plain values inside."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    SecretStr,
    ValidationError,
)

from midstream._errors import UsageError


class Message(BaseModel):
    """One turn of a conversation; further keys go to the server as they are.

    Args:
        role: ``"system"``, ``"user"``, ``"assistant"``, ``"tool"``.
        content: Its text, or the API's own list of content parts.
    """

    model_config = ConfigDict(defer_build=True, extra="allow", frozen=True)

    role: str
    content: str | list[dict[str, Any]] | None = None

    def body(self) -> dict[str, Any]:
        """The message as JSON values, only what was given."""
        return self.model_dump(mode="json", exclude_unset=True)


Prompt: TypeAlias = "str | Sequence[Message | Mapping[str, Any]]"
_PROMPT = 'give text or a list of messages, as [{"role": "user", "content": "…"}]'
Template: TypeAlias = Callable[[Sequence[Message]], str]


_COUNTS = ("n", "candidateCount")
"""How APIs say how many answers they are asked for, at the top or one level deeper."""


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Request(BaseModel):
    """One generation, in the words every API shares.

    Args:
        prompt: Text, or a conversation.
        max_tokens: The most tokens of answer, over all connections.
        temperature: Sampling temperature; 0 is greedy.
        top_p: Nucleus sampling.
        stop: Strings that end the answer.
        seed: Seed of the sampling.
        tools: Tools in the API's own form.
        extra: Merged into the request body as it is.
        choice: Which of n answers the stream's text is.
    """

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)

    prompt: str | list[Message]
    max_tokens: PositiveInt | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    stop: Annotated[list[str], BeforeValidator(_one_or_many)] | None = None
    seed: int | None = None
    tools: list[dict[str, Any]] | None = None
    extra: dict[str, Any] = {}
    choice: NonNegativeInt = 0

    @property
    def choices(self) -> int:
        """How many answers are asked for."""
        inner = [part for part in self.extra.values() if isinstance(part, dict)]
        told = [part.get(name) for part in (self.extra, *inner) for name in _COUNTS]
        return max((n for n in told if isinstance(n, int)), default=1)

    @classmethod
    def of(cls, **fields: Any) -> Request:
        """Check a caller's arguments.

        Raises:
            UsageError: One of them cannot be; the message names it.
        """
        try:
            request = cls(**fields)
            json.dumps(request.model_dump(), ensure_ascii=False).encode()
        except ValidationError as error:
            raise UsageError(f"stream(): {_words(error)}") from error
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"stream(): not to be said in JSON: {error}") from error
        if request.choice >= max(request.choices, 1):
            raise UsageError(
                f"stream(): choice: there is no answer {request.choice}, as "
                f"{max(request.choices, 1)} is asked for; they count from 0, and "
                'extra={"n": …} asks for more'
            )
        return request

    @property
    def messages(self) -> list[Message]:
        """The prompt as a conversation."""
        if isinstance(self.prompt, str):
            return [Message(role="user", content=self.prompt)]
        return self.prompt


_SPELLING = re.compile(
    r"""(?P<dialect>[^:@\s]+)
        (?: : (?P<model>.*?) )?
        (?: @ (?P<base_url> [a-z][a-z0-9+.-]*://\S+ | [^@/\s]+(?:/\S*)? ) )?""",
    re.VERBOSE | re.IGNORECASE,
)


class Endpoint(BaseModel):
    """Who answers: a dialect, a model, an address and a key.

    ``str(endpoint)`` and ``repr`` hold no secret.

    Args:
        dialect: How the server speaks; `midstream.dialects` lists the names.
        model: The model's name; None where the server has just one.
        base_url: Where, with or without ``/v1``; the dialect's usual address by
            default.
        api_key: The key; read from the dialect's environment variable by default.
            It travels in a header only.
        headers: More headers; they stay behind on a redirect to another origin.
        template: Renders a conversation for dialects that take a raw prompt, unless
            the server has a route for it.
        tokenizer: Turns text into token ids and back, for a server that speaks in ids:
            a ``tokenizer.json`` or its folder, a `tokenizers.Tokenizer`, a
            `tiktoken.Encoding` or its name, or an object with ``encode(text)`` and
            ``token_bytes(id)``; the server's own by default.
        text: Whether the server's text is new each time (``"delta"``) or all so far
            (``"cumulative"``), where the dialect leaves that open; ``"auto"`` watches.
        echo: What a continuation repeats of the prefix: nothing, the ``"whole"`` of
            it or only its ``"tail"``; None: as the dialect is known to.
        errors: Bytes that are no UTF-8 become U+FFFD (``"replace"``) or a `WireError`
            (``"strict"``).
    """

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)

    dialect: str
    model: str | None = None
    base_url: str | None = None
    api_key: SecretStr | None = None
    headers: dict[str, str] = Field(default={}, repr=False)
    template: Template | None = Field(default=None, repr=False)
    tokenizer: Any = Field(default=None, repr=False)
    text: Literal["delta", "cumulative", "auto"] = "auto"
    echo: Literal["none", "whole", "tail"] | None = None
    errors: Literal["replace", "strict"] = "replace"

    if TYPE_CHECKING:  # what mypy, pyright and editors know of it

        def __init__(  # noqa: PLR0913 - the words of the contract
            self,
            dialect: str,
            *,
            model: str | None = None,
            base_url: str | None = None,
            api_key: str | SecretStr | None = None,
            headers: Mapping[str, str] = {},
            template: Template | None = None,
            tokenizer: Any = None,
            text: Literal["delta", "cumulative", "auto"] = "auto",
            echo: Literal["none", "whole", "tail"] | None = None,
            errors: Literal["replace", "strict"] = "replace",
        ) -> None: ...

    else:

        def __init__(self, dialect: str, **fields: Any) -> None:
            """Check the fields.

            Raises:
                UsageError: One of them cannot be; the message names it.
            """
            try:
                super().__init__(dialect=dialect, **fields)
            except ValidationError as error:
                raise UsageError(f"Endpoint({dialect!r}): {_words(error)}") from error

    @classmethod
    def parse(cls, spelling: str | Endpoint) -> Endpoint:
        """Read ``DIALECT[:MODEL][@URL]``.

        Args:
            spelling: Such a string, or an `Endpoint`, which is given back.

        Raises:
            UsageError: It is not of that form.
        """
        if isinstance(spelling, Endpoint):
            return spelling
        if not isinstance(spelling, str):
            raise UsageError(
                "an endpoint is a string or an Endpoint, no "
                f"{type(spelling).__name__}; several are given one by one, as in "
                'Client("llama.cpp", "ollama:gemma3")'
            )
        if re.match(r"(https?|grpcs?)://", spelling, re.IGNORECASE):
            raise UsageError(
                "an address alone does not say how its server speaks: write the "
                'dialect before it, as in "llama.cpp@http://localhost:8080"'
            )
        match = _SPELLING.fullmatch(spelling)
        if match is None:
            raise UsageError(
                f"endpoint {spelling!r} is not DIALECT[:MODEL][@URL], as in "
                '"ollama:gemma3" or "vllm:Qwen/Qwen3-0.6B@http://gpu1:8000"'
            )
        fields: dict[str, Any] = {
            name: part for name, part in match.groupdict().items() if part
        }
        return cls(fields.pop("dialect"), **fields)

    @property
    def address(self) -> str:
        """The base URL without a user's name and password, and without its query."""
        return re.sub(r"(//|^)[^/?#]*@|[?#].*", r"\1", self.base_url or "")

    def __str__(self) -> str:
        """``DIALECT[:MODEL][@URL]`` without secrets."""
        model = f":{self.model}" if self.model else ""
        return f"{self.dialect}{model}{'@' if self.base_url else ''}{self.address}"

    def __repr__(self) -> str:
        """As `str`, marked as an endpoint."""
        return f"<Endpoint {self}>"


def _words(error: ValidationError) -> str:
    """Pydantic's findings in one line, without the input, which may be a secret."""
    words: list[str] = []
    place: Sequence[str | int]
    for fault in error.errors(include_input=False, include_url=False):
        match fault["loc"]:
            case ("prompt", "str"):  # the other half of the union says more
                continue
            case ("prompt", _):
                place, finding = ("prompt",), _PROMPT
            case ("prompt", _, *rest):
                place, finding = ("prompt", *rest), fault["msg"]
            case whole:
                place, finding = whole, fault["msg"]
        words.append(f"{'.'.join(map(str, place))}: {finding}")
    return "; ".join(words)
