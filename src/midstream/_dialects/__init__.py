"""The table of dialects: one row a server, and a place for users' own."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from midstream._dialects.facts import DialectFacts, facts
from midstream._dialects.gemini import Gemini
from midstream._dialects.item_rows import ROWS as ITEM_ROWS
from midstream._dialects.llama import LlamaCompletion
from midstream._dialects.models import served_by
from midstream._dialects.ollama import OllamaChat, OllamaGenerate
from midstream._dialects.openai_rows import ROWS as OPENAI_ROWS
from midstream._dialects.sglang import SGLang
from midstream._dialects.tgi import Tgi
from midstream._dialects.triton_grpc import TRITON_GRPC
from midstream._dialects.triton_http import TritonHttp
from midstream._dialects.vllm_grpc import VLLM_GRPC
from midstream._values.errors import UsageError

if TYPE_CHECKING:
    from midstream._dialects.base import Dialect

_ROWS: list[Dialect] = [
    *OPENAI_ROWS,
    *ITEM_ROWS,
    LlamaCompletion(),
    OllamaChat(),
    OllamaGenerate(),
    Gemini(),
    Tgi(),
    SGLang(),
    TritonHttp(),
    TRITON_GRPC,
    VLLM_GRPC,
]
_TABLE: dict[str, Dialect] = {dialect.name: dialect for dialect in _ROWS}


def find(name: str) -> Dialect:
    """The dialect of that name.

    Raises:
        UsageError: There is none; the message shows what was probably meant.
    """
    try:
        return _TABLE[name]
    except KeyError:
        raise UsageError(
            f"no dialect {name!r}{_meant(name)} An endpoint is DIALECT[:MODEL][@URL], "
            'as in "openai:gpt-4o" or "llama.cpp@http://localhost:8080"'
        ) from None


def _meant(name: str) -> str:
    """What was probably meant by a name that no dialect has."""
    head, slash, model = name.partition("/")
    near = get_close_matches(head, _TABLE, 1)
    if near and slash:
        return f", did you mean {f'{near[0]}:{model}'!r}?"
    if dialect := served_by(name):
        return f": that is a model's name, did you mean {f'{dialect}:{name}'!r}?"
    if near:
        return f", did you mean {near[0]!r}?"
    return f"; there are {', '.join(sorted(_TABLE))}."


def register(dialect: Dialect) -> None:
    """Add a dialect of your own, or replace one.

    Args:
        dialect: It; endpoints name it by its ``name``.
    """
    _TABLE[dialect.name] = dialect


def dialects() -> dict[str, DialectFacts]:
    """What is known of all dialects, by name, as docs/reference/dialects.md has it."""
    return {name: facts(dialect) for name, dialect in sorted(_TABLE.items())}
