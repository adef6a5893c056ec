"""One stream's record: a whole checkpoint first, then what is new.

It looks at the session under the stream's lock, for as long as it takes to copy the
news, and writes outside of it. A write that failed may have come all the same, so the
next one is whole again. Only another owner ends the recording: a lease that ran out, or
that the store forgot, is taken back as long as nobody else has written meanwhile, which
the checkpoint's ``writer`` tells.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from midstream._keeping.lease import LEASE
from midstream._resume.growth import growth, seen
from midstream._values.checkpoint import Checkpoint, Growth
from midstream._values.errors import MidstreamError
from midstream._values.interruptions import LeaseLost
from midstream.stores.owners import lost

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from midstream._keeping.lease import Holder
    from midstream._resume.growth import Seen
    from midstream._session.session import Session
    from midstream.stores.protocol import Store

AGAIN = 1.0  # seconds between tries while the store is away
_LOG = logging.getLogger("midstream")


class Recorder:
    """Writes one stream; one thread at a time calls it.

    Args:
        store: Where to.
        holder: Whose lease it is.
        key: Under which key.
        owner: The lease's owner.
        session: What is recorded.
        lock: Held while the session is looked at.
        lost: Called once, when another owner has the key.
    """

    def __init__(
        self,
        store: Store,
        holder: Holder,
        *,
        key: str,
        owner: str,
        session: Session,
        lock: threading.Lock,
        lost: Callable[[MidstreamError], None],
    ) -> None:
        self._store = store
        self._holder = holder
        self._key = key
        self._owner = owner
        self._session = session
        self._lock = lock
        self._lost = lost
        self._saved: tuple[Seen, object] | None = None
        self._next = 0.0  # monotonic seconds: when to ask the store though nothing came
        self._away = False
        self.ended = False

    def begin(self, stored: Checkpoint | None) -> None:
        """Write the first checkpoint.

        Args:
            stored: What the stream goes on with; the session holds all of it.

        Raises:
            LeaseLost: Another owner was quicker.
            StoreFailed: The store cannot be used.
            UsageError: The stream cannot be stored.
        """
        if stored is not None and stored.complete:
            self.ended = True  # nothing will come
            return
        self._write()

    @property
    def due(self) -> bool:
        """Whether there is something to write, or to ask."""
        if self.ended or (self._away and time.monotonic() < self._next):
            return False
        with self._lock:
            mark = self._session.mark
        saved = self._saved
        return saved is None or mark != saved[1] or self._must_ask()

    def look(self) -> None:
        """Write what is new, or ask now and then whether the key is still ours."""
        try:
            try:
                self._write()
            except LeaseLost:
                if not self._taken_back():
                    self.ended = True
                    self._lost(lost(self._key))
        except Exception as error:  # noqa: BLE001 - a store's fault must not end the stream
            self.failed(error)

    def last(self) -> None:
        """Write the last state and give the lease back; never raises."""
        try:
            if not self.ended:
                self.ended = True
                self._write_last()
        except Exception as error:  # noqa: BLE001 - as above
            words = "the last state of stream %r was not stored: %s"
            _LOG.warning(words, self._key, _words(error))
        try:
            self._store.release(self._key, self._owner)
        except Exception as error:  # noqa: BLE001 - it runs out by itself
            _LOG.debug("the lease of %r was not given back: %s", self._key, error)

    def failed(self, error: BaseException) -> None:
        """The store is away, or hangs: said once, until it is back."""
        self._saved = None
        self._next = time.monotonic() + AGAIN
        if not self._away:
            self._away = True
            words = "stream %r goes on, but is not stored for now: %s"
            _LOG.warning(words, self._key, _words(error))

    def _write(self) -> None:
        news = self._news()
        if news is None:
            if self._must_ask():
                self._store.append(self._key, Growth(), owner=self._owner)
                self._asked()
            return
        content, saved = news
        if isinstance(content, Checkpoint):
            content = content.model_copy(update={"writer": self._owner})
            self._store.save(self._key, content, owner=self._owner)
        else:
            self._store.append(self._key, content, owner=self._owner)
        self._saved = saved
        self._asked()
        if self._away:
            self._away = False
            _LOG.info("stream %r is stored again", self._key)

    def _must_ask(self) -> bool:
        return time.monotonic() >= self._next or not self._holder.sure

    def _asked(self) -> None:
        self._next = time.monotonic() + LEASE

    def _news(self) -> tuple[Growth, tuple[Seen, object]] | None:
        """What is to be written, and what is stored then."""
        session = self._session
        with self._lock:
            # The mark is taken first: what changes behind it is seen by the next look.
            mark = session.mark
            before = self._saved
            if before is not None and mark == before[1]:
                return None
            standing = session.standing()
            now = seen(standing, before[0] if before else None)
            grown = growth(standing, before[0]) if before is not None else None
            content = session.checkpoint() if grown is None else grown
        return content, (now, mark)

    def _write_last(self) -> None:
        try:
            self._write()
        except LeaseLost:
            if not self._taken_back():
                _LOG.warning("stream %r was taken over before its end", self._key)

    def _taken_back(self) -> bool:
        """Take the lease back, unless another has it, or has written meanwhile."""
        if not self._store.acquire(self._key, self._owner, LEASE):
            return False
        stored = self._store.load(self._key)
        if stored is not None and stored.writer != self._owner:
            self._store.release(self._key, self._owner)
            return False
        self._saved = None
        self._write()
        return True


def _words(error: BaseException) -> object:
    return error if isinstance(error, MidstreamError) else repr(error)
