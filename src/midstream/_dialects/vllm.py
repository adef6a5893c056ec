"""vLLM goes on from token ids: the prompt's and the answer's, through /v1/completions.

Source: vLLM 0.32 ``entrypoints/openai``, run for real. With ``return_token_ids`` each
chunk has the ids of its tokens, those whose text is held back included; what the ledger
keeps ends with text, so no half character is ever in the prompt (after one, vLLM would
repeat the text of the whole prompt). The completions route has no parser for reasoning
or tools: what needs one is refused here.

Where ids are unknown, the server's tokenizer makes them of the text. It cuts the end of
a text as it would not have been generated, so the last ids are dropped, and their text,
which comes again, is checked. With ``stop`` strings the text lags behind the ids: they
are cut back until they spell a begin of the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from midstream._dialects.asking import (
    COMPLETION_NAMES,
    bearer,
    least_tokens,
    merge,
    parameters,
    post,
    raw_prompt,
    rooted,
)
from midstream._dialects.base import Call, Continuation, join_url
from midstream._dialects.completion_chunks import CompletionReader
from midstream._dialects.documents import load_object
from midstream._dialects.faults import server_error
from midstream._dialects.openai_chat import USAGE
from midstream._values.interruptions import ResumeUnsupported

if TYPE_CHECKING:
    from midstream._dialects.base import Flow, Generation, Received

ROUTE = "/v1/completions"
RETURNS_IDS = {"return_token_ids": True}
_OVERLAP = 8  # ids; with four the resumed answer was identical in all trials
_OK = 200
_PARSED = ("functions", "function_call", "logprobs", "tool_choice", "tools")
"""Request fields whose answer only the chat route can shape."""
_CHAT_ONLY = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "chat_template_kwargs",
        "continue_final_message",
        "documents",
        "echo",
        "include_reasoning",
        "max_completion_tokens",
        "messages",
        "parallel_tool_calls",
        "reasoning_effort",
        "top_logprobs",
    }
)
_RENDERING = (
    "add_generation_prompt",
    "add_special_tokens",
    "chat_template",
    "chat_template_kwargs",
    "continue_final_message",
)
"""Request fields that make the prompt of the messages."""


class _Kept(NamedTuple):
    """Ids of the answer, and the text they spell: a begin of what came."""

    ids: list[int]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmTokens:
    """Continues an answer of one of vLLM's OpenAI routes from ids.

    Attributes:
        chat: Whether the answer is a chat's.
    """

    chat: bool

    def continuation(
        self, generation: Generation, received: Received
    ) -> Flow[Continuation]:
        """A completion of prompt ids and answer ids.

        Raises:
            ResumeUnsupported: The chat route's parsers are needed, or no ids can be
                had that spell what came.
        """
        self._check(generation, received)
        text, ids = received.text, list(received.token_ids)
        known = len(ids) == received.tokens and -1 not in ids
        if known and received.prompt_ids:
            prompt = list(received.prompt_ids)
        else:
            prompt = yield from self.prompt(generation)
        if not known:
            ids = yield from self._of_text(generation, received)
        kept = yield from self._kept(generation, received, ids, known=known)
        again = len(ids) - len(kept.ids)
        limit = yield from self._limit(generation, received)
        body: dict[str, Any] = {
            "prompt": [*prompt, *kept.ids],
            "stream": True,
            **USAGE,
            **RETURNS_IDS,
            **parameters(generation.request, COMPLETION_NAMES),
            "max_tokens": limit + again,
        }
        if generation.endpoint.model is not None:
            body["model"] = generation.endpoint.model
        extra = generation.request.extra
        if self.chat:
            extra = {key: extra[key] for key in extra.keys() - _CHAT_ONLY}
        return Continuation(
            call=post(generation, ROUTE, least_tokens(merge(body, extra), received)),
            sent=kept.text,
            expect=text[len(kept.text) :],
            again=again,
            reader=CompletionReader(),
        )

    def prompt(self, generation: Generation) -> Flow[list[int]]:
        """The prompt's ids, as the server's template and tokenizer make them."""
        request = generation.request
        given = {key: request.extra[key] for key in _RENDERING if key in request.extra}
        rendered = isinstance(request.prompt, str) or generation.endpoint.template
        if rendered and not self.chat:
            body = {"prompt": raw_prompt(generation), **given}
        else:
            messages = [message.body() for message in request.messages]
            body = {"messages": messages, "add_generation_prompt": True, **given}
        return (yield from self._tokenize(generation, body))

    def _check(self, generation: Generation, received: Received) -> None:
        request = generation.request
        parsed = [key for key in _PARSED if request.extra.get(key)]
        if self.chat and (request.tools or parsed):
            what = ", ".join(["tools"] if request.tools else parsed)
            raise ResumeUnsupported(f"{what}: only vLLM's chat route shapes that")
        if received.reasoning and not received.text:
            raise ResumeUnsupported("the reasoning is open; ids would make it text")

    def _of_text(self, generation: Generation, received: Received) -> Flow[list[int]]:
        """The ids of what came, as the tokenizer makes them of the text."""
        if received.reasoning:
            raise ResumeUnsupported("the ids of the reasoning are not known")
        body = {"prompt": received.text, "add_special_tokens": False}
        return (yield from self._tokenize(generation, body))

    def _kept(
        self,
        generation: Generation,
        received: Received,
        ids: list[int],
        *,
        known: bool,
    ) -> Flow[_Kept]:
        """The most of ``ids`` that can be trusted, and the text they spell."""
        text, stop = received.text, generation.request.stop
        if known and not stop:
            return _Kept(ids, text)
        if received.reasoning:
            raise ResumeUnsupported("which of the ids are reasoning is not known")
        most = len(ids) if known else len(ids) - _OVERLAP
        # What is held back is shorter than a stop string, and no character is of more
        # than four tokens.
        least = most - 4 * max(map(len, stop or ("",))) - 4
        for size in range(most, max(least, 0), -1):
            spelled = yield from self._detokenize(generation, ids[:size])
            if text.startswith(spelled):
                return _Kept(ids[:size], spelled)
        if least > 0:
            raise ResumeUnsupported("the ids that came do not spell the text that came")
        return _Kept([], "")

    def room(self, generation: Generation) -> Flow[int | None]:
        """What a prompt and its answer may have together, where the server tells.

        More than what is left of it is cut to that; without a limit, completions end
        after 16 tokens.
        """
        memory = generation.memory
        if "max_model_len" not in memory:
            url = join_url(generation.endpoint.base_url or "", "/v1/models")
            reply = yield Call(url=url, method="GET", secrets=bearer(generation))
            listed = load_object(reply.content) if reply.status == _OK else {}
            rooms = [model.get("max_model_len") for model in listed.get("data") or ()]
            memory["max_model_len"] = next(filter(None, rooms), None)
        room: int | None = memory["max_model_len"]
        return room

    def _limit(self, generation: Generation, received: Received) -> Flow[int]:
        limit = received.left
        if limit is None:
            limit = yield from self.room(generation)
        if limit is None:
            raise ResumeUnsupported("the server does not tell how much room it has")
        return limit

    def _tokenize(
        self, generation: Generation, body: dict[str, Any]
    ) -> Flow[list[int]]:
        return list((yield from self._ask(generation, "/tokenize", body))["tokens"])

    def _detokenize(self, generation: Generation, ids: list[int]) -> Flow[str]:
        said = yield from self._ask(generation, "/detokenize", {"tokens": ids})
        return str(said["prompt"])

    def _ask(
        self, generation: Generation, route: str, body: dict[str, Any]
    ) -> Flow[dict[str, Any]]:
        """One of the tokenizer's routes, which stand beside ``/v1``."""
        model = generation.endpoint.model
        named = body if model is None else {"model": model, **body}
        return (yield from _asked(post(rooted(generation), route, named)))


def _asked(call: Call) -> Flow[dict[str, Any]]:
    reply = yield call
    if reply.status == _OK:
        return load_object(reply.content)
    error = server_error(reply.content, status=reply.status, headers=reply.headers)
    if error.retryable:
        raise error
    raise ResumeUnsupported(f"{call.url}: {error}")
