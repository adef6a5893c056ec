"""A forked child has its parent's objects, but none of its threads.

A lock that another thread held in the moment of the fork stays locked for ever in the
child, and a connection belongs to the parent. Who registers here is told in the child,
before any other of its code runs.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """What wants to be told."""

    def forked(self) -> None:
        """This is the child now: make locks and connections of its own."""
        ...


_KNOWN: WeakSet[Forkable] = WeakSet()


def tell(forkable: Forkable) -> None:
    """Call its `forked` in every child, as long as it lives."""
    _KNOWN.add(forkable)


def _in_child() -> None:
    for forkable in list(_KNOWN):
        forkable.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
