"""asyncio and trio: the little that a reader needs of either.

A task that no scope of the caller owns, a bell that one task waits for, and a call
from another thread. anyio has none of these outside its task groups, and a bell of its
own (an event made anew for each wait) costs more than the wait.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol

from anyio.lowlevel import current_token

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Bell(Protocol):
    """Wakes the one task that waits for it; forgets a ring that nobody hears."""

    def ring(self) -> None:
        """Wake it."""
        ...

    async def wait(self) -> None:
        """Wait for the next ring."""
        ...


class Loop(Protocol):
    """The event loop that runs."""

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``run`` in a task of its own, with the caller's context variables.

        It has to see to its own exceptions.
        """
        ...

    def cancel(self) -> None:
        """Cancel that task."""
        ...

    def soon(self, call: Callable[[], object]) -> bool:
        """Have the loop make a call, from any thread; whether it still runs."""
        ...

    def bell(self) -> Bell:
        """A new bell."""
        ...


def running_loop() -> Loop:
    """The event loop of whoever asks."""
    trio = "trio" in type(current_token().native_token).__module__
    return TrioLoop() if trio else AsyncioLoop()


class AsyncioBell:
    """A future for each wait."""

    __slots__ = ("_loop", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Wake whoever waits."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Wait for the next ring."""
        self._waiter = waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None


class AsyncioLoop:
    """asyncio's, or one that works like it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """See `Loop.start`."""
        self._task = self._loop.create_task(run(), name="midstream-reader")

    def cancel(self) -> None:
        """See `Loop.cancel`."""
        if self._task is not None:
            self._task.cancel()

    def soon(self, call: Callable[[], object]) -> bool:
        """See `Loop.soon`."""
        with suppress(RuntimeError):  # it has been closed
            self._loop.call_soon_threadsafe(call)
            return True
        return False

    def bell(self) -> AsyncioBell:
        """See `Loop.bell`."""
        return AsyncioBell(self._loop)


class TrioBell:
    """An event for each wait."""

    __slots__ = ("_event", "_made")

    def __init__(self, made: Callable[[], Any]) -> None:
        self._made = made
        self._event: Any = None

    def ring(self) -> None:
        """Wake whoever waits."""
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        """Wait for the next ring."""
        self._event = self._made()
        try:
            await self._event.wait()
        finally:
            self._event = None


class TrioLoop:
    """trio's; the task is a system task, which ends with the run."""

    def __init__(self) -> None:
        import trio  # noqa: PLC0415 - there only where trio runs

        self._trio = trio
        self._token = trio.lowlevel.current_trio_token()
        self._scope = trio.CancelScope()

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """See `Loop.start`."""

        async def in_scope() -> None:
            with self._scope:
                await run()

        self._trio.lowlevel.spawn_system_task(
            in_scope, name="midstream-reader", context=copy_context()
        )

    def cancel(self) -> None:
        """See `Loop.cancel`."""
        self._scope.cancel()

    def soon(self, call: Callable[[], object]) -> bool:
        """See `Loop.soon`."""
        with suppress(self._trio.RunFinishedError):
            self._token.run_sync_soon(call)
            return True
        return False

    def bell(self) -> TrioBell:
        """See `Loop.bell`."""
        return TrioBell(self._trio.Event)
