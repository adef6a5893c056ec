"""Servers whose streams are named events around items: Anthropic's API and its kin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream._dialects.anthropic import Anthropic
from midstream._dialects.cohere import Cohere
from midstream._dialects.llama import LlamaReplay
from midstream._dialects.lmstudio import LMStudio
from midstream._dialects.openai_responses import OpenAIResponses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midstream._dialects.base import Dialect

ROWS: Sequence[Dialect] = (
    Anthropic(),
    Anthropic(
        name="llama.cpp-messages",
        default_url="http://localhost:8080",
        key_variables=("LLAMA_API_KEY",),
        strategies=("replay", "text", "ask"),
        strip=False,
        replay=LlamaReplay(),
    ),
    Anthropic(  # it begins a new turn after an assistant's, whatever the model
        name="vllm-messages",
        default_url="http://localhost:8000",
        key_variables=("VLLM_API_KEY",),
        strategies=("ask",),
        bearer=True,
    ),
    OpenAIResponses(),
    OpenAIResponses(
        name="llama.cpp-responses",
        default_url="http://localhost:8080",
        key_variables=("LLAMA_API_KEY",),
        open_turn=True,
        strip=False,
        replay=LlamaReplay(),
    ),
    OpenAIResponses(
        name="vllm-responses",
        default_url="http://localhost:8000",
        key_variables=("VLLM_API_KEY",),
        open_turn=True,
    ),
    Cohere(),
    LMStudio(),
)
