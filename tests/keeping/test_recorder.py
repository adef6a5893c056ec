"""What is written, when, and what becomes of it while the store is away."""

import logging
import threading
import time

import pytest
from kept_reader import Reader, wait_until

from midstream import LeaseLost, MemoryStore, StoreFailed, ToolCallDelta
from midstream._keeping import recorder
from midstream._values.checkpoint import Checkpoint
from midstream._values.events import Started


def stored(store, key="k"):
    return MemoryStore.load(store, key)


def text(store, key="k"):
    return stored(store, key).text


def test_what_is_new_is_appended(reader, gate):
    for word in "one ", "two ", "three":
        reader.says(word)
        wait_until(lambda word=word: text(gate).endswith(word))
    assert text(gate) == "one two three"
    assert gate.calls.count("save") == 1, "the first, empty one"


def test_a_response_is_stored_before_its_first_text(reader, gate):
    """K20: else a background response would be paid for again."""
    with reader.lock:
        reader.session.ledger.start(Started("resp_1", "m"))
    wait_until(lambda: stored(gate).response_id == "resp_1")


def test_a_call_that_is_closed_later_is_stored_closed(reader, gate):
    with reader.lock:
        reader.session.ledger.add_tool(ToolCallDelta(0, "c", "f", "{}"))
    wait_until(lambda: stored(gate).tool_calls)
    assert not stored(gate).tool_calls[0].complete
    with reader.lock:
        reader.session.ledger.add_tool(ToolCallDelta(0, closed=True, tokens=0))
    wait_until(lambda: stored(gate).tool_calls[0].complete)
    assert stored(gate).tool_calls[0].arguments == "{}"


def test_ids_that_are_forgotten_at_a_failover_are_forgotten_in_the_store(reader, gate):
    with reader.lock:
        reader.session.ledger._tokens.settle([1, 2, 3])
    wait_until(lambda: stored(gate).token_ids == [1, 2, 3])
    with reader.lock:
        reader.session.ledger.forget_ids()
        reader.session.ledger._tokens.settle([7, 8, 9, 10])
    wait_until(lambda: stored(gate).token_ids == [7, 8, 9, 10])


