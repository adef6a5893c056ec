"""Checkpoints as JSON text, the same in every store."""

from __future__ import annotations

from pydantic import ValidationError

from midstream._values.checkpoint import Checkpoint
from midstream._values.errors import UsageError


def dump(checkpoint: Checkpoint) -> str:
    """The checkpoint as JSON."""
    return checkpoint.model_dump_json()


def parse(text: str | bytes, key: str) -> Checkpoint:
    """Read it back.

    Args:
        text: What `dump` gave, also an older version's.
        key: Where it was stored, for the error.

    Raises:
        UsageError: It is of a format that this version cannot read.
    """
    try:
        return Checkpoint.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(
            f"what is stored as {key!r} is no checkpoint that this version of "
            "midstream can read; delete it, or continue it with the version that "
            "wrote it"
        ) from error
