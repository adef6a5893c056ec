"""Where in its answer the model goes on: is this request a continuation, and of what?

A chat's open turn is a continuation when the answer begins with it. A raw prompt has no
border between prompt and answer, so the prompts that were asked before are remembered:
what stands after one of them is the prefix. A first request that may be a continuation
already (another server began) is known by the longest end of it that is a begin of the
answer, of two characters at least and up to a token's edge; say ``prompt=`` to be sure.

What does not fit the answer to the byte starts from the top, so that a client which
sends a wrong prefix shows it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from midstream.testing._fake.asked import split_template

if TYPE_CHECKING:
    from collections.abc import Iterable

    from midstream.testing._fake.asked import Asked
    from midstream.testing._fake.model import Step, ToyModel
    from midstream.testing._fake.recorded import How

_CLEAR = 2  # characters that are hardly there by chance


@dataclass(frozen=True, slots=True)
class Place:
    """Where the model goes on.

    Attributes:
        how: ``"top"``, or how the request continues.
        prefix: What it has said already.
        steps: What it has still to say.
    """

    how: How
    prefix: bytes
    steps: list[Step]


class Places:
    """Finds the place for each request.

    Args:
        model: Whose answer it is.
        prompt: The raw prompt, where it is known beforehand.
        keep: How many conversations are remembered, and openings of each.
    """

    def __init__(
        self, model: ToyModel, prompt: str | None = None, *, keep: int = 1000
    ) -> None:
        self._model = model
        self._given = None if prompt is None else prompt.encode()
        self._keep = keep
        self._lock = threading.Lock()
        self._openings: dict[str, dict[bytes, None]] = {}

    def find(self, asked: Asked) -> Place:
        """The place; a request that starts from the top is remembered."""
        context, opening = asked.context, asked.opening
        if asked.raw and (parts := split_template(opening)):
            context = parts[0].decode("utf-8", "replace")
            asked, opening = self._thought(asked, parts[1])
        elif asked.raw:
            return self._raw(asked)
        with self._lock:
            known = self._known(context)
            for start in self._starts({**known, b"": None}, opening):
                prefix = opening[len(start) :]
                place = self._at(asked, prefix)
                if place is not None:
                    return place
            if asked.how != "ask":  # what is asked to go on had been said, not asked
                self._remember(known, opening)
        return Place("top", b"", self._model.steps)

    def _known(self, context: str) -> dict[bytes, None]:
        """The openings of a conversation, the oldest one first."""
        known = self._openings.pop(context, {})
        self._openings[context] = known  # it is the last one to be forgotten
        _forget(self._openings, self._keep)
        return known

    def _remember(self, known: dict[bytes, None], opening: bytes) -> None:
        known.pop(opening, None)
        known[opening] = None
        _forget(known, self._keep)

    def _raw(self, asked: Asked) -> Place:
        prompt = asked.opening
        with self._lock:
            known = self._known(asked.context)
            given = {} if self._given is None else {self._given: None}
            starts = self._starts({**given, **known}, prompt)
            for start in starts:
                place = self._at(asked, prompt[len(start) :])
                if place is not None:
                    return place
            if not starts and (place := self._at(asked, self._end(prompt))):
                self._remember(known, prompt[: len(prompt) - len(place.prefix)])
                return place
            self._remember(known, prompt)
        return Place("top", b"", self._model.steps)

    def _thought(self, asked: Asked, opening: bytes) -> tuple[Asked, bytes]:
        """What of a raw open turn is reasoning: the model's own comes first."""
        thought = self._model.thought
        size = min(len(thought), len(opening))
        if not thought or thought[:size] != opening[:size]:
            return asked, opening
        return replace(asked, reasoning=opening[:size]), opening[size:]

    def _at(self, asked: Asked, prefix: bytes) -> Place | None:
        steps = self._model.rest(prefix, asked.reasoning)
        if steps is None or (asked.how == "ask" and not steps):
            return None  # a whole answer that is followed by a new question
        fresh = not prefix and not asked.reasoning
        return Place("top" if fresh else asked.how, prefix, steps)

    def _starts(self, known: Iterable[bytes], opening: bytes) -> list[bytes]:
        """Openings asked before that this one goes on from, longest first."""
        return sorted(filter(opening.startswith, known), key=len, reverse=True)

    def _end(self, prompt: bytes) -> bytes:
        """The longest end of the prompt that is a begin of the answer."""
        answer = self._model.answer
        for size in range(min(len(prompt), len(answer)), _CLEAR - 1, -1):
            if prompt.endswith(answer[:size]) and self._model.is_edge(size):
                return answer[:size]
        return b""


def _forget(remembered: dict[Any, Any], keep: int) -> None:
    """Let the oldest one go when there are too many."""
    if len(remembered) > keep:
        del remembered[next(iter(remembered))]
