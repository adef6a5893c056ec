"""How the text came about: the drops that were survived, and what they cost in trust."""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream._values.exactness import Exactness

if TYPE_CHECKING:
    from collections.abc import Iterable

    from midstream._values.endpoint import Endpoint
    from midstream._values.errors import MidstreamError
    from midstream._values.resumption import Resumption


class History:
    """The past of one stream, in this process and in those before it.

    Args:
        origin: Who began the answer.
        exactness: The weakest of the connections so far.
        resumes: The drops that were survived so far.

    Attributes:
        survived: The first drop that was survived in this process.
        notes: What was odd but harmless.
    """

    def __init__(
        self,
        origin: Endpoint,
        exactness: Exactness = Exactness.UNBROKEN,
        resumes: Iterable[Resumption] = (),
    ) -> None:
        self.origin = origin
        self.exactness = exactness
        self.resumes = list(resumes)
        self.survived: MidstreamError | None = None
        self.notes: list[str] = []

    def add(self, resumption: Resumption, drop: MidstreamError) -> None:
        """One more drop was survived."""
        self.resumes.append(resumption)
        self.exactness = max(self.exactness, resumption.exactness)
        self.survived = self.survived or drop
