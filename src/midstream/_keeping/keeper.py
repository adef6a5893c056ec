"""Keyed streams are kept while they run, off the token path.

One thread a client looks at its keyed streams a few times a second and has what is new
written by workers, so that one stream's slow save delays no other. Entering a stream
takes its key's lease and writes a checkpoint before the request goes out; at its end
the last state is written and the lease given back. Whoever waits for the store waits
for `workers.LIMIT` and no longer.
"""

from __future__ import annotations

import inspect
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Literal, TypeVar

from midstream._keeping.lease import LEASE, Holder
from midstream._keeping.recorder import Recorder
from midstream._keeping.workers import LIMIT, Workers
from midstream._values.errors import (
    MidstreamError,
    StoreFailed,
    StreamBusy,
    StreamNotFound,
    UsageError,
)
from midstream._values.interruptions import LeaseLost
from midstream.stores.forking import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from midstream._session.session import Session
    from midstream._values.checkpoint import Checkpoint
    from midstream.stores.protocol import Store

T = TypeVar("T")

Existing = Literal["replace", "resume", "error", "continue"]
"""What entering does with what is stored under the key; ``"continue"`` needs it."""

_State = Literal["new", "opening", "taken", "beginning", "open", "closed"]

INTERVAL = 0.25  # seconds between looks
_AT_ONCE = 16  # writes, those that hang included
_METHODS = (
    "save(key, checkpoint, *, owner=None)",
    "append(key, growth, *, owner)",
    "load(key)",
    "acquire(key, owner, seconds, *, take_over=False)",
    "renew(holder, seconds)",
    "release(key, owner)",
)
_LOG = logging.getLogger("midstream")


def check_store(store: object) -> None:
    """Refuse what cannot keep streams safely.

    Raises:
        UsageError: It is no store, or one that cannot tell whose write it is; the words
            name the methods to add.
    """
    if isinstance(store, type):
        raise UsageError(f"store={store.__name__}: give a store, {store.__name__}(…)")
    if not hasattr(store, "load") or not hasattr(store, "save"):
        raise UsageError(f"store={store!r}: give a store, as SQLiteStore(…)")
    missing = [told for told in _METHODS if not _has(store, told)]
    if missing:
        raise UsageError(
            f"store={store!r} cannot keep two readers apart: it needs "
            f"{'; '.join(missing)}, as midstream.Store describes them"
        )


def _has(store: object, told: str) -> bool:
    """Whether the method is there, with its keyword-only arguments."""
    name, _, rest = told.partition("(")
    words = {word.partition("=")[0] for word in rest[:-1].partition("*, ")[2].split()}
    try:
        parameters = inspect.signature(getattr(store, name)).parameters
    except AttributeError:
        return False
    except (TypeError, ValueError):  # of a method that was not written in Python
        return True
    any_word = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return any_word or words <= parameters.keys()


