"""Entering and leaving: who gets the key, and what becomes of what was stored."""

import os
import threading
import time

import pytest
from kept_reader import Reader, wait_until

import midstream
from midstream import (
    LeaseLost,
    MemoryStore,
    StoreFailed,
    StreamBusy,
    StreamNotFound,
    UsageError,
)
from midstream._values.checkpoint import Checkpoint

KNOWN = Checkpoint(endpoint="ollama", request={"prompt": "hi"}, text="so far")


@pytest.fixture
def known(gate, quick):
    """A store with a stream under ``k``."""
    MemoryStore.save(gate, "k", KNOWN)
    return gate


def test_continue_needs_something(gate, quick):
    reader = Reader(gate, "never", existing="continue")
    with pytest.raises(StreamNotFound, match=r"MemoryStore\(\) has no stream 'never'"):
        reader.kept.open()
    assert gate.acquire("never", "another", 1)
    reader.close()


@pytest.mark.parametrize(
    ("existing", "found"),
    [("continue", KNOWN), ("resume", KNOWN), ("replace", None)],
)
def test_what_entering_gives(known, existing, found):
    reader = Reader(known, existing=existing)
    assert reader.kept.open() == found
    assert MemoryStore.load(known, "k").text == "so far", "nothing began yet"
    reader.close()
    assert known.acquire("k", "another", 1)


def test_resume_begins_where_there_is_nothing(gate, quick):
    reader = Reader(gate, existing="resume")
    assert reader.begin() is None
    reader.close()


def test_error_wants_nothing_there(known):
    reader = Reader(known, existing="error")
    with pytest.raises(UsageError, match="has a stream 'k' already"):
        reader.kept.open()
    reader.close()
    new = Reader(known, "new", existing="error")
    assert new.begin() is None
    new.close()


def test_replace_replaces_at_the_beginning(known):
    reader = Reader(known)
    reader.begin()
    assert MemoryStore.load(known, "k").text == ""
    reader.close()


@pytest.mark.parametrize("existing", ["continue", "resume", "replace", "error"])
def test_busy_says_when_it_is_free_and_how_to_take_it(known, existing):
    first = Reader(known)
    first.begin()
    second = Reader(known, existing=existing)
    with pytest.raises(StreamBusy, match=r"within|latest .* s .*take_over=True"):
        second.kept.open()
    second.close()
    assert not first.lost
    first.close()


def test_two_streams_of_one_client_cannot_have_one_key(known):
    first = Reader(known)
    first.begin()
    second = Reader(known, keeper_=first.keeper)
    with pytest.raises(StreamBusy):
        second.kept.open()
    second.close()
    first.says("x")
    wait_until(lambda: MemoryStore.load(known, "k").text == "x")
    first.close()


@pytest.mark.parametrize("same_client", [False, True])
def test_taking_over_ends_the_other(known, same_client):
    first = Reader(known)
    first.begin()
    first.says("first")
    wait_until(lambda: MemoryStore.load(known, "k").text == "first")
    keeper = first.keeper if same_client else None
    second = Reader(known, keeper_=keeper, existing="continue", take_over=True)
    assert second.begin().text == "first"
    wait_until(lambda: first.lost)
    assert isinstance(first.lost[0], LeaseLost)
    first.says(" late")
    first.close()
    assert MemoryStore.load(known, "k").text == "first"
    second.close()


def test_a_second_close_neither_ends_the_first_nor_another_streams_lease(
    known, monkeypatch
):
    """What gives the key back is waited for, whoever else closes it meanwhile."""
    monkeypatch.setattr("midstream._keeping.keeper.LIMIT", 30)
    first = Reader(known)
    first.begin()
    keeper = first.keeper
    other = Reader(known, "other", keeper_=keeper)
    other.begin()
    known.hangs = {"release"}
    first.kept.leave()
    closing = threading.Thread(target=first.kept.close)
    closing.start()
    wait_until(lambda: "release" in known.calls)
    first.kept.close()
    assert not first.kept.gone.is_set()
    known.open.set()
    closing.join()
    assert first.kept.gone.is_set()
    assert keeper._thread is not None, "the other one is looked after"
    other.says("more")
    wait_until(lambda: MemoryStore.load(known, "other").text == "more")
    other.close()
    first.client.close()


