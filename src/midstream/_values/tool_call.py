"""A tool call, as far as it came."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class ToolCall:
    """A tool call, assembled from its fragments.

    Attributes:
        index: Its place among the calls, from 0.
        id: The server's id.
        name: The tool's name.
        arguments: The JSON text of the arguments as it came, whole or cut.
        complete: Whether all of it came; never act on a call that is not.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    complete: bool = False

    def parsed(self) -> Any:
        """The arguments as Python values.

        Raises:
            ValueError: The arguments are not whole or no JSON.
        """
        return json.loads(self.arguments or "{}")
