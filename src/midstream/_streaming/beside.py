"""A reader beside the consumer: so that a deadline can fire while a read is pending.

A pending read must not be cancelled, or bytes are lost. So the read runs in a thread,
an asyncio task or a trio system task, hands what came over a short queue, and is ended
by its owner's close. Only regrouping with a deadline needs it; plain iteration reads by
itself.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import anyio
from anyio.lowlevel import current_token

from midstream._values.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_AHEAD = 16  # reads that may wait for a slow consumer


class Late(Exception):
    """The deadline came before the next item."""


class ThreadReader(Generic[T]):
    """Calls ``read`` in a thread of its own, until it gives None.

    Args:
        read: Gives the next item, or None at the end.
    """

    def __init__(self, read: Callable[[], T | None]) -> None:
        self._read = read
        self._items: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(
            _AHEAD
        )
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="midstream-reader", daemon=True
        )
        self._thread.start()

    def next(self, deadline: float | None) -> T | None:
        """The next item, or None at the end.

        Args:
            deadline: Monotonic seconds; None to wait for as long as it takes.

        Raises:
            Late: Nothing came until then.
        """
        wait = None if deadline is None else max(deadline - time.monotonic(), 0)
        try:
            item, error = self._items.get(timeout=wait)
        except queue.Empty:
            raise Late from None
        if error is not None:
            raise error
        return item

    def close(self, patience: float) -> None:
        """End the thread; its owner has closed what it reads from.

        Args:
            patience: Seconds to wait for a read that cannot be interrupted.
        """
        self._closed.set()
        while not self._items.empty():  # a put may wait for room
            self._items.get_nowait()
        self._thread.join(patience)
        self._items.put_nowait((None, None))  # a consumer may wait in another thread

    def _run(self) -> None:
        item: T | None = None
        while not self._closed.is_set():
            error: BaseException | None = None
            try:
                item = self._read()
            except BaseException as fault:  # noqa: BLE001 - raised where it is awaited
                item, error = None, fault
            self._put(item, error)
            if item is None:
                return

    def _put(self, item: T | None, error: BaseException | None) -> None:
        while not self._closed.is_set():
            try:
                self._items.put((item, error), timeout=0.1)
            except queue.Full:
                continue
            return


class AsyncReader(Protocol[T_co]):
    """Awaits ``read`` in a task of its own, until it gives None."""

    async def next(self, deadline: float | None) -> T_co | None:
        """The next item, or None at the end; raises `Late`."""
        ...

    async def aclose(self) -> None:
        """End the task."""
        ...


class _TaskReader(Generic[T]):
    """What the asyncio and the trio reader share: the queue between the two tasks."""

    def __init__(self, read: Callable[[], Awaitable[T | None]]) -> None:
        self._read = read
        self._items: deque[T | None] = deque()
        self._error: BaseException | None = None
        self._came = anyio.Event()
        self._room = anyio.Event()
        self._done = anyio.Event()

    async def next(self, deadline: float | None) -> T | None:
        """The next item, or None at the end.

        Args:
            deadline: Monotonic seconds; None to wait for as long as it takes.

        Raises:
            Late: Nothing came until then.
        """
        if not self._items:
            self._came = anyio.Event()
            wait = None if deadline is None else max(deadline - time.monotonic(), 0)
            with anyio.move_on_after(wait):
                await self._came.wait()
        if not self._items:
            raise Late
        item = self._items.popleft()
        self._room.set()
        if item is None and self._error is not None:
            raise self._error
        return item

    async def _run(self) -> None:
        try:
            item: T | None = None
            while True:
                item = await self._read()
                self._hand_over(item)
                if item is None:
                    return
                while len(self._items) >= _AHEAD:
                    self._room = anyio.Event()
                    await self._room.wait()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            self._error = error
            self._hand_over(None)
        finally:
            self._done.set()

    def _hand_over(self, item: T | None) -> None:
        self._items.append(item)
        self._came.set()


class AsyncioReader(_TaskReader[T]):
    """A reader in an asyncio task."""

    def __init__(self, read: Callable[[], Awaitable[T | None]]) -> None:
        super().__init__(read)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        """End the task, and the consumer that waits for it."""
        self._hand_over(None)
        self._task.cancel()
        await asyncio.wait([self._task])


class TrioReader(_TaskReader[T]):
    """A reader in a trio system task, which no nursery of the caller owns."""

    def __init__(self, read: Callable[[], Awaitable[T | None]]) -> None:
        super().__init__(read)
        import trio  # noqa: PLC0415 - there only where trio runs

        self._scope = trio.CancelScope()
        trio.lowlevel.spawn_system_task(self._run_in_scope)

    async def _run_in_scope(self) -> None:
        with self._scope:
            await self._run()

    async def aclose(self) -> None:
        """End the task, and the consumer that waits for it."""
        self._hand_over(None)
        self._scope.cancel()
        await self._done.wait()


def read_beside(read: Callable[[], Awaitable[T | None]]) -> AsyncReader[T]:
    """The reader for the async library that runs.

    Args:
        read: Gives the next item, or None at the end.
    """
    trio = "trio" in type(current_token().native_token).__module__
    reader: Any = TrioReader if trio else AsyncioReader
    made: AsyncReader[T] = reader(read)
    return made


class Reading(Generic[T]):
    """Reads where it is asked, or beside its consumers once one of them cannot wait.

    Several consumers, one after the other or in threads, each get items of their own:
    one that was left half-way leaves the rest to the next.

    Args:
        read: Gives the next item, or None at the end.
    """

    def __init__(self, read: Callable[[], T | None]) -> None:
        self._read = read
        self._beside: ThreadReader[T] | None = None
        self._lock = threading.Lock()
        self._ended = False

    def next(self, deadline: float | None = None) -> T | None:
        """The next item, or None at the end.

        Args:
            deadline: Monotonic seconds; None to wait for as long as it takes.

        Raises:
            Late: Nothing came until then.
        """
        with self._lock:
            if self._ended:
                return None
            if self._beside is None and deadline is not None:
                self._beside = ThreadReader(self._read)
            beside = self._beside
            item = self._read() if beside is None else beside.next(deadline)
            self._ended = item is None
            return item

    def close(self, patience: float) -> None:
        """End the thread, if there is one; see `ThreadReader.close`."""
        if self._beside is not None:
            self._beside.close(patience)


class AsyncReading(Generic[T]):
    """As `Reading`, for tasks; two that read at the same time are a mistake.

    Args:
        read: Gives the next item, or None at the end.
    """

    def __init__(self, read: Callable[[], Awaitable[T | None]]) -> None:
        self._read = read
        self._beside: AsyncReader[T] | None = None
        self._busy = False
        self._ended = False

    async def next(self, deadline: float | None = None) -> T | None:
        """The next item, or None at the end.

        Args:
            deadline: Monotonic seconds; None to wait for as long as it takes.

        Raises:
            Late: Nothing came until then.
            UsageError: Another task reads.
        """
        if self._ended:
            return None
        if self._busy:
            raise UsageError("another task is reading this stream; one at a time")
        self._busy = True
        try:
            if self._beside is None and deadline is not None:
                self._beside = read_beside(self._read)
            beside = self._beside
            item = await (self._read() if beside is None else beside.next(deadline))
        finally:
            self._busy = False
        self._ended = item is None
        return item

    async def aclose(self) -> None:
        """End the task, if there is one."""
        if self._beside is not None:
            await self._beside.aclose()
