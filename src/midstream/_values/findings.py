"""What pydantic found, in one line, without the input, which may be a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import ValidationError

_PROMPT = 'give text or a list of messages, as [{"role": "user", "content": "…"}]'


def findings(error: ValidationError) -> str:
    """Pydantic's findings in one line, without the input, which may be a secret."""
    words: list[str] = []
    place: Sequence[str | int]
    for fault in error.errors(include_input=False, include_url=False):
        match fault["loc"]:
            case ("prompt", "str"):  # the other half of the union says more
                continue
            case ("prompt", _):
                place, finding = ("prompt",), _PROMPT
            case ("prompt", _, *rest):
                place, finding = ("prompt", *rest), fault["msg"]
            case whole:
                place, finding = whole, fault["msg"]
        words.append(f"{'.'.join(map(str, place))}: {finding}")
    return "; ".join(words)
