"""Checkpoints and growths as JSON text, the same in every store.

What is read may have been written by another version, by another program, or by chance:
nothing but a `UsageError` comes of it.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from midstream._values.checkpoint import Checkpoint, Growth
from midstream._values.errors import UsageError
from midstream._values.findings import findings
from midstream._values.request import Request
from midstream._values.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

_LARGEST = 2**63 - 1  # what an array of ids can hold
_USAGE = {field.name for field in fields(Usage)}

GrowthT = TypeVar("GrowthT", bound=Growth)


def dump(news: Growth) -> str:
    """A checkpoint, or a growth, as JSON; of a growth only what is set.

    Raises:
        UsageError: There is something in it that JSON cannot say.
    """
    try:
        return news.model_dump_json(exclude_unset=not isinstance(news, Checkpoint))
    except (PydanticSerializationError, UnicodeError) as error:
        raise UsageError(f"this cannot be stored, as it is no JSON: {error}") from error


def parse(text: Any, key: str) -> Checkpoint:
    """A checkpoint read back.

    Args:
        text: What `dump` gave, also an older version's.
        key: Where it was stored, for the error.

    Raises:
        UsageError: It is of a format that this version cannot read.
    """
    checkpoint = _parsed(Checkpoint, text, key)
    try:
        Request.model_validate(checkpoint.request)
    except ValidationError as error:
        raise _unreadable(key, f"request: {findings(error)}") from error
    return checkpoint


def _check(news: Growth, key: str) -> None:
    """Refuse numbers that nothing can hold, and usage that is none."""
    gaps = [number for first, count, _ in news.gaps for number in (first, count)]
    counts = [news.tokens, news.offset, *gaps]
    ids = [*news.token_ids, *getattr(news, "prompt_ids", ())]
    if any(not 0 <= count <= _LARGEST for count in counts):
        raise _unreadable(key, "a count that cannot be")
    if any(not -1 <= number <= _LARGEST for number in ids):
        raise _unreadable(key, "an id that cannot be")
    usage = {**(news.usage or {}), **(news.spent or {})}
    numbers = all(isinstance(n, int | float | None) for n in usage.values())
    if not numbers or not usage.keys() <= _USAGE:
        raise _unreadable(key, f"usage has numbers: {', '.join(sorted(_USAGE))}")


def fold(text: Any, growths: Iterable[Any], key: str) -> Checkpoint:
    """A checkpoint and what was appended to it.

    Raises:
        UsageError: As `parse`.
    """
    news = [_parsed(Growth, growth, key) for growth in growths]
    return parse(text, key).grown(*news)


def _parsed(kind: type[GrowthT], text: Any, key: str) -> GrowthT:
    if not isinstance(text, str | bytes):
        raise _unreadable(key, f"a {type(text).__name__} in place of JSON")
    try:
        news = kind.model_validate_json(text)
    except ValidationError as error:
        raise _unreadable(key, findings(error)) from error
    _check(news, key)
    return news


def _unreadable(key: str, why: str) -> UsageError:
    return UsageError(
        f"what is stored as {key!r} is no checkpoint that this version of midstream "
        "can read; delete it, or continue it with the version that wrote it "
        f"({why[:200]})"
    )
