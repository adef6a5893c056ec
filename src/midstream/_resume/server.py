"""Who may answer: an endpoint, its dialect, and what was learned of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from midstream._dialects.base import Dialect
    from midstream._resume.policy import Resume
    from midstream._values.endpoint import Endpoint


@dataclass(slots=True)
class Health:
    """Whether a server is well.

    Attributes:
        down_until: Until when it is asked last, as it failed for good (monotonic
            seconds).
    """

    down_until: float = 0.0


@dataclass(slots=True, eq=False)
class Server:
    """One of a client's servers; what was learned of it outlives the stream.

    Attributes:
        endpoint: The address, defaults filled in.
        dialect: How it speaks.
        memory: The dialect's own notes.
        refused: (model, strategy) pairs that the server said it cannot do.
        health: Whether it is well.
    """

    endpoint: Endpoint
    dialect: Dialect
    memory: dict[str, Any] = field(default_factory=dict)
    refused: set[tuple[str | None, str]] = field(default_factory=set)
    health: Health = field(default_factory=Health)

    def ways(self, resume: Resume) -> list[str]:
        """The strategies that policy, dialect and experience leave, best first."""
        return [
            way
            for way in resume.ways
            if (way in self.dialect.strategies or way == "rerun")
            and (self.endpoint.model, way) not in self.refused
        ]

    def with_headers(self, headers: Mapping[str, str]) -> Server:
        """The same server, sent more headers; what is learned stays shared."""
        if not headers:
            return self
        all_of_them = {**self.endpoint.headers, **headers}
        endpoint = self.endpoint.model_copy(update={"headers": all_of_them})
        return replace(self, endpoint=endpoint)

    def kinship(self, origin: Endpoint) -> tuple[bool, bool]:
        """Whether it is the server ``origin``, and whether it has the same model."""
        mine = self.endpoint
        same = (mine.dialect, mine.model) == (origin.dialect, origin.model)
        return same and str(mine) == str(origin), same
