"""The chunks of ``/v1/chat/completions``: deltas of a message.

Source: openai/openai-openapi ``openapi.yaml``; reasoning, which it does not know, is
where vLLM, DeepSeek, OpenRouter, Groq and Mistral put it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midstream._dialects.documents import dumps
from midstream._dialects.openai_chunks import ChunkReader, ChunkWriter, with_ids
from midstream._values.events import (
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from midstream._values.events import Event, Signal, Started


@dataclass(slots=True)
class _Call:
    """A tool call as the wire has named it so far."""

    index: int
    wire_index: Any
    id: str | None


class ChatReader(ChunkReader):
    """Reads chunks; holds what one chunk leaves open for the next.

    Args:
        total: Reads the running count of answer tokens from a chunk, where told.
        roles: Whether every delta says whose it is; else one that does, and has no
            text, opens the answer and is no token.
    """

    __slots__ = ("_calls", "_roles")

    def __init__(
        self,
        total: Callable[[Mapping[str, Any]], int | None] | None = None,
        *,
        roles: bool = False,
    ) -> None:
        super().__init__(total)
        self._roles = roles
        self._calls: dict[int, list[_Call]] = {}

    def _choice(
        self,
        choice: Mapping[str, Any],
        tokens: int | None,
        events: list[Event | Signal],
    ) -> None:
        index = choice.get("index") or 0
        # A server that did not stream says the whole message, in one document.
        delta = choice.get("delta") or choice.get("message") or {}
        content = delta.get("content")
        if content and len(delta) == 1 and type(content) is str:  # the common one
            ids = tuple(choice.get("token_ids") or ())
            logprobs = choice.get("logprobs")
            events.append(TextDelta(content, index, tokens, ids, logprobs))
            return
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        ids = tuple(choice.get("token_ids") or ())
        if isinstance(content, list):
            content, thought = _parts(content)
        said = len(events)
        if thought:
            events.append(ReasoningDelta(thought, index, tokens, ids))
            tokens, ids = 0, ()
        if content:
            logprobs = choice.get("logprobs")
            events.append(TextDelta(content, index, tokens, ids, logprobs))
            tokens, ids = 0, ()
        if delta.get("refusal"):
            events.append(RefusalDelta(delta["refusal"], index, tokens))
            tokens = 0
        fragments = delta.get("tool_calls") or ()
        legacy = delta.get("function_call")
        for fragment in [{"index": 0, "function": legacy}] if legacy else fragments:
            events.append(self._tool(fragment, index, tokens))
            tokens = 0
        if len(events) == said and (ids or tokens or self._holds(choice, tokens)):
            # Tokens whose text is held back.
            events.append(TextDelta("", index, tokens, ids, choice.get("logprobs")))

    def _holds(self, choice: Mapping[str, Any], tokens: int | None) -> bool:
        """Whether a chunk with an empty text is a token all the same.

        So it is inside a character of several tokens; not where it only says a role,
        or why the answer ended.
        """
        delta = choice.get("delta") or {}
        opens = "role" in delta and not self._roles
        ends = choice.get("finish_reason") or choice.get("error")
        return tokens is None and delta.get("content") == "" and not opens and not ends

    def _tool(
        self, fragment: Mapping[str, Any], choice: int, tokens: int | None
    ) -> ToolCallDelta:
        """Servers leave out the index, give 0 to all, or change it on the way."""
        function = fragment.get("function") or {}
        call = self._slot(fragment, function.get("name"), choice)
        arguments = function.get("arguments") or ""
        whole = isinstance(arguments, dict)
        return ToolCallDelta(
            call.index,
            fragment.get("id"),
            function.get("name"),
            dumps(arguments).decode() if whole else arguments,
            choice,
            tokens,
            closed=whole,
        )

    def _slot(
        self, fragment: Mapping[str, Any], name: str | None, choice: int
    ) -> _Call:
        calls = self._calls.setdefault(choice, [])
        id_, index = fragment.get("id"), fragment.get("index")
        same_id = [call for call in calls if id_ and call.id == id_]
        same_index = [c for c in calls if index is not None and c.wire_index == index]
        if same_id:
            return same_id[-1]
        if not (id_ and name) and same_index:
            return same_index[-1]
        if id_ or name or not calls:
            calls.append(_Call(len(calls), index, id_))
        return calls[-1]


def _parts(content: list[Any]) -> tuple[str, str]:
    """Text and reasoning of a delta that is a list of parts (Mistral)."""
    text, thought = "", ""
    for part in content:
        if part.get("type") == "thinking":
            inner = part.get("thinking") or ()
            thought += "".join(piece.get("text") or "" for piece in inner)
        else:
            text += part.get("text") or ""
    return text, thought


class ChatWriter(ChunkWriter):
    """Writes chunks as OpenAI does, but for the server's accent."""

    __slots__ = ()

    def _opening(self, started: Started) -> list[dict[str, Any]]:
        if self._accent.role:  # no chunk is there for the role alone
            return []
        chunk = self._message({"role": "assistant", "content": ""})
        if started.prompt_ids:
            chunk["prompt_token_ids"] = list(started.prompt_ids)
        return [chunk]

    def _delta(self, event: Event) -> list[dict[str, Any]]:
        match event:
            case TextDelta():
                chunk = self._message({"content": event.text}, event.choice)
                with_ids(chunk["choices"][0], event)
            case ReasoningDelta():
                chunk = self._message(self._thought(event.text), event.choice)
                if event.token_ids:
                    chunk["choices"][0]["token_ids"] = list(event.token_ids)
            case RefusalDelta():
                chunk = self._message({"refusal": event.text}, event.choice)
            case ToolCallDelta():
                chunk = self._message({"tool_calls": [_fragment(event)]}, event.choice)
            case _:
                return []
        return [chunk]

    def _ended(self, choice: int, reason: str | None) -> dict[str, Any]:
        return self._message({}, choice, reason)

    def _message(
        self, delta: dict[str, Any], choice: int = 0, reason: str | None = None
    ) -> dict[str, Any]:
        if self._accent.role:
            delta = {"role": "assistant", **delta}
        return self._chunk(index=choice, delta=delta, finish_reason=reason)

    def _thought(self, text: str) -> dict[str, Any]:
        if self._accent.thought is not None:
            return {self._accent.thought: text}
        inner = [{"type": "text", "text": text}]
        return {"content": [{"type": "thinking", "thinking": inner}]}


def _fragment(event: ToolCallDelta) -> dict[str, Any]:
    fragment: dict[str, Any] = {"index": event.index, "function": {}}
    if event.id is not None:
        fragment |= {"id": event.id, "type": "function"}
    if event.name is not None:
        fragment["function"]["name"] = event.name
    fragment["function"]["arguments"] = event.arguments
    return fragment
