"""Models' names, and who usually serves them: for hints, never for decisions."""

from __future__ import annotations

import re

_SERVED = (
    (r"gpt-oss", "ollama"),
    (r"(gpt|chatgpt|o\d|codex|text-embedding)\b", "openai"),
    (r"claude", "anthropic"),
    (r"gemini", "gemini"),
    (r"(mistral|ministral|codestral|magistral|pixtral|devstral)-", "mistral"),
    (r"deepseek-(chat|reasoner)", "deepseek"),
    (r"command-", "cohere"),
    (r"[\w.-]+/[\w.-]+", "vllm"),
    (r"(llama|qwen|gemma|phi|mistral|mixtral|deepseek|smollm)", "ollama"),
)


def served_by(model: str) -> str | None:
    """The dialect that most likely speaks with a model of that name."""
    for pattern, dialect in _SERVED:
        if re.match(pattern, model, re.IGNORECASE):
            return dialect
    return None
