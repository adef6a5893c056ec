"""SIGKILL in mid-answer, and another process goes on: not a character is lost."""

import os
import stat

import pytest

from midstream import SQLiteStore
from midstream.testing import FakeServer, Slow, Stall

TEXT = (
    "吾輩は猫である。名前はまだ無い。\n"
    "家族 👩‍👩‍👧‍👦 と旗 🇯🇵、ha ha ha ha!  \n\n"
    "```py\nprint('日本')\n```\n"
) * 3
PACE = Slow(0.012)
ROUNDS = int(os.environ.get("MIDSTREAM_KILLS", "3"))  # `MIDSTREAM_KILLS=50` for all


@pytest.mark.parametrize(
    ("dialect", "ways"),
    [
        ("llama.cpp", ["replay"]),
        ("llama.cpp", ["text"]),
        ("llama.cpp-completion", ["tokens", "text"]),
        ("ollama", ["text"]),
    ],
)
def test_killed_at_random_moments(killing, source, dialect, ways):
    with FakeServer(TEXT, always=PACE, prompt="Tell me.", replay="replay" in ways) as s:
        child = killing(s.endpoint(dialect), ways=ways)
        whole = child.whole("whole")
        resumed = set()
        for number in range(ROUNDS):
            key = f"stream-{number}"
            shown, joined, facts = child.kill_and_go_on(key, source, len(whole))
            assert whole.startswith(shown)
            assert joined == whole == facts["text"]
            assert facts["complete"]
            resumed |= set(facts["ways"])
    assert resumed
    assert resumed <= {"begin", *ways}  # nothing had come, where it begins anew


def test_killed_twice(killing):
    """The second process is killed as well; a third one goes on."""
    with FakeServer(TEXT, always=PACE) as server:
        child = killing(server.endpoint("llama.cpp"), ways=["replay", "text"])
        whole = child.whole("whole")
        shown = child.kill("twice", 30, 0.4)
        second = child.start("twice", len(shown))
        shown += second.stdout.read(40).decode("utf-8", "ignore")
        second.kill()
        second.communicate()
        rest, facts = child.finish(child.start("twice", len(shown)))
    assert shown + rest == whole == facts["text"]


def test_the_reader_saw_more_than_was_stored(killing):
    """The store is looked after every quarter of a second; the reader is quicker."""
    with FakeServer(TEXT, always=Slow(0.004)) as server:
        child = killing(server.endpoint("llama.cpp"), ways=["replay"])
        whole = child.whole("whole")
        shown = child.kill("ahead", len(whole) * 3 // 4, 0)
        store = SQLiteStore(child.path)
        stored = store.load("ahead").text
        store.close()
        rest, facts = child.finish(child.start("ahead", len(shown)))
    assert len(stored) < len(shown)
    assert shown + rest == facts["text"] == whole


def test_all_files_of_the_store_are_the_owners_alone(killing):
    with FakeServer(TEXT, always=PACE) as server:
        child = killing(server.endpoint("llama.cpp"), ways=["replay"])
        child.kill("mode", 20, 0.4)
    names = {path.name for path in child.path.parent.iterdir()}
    assert names == {"streams.db", "streams.db-wal", "streams.db-shm"}
    for path in child.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_living_processes_do_not_read_one_stream_and_a_dead_one_is_no_hindrance(
    killing,
):
    with FakeServer(TEXT, faults=[Stall(10)]) as server:
        child = killing(server.endpoint("llama.cpp"), ways=["replay"])
        first = child.start("one")
        shown = first.stdout.read(60).decode("utf-8", "ignore")
        second = child.start("one", 0)
        _, words = second.communicate(timeout=60)
        assert second.returncode == 1
        assert b"being read elsewhere" in words
        assert first.poll() is None  # and is not disturbed
        first.kill()
        first.communicate()
        rest, facts = child.finish(child.start("one", len(shown)))
    assert shown + rest == facts["text"]
    assert facts["complete"]


def test_a_finished_stream_is_read_again_without_a_request(killing):
    with FakeServer(TEXT) as server:
        child = killing(server.endpoint("ollama"), ways=["text"])
        whole = child.whole("done")
        requests = len(server.requests)
        rest, facts = child.finish(child.start("done", 10))
        assert len(server.requests) == requests
    assert rest == whole[10:]
    assert facts["complete"]
