"""The turns of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Message(BaseModel):
    """One turn of a conversation; further keys go to the server as they are.

    Args:
        role: ``"system"``, ``"user"``, ``"assistant"``, ``"tool"``.
        content: Its text, or the API's own list of content parts.
    """

    model_config = ConfigDict(defer_build=True, extra="allow", frozen=True)

    role: str
    content: str | list[dict[str, Any]] | None = None

    def body(self) -> dict[str, Any]:
        """The message as JSON values, only what was given."""
        return self.model_dump(mode="json", exclude_unset=True)


Prompt: TypeAlias = "str | Sequence[Message | Mapping[str, Any]]"
