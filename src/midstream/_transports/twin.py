"""The same error once more, without what led to it.

An error that was raised holds the frames it passed, and these hold whoever raised it.
Who keeps an error for its next caller keeps a twin, and raises twins.
"""

from __future__ import annotations

from typing import TypeVar

E = TypeVar("E", bound=Exception)


def twin(error: E) -> E:
    """An equal error with neither traceback nor cause."""
    kind = type(error)
    made: E = kind.__new__(kind, *error.args)
    made.__dict__.update(error.__dict__)
    return made
