"""What a request asks of the model, in the words all dialects share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midstream.testing._fake.recorded import How

_MARK = b"<|assistant|>\n"


class Refusal(Exception):
    """The server refuses the request.

    Args:
        status: The HTTP status.
        message: Its words.
        type: Its class of the error.
    """

    def __init__(self, status: int, message: str, *, type: str | None = None) -> None:  # noqa: A002 - as all APIs call it
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request to the model.

    Attributes:
        context: What came before the open turn, as a key; equal contexts are the same
            conversation.
        opening: The open turn: what the answer begins with; for a raw prompt all of it.
        raw: Whether `opening` is a raw prompt.
        turn: Whether the request has an open turn at all.
        reasoning: The open turn's reasoning.
        preface: What a broken prompt makes the model say first.
        how: What a continuation would be called.
        max_tokens: The most tokens to say.
        stop: Strings that end the answer.
        n: How many answers.
        streams: Whether as a stream.
        usage: Whether usage is reported.
        prompt_tokens: What the prompt counts.
    """

    context: str = ""
    opening: bytes = b""
    raw: bool = False
    turn: bool = False
    reasoning: bytes = b""
    preface: bytes = b""
    how: How = "text"
    max_tokens: int | None = None
    stop: tuple[bytes, ...] = ()
    n: int = 1
    streams: bool = True
    usage: bool = True
    prompt_tokens: int = 1


def chat(messages: Sequence[Mapping[str, Any]], **facts: Any) -> Asked:
    """A conversation; a trailing assistant message without tool calls is open.

    Args:
        messages: It, in OpenAI's form.
        facts: The other fields of `Asked`.
    """
    last = messages[-1] if messages else {}
    if last.get("role") != "assistant" or last.get("tool_calls"):
        return Asked(context=_key(messages), **facts)
    thought = last.get("reasoning_content") or last.get("thinking") or ""
    return Asked(
        context=_key(messages[:-1]),
        opening=words(last.get("content")),
        turn=True,
        reasoning=words(thought),
        **facts,
    )


def words(content: Any) -> bytes:
    """The text of a message; parts are joined as llama.cpp does."""
    if isinstance(content, list):
        content = "\n\n".join(str(part.get("text", "")) for part in content)
    return str(content or "").encode("utf-8", "surrogateescape")


def template(messages: Sequence[Mapping[str, Any]]) -> bytes:
    """The conversation as one prompt, ready for the model to speak."""
    turns = [
        b"<|" + words(m.get("role")) + b"|>\n" + words(m.get("content"))
        for m in messages
    ]
    last = messages[-1] if messages else {}
    if last.get("role") == "assistant":
        return b"\n".join(turns)
    return b"\n".join([*turns, _MARK])


def split_template(prompt: bytes) -> tuple[bytes, bytes] | None:
    """What `template` rendered: the conversation and the open turn."""
    head, mark, open_turn = prompt.rpartition(_MARK)
    return (head, open_turn) if mark else None


def stops(value: Any) -> tuple[bytes, ...]:
    """Stop strings: one, many or none."""
    given = [value] if isinstance(value, str) else value or ()
    return tuple(str(stop).encode() for stop in given if stop)


def limit(value: Any) -> int | None:
    """A token limit; servers take zero for one and less for none."""
    if value is None or value < 0:
        return None
    return max(int(value), 1)


def _key(messages: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps([dict(message) for message in messages], sort_keys=True)
