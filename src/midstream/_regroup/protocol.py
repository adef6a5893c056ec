"""What a re-aggregator is: three members, so that users can bring their own.

A run never changes the one it is given: it works with a fresh one, so that one
instance serves any number of streams, one after the other or at once.
"""

from copy import deepcopy
from difflib import get_close_matches
from typing import Protocol, runtime_checkable

from midstream._values.errors import UsageError

_NAMES = (
    "Frames",
    "Graphemes",
    "Lines",
    "Markdown",
    "Sentences",
    "Tokens",
    "Words",
)


@runtime_checkable
class Regrouper(Protocol):
    """Turns the pieces a stream happens to come in into those an application wants.

    It does no I/O and reads no clock: its driver hands in the text and the time. The
    pieces of all `feed` calls and of `flush`, joined, are exactly the text that was
    fed, and none of them is empty.

    For each run the driver makes a fresh one: by the method ``fresh()``, without
    arguments, which gives one with the same settings and no text, or where there is no
    such method by `copy.deepcopy` as the run begins.
    """

    def feed(self, text: str, now: float) -> list[str]:
        """Take text and give the pieces that are ready.

        Args:
            text: What came; ``""`` when the call is made for the deadline's sake.
            now: The driver's monotonic clock, in seconds.

        Returns:
            The pieces, in order; often none.
        """
        ...

    def flush(self) -> list[str]:
        """Give all that is left, as the stream has ended.

        Returns:
            The last pieces.
        """
        ...

    @property
    def deadline(self) -> float | None:
        """When `feed` must be called with ``""`` although nothing came.

        Seconds on the driver's clock; None while nothing has to go out by itself.
        """
        ...


def fresh(by: Regrouper) -> Regrouper:
    """Make the regrouper of one run.

    Args:
        by: The one that the caller gave; it is not changed.

    Returns:
        One with the same settings and a state of its own.

    Raises:
        UsageError: If it is no instance of a regrouper, or cannot be copied.
    """
    if isinstance(by, type):
        raise UsageError(f"regroup by an instance: {by.__name__}(), not {by.__name__}")
    if isinstance(by, str):
        near = get_close_matches(by.lower(), map(str.lower, _NAMES), 1)
        name = near[0].capitalize() if near else "Words"
        raise UsageError(f"regroup by an object: {name}(), not {by!r:.80}")
    if not isinstance(by, Regrouper):
        raise UsageError(
            "regroup by an object with feed, flush and deadline, as Words(), "
            f"no {type(by).__name__}; there are {', '.join(_NAMES)}"
        )
    try:
        make = getattr(by, "fresh", None)
        made: Regrouper = deepcopy(by) if make is None else make()
    except Exception as error:
        raise UsageError(
            f"no fresh {type(by).__name__} can be made for this run ({error}): give it "
            "a method fresh() that returns one with the same settings and no text"
        ) from error
    return made
