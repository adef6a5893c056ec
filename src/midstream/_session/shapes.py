"""What a server's fields must be, wherever it writes them into a signal.

JSON has numbers where integers belong, and names where servers number. What can be made
a name or a count is; an index, a count of tokens or an id that is no integer of 64 bits
is a fault of the record, so that no server decides how large a number becomes.
"""

from __future__ import annotations

from array import array
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from midstream._values.events import Finish, Started, UsageReport
from midstream._values.usage import Usage

if TYPE_CHECKING:
    from midstream._values.events import Event, Signal

SHAPE_FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading raises where a server's JSON is not of the documented shape."""


def integers(*values: int) -> tuple[int, ...]:
    """The values, if they are integers of 64 bits.

    Raises:
        TypeError: One is none.
        OverflowError: One is larger.
    """
    return tuple(array("q", values))


def word(value: object) -> str | None:
    """A name, whole characters only; some servers number what others name."""
    if value is None:
        return None
    return str(value).encode("utf-8", "replace").decode()


def shaped(signal: Event | Signal) -> Event | Signal:
    """A signal without text, its names and counts made what they should be.

    Raises:
        TypeError: An index or id is no integer.
        OverflowError: One is larger than 64 bits.
    """
    match signal:
        case Started():
            ids = integers(*signal.prompt_ids)
            return Started(word(signal.id), word(signal.model), ids)
        case UsageReport(usage=usage):
            counts = {name: _count(n) for name, n in asdict(usage).items()}
            counts["estimated"] = usage.estimated
            return UsageReport(Usage(**counts))
        case Finish(choice=choice):
            integers(choice)
            return Finish(word(signal.reason), word(signal.raw), choice)
        case _:
            return signal


def _count(value: object) -> Any:
    """A number of tokens; what is none is not known."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None
