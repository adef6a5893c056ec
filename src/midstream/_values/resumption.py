"""A drop that was survived."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from midstream._values.endpoint import Endpoint
    from midstream._values.exactness import Exactness


@dataclass(frozen=True, slots=True)
class Resumption:
    """A drop that a later connection continued.

    Attributes:
        at: Where in the text, in characters.
        reason: What had happened, in words.
        strategy: How it was continued: ``"replay"``, ``"tokens"``, ``"text"``, ….
        exactness: How sure the joined text equals the unbroken one.
        endpoint: Who continued.
        gap: Seconds from the drop to the first new byte.
    """

    at: int
    reason: str
    strategy: str
    exactness: Exactness
    endpoint: Endpoint
    gap: float

    def __copy__(self) -> Self:
        """Itself: it cannot change."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself: it cannot change."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """How it is pickled: its endpoint leaves key, headers and functions behind."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["endpoint"] = self.endpoint.bare()
        return type(self), tuple(values.values())
