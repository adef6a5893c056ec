"""Finish reasons: the server's word and the one word for all of them."""

from __future__ import annotations

from midstream._values.errors import ServerFailed
from midstream._values.events import Failure, Finish

_STANDARD = {
    "BLOCKLIST": "content_filter",
    "COMPLETE": "stop",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "LANGUAGE": "content_filter",
    "MAX_TOKENS": "length",
    "PROHIBITED_CONTENT": "content_filter",
    "RECITATION": "content_filter",
    "SAFETY": "content_filter",
    "SPII": "content_filter",
    "STOP": "stop",
    "STOP_SEQUENCE": "stop",
    "TOOL_CALL": "tool_calls",
    "completed": "stop",
    "content_filter": "content_filter",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "function_call": "tool_calls",
    "limit": "length",
    "max_output_tokens": "length",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "model_length": "length",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "word": "stop",
}
BROKEN = frozenset({"abort", "error", "insufficient_system_resource"})
"""Words that tell of a server which gave up, not of an answer that ended.

vLLM says ``abort`` at SIGTERM, and then ``[DONE]``; DeepSeek the last one.
"""


def finish(raw: str, choice: int = 0) -> Finish | Failure:
    """The event for a server's finish reason."""
    if raw in BROKEN:
        return Failure(
            ServerFailed(
                f"the server ended the answer with {raw!r}", type=raw, retryable=True
            )
        )
    return Finish(_STANDARD.get(raw, raw), raw, choice)