def test_keeping_costs_what_is_new(reader, gate):
    """K20: a million characters, looked at over and over."""
    size, piece = 1_000_000, "x" * 2000
    for number in range(size // len(piece)):
        reader.says(piece)
        if number % 25 == 0:
            length = reader.session.ledger.main.characters
            wait_until(lambda length=length: len(text(gate)) >= length)
    wait_until(lambda: len(text(gate)) == size)
    assert gate.calls.count("append") >= 20
    assert gate.written < 1.3 * size


def test_the_lock_is_held_for_the_news_alone(monkeypatch, reader, gate):
    """K20: the whole text is not copied under the lock that the reader takes."""
    reader.says("x" * 3_000_000)
    wait_until(lambda: len(text(gate)) == 3_000_000)
    copied = []
    grow = recorder.growth
    monkeypatch.setattr(
        recorder, "growth", lambda *a: copied.append(grow(*a)) or copied[-1]
    )
    monkeypatch.setattr(reader.session, "checkpoint", None)
    reader.says("more")
    wait_until(lambda: text(gate).endswith("more"))
    assert [len(growth.text) for growth in copied] == [4]


def test_a_store_that_fails_is_said_once_and_then_that_it_is_back(reader, gate, caplog):
    caplog.set_level(logging.INFO, "midstream")
    gate.error = OSError("no space left")
    reader.says("while away ")
    wait_until(lambda: gate.calls.count("append") + gate.calls.count("save") > 5)
    gate.error = None
    reader.says("and back")
    wait_until(lambda: text(gate) == "while away and back")
    wait_until(lambda: "again" in caplog.text)
    words = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert [level for level, _ in words] == ["WARNING", "INFO"]
    assert "not stored for now" in words[0][1]
    assert "no space left" in words[0][1]
    assert not reader.lost


def test_a_store_that_hangs_is_not_piled_upon(reader, gate, caplog):
    gate.hangs = {"append", "save"}
    reader.says("x")
    wait_until(lambda: "did not answer" in caplog.text)
    calls = list(gate.calls)
    time.sleep(0.3)
    assert gate.calls.count("append") == calls.count("append")
    gate.hangs = set()
    gate.open.set()
    reader.says("y")
    wait_until(lambda: text(gate) == "xy")
    assert not reader.lost


def test_one_streams_slow_store_delays_no_other(quick, gate, reader):
    class Half(MemoryStore):
        def append(self, key, growth, *, owner):
            if key == "slow":
                gate.open.wait(30)
            super().append(key, growth, owner=owner)

    store = Half()
    slow = Reader(store, "slow")
    other = Reader(store, "other", slow.keeper)
    slow.begin()
    other.begin()
    slow.says("x")
    for word in "one ", "two ", "three":
        other.says(word)
        wait_until(lambda word=word: text(store, "other").endswith(word))
    other.close()
    gate.open.set()
    slow.close()
    assert text(store, "slow") == "x"


def test_closing_is_bounded_and_the_last_state_comes_when_the_store_is_back(
    quick, gate, caplog
):
    reader = Reader(gate)
    reader.begin()
    gate.hangs = {"append"}
    reader.says("the end")
    wait_until(lambda: "append" in gate.calls)
    began = time.monotonic()
    reader.close()
    assert time.monotonic() - began < 5
    assert "last state of stream 'k' was not stored" in caplog.text
    gate.open.set()
    wait_until(lambda: text(gate) == "the end" and gate.calls[-1] == "release")
    assert gate.acquire("k", "another", 1)


def test_an_error_at_the_end_is_said_and_not_raised(quick, gate, caplog):
    reader = Reader(gate)
    reader.begin()
    gate.error = RuntimeError("anything")
    reader.says("x")
    reader.close()
    assert "last state of stream 'k' was not stored" in caplog.text


def test_only_another_owner_ends_a_stream(reader, gate):
    reader.says("mine ")
    wait_until(lambda: text(gate) == "mine ")
    assert gate.acquire("k", "you/1", 30, take_over=True)
    reader.says("late")
    wait_until(lambda: reader.lost)
    [error] = reader.lost
    assert isinstance(error, LeaseLost)
    assert text(gate) == "mine "


def test_who_is_silent_learns_of_it_too(reader, gate):
    assert gate.acquire("k", "you/1", 30, take_over=True)
    wait_until(lambda: reader.lost)


def test_a_lease_that_the_store_forgot_is_taken_back(reader, gate):
    """A Redis that was restarted is empty."""
    reader.says("before ")
    wait_until(lambda: text(gate) == "before ")
    gate.delete("k")
    reader.says("after")
    wait_until(lambda: stored(gate) is not None)
    wait_until(lambda: text(gate) == "before after")
    assert not reader.lost


def test_a_lease_that_ran_out_is_renewed_when_nobody_took_it(reader, gate):
    with gate._lock:
        gate._until.clear()
    reader.says("on")
    wait_until(lambda: text(gate) == "on")
    assert not reader.lost
    wait_until(lambda: gate._held("k"))


def test_a_lease_that_another_had_and_gave_back_is_lost(reader, gate):
    """What that one wrote must not be written over, though the key is free again."""
    reader.says("mine")
    wait_until(lambda: text(gate) == "mine")
    with gate._lock:
        gate._owners["k"] = "you/1"
        theirs = stored(gate).model_copy(
            update={"text": "mine and theirs", "complete": True, "writer": "you/1"}
        )
        gate._kept["k"] = theirs, []
        del gate._owners["k"]
    wait_until(lambda: reader.lost)
    assert text(gate) == "mine and theirs"
    assert gate.acquire("k", "third/1", 1), "and it is not kept from others"


def test_a_complete_stream_is_not_written_again(quick, gate):
    known = Checkpoint(
        endpoint="ollama", request={"prompt": "hi"}, text="all", complete=True
    )
    MemoryStore.save(gate, "k", known)
    reader = Reader(gate, existing="continue")
    reader.begin()
    reader.close()
    assert not {"save", "append"} & set(gate.calls)
    assert gate.acquire("k", "another", 1)


def test_what_changes_while_it_is_copied_is_seen_by_the_next_look(
    monkeypatch, reader, gate
):
    grow = recorder.growth

    def slow(session, before):
        grown = grow(session, before)
        session.ledger.main.add_text("late")
        monkeypatch.undo()
        monkeypatch.setattr("midstream._keeping.keeper.INTERVAL", 0.01)
        return grown

    monkeypatch.setattr(recorder, "growth", slow)
    reader.says("x")
    wait_until(lambda: text(gate) == "xlate")


def test_a_store_that_is_away_at_the_beginning_is_the_callers_to_know(quick, gate):
    reader = Reader(gate)
    gate.error = RuntimeError("boom")
    with pytest.raises(StoreFailed, match="boom") as failed:
        reader.kept.open()
    assert isinstance(failed.value.__cause__, RuntimeError)
    gate.error = None
    assert gate.acquire("k", "another", 1)
    reader.close()


def test_a_lock_that_is_held_does_not_stop_the_renewals(reader, gate):
    with reader.lock:
        before = gate.calls.count("renew")
        wait_until(lambda: gate.calls.count("renew") > before + 2)
    assert threading.active_count() < 50
