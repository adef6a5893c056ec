"""The chunks of ``/v1/completions``: pieces of raw text.

Source: openai/openai-openapi ``openapi.yaml``; ids as vLLM sends them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from midstream._dialects.openai_chunks import ChunkReader, ChunkWriter, with_ids
from midstream._values.events import TextDelta

if TYPE_CHECKING:
    from collections.abc import Mapping

    from midstream._dialects.openai_chunks import Accent
    from midstream._values.events import Event, Signal, Started


class CompletionReader(ChunkReader):
    """Reads ``text_completion`` objects."""

    __slots__ = ()

    def _choice(
        self,
        choice: Mapping[str, Any],
        tokens: int | None,
        events: list[Event | Signal],
    ) -> None:
        text, ids = choice.get("text") or "", choice.get("token_ids") or ()
        # An empty text that ends nothing is a token whose text is held back.
        held = tokens or (tokens is None and not choice.get("finish_reason"))
        if text or ids or held:
            index, logprobs = choice.get("index") or 0, choice.get("logprobs")
            events.append(TextDelta(text, index, tokens, tuple(ids), logprobs))


class CompletionWriter(ChunkWriter):
    """Writes them; a completion has text, and nothing else."""

    __slots__ = ("_prompt_ids",)

    form = "text_completion"

    def __init__(self, accent: Accent) -> None:
        super().__init__(accent)
        self._prompt_ids: tuple[int, ...] = ()

    def _opening(self, started: Started) -> list[dict[str, Any]]:
        self._prompt_ids = started.prompt_ids
        return []

    def _delta(self, event: Event) -> list[dict[str, Any]]:
        if not isinstance(event, TextDelta):
            return []
        chunk = self._piece(event.text, event.choice, None)
        with_ids(chunk["choices"][0], event)
        if self._prompt_ids:
            chunk["choices"][0]["prompt_token_ids"] = list(self._prompt_ids)
            self._prompt_ids = ()
        return [chunk]

    def _ended(self, choice: int, reason: str | None) -> dict[str, Any]:
        return self._piece("", choice, reason)

    def _piece(self, text: str, choice: int, reason: str | None) -> dict[str, Any]:
        return self._chunk(index=choice, text=text, logprobs=None, finish_reason=reason)