class Kept:
    """One keyed stream.

    Args:
        keeper: Who keeps it.
        key: Under which key.
        existing: What to do with what is stored there.
        take_over: Take the key from a reader that is still thought alive.

    Attributes:
        gone: Set when it has left and its lease is given back.
    """

    def __init__(
        self,
        keeper: Keeper,
        key: str,
        existing: Existing = "replace",
        *,
        take_over: bool = False,
    ) -> None:
        self.key = key
        self._keeper = keeper
        self._existing = existing
        self._take_over = take_over
        self._lock = threading.Lock()
        self._state: _State = "new"
        self._stored: Checkpoint | None = None
        self._owner = ""
        self._recording: Recording | None = None
        self._pid = os.getpid()
        self._lost: Callable[[MidstreamError], None] | None = None
        self.gone = threading.Event()

    def open(self) -> Checkpoint | None:
        """Take the lease.

        Returns:
            What is stored and to be continued; None where there is nothing, or it will
            be replaced.

        Raises:
            StreamBusy: Another reader has the key.
            StreamNotFound: There is nothing to continue.
            UsageError: Something is stored where nothing should be, or it is no
                checkpoint; or the stream was closed meanwhile.
            StoreFailed: The store cannot be used.
        """
        with self._lock:
            if self._state != "new":
                raise UsageError("a stream is entered once; ask for a new one")
            self._state, self._pid = "opening", os.getpid()
        self._owner = self._keeper.holder.join()
        try:
            self._keeper.wait_for(self.key)
            self._acquire()
            self._stored = self._load()
            with self._lock:
                if self._state != "opening":
                    raise UsageError("the stream was closed while it was entered")
                self._state = "taken"
        except BaseException:
            self._state = "closed"
            self._give_back()
            self._keeper.left(self)
            raise
        return self._stored

    def begin(
        self,
        session: Session,
        lock: threading.Lock,
        lost: Callable[[MidstreamError], None],
    ) -> None:
        """Write the first checkpoint and go on writing.

        Args:
            session: What is kept.
            lock: Held while it is looked at.
            lost: Called once, from any thread, when another owner has the key.

        Raises:
            StreamBusy: Another reader took the key meanwhile.
            StoreFailed: The store cannot be used.
            UsageError: What was asked cannot be stored.
        """
        with self._lock:
            if self._state != "taken":
                return  # closed meanwhile, and the lease is given back
            self._state = "beginning"
        keeper, self._lost = self._keeper, lost
        recorder = Recorder(
            keeper.store,
            keeper.holder,
            key=self.key,
            owner=self._owner,
            session=session,
            lock=lock,
            lost=lost,
        )
        stored, self._stored = self._stored, None
        recording = None
        try:
            keeper.ask(lambda: recorder.begin(stored))
            recording = Recording(recorder, keeper.workers, self.key)
        except LeaseLost as error:
            raise self._busy() from error
        finally:
            self._begun(recording)

    def _begun(self, recording: Recording | None) -> None:
        """From now on `close` does the rest; if it came meanwhile, do it here."""
        with self._lock:
            closed = self._state == "closed"
            if not closed:
                self._state = "taken" if recording is None else "open"
                self._recording = recording
                if recording is not None:
                    self._keeper.watch(recording)
        if closed:
            self._give_back()
            self._keeper.left(self)

    def check(self) -> None:
        """Tell the stream that it is not its own any more, in a forked child."""
        if self._lost is not None and self._pid != os.getpid():
            lost, self._lost = self._lost, None
            lost(
                LeaseLost(
                    f"this process was forked while it read the stream {self.key!r}; "
                    "its parent goes on with it"
                )
            )

    def leave(self) -> None:
        """It will be closed: the next reader of this client waits for that."""
        if self._pid == os.getpid():
            self._keeper.leaving(self)

    def close(self) -> None:
        """Write the last state and give the lease back.

        It never raises, and takes no longer than a store's call may. In the middle of
        an `open`, a `begin` or another `close` it leaves the rest to that one; in a
        forked child it does nothing.
        """
        if self._pid != os.getpid():
            return
        with self._lock:
            state, self._state = self._state, "closed"
            recording = self._recording
        if state in ("opening", "beginning", "closed"):
            return
        if recording is not None:
            recording.close()
            self._keeper.forget(recording)
            self._keeper.leave()
        elif state == "taken":
            self._give_back()
        self._keeper.left(self)

    def _acquire(self) -> None:
        keeper, key, owner = self._keeper, self.key, self._owner
        more = {"take_over": True} if self._take_over else {}

        def late(acquired: object) -> None:
            if acquired:
                keeper.store.release(key, owner)

        take = keeper.store.acquire
        if not keeper.ask(lambda: take(key, owner, LEASE, **more), late):
            raise self._busy()

    def _busy(self) -> StreamBusy:
        return StreamBusy(
            f"stream {self.key!r} is being read elsewhere; it is free at the latest "
            f"{LEASE:g} s after that reader ended, or now with take_over=True, which "
            "ends that reader's stream"
        )

    def _load(self) -> Checkpoint | None:
        if self._existing == "replace":
            return None
        keeper, key = self._keeper, self.key
        stored = keeper.ask(lambda: keeper.store.load(key))
        if stored is None and self._existing == "continue":
            raise StreamNotFound(
                f"{keeper.store!r} has no stream {key!r}: it was never begun, or was "
                f"deleted; begin it with client.stream(…, key={key!r}), or look at the "
                "store's keys()"
            )
        if stored is not None and self._existing == "error":
            raise UsageError(
                f"{keeper.store!r} has a stream {key!r} already; continue it with "
                f"client.resume({key!r}), delete it, or use another key"
            )
        return stored

    def _give_back(self) -> None:
        keeper, key, owner = self._keeper, self.key, self._owner
        try:
            keeper.ask(lambda: keeper.store.release(key, owner))
        except MidstreamError as error:
            _LOG.debug("the lease of %r was not given back: %s", key, error)
        keeper.leave()


