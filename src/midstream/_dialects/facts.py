"""What is known of each dialect, for `midstream.dialects` and the reference page.

Names, addresses, keys and strategies come from the dialects themselves; where a stream
ends, and how it was proved that we read it right, can only be told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from midstream._dialects.base import EXACTNESS

if TYPE_CHECKING:
    from midstream._dialects.base import Dialect
    from midstream._values.exactness import Exactness

_FAMILIES = {
    "SSEFramer": "SSE",
    "NDJSONFramer": "NDJSON",
    "MessageFramer": "gRPC",
    "SSEOrArrayFramer": "SSE or JSON array",
}
_RPCS = {
    "triton-grpc": "ModelStreamInfer",
    "vllm-grpc": "Generate",
}
_DONE = "a finish reason, then `[DONE]`"

_ENDS = {
    "anthropic": "`message_stop`",
    "cohere": "`message-end`",
    "gemini": "a finish reason",
    "llama.cpp-completion": "`stop: true`",
    "llama.cpp-messages": "`message_stop`",
    "llama.cpp-responses": "`response.completed`",
    "lmstudio-native": "`chat.end`",
    "ollama": "`done: true`",
    "ollama-generate": "`done: true`",
    "openai-responses": "`response.completed`, `incomplete` or `failed`",
    "sglang": "a finish reason, then `[DONE]`",
    "tgi": "`generated_text`",
    "triton": "the proper end of the body",
    "triton-grpc": "`triton_final_response`",
    "vllm-grpc": "`complete`, status OK",
    "vllm-messages": "`message_stop`",
    "vllm-responses": "`response.completed`",
}
_PROOFS = {
    "anthropic": ("llama.cpp", "bytes of llama.cpp and vLLM", "anthropic"),
    "cohere": ("cohere",),
    "deepseek": ("openai",),
    "gemini": ("google-genai",),
    "groq": ("groq",),
    "llama.cpp": ("llama.cpp", "bytes of llama.cpp", "openai"),
    "llama.cpp-completion": ("llama.cpp", "bytes of llama.cpp"),
    "llama.cpp-messages": ("llama.cpp", "bytes of llama.cpp", "anthropic"),
    "llama.cpp-responses": ("llama.cpp", "bytes of llama.cpp", "openai"),
    "lmstudio": ("openai",),
    "lmstudio-native": ("documentation only",),
    "mistral": ("mistralai",),
    "ollama": ("ollama",),
    "ollama-generate": ("ollama",),
    "openai": ("llama.cpp", "openai"),
    "openai-completions": ("llama.cpp", "openai"),
    "openai-responses": ("llama.cpp", "bytes of llama.cpp and vLLM", "openai"),
    "openrouter": ("openai",),
    "sglang": ("source only",),
    "sglang-chat": ("openai",),
    "tgi": ("huggingface_hub",),
    "tgi-chat": ("huggingface_hub",),
    "triton": ("Triton", "bytes of Triton", "tritonclient"),
    "triton-grpc": ("Triton", "bytes of Triton", "tritonclient"),
    "vllm": ("vLLM", "bytes of vLLM", "openai"),
    "vllm-completions": ("vLLM", "bytes of vLLM", "openai"),
    "vllm-grpc": ("vLLM", "smg-grpc-proto"),
    "vllm-messages": ("bytes of vLLM", "anthropic"),
    "vllm-responses": ("bytes of vLLM", "openai"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectFacts:
    """What is known of one dialect.

    Attributes:
        name: What endpoints are written with.
        transport: ``"http"`` or ``"grpc"``.
        framing: ``"SSE"``, ``"NDJSON"``, ``"gRPC"``, ….
        route: The path or RPC that is asked.
        default_url: Where such a server usually is; None: it must be said.
        key_variables: Environment variables that may hold its key.
        end: What tells that an answer is whole.
        strategies: How it is continued, best first, and how exact each is.
        proof: Programs that agree: real servers, recorded bytes, official clients.
    """

    name: str
    transport: str
    framing: str
    route: str
    default_url: str | None
    key_variables: tuple[str, ...]
    end: str
    strategies: dict[str, Exactness]
    proof: tuple[str, ...]


def facts(dialect: Dialect) -> DialectFacts:
    """The facts of a dialect, ours or a user's own."""
    return DialectFacts(
        name=dialect.name,
        transport=dialect.transport,
        framing=_FAMILIES.get(dialect.framer.__name__, dialect.framer.__name__),
        route=getattr(dialect, "route", None) or _RPCS.get(dialect.name, ""),
        default_url=dialect.default_url,
        key_variables=dialect.key_variables,
        end=_ENDS.get(dialect.name, _DONE),
        strategies={way: EXACTNESS[way] for way in dialect.strategies},
        proof=_PROOFS.get(dialect.name, ()),
    )
