"""What a stream shows while it runs, and also after it was left."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from midstream._streaming.lifecycle import Phase
from midstream._values.errors import MidstreamError
from midstream._values.events import TextDelta

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from midstream._keeping.keeper import Kept
    from midstream._metrics import Metrics
    from midstream._resume.ledger import Choice
    from midstream._session.session import Session
    from midstream._streaming.line import AsyncLine, Line
    from midstream._streaming.pacing import Batch
    from midstream._values.checkpoint import Checkpoint
    from midstream._values.endpoint import Endpoint
    from midstream._values.events import Event
    from midstream._values.exactness import Exactness
    from midstream._values.resumption import Resumption
    from midstream._values.tool_call import ToolCall
    from midstream._values.usage import Usage


class View:
    """The base of both kinds of stream: all that awaits nothing."""

    def __init__(
        self,
        line: Line | AsyncLine,
        owner: object,
        kept: Kept | None,
        restore: Callable[[Checkpoint | None], Session] | None,
    ) -> None:
        self._life = line.life
        self._owner = owner  # a stream keeps its client alive
        self._kept = kept
        self._releasing: threading.Thread | None = None
        self._restore = restore
        self._ready: deque[Event] = deque()
        self._choice = line.session.beginning.request.choice
        self._driven = line

    @property
    def _session(self) -> Session:
        return self._driven.session

    @property
    def text(self) -> str:
        """The text received so far."""
        return self._session.ledger.main.text

    @property
    def reasoning(self) -> str:
        """The reasoning received so far."""
        return self._session.ledger.main.reasoning

    @property
    def refusal(self) -> str:
        """What the model said in refusal."""
        return self._session.ledger.main.refusal

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls so far; act on none that is not ``complete``."""
        return self._session.ledger.main.tool_calls

    @property
    def choices(self) -> Mapping[int, Choice]:
        """All n answers by index."""
        return self._session.ledger.choices

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended; None while it runs and where the server never said."""
        return self._session.ledger.main.finish_reason

    @property
    def usage(self) -> Usage | None:
        """Tokens used, summed over all connections; None where no server said."""
        return self._session.ledger.usage

    @property
    def endpoint(self) -> Endpoint:
        """Who answers now; another than the first after a failover."""
        return self._session.server.endpoint

    @property
    def model(self) -> str | None:
        """The model that answers, as the server calls it."""
        return self._session.ledger.model

    @property
    def response_id(self) -> str | None:
        """The server's id of the response."""
        return self._session.ledger.response_id

    @property
    def complete(self) -> bool:
        """Whether the whole answer came: its end was seen, not only its silence."""
        return self._session.complete

    @property
    def resumes(self) -> list[Resumption]:
        """The drops that were survived."""
        return self._session.history.resumes

    @property
    def exactness(self) -> Exactness:
        """How surely the text equals the unbroken one: the weakest connection's."""
        return self._session.history.exactness

    @property
    def metrics(self) -> Metrics:
        """Latencies and counts."""
        return self._session.metrics

    @property
    def notes(self) -> list[str]:
        """What was odd but harmless, such as ``unterminated_tail``."""
        return self._session.history.notes

    def checkpoint(self) -> Checkpoint:
        """What is needed to continue later, without secrets."""
        return self._session.checkpoint()

    def __repr__(self) -> str:
        """Who answers, how much came, and whether it ended."""
        return (
            f"<{type(self).__name__} {self._session.server.endpoint} "
            f"{self._session.ledger.main.length} characters, "
            f"{len(self.resumes)} resumes, {self._life.phase.value}>"
        )

    def _rest(self) -> str:
        """The text, from where on the caller does not have it."""
        return self.text[self._session.beginning.after :]

    def _lose(self, error: MidstreamError) -> None:
        """End it, from any thread: whoever kept it has lost its key.

        Args:
            error: What the read that is pending, or the next one, raises.
        """
        self._driven.lose(error)

    def _begin(self, kept: Kept) -> None:
        """Take the key and make ready what is stored; blocks.

        Raises:
            UsageError: It was closed meanwhile, which explains all other errors.
        """
        try:
            self._open(kept)
        finally:
            if self._life.phase is Phase.LEFT:
                kept.close()
                self._end()

    def _open(self, kept: Kept) -> None:
        stored = kept.open()
        line = self._driven
        if self._restore is not None:
            line.session = self._restore(stored)
        kept.begin(line.session, line.lock, line.lose)
        self._choice = line.session.beginning.request.choice
        self._ready.extend(line.session.backlog())
        if line.session.ended:
            self._life.complete()

    def _check(self) -> None:
        """Refuse a read of what was not entered, or was left.

        Raises:
            UsageError: It was.
        """
        self._life.check()
        if self._kept is not None:
            self._kept.check()
        if self._life.phase is Phase.LEFT:
            self._end()

    def _end(self) -> None:
        """Nothing more comes: return if that is the end of the answer.

        Raises:
            MidstreamError: What broke the stream, once, with what came.
            UsageError: It broke before, or was left.
        """
        error = self._life.verdict()
        if error is None:
            return
        try:
            if isinstance(error, MidstreamError):
                raise self._session.signed(error)
            raise error
        finally:
            del error  # this frame is in its traceback

    def _release(self) -> None:
        """Begin to give the key back, in a thread that no cancelled task stops."""
        if self._kept is not None and self._releasing is None:
            self._kept.leave()
            self._releasing = threading.Thread(
                target=self._kept.close, name="midstream-release"
            )
            self._releasing.start()

    def _abandon_key(self) -> None:
        """Begin to give the key back of a stream that nobody holds any more."""
        if self._life.phase is not Phase.NEW:
            with suppress(RuntimeError):  # the interpreter ends, and no thread begins
                self._release()

    def _forget(self) -> None:
        """What nobody will read."""
        if self._life.phase is not Phase.COMPLETE:
            self._ready.clear()

    def _take_ready(self) -> list[Event]:
        events = list(self._ready)
        self._ready.clear()
        return events

    def _text_of(self, events: list[Event]) -> Batch:
        return [
            (event.text, event.tokens)
            for event in events
            if type(event) is TextDelta and event.choice == self._choice
        ]
