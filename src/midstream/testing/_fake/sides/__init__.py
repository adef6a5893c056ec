"""The table of servers that can be played: one row a dialect.

A new dialect of a known family is a row here; a new family is a file beside this one
with its own `Side`. What it writes comes from the dialect's own writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream._values.errors import UsageError
from midstream.testing._fake.sides.chat import ChatSide
from midstream.testing._fake.sides.cohere import CohereSide
from midstream.testing._fake.sides.gemini import GeminiSide
from midstream.testing._fake.sides.llama import LlamaChatSide, LlamaCompletionSide
from midstream.testing._fake.sides.lmstudio import LMStudioSide
from midstream.testing._fake.sides.messages import MESSAGES_SIDES
from midstream.testing._fake.sides.ollama import OllamaGenerateSide, OllamaSide
from midstream.testing._fake.sides.openai import OPENAI_SIDES
from midstream.testing._fake.sides.responses import RESPONSES_SIDES
from midstream.testing._fake.sides.sglang import SGLangSide
from midstream.testing._fake.sides.tgi import TgiSide
from midstream.testing._fake.sides.triton_http import TritonHttpSide

if TYPE_CHECKING:
    from midstream.testing._fake.sides.base import Side

HTTP_SIDES: dict[str, Side] = {
    side.name: side
    for side in (
        ChatSide(name="openai", route="/v1/chat/completions"),
        LlamaChatSide(),
        LlamaCompletionSide(),
        OllamaSide(),
        *OPENAI_SIDES,
        *MESSAGES_SIDES,
        *RESPONSES_SIDES,
        CohereSide(),
        LMStudioSide(),
        GeminiSide(),
        TgiSide(),
        SGLangSide(),
        OllamaGenerateSide(),
        TritonHttpSide(),
    )
}
GRPC_DIALECTS = ("triton-grpc", "vllm-grpc")


def side(name: str) -> Side:
    """The player of an HTTP dialect.

    Raises:
        UsageError: It cannot be played.
    """
    try:
        return HTTP_SIDES[name]
    except KeyError:
        known = sorted([*HTTP_SIDES, *GRPC_DIALECTS])
        raise UsageError(
            f"the fake server does not speak {name!r}, only {', '.join(known)}"
        ) from None
