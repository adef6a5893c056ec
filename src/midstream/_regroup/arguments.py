"""What constructors take, checked: a wrong argument is answered by the right form."""

from math import inf
from numbers import Real

from midstream._values.errors import UsageError
from midstream._values.timeouts import LONGEST


def seconds(value: object, wanted: str, form: str) -> float:
    """Take a time, 0 or more; what no wait can take is for ever.

    Args:
        value: Seconds, or None for ever.
        wanted: What it should be, with its unit.
        form: The right form of the call.

    Raises:
        UsageError: It is no time.
    """
    if value is None:
        return inf
    endless = isinstance(value, int | float) and value > LONGEST
    return inf if endless else number(value, wanted, form)


def number(value: object, wanted: str, form: str) -> float:
    """Take a finite number, 0 or more.

    Args:
        value: What was given.
        wanted: What it should be, with its unit.
        form: The right form of the call.

    Returns:
        The number.

    Raises:
        UsageError: It is none, or not finite, or below 0.
    """
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            taken = float(value)
        except OverflowError:
            taken = inf
        if 0 <= taken < inf:
            return taken
    raise refused(value, wanted, form)


def count(value: object, wanted: str, form: str) -> int:
    """Take a whole number, 1 or more.

    Raises:
        UsageError: It is none, or below 1.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise refused(value, wanted, form)


def refused(value: object, wanted: str, form: str) -> UsageError:
    """Say what an argument should have been.

    Returns:
        The error, to be raised.
    """
    shown = repr(value)
    if len(shown) > len(form) + 40:
        shown = f"this {type(value).__name__}"
    return UsageError(f"{wanted}: {form}, not {shown}")
