"""Tool calls of APIs that stream each of them as an item with a begin and an end.

A limit may cut a call in its middle, and servers end its item all the same. So a call
is said to be whole only when something follows it, or the answer ends for any other
reason than a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from midstream._values.events import Failure, Finish, ToolCallDelta

if TYPE_CHECKING:
    from collections.abc import Hashable

    from midstream._values.events import Event, Signal


@dataclass(slots=True)
class _Slot:
    """A call's place among the calls, and whether any of its arguments came."""

    index: int
    filled: bool = False


class Calls:
    """The tool calls of one connection, by the wire's own keys.

    Attributes:
        last: The key of the call that began last.
    """

    __slots__ = ("_begun", "_ended", "_slots", "last")

    def __init__(self) -> None:
        self._begun = 0
        self._slots: dict[Hashable, _Slot] = {}
        self._ended: list[int] = []
        self.last: Hashable = None

    def __contains__(self, key: Hashable) -> bool:
        """Whether a call of that key began."""
        return key in self._slots

    def __len__(self) -> int:
        """How many calls began."""
        return self._begun

    def begin(
        self, key: Hashable, id_: str | None, name: str | None, arguments: str = ""
    ) -> list[ToolCallDelta]:
        """A call begins; those that had ended before it are whole.

        Args:
            key: What its fragments are known by.
            id_: The server's id of it.
            name: The tool's name.
            arguments: What the server sent of them already.
        """
        whole = self.settle()
        self.last = key
        slot = self._slots[key] = _Slot(self._begun, bool(arguments))
        self._begun += 1
        return [*whole, ToolCallDelta(slot.index, id_, name, arguments)]

    def more(self, key: Hashable, arguments: str) -> list[ToolCallDelta]:
        """The next piece of a call's arguments."""
        slot = self._slots.get(key)
        if slot is None or not arguments:
            return []
        slot.filled = True
        return [ToolCallDelta(slot.index, arguments=arguments)]

    def whole(self, key: Hashable, arguments: str) -> list[ToolCallDelta]:
        """All arguments at once, for a call of which no piece had come."""
        slot = self._slots.get(key)
        return [] if slot is None or slot.filled else self.more(key, arguments)

    def end(self, key: Hashable) -> None:
        """The server ended a call's item, be it whole or cut."""
        slot = self._slots.get(key)
        if slot is not None and slot.index not in self._ended:
            self._ended.append(slot.index)

    def settle(self) -> list[ToolCallDelta]:
        """Something else follows: the calls that had ended are whole."""
        ended, self._ended = self._ended, []
        return [ToolCallDelta(index, tokens=0, closed=True) for index in ended]

    def finish(self, finish: Finish | Failure) -> list[Event | Signal]:
        """The answer ends: its calls are whole, unless a limit may have cut the last.

        Args:
            finish: How it ends.
        """
        cut = isinstance(finish, Failure) or finish.reason == "length"
        return [finish] if cut else [*self.settle(), finish]