@pytest.mark.parametrize("within", [False, True])
def test_who_is_closed_before_it_has_begun_leaves_nothing_behind(
    known, monkeypatch, within
):
    """Neither a lease nor a thread, before its first write or in it."""
    monkeypatch.setattr("midstream._keeping.workers.LIMIT", 30)
    reader = Reader(known, existing="continue")
    kept = reader.kept
    kept.open()
    beginning = threading.Thread(
        target=kept.begin, args=(reader.session, reader.lock, reader.lost.append)
    )
    if within:
        known.hangs = {"save"}
        beginning.start()
        wait_until(lambda: "save" in known.calls)
    kept.leave()
    kept.close()
    if not within:
        beginning.start()
    known.open.set()
    beginning.join()
    assert kept.gone.is_set()
    assert known.acquire("k", "another", 1)
    wait_until(lambda: not reader.keeper.workers._busy)
    assert reader.keeper._thread is None
    reader.close()


def test_who_begins_too_late_writes_nothing(known):
    reader = Reader(known, existing="continue")
    reader.kept.open()
    assert known.acquire("k", "you/1", 30, take_over=True)
    with pytest.raises(StreamBusy):
        reader.kept.begin(reader.session, reader.lock, reader.lost.append)
    reader.close()
    assert MemoryStore.load(known, "k") == KNOWN
    assert not known.acquire("k", "me", 1)


@pytest.mark.parametrize("call", ["acquire", "load", "save"])
def test_a_store_that_hangs_is_not_waited_for(known, call):
    known.hangs = {call}
    reader = Reader(known, existing="resume")
    began = time.monotonic()
    with pytest.raises(StoreFailed, match=r"within 0\.2 s"):
        reader.begin()
    reader.close()
    assert time.monotonic() - began < 5
    known.hangs = set()
    known.open.set()
    wait_until(lambda: known.acquire("k", "another", 1))
    assert MemoryStore.load(known, "k").text in ("so far", "")


def test_closing_while_it_is_entered_gives_the_key_back(known, monkeypatch):
    monkeypatch.setattr("midstream._keeping.workers.LIMIT", 10)
    known.hangs = {"load"}
    reader = Reader(known, existing="continue")
    errors = []

    def enter():
        try:
            reader.kept.open()
        except UsageError as error:
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    wait_until(lambda: "load" in known.calls)
    reader.close()
    known.open.set()
    thread.join(10)
    assert "closed while it was entered" in str(errors[0])
    assert known.acquire("k", "another", 1)


def test_a_stream_is_kept_once(known):
    reader = Reader(known)
    reader.begin()
    with pytest.raises(UsageError, match="entered once"):
        reader.kept.open()
    reader.says("goes on")
    wait_until(lambda: MemoryStore.load(known, "k").text == "goes on")
    reader.close()
    reader.kept.close()


def test_a_forked_child_owns_nothing(known):
    reader = Reader(known)
    reader.begin()
    child = os.fork()
    if child == 0:
        calls = len(known.calls)
        reader.kept.check()
        reader.kept.check()
        lost = [type(error) for error in reader.lost] == [LeaseLost]
        reader.kept.close()
        quiet = calls == len(known.calls)
        mine = Reader(known, "child", keeper_=reader.keeper)
        mine.begin()
        other = (
            reader.kept._owner.partition("/")[0] != mine.kept._owner.partition("/")[0]
        )
        mine.close()
        os._exit(0 if lost and quiet and other else 1)
    assert os.waitpid(child, 0)[1] == 0
    reader.kept.check()
    reader.says("the parent's")
    wait_until(lambda: MemoryStore.load(known, "k").text == "the parent's")
    assert not reader.lost
    reader.close()


def test_a_store_that_cannot_fence_is_told_what_it_lacks():
    class Old:
        def save(self, key, checkpoint): ...
        def load(self, key): ...
        def acquire(self, key, owner, seconds): ...
        def release(self, key, owner): ...

    with pytest.raises(UsageError, match=r"append\(key, growth, \*, owner\)") as told:
        midstream.Client("ollama", store=Old())
    for method in "save(", "renew(", "acquire(":
        assert method in str(told.value)
    assert "release(" not in str(told.value)
    for no_store in "streams.db", object(), {}:
        with pytest.raises(UsageError, match="give a store"):
            midstream.AsyncClient("ollama", store=no_store)


def test_a_store_with_words_of_its_own_passes():
    class Wide(MemoryStore):
        def save(self, *args, **more):
            super().save(*args, **more)

    midstream.Client("ollama", store=Wide()).close()
