"""A re-aggregator as it was given: ``"words"`` and ``Words`` are soon written."""

from __future__ import annotations

from difflib import get_close_matches

import midstream._regroup as regroup
from midstream._values.errors import UsageError

_NAMES = {
    name.lower(): name for name in regroup.__all__ if name != regroup.Regrouper.__name__
}


def check_regrouper(by: object) -> None:
    """Refuse what is none.

    Raises:
        UsageError: It has no ``feed`` and ``flush``; the message shows what has.
    """
    if isinstance(by, type):
        raise UsageError(f"regroup by an instance: {by.__name__}(), not {by.__name__}")
    if isinstance(by, str):
        near = get_close_matches(by.lower(), _NAMES, 1)
        name = _NAMES[near[0]] if near else "Words"
        raise UsageError(f"regroup by an object: {name}(), not {by!r}")
    if not isinstance(by, regroup.Regrouper):
        raise UsageError(
            f"regroup by an object with feed, flush and deadline, as Words(), "
            f"no {type(by).__name__}; there are {', '.join(_NAMES.values())}"
        )
