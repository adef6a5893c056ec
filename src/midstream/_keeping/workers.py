"""Store calls in threads of our own, so that nobody waits for a store for ever.

A store may hang: a server that was stopped, a folder on a network that is gone, a store
of the user's own. Whoever waits for a call does so for its limit and no longer; the
call itself is left to its thread. There are only so many threads: what hangs does not
pile up, it is refused.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from midstream._values.errors import StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LIMIT = 5.0  # seconds that anybody waits for a store's call
_JOIN = 1.0  # seconds for an idle thread to end


class Job(Generic[T]):
    """A call that a worker makes.

    Args:
        call: What to do.
        late: Told of its result when nobody waits any more.
    """

    def __init__(self, call: Callable[[], T], late: Callable[[T], None] | None) -> None:
        self._call = call
        self._late = late
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._left = False
        self._result: T
        self._error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether it ended, or never began and nobody waits for it."""
        return self._done.is_set()

    def run(self) -> None:
        """Do it, unless whoever asked has gone before it began."""
        with self._lock:
            if self._left:
                return
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        with self._lock:
            self._done.set()
            left = self._left
        if left and self._late is not None and self._error is None:
            self._late(self._result)

    def wait(self, seconds: float) -> T:
        """Its result.

        Raises:
            StoreFailed: It did not come in time; from now on nobody waits.
        """
        try:
            self._done.wait(seconds)
        finally:  # also when whoever waits is interrupted
            with self._lock:
                self._left = not self._done.is_set()
        if self._left:
            raise StoreFailed(f"the store did not answer within {seconds:g} s")
        if self._error is not None:
            raise self._error
        return self._result


class Workers:
    """Daemon threads that make calls; made when needed, ended with `stop`.

    Args:
        name: Of the threads.
        most: How many calls may run at once, those that hang included.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._changed = threading.Condition()
        self._jobs: deque[Job[object]] = deque()
        self._busy: dict[threading.Thread, bool] = {}
        self._stopped = False

    def submit(
        self, call: Callable[[], T], late: Callable[[T], None] | None = None
    ) -> Job[T]:
        """Have it made as soon as a thread is free."""
        job = Job(call, late)
        with self._changed:
            self._stopped = False
            self._jobs.append(job)  # type: ignore[arg-type]  # nobody here reads its result
            idle = list(self._busy.values()).count(False)
            if idle < len(self._jobs) and len(self._busy) < self._most:
                thread = threading.Thread(
                    target=self._work, name=self._name, daemon=True
                )
                self._busy[thread] = False
                thread.start()
            self._changed.notify()
        return job

    def call(
        self,
        call: Callable[[], T],
        late: Callable[[T], None] | None = None,
        seconds: float | None = None,
    ) -> T:
        """Have it made, and wait.

        Args:
            call: What to do.
            late: Told of the result when it comes too late.
            seconds: The limit; `LIMIT` unless given.

        Raises:
            StoreFailed: It took longer.
        """
        return self.submit(call, late).wait(LIMIT if seconds is None else seconds)

    def stop(self) -> None:
        """End the idle threads; those that hang end when their call does."""
        with self._changed:
            self._stopped = True
            idle = [thread for thread, busy in self._busy.items() if not busy]
            self._changed.notify_all()
        for thread in idle:
            if thread is not threading.current_thread():
                thread.join(_JOIN)

    def _work(self) -> None:
        mine = threading.current_thread()
        while True:
            with self._changed:
                self._busy[mine] = False
                while not self._jobs and not self._stopped:
                    self._changed.wait()
                if not self._jobs:
                    del self._busy[mine]
                    return
                job = self._jobs.popleft()
                self._busy[mine] = True
            job.run()
