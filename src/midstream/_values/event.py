"""How events are declared: slotted, and frozen to type checkers only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def event(cls: type[T]) -> type[T]:
    """A slotted dataclass, frozen to type checkers only.

    One is made per token, and a frozen ``__init__`` costs four times as much.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
