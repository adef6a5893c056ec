"""How the text came about: the drops survived, and what they cost in trust."""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream._dialects.base import EXACTNESS
from midstream._values.exactness import Exactness
from midstream._values.resumption import Resumption

if TYPE_CHECKING:
    from collections.abc import Iterable

    from midstream._resume.ledger import Ledger
    from midstream._resume.recovery import Drop
    from midstream._values.endpoint import Endpoint
    from midstream._values.errors import MidstreamError


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

    def resumed(
        self,
        drop: Drop,
        ledger: Ledger,
        strategy: str,
        endpoint: Endpoint,
        now: float,
    ) -> Resumption:
        """A drop was survived.

        Args:
            drop: What had broken.
            ledger: What came until then.
            strategy: How the answer is continued.
            endpoint: By whom.
            now: Monotonic seconds.
        """
        exactness = EXACTNESS.get(strategy, Exactness.UNBROKEN)
        if ledger.progress and not endpoint.same_model(self.origin):
            exactness = Exactness.APPROXIMATE
        resumption = Resumption(
            at=ledger.main.characters,
            reason=str(drop.fault),
            strategy=strategy,
            exactness=exactness,
            endpoint=endpoint,
            gap=now - drop.at,
        )
        self.resumes.append(resumption)
        self.exactness = max(self.exactness, exactness)
        self.survived = self.survived or drop.fault
        return resumption
