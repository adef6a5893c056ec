"""Keyed streams are kept while they run, off the token path.

One thread a client looks at its keyed streams a few times a second, takes a checkpoint
under the stream's lock where something changed, and writes it; also in silence, so that
at most the last interval is lost with the process. The stream itself writes only at its
end.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING

from midstream._values.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from midstream._session.session import Session
    from midstream._values.checkpoint import Checkpoint
    from midstream._values.errors import MidstreamError
    from midstream.stores.protocol import Store

_INTERVAL = 0.25  # seconds between looks
_LEASE = 5.0  # seconds for which a lease holds unless renewed
_LOG = logging.getLogger("midstream")


class Kept:
    """One keyed stream.

    Args:
        keeper: Who writes.
        key: Under which key.
    """

    def __init__(self, keeper: Keeper, key: str) -> None:
        self.key = key
        self._keeper = keeper
        self._owner = uuid.uuid4().hex
        self._session: Session | None = None
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # what was seen earlier is stored earlier
        self._saved: tuple[object, ...] | None = None
        self._renew_at = 0.0
        self._owned = self._closed = False

    def open(self) -> Checkpoint | None:
        """Take the lease; what is stored.

        Raises:
            UsageError: Another living process has the key.
        """
        with self._writing:
            store = self._keeper.store
            if not store.acquire(self.key, self._owner, _LEASE):
                raise UsageError(
                    f"stream {self.key!r} is being read elsewhere; it is free at the "
                    f"latest {_LEASE:g} s after that reader ended"
                )
            self._renew_at = time.monotonic() + _LEASE / 3
            self._owned = True
            return store.load(self.key)

    def begin(
        self,
        session: Session,
        lock: threading.Lock,
        lost: Callable[[MidstreamError], None],
    ) -> None:
        """Look after it from now on."""
        del lost
        with self._writing:
            if not self._closed:
                self._session, self._lock = session, lock
                self._keeper.watch(self)

    def look(self) -> None:
        """Write what changed; renew the lease when it is due."""
        with self._writing:
            if self._session is not None:
                self._write(self._session)

    def _write(self, session: Session) -> None:
        store = self._keeper.store
        with self._lock:
            # The mark is taken first: what changes behind it is seen by the next look.
            mark = session.mark
            checkpoint = session.checkpoint() if mark != self._saved else None
        if checkpoint is not None:
            store.save(self.key, checkpoint)
            self._saved = mark
        if time.monotonic() >= self._renew_at:
            store.acquire(self.key, self._owner, _LEASE)
            self._renew_at = time.monotonic() + _LEASE / 3

    def close(self) -> None:
        """Write the last state and give the lease back; waits for an `open`."""
        with self._writing:
            session, self._session = self._session, None
            owned, self._owned = self._owned, False
            self._closed = True
            try:
                if session is not None:
                    self._write(session)
                if owned:
                    self._keeper.store.release(self.key, self._owner)
            except Exception:  # noqa: BLE001 - a store's fault must not end the stream
                _LOG.exception("the last state of stream %r was not stored", self.key)
        self._keeper.forget(self)


class Keeper:
    """Looks after a client's keyed streams.

    Args:
        store: Where checkpoints go.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._streams: list[Kept] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, kept: Kept) -> None:
        """Look after one more stream."""
        with self._lock:
            self._streams.append(kept)
            if self._thread is None:
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._run,
                    args=(self._stop,),
                    name="midstream-keeper",
                    daemon=True,
                )
                self._thread.start()

    def forget(self, kept: Kept) -> None:
        """It ended; the thread ends with the last one."""
        with self._lock:
            if kept in self._streams:
                self._streams.remove(kept)
            thread = self._thread if not self._streams else None
            if thread is not None:
                self._stop.set()
                self._thread = None
        if thread is not None:
            thread.join()

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(_INTERVAL):
            with self._lock:
                streams = list(self._streams)
            for kept in streams:
                try:
                    kept.look()
                except Exception:  # noqa: BLE001 - a store's fault must not end the stream
                    _LOG.exception("stream %r was not stored", kept.key)
