"""Which faults each stream has: a plan, in order, or a rule that decides by request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from midstream.testing._fake.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from midstream.testing._fake.recorded import Recorded

Faults: TypeAlias = Fault | Sequence[Fault] | None
"""What goes wrong on one connection; None: nothing."""

FaultRule: TypeAlias = "Callable[[Recorded], Faults]"
"""Decides by the request."""


class FaultPlan:
    """Hands out faults, stream by stream.

    Args:
        plan: One item a stream; or a rule for all streams.
        always: What every stream has besides.
    """

    def __init__(
        self, plan: Iterable[Faults | FaultRule] | FaultRule, always: Faults
    ) -> None:
        self._rule = plan if callable(plan) else None
        self._plan = iter(() if callable(plan) else plan)
        self._always = flat(always)
        self._lock = threading.Lock()

    def next(self, entry: Recorded) -> tuple[Fault, ...]:
        """What goes wrong on the stream that this request asks for."""
        with self._lock:
            item = self._rule or next(self._plan, None)
        faults = item(entry) if callable(item) else item
        return (*flat(faults), *self._always)


def flat(faults: Faults) -> tuple[Fault, ...]:
    """One connection's faults as a tuple."""
    if faults is None:
        return ()
    return tuple(faults) if isinstance(faults, Sequence) else (faults,)
