"""Keyed streams without a server: a session, a store, and what watches both."""

import threading
import time

import midstream
from midstream import MemoryStore, TextDelta
from midstream._keeping.keeper import Keeper, Kept


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Gate(MemoryStore):
    """A store whose calls can be counted, made to fail, and made to hang."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.error = None
        self.hangs = set()
        self.open = threading.Event()
        self.written = 0

    def _pass(self, name):
        self.calls.append(name)
        if name in self.hangs:
            self.open.wait(30)
        if self.error is not None:
            raise self.error

    def save(self, key, checkpoint, *, owner=None):
        self._pass("save")
        super().save(key, checkpoint, owner=owner)
        self.written += len(checkpoint.model_dump_json())

    def append(self, key, growth, *, owner):
        self._pass("append")
        super().append(key, growth, owner=owner)
        self.written += len(growth.model_dump_json(exclude_unset=True))

    def load(self, key):
        self._pass("load")
        return super().load(key)

    def acquire(self, key, owner, seconds, *, take_over=False):
        self._pass("acquire")
        return super().acquire(key, owner, seconds, take_over=take_over)

    def renew(self, holder, seconds):
        self._pass("renew")
        super().renew(holder, seconds)

    def release(self, key, owner):
        self._pass("release")
        super().release(key, owner)


class Reader:
    """A keyed stream's session, and who keeps it."""

    def __init__(self, store, key="k", keeper_=None, **more):
        self.client = midstream.Client("ollama", store=store)
        self.session = self.client.stream("hi")._session
        self.keeper = keeper_ or Keeper(store)
        self.kept = Kept(self.keeper, key, **more)
        self.lost = []
        self.lock = threading.Lock()

    def begin(self):
        stored = self.kept.open()
        if stored is not None and stored.text:
            self.says(stored.text)
        self.kept.begin(self.session, self.lock, self.lost.append)
        return stored

    def says(self, text):
        with self.lock:
            self.session.ledger.add_text(TextDelta(text))

    def close(self):
        self.kept.close()
        self.client.close()
