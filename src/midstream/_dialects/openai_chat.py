"""OpenAI chat completions, the dialect that most servers speak, each a little its own.

Source: openai/openai-openapi ``openapi.yaml``; the differences of each server are
fields of `OpenAIChat` and `Prefill`, and each server is a row in
`midstream._dialects.table`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from midstream._dialects.asking import (
    GO_ON,
    LIMITS,
    OPENAI_NAMES,
    least_tokens,
    merge,
    parameters,
    post,
    refuses_prefill,
    rooted,
    with_prefix,
)
from midstream._dialects.base import Continuation, Dialect
from midstream._dialects.chat_chunks import ChatReader, ChatWriter
from midstream._dialects.openai_chunks import Accent
from midstream._values.api_names import ApiNames, places
from midstream._values.interruptions import ResumeUnsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from midstream._dialects.base import (
        Call,
        Flow,
        Generation,
        Reader,
        Received,
        Writer,
    )
    from midstream._values.endpoint import Endpoint
    from midstream._values.errors import ServerError

ROUTE = "/v1/chat/completions"
USAGE: Mapping[str, Any] = {"stream_options": {"include_usage": True}}
"""The request fields that make a stream end with its usage."""


class Replay(Protocol):
    """A server that keeps the stream and can send it again from any place."""

    def tag(self, call: Call, generation: Generation) -> Call:
        """The first request, made so that the server keeps the stream."""
        ...

    def continuation(self, generation: Generation, received: Received) -> Continuation:
        """The request for the rest."""
        ...

    def leave(self, generation: Generation) -> Flow[None]:
        """Stop the generation, which outlives its connection."""
        ...


class TokenRoute(Protocol):
    """A server that takes token ids for a prompt, on some route."""

    def continuation(
        self, generation: Generation, received: Received
    ) -> Flow[Continuation]:
        """The request that goes on after the ids that came.

        Raises:
            ResumeUnsupported: Ids would lose what only the first route does.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """How a server is made to continue a trailing assistant message.

    Attributes:
        flags: Fields of the body.
        turn: Fields of that message.
        reasoning: Its field that carries reasoning; None: an answer that began with
            reasoning cannot be continued.
        thinking: Further fields of the body while the reasoning is still open; None: it
            cannot be continued before it ends.
        root: What the path begins with in place of ``/v1``, where that is not the same.
        trims: Whether whitespace at the end stays off the prefix: servers refuse it,
            take it off, or make another token of it.
        echo: What the new stream may repeat of the prefix.
    """

    flags: Mapping[str, Any] = field(default_factory=dict)
    turn: Mapping[str, Any] = field(default_factory=dict)
    reasoning: str | None = None
    thinking: Mapping[str, Any] | None = None
    root: str | None = None
    trims: bool = True
    echo: Literal["none", "whole"] = "none"


@dataclass(frozen=True, kw_only=True)
class OpenAIChat(Dialect):
    """One server that speaks ``/v1/chat/completions``.

    Attributes:
        names: Standard parameter → the server's name for it.
        own_names: The same at the default URL, where hosted models want others.
        body: Further fields of every request.
        total: Reads the running count of answer tokens from a chunk, where told.
        prefill: How it continues a trailing assistant message; None: it does not.
        ids: How it is continued from token ids.
        replay: How a kept stream is fetched again.
        accent: What it writes in its own way.
    """

    name: str
    default_url: str | None = None
    key_variables: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ("ask",)
    route: str = ROUTE
    names: Mapping[str, str] = field(default_factory=lambda: OPENAI_NAMES)
    own_names: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=lambda: USAGE)
    total: Callable[[Mapping[str, Any]], int | None] | None = None
    prefill: Prefill | None = None
    ids: TokenRoute | None = None
    replay: Replay | None = None
    accent: Accent = Accent()  # noqa: RUF009 - frozen

    def begin(self, generation: Generation) -> Flow[Call]:
        """One POST."""
        yield from ()
        messages = [message.body() for message in generation.request.messages]
        return self._post(generation, messages, None)

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """Replay, ids after ids, an open assistant turn, or the plea to go on."""
        if strategy == "replay" and self.replay is not None:
            return self.replay.continuation(generation, received)
        if strategy == "tokens" and self.ids is not None:
            return (yield from self.ids.continuation(generation, received))
        if strategy == "text" and self.prefill is not None:
            return self._prefilled(generation, received, self.prefill)
        turns = [message.body() for message in generation.request.messages]
        turns += [
            {"role": "assistant", "content": received.text},
            {"role": "user", "content": GO_ON},
        ]
        call = self._post(generation, turns, received)
        return Continuation(call=call, sent=received.text, echo="tail")

    def leave(self, generation: Generation, received: Received) -> Flow[None]:
        """Stop what a replay would have kept alive."""
        del received
        if self.replay is not None and "replay" in generation.strategies:
            yield from self.replay.leave(generation)

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """All is at the top."""
        del endpoint
        return ApiNames(
            places(self.names) | dict.fromkeys(LIMITS, "max_tokens"),
            frozenset({"messages", "stream"}),
        )

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads ``chat.completion.chunk`` objects."""
        return ChatReader(self.total, roles=self.accent.role)

    def writer(self) -> Writer:
        """Writes them."""
        return ChatWriter(self.accent)

    def refuses(self, strategy: str, error: ServerError) -> bool:
        """Prefill is refused in words."""
        return strategy == "text" and refuses_prefill(error)

    def _prefilled(
        self, generation: Generation, received: Received, prefill: Prefill
    ) -> Continuation:
        turn, flags = dict(prefill.turn), dict(prefill.flags)
        if received.reasoning:
            open_, field_ = not received.text, prefill.reasoning
            if field_ is None or (open_ and prefill.thinking is None):
                what = "reasoning that is open" if field_ else "what began as reasoning"
                raise ResumeUnsupported(f"{self.name} cannot continue {what}")
            turn[field_] = received.reasoning
            if open_:
                flags |= prefill.thinking or {}
        sent = received.text
        if prefill.trims or generation.request.stop:
            # Held back for a stop string, a token comes without its leading space.
            sent = sent.rstrip()
        turns = with_prefix(generation.request.messages, sent, **turn)
        call = self._post(generation, turns, received, flags, prefill.root)
        return Continuation(call=call, sent=sent, echo=prefill.echo)

    def _post(
        self,
        generation: Generation,
        messages: Sequence[Mapping[str, Any]],
        received: Received | None,
        flags: Mapping[str, Any] | None = None,
        root: str | None = None,
    ) -> Call:
        request, endpoint = generation.request, generation.endpoint
        names = dict(self.names)
        if endpoint.base_url == self.default_url:
            names |= self.own_names
        body: dict[str, Any] = {
            "messages": messages,
            "stream": True,
            **self.body,
            **parameters(request, names, left=received.left if received else None),
        }
        if endpoint.model is not None:
            body["model"] = endpoint.model
        body = least_tokens(merge(body, request.extra), received)
        body |= flags or {}
        if root is None:
            call = post(generation, self.route, body)
        else:
            call = post(rooted(generation), root + self.route, body)
        return self.replay.tag(call, generation) if self.replay is not None else call
