"""The holder's thread and its renewals, at their edges."""

import threading

import pytest
from kept_reader import wait_until

from midstream import MemoryStore
from midstream._keeping.lease import Holder


def leases():
    return [t for t in threading.enumerate() if t.name == "midstream-lease"]


def test_a_renewal_that_is_late_wakes_no_thread_behind_the_end(quick):
    """The thread stands still just before it asks, until everybody has left."""
    holder = Holder(MemoryStore())
    submit, late, stopped = holder._workers.submit, threading.Event(), threading.Event()

    def stands_still(call):
        late.set()
        stopped.wait(0.3)
        return submit(call)

    def stop():
        stopped.set()
        really()

    really = holder._workers.stop
    holder._workers.submit, holder._workers.stop = stands_still, stop
    holder.join()
    assert late.wait(10)
    assert holder.leave()
    wait_until(lambda: not leases())


@pytest.mark.parametrize("streams", [1, 3])
def test_the_thread_ends_with_the_last_stream(quick, streams):
    holder = Holder(MemoryStore())
    names = {holder.join() for _ in range(streams)}
    assert len(names) == streams
    assert [holder.leave() for _ in range(streams)] == [False] * (streams - 1) + [True]
    wait_until(lambda: not leases())
