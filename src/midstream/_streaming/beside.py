"""Readers beside the consumer: a read goes on though whoever asked for it has gone.

A pending read must not be cancelled, or bytes are lost. So async reads run in a task
of their own, one a stream: a consumer that is cancelled, or whose deadline has passed,
leaves the read to the next one. Blocking reads need a thread only where a deadline must
fire while one is pending.

What came is handed over in whole reads. A reader goes ahead of its consumer by no more
than a few of them, so that a slow consumer slows the server down.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import anyio

from midstream._streaming.loops import running_loop
from midstream._values.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

AHEAD = 16  # reads of a thread that may wait for a slow consumer


class Late(Exception):
    """The deadline came before the next item."""


class ThreadReader(Generic[T]):
    """Calls ``read`` in a thread of its own, until it gives None.

    Args:
        read: Gives the next item, or None at the end.
    """

    def __init__(self, read: Callable[[], T | None]) -> None:
        self._read = read
        self._items: deque[T] = deque()
        self._error: BaseException | None = None
        self._over = self._closed = False
        self._moved = threading.Condition()
        self._thread = threading.Thread(
            target=self._run, name="midstream-reader", daemon=True
        )
        self._thread.start()

    def next(self, deadline: float | None) -> T | None:
        """The next item; None at the end and, after an error, from then on.

        Args:
            deadline: Monotonic seconds; None to wait for as long as it takes.

        Raises:
            Late: Nothing came until then.
        """
        wait = None if deadline is None else max(deadline - time.monotonic(), 0)
        with self._moved:
            if not self._moved.wait_for(self._stands, wait):
                raise Late
            self._moved.notify_all()  # there is room
            if self._items:
                return self._items.popleft()
            error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # this frame is in its traceback
        return None

    def close(self, patience: float) -> None:
        """End the thread; its owner has closed what it reads from.

        What came can still be read, as the end may be among it.

        Args:
            patience: Seconds to wait for a read that cannot be interrupted.
        """
        with self._moved:
            self._closed = True
            self._moved.notify_all()
        self._thread.join(patience)
        self._end(None)  # a consumer may wait in another thread

    def _stands(self) -> bool:
        return bool(self._items) or self._over

    def _run(self) -> None:
        try:
            while not self._closed and (item := self._read()) is not None:
                with self._moved:
                    self._items.append(item)
                    self._moved.notify_all()
                    self._moved.wait_for(self._goes_on)
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            self._end(error)
        else:
            self._end(None)

    def _goes_on(self) -> bool:
        return len(self._items) < AHEAD or self._closed

    def _end(self, error: BaseException | None) -> None:
        with self._moved:
            self._over, self._error = True, error or self._error
            self._moved.notify_all()


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

    def next(self, deadline: float | None = None) -> T | None:
        """The next item, or None at the end.

        Args:
            deadline: Monotonic seconds; None to wait for as long as it takes.

        Raises:
            Late: Nothing came until then.
        """
        with self._lock:
            if self._beside is None and deadline is None:
                return self._read()
            if self._beside is None:
                self._beside = ThreadReader(self._read)
            return self._beside.next(deadline)

    def close(self, patience: float) -> None:
        """End the thread, if there is one; see `ThreadReader.close`."""
        if self._beside is not None:
            self._beside.close(patience)


class Source(Protocol[T_co]):
    """What an `AsyncReader` reads from."""

    @property
    def ahead(self) -> float:
        """How many reads may wait for the consumer just now."""
        ...

    async def read(self) -> T_co | None:
        """The next item, or None at the end; one that is empty is not handed over."""
        ...

    async def end(self) -> None:
        """Clean up; whoever reads does not wait for it."""
        ...


class AsyncReader(Generic[T]):
    """Awaits reads in a task of its own, until one gives None.

    Args:
        source: What it reads from.

    Attributes:
        loop: Where it runs.
        over: Set when the task has ended.
    """

    def __init__(self, source: Source[T]) -> None:
        self._source = source
        self._items: deque[T] = deque()
        self._error: Exception | None = None
        self._busy = self._stopped = False
        self._wanted = True
        self.loop = running_loop()
        self._came = self.loop.bell()
        self._room = self.loop.bell()
        self.over = anyio.Event()
        self.loop.start(self._run)

    async def next(self, deadline: float | None = None) -> T | None:
        """The next item, or None at the end.

        Args:
            deadline: Monotonic seconds; None to wait for as long as it takes.

        Raises:
            Late: Nothing came until then.
            UsageError: Another task reads.
        """
        if self._busy:
            raise UsageError("another task is reading this stream; one at a time")
        if not self._items and not self._stopped:
            self._busy = True
            try:
                await self._wait(deadline)
            finally:
                self._busy = False
        if self._items:
            item = self._items.popleft()
            self._room.ring()
            return item
        if not self._stopped:
            raise Late
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # this frame is in its traceback
        return None

    def stop(self) -> None:
        """Read no more: whoever waits gets None; `over` tells when it is done."""
        self._stopped = True
        self._came.ring()
        self._room.ring()

    async def _wait(self, deadline: float | None) -> None:
        self._wanted = True
        self._room.ring()
        if deadline is None:
            while not self._items and not self._stopped:
                await self._came.wait()
            return
        with anyio.move_on_after(max(deadline - time.monotonic(), 0)):
            while not self._items and not self._stopped:
                await self._came.wait()

    async def _run(self) -> None:
        try:
            while not self._stopped:
                item = await self._source.read()
                if item is None:
                    break
                if item:
                    self._items.append(item)
                    self._wanted = False
                    self._came.ring()
                while not self._goes_on():
                    await self._room.wait()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            self._error = error
        finally:
            self.stop()
            try:
                with anyio.CancelScope(shield=True):
                    await self._source.end()
            finally:
                self.over.set()

    def _goes_on(self) -> bool:
        waiting = len(self._items)
        wanted = self._wanted and not waiting
        return wanted or self._stopped or waiting < self._source.ahead
