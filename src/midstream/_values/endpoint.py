"""Who is asked: pydantic at the edge, a plain value inside."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from midstream._values.arguments import ENDPOINT, unknown_argument
from midstream._values.errors import UsageError
from midstream._values.findings import findings
from midstream._values.message import Message

Template: TypeAlias = Callable[[Sequence[Message]], str]

_FORM = 'Endpoint("openai", model="gpt-4o", base_url="https://host", api_key="…")'
# An @ may be the model's own, as in claude-sonnet@20240620 and @cf/meta/llama: what
# follows it is an address where it looks like one.
_SPELLING = re.compile(
    r"""(?P<dialect>[^:@\s]+ (?:@(?:\d+|default|latest))? )
        (?: : (?P<model>.*?) )?
        (?: @ (?P<base_url>
            [a-z][a-z0-9+.-]*://\S+
            | [^:@/\s]+:[^/\s]*@ [^@/\s]+ (?:/\S*)?                  # bob:pw@host
            | (?: localhost | [^@/\s]*[.:][^@/\s]* ) (?:/\S*)?
            | (?<!:@) (?! (?:\d+|default|latest)$ ) [^@/\s]+ (?:/\S*)?
        ) )?""",
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

        def __init__(self, dialect: str = "", **fields: Any) -> None:
            """Check the fields.

            Raises:
                UsageError: One of them cannot be; the message names it.
            """
            if not dialect:
                raise UsageError(f"Endpoint(): name a dialect first, as in {_FORM}")
            if unknown := fields.keys() - type(self).model_fields:
                known = type(self).model_fields
                raise UsageError(
                    unknown_argument("Endpoint", min(unknown), known, ENDPOINT)
                )
            try:
                super().__init__(dialect=dialect, **fields)
            except ValidationError as error:
                raise UsageError(f"Endpoint({dialect!r}): {findings(error)}") from error

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

    def bare(self) -> Endpoint:
        """Its names alone: what may leave the process with an error or an event."""
        return Endpoint(self.dialect, model=self.model, base_url=self.address or None)

    def same_model(self, other: Endpoint) -> bool:
        """Whether ``other`` has the same model, as far as one can know."""
        if self.model is None or other.model is None:
            return self is other or self.dialect == other.dialect
        return self.model == other.model

    def __str__(self) -> str:
        """``DIALECT[:MODEL][@URL]`` without secrets."""
        model = f":{self.model}" if self.model else ""
        return f"{self.dialect}{model}{'@' if self.base_url else ''}{self.address}"

    def __repr__(self) -> str:
        """As `str`, marked as an endpoint."""
        return f"<Endpoint {self}>"
