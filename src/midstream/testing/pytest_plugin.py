"""The pytest fixture ``midstream_server``.

Installed with midstream (entry point ``pytest11``); nothing is imported before a test
asks for it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from midstream.testing import FakeServer


@pytest.fixture
def midstream_server() -> Iterator[Callable[..., FakeServer]]:
    """Makes `FakeServer`s, open until the test ends.

    Call it with the arguments of `FakeServer`.
    """
    from midstream.testing import FakeServer  # noqa: PLC0415 - only when asked for

    with ExitStack() as stack:

        def make(*args: Any, **options: Any) -> FakeServer:
            return stack.enter_context(FakeServer(*args, **options))

        yield make
