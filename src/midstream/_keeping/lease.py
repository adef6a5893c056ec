"""The holder: one client's claim on the keys that it reads, renewed by its own thread.

One call a third of the lease renews all of its leases, however many streams there are
and however slow their saves. It does not have to be right about whether it still holds:
every write asks the store. After a fork the child holds nothing.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING

from midstream._keeping.workers import Workers
from midstream._values.errors import MidstreamError

if TYPE_CHECKING:
    from midstream.stores.protocol import Store

LEASE = 5.0  # seconds for which a lease holds unless renewed
_MARGIN = 0.5  # of it: renewed longer ago than the rest, nobody can be sure
_AT_ONCE = 2  # renewals, one of which may hang
_LOG = logging.getLogger("midstream")


class Holder:
    """Renews while somebody needs it.

    Args:
        store: Where the leases are.
    """

    def __init__(self, store: Store) -> None:
        self.name = uuid.uuid4().hex
        self._store = store
        self._lock = threading.Lock()
        self._streams = 0
        self._number = 0
        self._renewed = -LEASE
        self._workers = Workers("midstream-lease", _AT_ONCE)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def join(self) -> str:
        """One more stream; gives the name of its owner."""
        with self._lock:
            self._streams += 1
            self._number += 1
            if self._thread is None:
                self._renewed = time.monotonic()  # the stream's `acquire` comes now
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._run,
                    args=(self._stop,),
                    name="midstream-lease",
                    daemon=True,
                )
                self._thread.start()
            return f"{self.name}/{self._number}"

    def leave(self) -> bool:
        """One stream less; the thread ends with the last one.

        Returns:
            Whether it was the last one.
        """
        with self._lock:
            self._streams -= 1
            thread = self._thread if self._streams == 0 else None
            if thread is not None:
                self._stop.set()
                self._thread = None
        if thread is not None:
            thread.join(1)
            self._workers.stop()  # behind its last renewal, which would wake them
        return thread is not None

    @property
    def sure(self) -> bool:
        """Whether the last renewal is so fresh that nobody can have taken a key."""
        return time.monotonic() < self._renewed + LEASE * (1 - _MARGIN)

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(LEASE / 3):
            began = time.monotonic()
            try:
                job = self._workers.submit(lambda: self._store.renew(self.name, LEASE))
                job.wait(LEASE / 2)
            except MidstreamError as error:
                _LOG.debug("the leases were not renewed: %s", error)
            except Exception as error:  # noqa: BLE001 - a user's own store raises anything
                _LOG.debug("the leases were not renewed: %r", error)
            else:
                self._renewed = began
