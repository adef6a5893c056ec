"""The servers that speak OpenAI's chat and completions routes: one row each.

Sources: api-docs.deepseek.com, docs of LM Studio and OpenRouter, the clients of Mistral
and Groq, and the code of vLLM, SGLang and TGI. A server that differs in data only is a
row; what is not in its row is as OpenAI has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream._dialects.asking import OPENAI_NAMES
from midstream._dialects.llama import LlamaReplay, predicted
from midstream._dialects.openai_chat import USAGE, OpenAIChat, Prefill
from midstream._dialects.openai_chunks import (
    Accent,
    counted,
    openrouter_error,
    sglang_error,
    tgi_error,
)
from midstream._dialects.openai_completions import OpenAICompletions
from midstream._dialects.vllm import RETURNS_IDS, VllmTokens

if TYPE_CHECKING:
    from midstream._dialects.base import Dialect

# Both: the second is true by default, and the two exclude each other.
_CONTINUES = {"continue_final_message": True, "add_generation_prompt": False}

ROWS: list[Dialect] = [
    OpenAIChat(
        name="openai",
        default_url="https://api.openai.com",
        key_variables=("OPENAI_API_KEY",),
        # The newer models refuse the name that all others know.
        own_names={"max_tokens": "max_completion_tokens"},
    ),
    OpenAICompletions(
        name="openai-completions",
        default_url="https://api.openai.com",
        key_variables=("OPENAI_API_KEY",),
    ),
    OpenAIChat(
        name="llama.cpp",
        default_url="http://localhost:8080",
        key_variables=("LLAMA_API_KEY",),
        strategies=("replay", "text", "ask"),
        prefill=Prefill(
            reasoning="reasoning_content",
            thinking={**_CONTINUES, "continue_final_message": "reasoning_content"},
            trims=False,
        ),
        body={"timings_per_token": True, **USAGE},
        total=predicted,
        replay=LlamaReplay(),
    ),
    OpenAIChat(
        name="vllm",
        default_url="http://localhost:8000",
        key_variables=("VLLM_API_KEY",),
        strategies=("tokens", "text", "ask"),
        prefill=Prefill(flags=_CONTINUES),
        ids=VllmTokens(chat=True),
        body={**RETURNS_IDS, **USAGE},
        accent=Accent(thought="reasoning"),
    ),
    OpenAICompletions(
        name="vllm-completions",
        default_url="http://localhost:8000",
        key_variables=("VLLM_API_KEY",),
        strategies=("tokens", "text"),
        ids=VllmTokens(chat=False),
        body={**RETURNS_IDS, **USAGE},
    ),
    OpenAIChat(
        name="sglang-chat",
        default_url="http://localhost:30000",
        key_variables=("SGLANG_API_KEY",),
        strategies=("text", "ask"),
        # Without the flag the trailing message is taken for the user's.
        prefill=Prefill(flags=_CONTINUES),
        # A chunk may hold several tokens when the client is slow.
        body={
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}
        },
        total=counted,
        accent=Accent(error=sglang_error),
    ),
    OpenAIChat(
        name="tgi-chat",
        default_url="http://localhost:8080",
        key_variables=("HF_TOKEN",),
        strategies=("text", "ask"),
        prefill=Prefill(),
        accent=Accent(error=tgi_error, role=True, id=""),
    ),
    OpenAIChat(
        name="lmstudio",
        default_url="http://localhost:1234",
        key_variables=("LM_API_TOKEN",),
        strategies=("text", "ask"),
        # Some versions say the prefix again (lmstudio-bug-tracker 2041).
        prefill=Prefill(echo="whole"),
    ),
    OpenAIChat(
        name="deepseek",
        default_url="https://api.deepseek.com",
        key_variables=("DEEPSEEK_API_KEY",),
        strategies=("text", "ask"),
        route="/chat/completions",
        prefill=Prefill(
            turn={"prefix": True},
            reasoning="reasoning_content",
            thinking={},
            root="/beta",
        ),
        accent=Accent(usage="last"),
    ),
    OpenAIChat(
        name="mistral",
        default_url="https://api.mistral.ai",
        key_variables=("MISTRAL_API_KEY",),
        strategies=("text", "ask"),
        names={**OPENAI_NAMES, "seed": "random_seed"},
        # Unknown fields are refused; usage comes without being asked for.
        body={},
        prefill=Prefill(turn={"prefix": True}, echo="whole"),
        accent=Accent(thought=None, usage="last"),
    ),
    OpenAIChat(
        name="openrouter",
        default_url="https://openrouter.ai/api",
        key_variables=("OPENROUTER_API_KEY",),
        strategies=("text", "ask"),
        prefill=Prefill(reasoning="reasoning"),
        accent=Accent(thought="reasoning", error=openrouter_error, failing=True),
    ),
    OpenAIChat(
        name="groq",
        default_url="https://api.groq.com/openai",
        key_variables=("GROQ_API_KEY",),
        strategies=("text", "ask"),
        body={},
        prefill=Prefill(reasoning="reasoning"),
        accent=Accent(thought="reasoning", usage="x_groq"),
    ),
]
