"""What was received, in the form that a continuation needs.

Text is kept as parts, joined a block at a time: no copy of the whole per token, and no
object per token for long. The ledger knows the answers; their tokens and what all
connections used are books of their own.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from math import ceil
from typing import TYPE_CHECKING

from pydantic_core import from_json

from midstream._dialects.base import Received
from midstream._resume.spent import Spent
from midstream._resume.tokens import Tokens
from midstream._values.checkpoint import Answer
from midstream._values.events import Finish, ReasoningDelta
from midstream._values.tool_call import ToolCall
from midstream._values.usage import Usage

if TYPE_CHECKING:
    from array import array
    from typing import Any

    from midstream._values.checkpoint import Checkpoint
    from midstream._values.events import RefusalDelta, Started, TextDelta, ToolCallDelta

_TELLING = 64  # characters that tell how many a token has
_ASCII = 0.25  # tokens a character, where nobody told; of other scripts one
_BLOCK = 256  # parts; their objects weigh more than their text


class Text:
    """A growing text: appending costs the same however long it is."""

    __slots__ = ("_blocks", "_parts", "length")

    def __init__(self, text: str = "") -> None:
        self._blocks = [text] if text else []
        self._parts: list[str] = []
        self.length = len(text)

    def add(self, piece: str) -> None:
        """Append."""
        self._parts.append(piece)
        self.length += len(piece)
        if len(self._parts) == _BLOCK:
            self._blocks.append("".join(self._parts))
            self._parts.clear()

    def since(self, length: int) -> str:
        """What came behind the first ``length`` characters; costs no more than that."""
        parts: list[str] = []
        missing = self.length - length
        for part in chain(reversed(self._parts), reversed(self._blocks)):
            if missing <= 0:
                break
            parts.append(part)
            missing -= len(part)
        return "".join(reversed(parts))[max(-missing, 0) :]

    def __str__(self) -> str:
        """All of it."""
        return "".join(self._blocks) + "".join(self._parts)


class Choice:
    """One of n answers.

    Attributes:
        finished: Whether it said that it ended.
        finish_reason: Why it ended, in midstream's words; None while it runs, and
            where the server never said.
        raw_finish_reason: The same in the server's words.
        length: Characters of all channels, and a call as one: the measure of progress.
    """

    def __init__(self) -> None:
        self.length = 0
        self._text = Text()
        self._reasoning = Text()
        self._refusal = Text()
        self._calls: dict[int, tuple[ToolCall, Text]] = {}
        self.finished = False
        self.finish_reason: str | None = None
        self.raw_finish_reason: str | None = None

    @property
    def text(self) -> str:
        """The answer so far."""
        return str(self._text)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return str(self._reasoning)

    @property
    def refusal(self) -> str:
        """The refusal so far."""
        return str(self._refusal)

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls so far, in order."""
        for call, arguments in self._calls.values():
            call.arguments = str(arguments)
        return [self._calls[index][0] for index in sorted(self._calls)]

    def add_text(self, text: str) -> None:
        """Text of the answer."""
        self._text.add(text)
        self.length += len(text)

    def load(self, stored: Answer) -> None:
        """Begin with what another process had received."""
        self._text, self._reasoning = Text(stored.text), Text(stored.reasoning)
        self._refusal = Text(stored.refusal)
        self._calls = {
            call.index: (replace(call), Text(call.arguments))
            for call in stored.tool_calls
        }
        texts = [*self.channels.values(), *(text for _, text in self._calls.values())]
        self.length = len(self._calls) + sum(text.length for text in texts)
        self.finished = stored.finished
        self.finish_reason = stored.finish_reason
        self.raw_finish_reason = stored.raw_finish_reason

    def stored(self) -> Answer:
        """What another process needs to begin with it; it does not change."""
        return Answer(
            text=self.text,
            reasoning=self.reasoning,
            refusal=self.refusal,
            tool_calls=[replace(call) for call in self.tool_calls],
            finished=self.finished,
            finish_reason=self.finish_reason,
            raw_finish_reason=self.raw_finish_reason,
        )

    def add_reasoning(self, text: str) -> None:
        """Text of the reasoning."""
        self._reasoning.add(text)
        self.length += len(text)

    def add_refusal(self, text: str) -> None:
        """Text of the refusal."""
        self._refusal.add(text)
        self.length += len(text)

    @property
    def channels(self) -> dict[str, Text]:
        """Its texts, by the names that a checkpoint has for them."""
        return {
            "text": self._text,
            "reasoning": self._reasoning,
            "refusal": self._refusal,
        }

    @property
    def calls(self) -> dict[int, tuple[ToolCall, Text]]:
        """The tool calls, their arguments apart."""
        return self._calls

    @property
    def characters(self) -> int:
        """Characters of the text so far."""
        return self._text.length

    def finish(self, finish: Finish) -> None:
        """The first reason wins; text may still follow."""
        if not self.finished:
            self.finished = True
            self.finish_reason = finish.reason
            self.raw_finish_reason = finish.raw
            self.close_calls(finish.reason)

    def tool(self, delta: ToolCallDelta) -> None:
        """Add a fragment to its call."""
        if delta.index not in self._calls:
            self._calls[delta.index] = ToolCall(delta.index), Text()
            self.length += 1
        call, arguments = self._calls[delta.index]
        call.id = call.id or delta.id
        call.name = call.name or delta.name
        call.complete = call.complete or delta.closed
        if delta.arguments:
            arguments.add(delta.arguments)
            self.length += len(delta.arguments)

    def close_calls(self, reason: str | None) -> None:
        """The answer ended: its calls are whole, unless a limit cut the last one."""
        calls = self.tool_calls
        for call in calls:
            cut = reason == "length" and call is calls[-1]
            call.complete = call.complete or not cut

    def settled_calls(self) -> list[ToolCall]:
        """The calls at a cut: whole only if their JSON is, which then cannot go on."""
        calls = self.tool_calls
        for call in calls:
            call.complete = call.complete or _is_object(call.arguments)
        return calls

    @property
    def closed(self) -> int:
        """How many of its parts are known to be whole: its calls, and itself."""
        calls = sum(call.complete for call, _ in self._calls.values())
        return calls + self.finished


