"""Calls in threads of our own: waited for so long, and never piled up."""

import threading

import pytest
from kept_reader import wait_until

from midstream import StoreFailed
from midstream._keeping.workers import Workers


@pytest.fixture
def workers():
    made = Workers("test-worker", 3)
    yield made
    made.stop()


def test_a_call_gives_its_result_or_its_error(workers):
    assert workers.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        workers.call(lambda: 1 / 0)


def test_a_late_result_is_told(workers):
    go, told = threading.Event(), []
    with pytest.raises(StoreFailed, match=r"within 0\.01 s"):
        workers.call(lambda: go.wait(10), told.append, 0.01)
    go.set()
    wait_until(lambda: told == [True])


def test_what_hangs_does_not_pile_up(workers):
    go = threading.Event()
    jobs = [workers.submit(lambda: go.wait(10)) for _ in range(3)]
    began = []
    for _ in range(20):
        with pytest.raises(StoreFailed):
            workers.call(lambda: began.append(1), seconds=0.001)
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("test-worker") == 3
    go.set()
    assert [job.wait(10) for job in jobs] == [True] * 3
    assert workers.call(lambda: 1) == 1
    assert not began, "nobody waited for them any more"


def test_idle_threads_are_used_again_and_end(workers):
    names = {workers.call(threading.current_thread) for _ in range(20)}
    assert len(names) == 1
    workers.stop()
    assert not any(thread.is_alive() for thread in names)
    assert workers.call(lambda: 2) == 2
