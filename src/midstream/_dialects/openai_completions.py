"""OpenAI completions: a raw prompt in, its continuation out.

Source: openai/openai-openapi ``openapi.yaml``. Nothing marks where the prompt ends and
the answer begins, so the prompt and the text that came are simply the longer prompt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from midstream._dialects.asking import (
    COMPLETION_NAMES,
    LIMITS,
    least_tokens,
    merge,
    parameters,
    post,
    raw_prompt,
)
from midstream._dialects.base import Continuation, Dialect
from midstream._dialects.completion_chunks import CompletionReader, CompletionWriter
from midstream._dialects.openai_chat import USAGE
from midstream._dialects.openai_chunks import Accent
from midstream._values.api_names import ApiNames, places
from midstream._values.errors import UsageError
from midstream._values.interruptions import ResumeUnsupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    from midstream._dialects.base import (
        Call,
        Flow,
        Generation,
        Reader,
        Received,
        Writer,
    )
    from midstream._dialects.openai_chat import TokenRoute
    from midstream._values.endpoint import Endpoint

    class PromptRoute(TokenRoute, Protocol):
        """A token route whose server renders messages, too."""

        def prompt(self, generation: Generation) -> Flow[list[int]]:
            """The prompt's ids."""
            ...

        def room(self, generation: Generation) -> Flow[int | None]:
            """How many tokens a prompt and its answer may have, where told."""
            ...


_PLACES = places(COMPLETION_NAMES) | dict.fromkeys(LIMITS, "max_tokens")


@dataclass(frozen=True, kw_only=True)
class OpenAICompletions(Dialect):
    """One server that speaks ``/v1/completions``.

    Attributes:
        body: Further fields of every request.
        ids: How it is continued from token ids.
        accent: What it writes in its own way.
    """

    name: str
    default_url: str | None = None
    key_variables: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ("text",)
    route: str = "/v1/completions"
    body: Mapping[str, Any] = field(default_factory=lambda: USAGE)
    ids: PromptRoute | None = None
    accent: Accent = Accent(id="cmpl-midstream")  # noqa: RUF009 - frozen

    def begin(self, generation: Generation) -> Flow[Call]:
        """One POST; messages are rendered first, where the server can."""
        request, prompt = generation.request, None
        renders = isinstance(request.prompt, str) or generation.endpoint.template
        if self.ids is not None and not renders:
            prompt = yield from self.ids.prompt(generation)
        limit = yield from self._limit(generation, request.max_tokens)
        return self._post(generation, prompt or raw_prompt(generation), limit, None)

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """Ids after ids, or text after text."""
        if strategy == "tokens" and self.ids is not None:
            return (yield from self.ids.continuation(generation, received))
        try:
            prompt = raw_prompt(generation)
        except UsageError as error:
            raise ResumeUnsupported(str(error)) from error
        limit = yield from self._limit(generation, received.left)
        # Whitespace at the end may become another token than it was.
        sent = received.text.rstrip()
        call = self._post(generation, prompt + sent, limit, received)
        return Continuation(call=call, sent=sent)

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """All is at the top."""
        del endpoint
        return ApiNames(_PLACES, frozenset({"prompt", "stream"}))

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads ``text_completion`` objects."""
        return CompletionReader()

    def writer(self) -> Writer:
        """Writes them."""
        return CompletionWriter(self.accent)

    def _limit(self, generation: Generation, left: int | None) -> Flow[int | None]:
        """What to ask for at most: this route's own default is a handful of tokens."""
        if left is None and self.ids is not None:
            return (yield from self.ids.room(generation))
        return left

    def _post(
        self,
        generation: Generation,
        prompt: str | Sequence[int],
        limit: int | None,
        received: Received | None,
    ) -> Call:
        request, endpoint = generation.request, generation.endpoint
        if request.tools:
            raise UsageError(f"{self.name} has no tools; use a chat dialect")
        body: dict[str, Any] = {
            "prompt": prompt,
            "stream": True,
            **self.body,
            **parameters(request, COMPLETION_NAMES, left=limit),
        }
        if endpoint.model is not None:
            body["model"] = endpoint.model
        body = least_tokens(merge(body, request.extra), received)
        return post(generation, self.route, body)