class Recording:
    """One stream's writes: one at a time, never waited for but at the end.

    Args:
        recorder: Who writes.
        workers: In whose threads.
        key: The stream's.
    """

    def __init__(self, recorder: Recorder, workers: Workers, key: str) -> None:
        self._recorder = recorder
        self._workers = workers
        self._key = key
        self._lock = threading.Lock()
        self._began: float | None = None  # when the write that runs now did
        self._closing = False
        self._done = threading.Event()

    def tick(self) -> None:
        """Have what is new written, unless a write is on its way."""
        with self._lock:
            began = self._began
            if self._closing:
                return
        if began is None:
            if self._recorder.due:
                self._start(self._look)
        elif time.monotonic() > began + LIMIT:
            words = f"it did not answer within {LIMIT:g} s"
            self._recorder.failed(StoreFailed(words))

    def close(self) -> None:
        """Write the last state, behind the write that is on its way."""
        with self._lock:
            self._closing = True
            idle = self._began is None
        if idle:
            self._start(self._finish)
        if not self._done.wait(LIMIT):
            _LOG.warning(
                "the last state of stream %r was not stored: the store did not answer "
                "within %g s",
                self._key,
                LIMIT,
            )

    def _start(self, call: Callable[[], None]) -> None:
        with self._lock:
            if self._began is not None:
                return
            self._began = time.monotonic()
        self._workers.submit(call)

    def _look(self) -> None:
        try:
            self._recorder.look()
        finally:
            with self._lock:
                self._began = None
                closing = self._closing
        if closing:
            self._finish()

    def _finish(self) -> None:
        self._recorder.last()
        self._done.set()


class Keeper:
    """Looks after a client's keyed streams.

    Args:
        store: Where checkpoints go; `check_store` has passed it.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.holder = Holder(store)
        self.workers = Workers("midstream-store", _AT_ONCE)
        self._recordings: list[Recording] = []
        self._leaving: list[Kept] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        tell(self)

    def forked(self) -> None:
        """A child has no thread of its parent's, and none of its leases."""
        self.holder = Holder(self.store)
        self.workers = Workers("midstream-store", _AT_ONCE)
        self._recordings = []
        self._leaving = []
        self._lock = threading.Lock()
        self._thread = None

    def ask(self, call: Callable[[], T], late: Callable[[T], None] | None = None) -> T:
        """A call of the store's, within its limit.

        Args:
            call: What to ask.
            late: Told of the answer when it comes too late.

        Raises:
            StoreFailed: It took too long, or raised what is no error of ours.
            MidstreamError: What the store said.
        """
        try:
            return self.workers.call(call, late)
        except MidstreamError:
            raise
        except Exception as error:
            raise StoreFailed(f"{self.store!r} failed: {error!r}") from error

    def leaving(self, kept: Kept) -> None:
        """A stream will be closed, in a thread of its own."""
        with self._lock:
            self._leaving.append(kept)

    def left(self, kept: Kept) -> None:
        """It gave its lease back."""
        with self._lock:
            self._leaving = [one for one in self._leaving if one is not kept]
        kept.gone.set()

    def wait_for(self, key: str) -> None:
        """Let those go first who are leaving this key, within a store call's limit."""
        with self._lock:
            before = [kept for kept in self._leaving if kept.key == key]
        for kept in before:
            kept.gone.wait(LIMIT)

    def watch(self, recording: Recording) -> None:
        """Look after one more stream."""
        with self._lock:
            self._recordings.append(recording)
            if self._thread is None:
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._run,
                    args=(self._stop,),
                    name="midstream-keeper",
                    daemon=True,
                )
                self._thread.start()

    def forget(self, recording: Recording) -> None:
        """It ended; the thread ends with the last one."""
        with self._lock:
            if recording in self._recordings:
                self._recordings.remove(recording)
            thread = self._thread if not self._recordings else None
            if thread is not None:
                self._stop.set()
                self._thread = None
        if thread is not None:
            thread.join()

    def leave(self) -> None:
        """One stream less needs the lease; idle threads end with the last one."""
        if self.holder.leave():
            self.workers.stop()

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(INTERVAL):
            with self._lock:
                recordings = list(self._recordings)
            for recording in recordings:
                recording.tick()
