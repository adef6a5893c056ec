"""Tool calls for APIs that send each of them whole, their arguments as an object."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from midstream._dialects.documents import load_object, spell
from midstream._values.events import ToolCallDelta


def arguments_text(arguments: Any) -> str:
    """The object as the JSON text that other APIs stream."""
    return spell(arguments or {})


def arguments_object(call: ToolCallDelta) -> dict[str, Any]:
    """The JSON text as the object that it is.

    Raises:
        WireError: It is none.
    """
    return load_object(call.arguments.encode("utf-8", "surrogateescape") or b"{}")


class WholeCalls:
    """Joins fragments for a writer: a call is whole when something else follows it."""

    __slots__ = ("_call",)

    def __init__(self) -> None:
        self._call: ToolCallDelta | None = None

    def add(self, fragment: ToolCallDelta) -> list[ToolCallDelta]:
        """The calls that are whole now."""
        call, whole = self._call, list[ToolCallDelta]()
        key = fragment.index, fragment.choice
        if call is not None and (call.index, call.choice) == key:
            fragment = replace(
                call,
                arguments=call.arguments + fragment.arguments,
                closed=fragment.closed,
            )
        else:
            whole = self.flush()
        self._call = fragment
        return [*whole, *self.flush()] if fragment.closed else whole

    def flush(self) -> list[ToolCallDelta]:
        """The open call, as nothing more of it comes."""
        call, self._call = self._call, None
        return [] if call is None else [call]