def _rate(text: str) -> float:
    """Tokens a character, as far as its script tells."""
    plain = sum(map(str.isascii, text))
    return (plain * _ASCII + len(text) - plain) / len(text)


def _is_object(text: str) -> bool:
    try:
        return isinstance(from_json(text), dict)
    except ValueError:
        return False


class Ledger:
    """All that came, over all connections.

    Args:
        choice: Which of n answers is the stream's text.
        limit: The request's ``max_tokens``.
        choices: How many answers were asked for.

    Attributes:
        choices: The answers by index.
        main: The answer that is the stream's text.
        response_id: The server's id of the response.
        model: The model that answers.
        guessed: Whether the count of tokens is partly a guess.
    """

    def __init__(self, choice: int, limit: int | None, choices: int = 1) -> None:
        self.main = Choice()
        self._asked = choices
        self.choices: dict[int, Choice] = {choice: self.main}
        self._limit = limit
        self._tokens = Tokens()
        self._spent = Spent()
        self.response_id: str | None = None
        self.model: str | None = None
        self.guessed = False

    @property
    def tokens(self) -> int:
        """Tokens of the main answer whose text has come."""
        return self._tokens.count

    def choice(self, index: int) -> Choice:
        """The answer number ``index``, new or known."""
        found = self.choices.get(index)
        if found is None:
            found = self.choices[index] = Choice()
        return found

    @property
    def progress(self) -> int:
        """Characters of all answers and channels."""
        if len(self.choices) == 1:
            return self.main.length
        return sum(choice.length for choice in self.choices.values())

    @property
    def mark(self) -> tuple[object, ...]:
        """Differs when what came differs; cheap, for those who look often."""
        closed = sum(choice.closed for choice in self.choices.values())
        legs, ids = self._spent.legs, len(self._tokens.ids)
        return self.progress, closed, self.tokens, ids, legs, self.usage

    @property
    def finished(self) -> bool:
        """Whether every answer said that it ended, also those yet to begin."""
        if not self.main.finished or len(self.choices) < self._asked:
            return False
        return all(choice.finished for choice in self.choices.values())

    @property
    def used_up(self) -> bool:
        """Whether the only answer has all the tokens that it may have."""
        single = self._asked <= 1 and len(self.choices) == 1
        return single and self.left == 0 and self.progress > 0

    @property
    def left(self) -> int | None:
        """Tokens of ``max_tokens`` that have not come."""
        return None if self._limit is None else max(self._limit - self.tokens, 0)

    def add_text(self, delta: TextDelta) -> None:
        """Text of the main answer, or tokens whose text is still to come.

        Args:
            delta: It; where the server does not count, it is one token. What has text
                leaves nothing open behind it; ``""`` stays open until text comes.
        """
        if delta.text:
            self.main.add_text(delta.text)
        self._tokens.add(delta)

    def add_side(self, delta: ReasoningDelta | RefusalDelta) -> None:
        """Reasoning or refusal."""
        choice = self.choice(delta.choice)
        if isinstance(delta, ReasoningDelta):
            choice.add_reasoning(delta.text)
            if choice is self.main and (delta.text or delta.token_ids):
                self._tokens.settle(delta.token_ids)
        else:
            choice.add_refusal(delta.text)
        self._count(delta)

    def add_tool(self, delta: ToolCallDelta) -> None:
        """A fragment of a tool call."""
        self.choice(delta.choice).tool(delta)
        self._count(delta)

    def _count(self, delta: ReasoningDelta | RefusalDelta | ToolCallDelta) -> None:
        if self.choice(delta.choice) is self.main:
            self._tokens.count += 1 if delta.tokens is None else delta.tokens

    def start(self, started: Started) -> None:
        """The server named its response."""
        self.response_id = started.id or self.response_id
        self.model = started.model or self.model
        tokens = self._tokens
        # A later connection's prompt holds what had come before it.
        tokens.prompt_ids = tokens.prompt_ids or started.prompt_ids

    def forget_ids(self) -> None:
        """Another server goes on: its tokens are not these."""
        self._tokens.forget_ids()

    def forget_server(self) -> None:
        """A server goes on that never heard of this answer."""
        self.forget_ids()
        self.response_id = None

    def add_unstored(self, text: str) -> None:
        """Text that the caller has and the store has not.

        How many tokens it was nobody knows: as many as text of this length was before.
        """
        before = self.main.length  # reasoning, too: its tokens are counted
        known = before >= _TELLING and self.tokens > 0
        rate = self.tokens / before if known else _rate(text)
        self.main.add_text(text)
        guess = ceil(len(text) * rate)
        self._tokens.count += guess
        self._spent.unstored(guess)
        self.guessed = True
        self.forget_ids()

    def replays(self, spent: Usage | None) -> None:
        """A generation is sent again from its begin, and so its usage.

        Args:
            spent: What the generations before it used.
        """
        told = None if spent is None else spent.output_tokens
        self._spent.load(spent, told or 0, whole=True)

    def load(self, stored: Checkpoint) -> None:
        """What another process had received."""
        self.main.load(stored)
        for index, answer in stored.others.items():
            self.choice(index).load(answer)
        self._tokens.load(stored)
        self.response_id = stored.response_id
        usage = None if stored.usage is None else Usage(**stored.usage)
        self._spent.load(usage, stored.tokens, whole=stored.complete)
        if stored.complete:
            self.main.finish(Finish(stored.finish_reason))

    def forget_open(self) -> None:
        """A new generation begins: what was open will come again."""
        self._tokens.forget_open()

    @property
    def ids(self) -> array[int]:
        """The ids that came; another object once they were forgotten."""
        return self._tokens.ids

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """The prompt's ids, where told."""
        return self._tokens.prompt_ids

    def gaps_since(self, known: int) -> list[tuple[int, int, str]]:
        """Where ids are missing, behind the first ``known`` such places."""
        return self._tokens.gaps_since(known)

    def report(self, usage: Usage) -> Usage:
        """The server's usage of this connection; gives the sum over all."""
        self._spent.report(usage)
        return self.usage or usage

    def next_leg(self) -> None:
        """A new generation begins on a new connection: its usage is added."""
        self._spent.next_leg(self.tokens)

    @property
    def spent(self) -> Usage | None:
        """Tokens of the generations before the present one."""
        return self._spent.before

    @property
    def usage(self) -> Usage | None:
        """Tokens used over all connections; None where no server ever said."""
        return self._spent.usage(self.tokens)

    def received(self, offset: int, cursor: Any) -> Received:
        """What a dialect needs to continue.

        Args:
            offset: Bytes of body received on the broken connection.
            cursor: Its reader's place to replay from.
        """
        return Received(
            text=self.main.text,
            reasoning=self.main.reasoning,
            tokens=self.tokens,
            left=self.left,
            token_ids=self._tokens.ids,
            gaps=self._tokens.gaps,
            prompt_ids=self._tokens.prompt_ids,
            offset=offset,
            response_id=self.response_id,
            cursor=cursor,
        )
