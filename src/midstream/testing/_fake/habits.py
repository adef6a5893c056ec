"""What a server does with a continuation beside its rest: echo, whitespace, no."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from midstream._values.events import TextDelta
from midstream.testing._fake.asked import Refusal
from midstream.testing._fake.model import Step

if TYPE_CHECKING:
    from midstream.testing._fake.asked import Asked
    from midstream.testing._fake.model import ToyModel
    from midstream.testing._fake.places import Place

Echo: TypeAlias = Literal["none", "whole"] | int
Prefill: TypeAlias = Literal["continue", "refuse", "restart"]
Whitespace: TypeAlias = Literal["keep", "refuse", "trim", "skip", "one"]

_NO_PREFILL = "This model does not support assistant message prefill."
_NO_WHITESPACE = "messages: final assistant content cannot end with trailing whitespace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How a server treats the prefix.

    Attributes:
        echo: What it says again of it: nothing, the ``"whole"``, or so many characters
            of its end, in tokens.
        prefill: Whether it continues, refuses with status 400, or starts again.
        whitespace: At the end of the prefix it is kept; refused with status 400; or
            trimmed, and then comes again (``"trim"``), is left out (``"skip"``), or
            comes as its last character only (``"one"``).
    """

    echo: Echo = "none"
    prefill: Prefill = "continue"
    whitespace: Whitespace = "keep"

    def check(self, asked: Asked) -> None:
        """Refuse what the server refuses.

        Raises:
            Refusal: The open turn, or its trailing whitespace.
        """
        if not asked.turn:
            return
        if self.prefill == "refuse":
            raise Refusal(400, _NO_PREFILL, type="invalid_request_error")
        if self.whitespace == "refuse" and asked.opening[-1:].isspace():
            raise Refusal(400, _NO_WHITESPACE, type="invalid_request_error")

    def seen(self, asked: Asked) -> Asked:
        """The request as the server's template hands it to the model."""
        if self.prefill == "restart" and asked.turn:
            return replace(asked, opening=b"", reasoning=b"")
        if self.whitespace in ("trim", "skip", "one") and not asked.raw:
            return replace(asked, opening=asked.opening.rstrip())
        return asked

    def steps(self, place: Place, model: ToyModel) -> list[Step]:
        """What the model says after the prefix."""
        steps = place.steps
        if place.how not in ("text", "ask", "tokens") or not place.prefix:
            return steps
        if self.whitespace in ("skip", "one"):
            steps = self._without_whitespace(steps, model)
        return [*self._echo(place.prefix, model), *steps]

    def _without_whitespace(self, steps: list[Step], model: ToyModel) -> list[Step]:
        """The steps without the whitespace that they begin with, or all but its end."""
        kept = b""
        for index, step in enumerate(steps):
            body = step.data.lstrip()
            kept = step.data[: len(step.data) - len(body)] or kept
            if body or step.channel != "text":
                again = kept[-1:] if self.whitespace == "one" else b""
                data = again + body
                new = replace(step, data=data, id=model.id_of(data)) if body else step
                return [new, *steps[index + 1 :]]
        return []

    def _echo(self, prefix: bytes, model: ToyModel) -> list[Step]:
        text = prefix.decode("utf-8", "replace")
        if self.echo != "whole":
            size = 0 if self.echo == "none" else self.echo
            text = text[len(text) - size :] if size < len(text) else text
            text = text if size else ""
        template = TextDelta("")
        return [
            Step(template, data, model.id_of(data)) for data in map(str.encode, text)
        ]
