"""One thread looks after all blocked reads, and is gone with the last body."""

import gc
import threading
import time
from math import inf

from midstream._transports.grpc_watchdog import Watchdog


class Body:
    def __init__(self, due=inf):
        self.due = due
        self.expired = threading.Event()

    def expire(self):
        self.due = inf
        self.expired.set()


def alive():
    return [t for t in threading.enumerate() if t.name == "midstream-grpc-watchdog"]


def gone():
    for thread in alive():
        thread.join(5)
    return not alive()


def test_late_reads_end_and_others_go_on():
    watchdog = Watchdog()
    late, idle = Body(), Body()
    later = Body(time.monotonic() + 60)
    for body in late, idle, later:
        watchdog.add(body)
    assert len(alive()) == 1
    late.due = time.monotonic() + 0.05
    watchdog.look(late.due)
    watchdog.look(later.due)  # not before it would wake
    assert late.expired.wait(5)
    assert not later.expired.is_set()
    for body in late, idle, later:
        watchdog.remove(body)
    assert gone()


def test_a_deadline_that_moves_away():
    watchdog = Watchdog()
    body = Body(time.monotonic() + 0.1)
    other = Body(body.due + 0.1)
    watchdog.add(body)
    watchdog.add(other)
    body.due = time.monotonic() + 60
    assert other.expired.wait(5)
    assert not body.expired.is_set()
    watchdog.remove(body)
    watchdog.remove(other)
    assert gone()


def test_it_holds_no_body():
    watchdog = Watchdog()
    body = Body()
    watchdog.add(body)
    del body
    gc.collect()
    watchdog.add(again := Body())
    watchdog.remove(again)
    assert gone()
