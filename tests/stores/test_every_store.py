"""What every store must do."""

import pytest

import midstream
from midstream import Checkpoint
from midstream.testing import Cut, FakeServer

TEXT = "An answer with 日本語 and 👩‍👩‍👧, long enough to be cut more than once. " * 3


def checkpoint(text="half an ans", **more):
    return Checkpoint(
        endpoint="ollama:m@http://h", request={"prompt": "hi"}, text=text, **more
    )


def test_what_is_saved_is_loaded(store):
    kept = checkpoint(
        token_ids=[1, -1, 2], gaps=[(1, 2, "日")], usage={"output_tokens": 3}
    )
    store.save("a", kept)
    assert store.load("a") == kept
    assert store.load("b") is None


def test_the_newest_wins_and_keys_are_in_order_of_change(store):
    store.save("a", checkpoint("1"))
    store.save("b", checkpoint("2"))
    store.save("a", checkpoint("3"))
    assert store.load("a").text == "3"
    assert store.keys() == ["b", "a"]


def test_deleting_and_expiring(store):
    store.save("a", checkpoint())
    store.save("b", checkpoint())
    store.delete("a")
    store.delete("never")
    assert store.keys() == ["b"]
    assert store.expire(3600) == 0
    assert store.expire(0) == 1
    assert store.keys() == []


def test_one_lease_at_a_time(store):
    assert store.acquire("a", "me", 30)
    assert store.acquire("a", "me", 30)
    assert not store.acquire("a", "you", 30)
    store.release("a", "you")
    assert not store.acquire("a", "you", 30)
    store.release("a", "me")
    assert store.acquire("a", "you", 30)
    store.delete("a")
    assert store.acquire("a", "me", 30)


def test_a_lease_runs_out(store):
    assert store.acquire("a", "me", 0.001)
    assert _until(lambda: store.acquire("a", "you", 30))


def _until(condition, tries=10_000):
    return any(condition() for _ in range(tries))


def test_a_stream_goes_on_where_its_reader_left(store):
    with (
        FakeServer(TEXT, faults=[Cut(after=5), None, None]) as server,
        midstream.Client(server.endpoint("llama.cpp"), store=store) as client,
    ):
        with client.stream("hi", key="k", max_tokens=200) as stream:
            shown = ""
            for piece in stream:
                shown += piece
                if len(shown) > 60:
                    break
        assert not store.load("k").complete
        with client.resume("k", after=len(shown)) as stream:
            for piece in stream:
                shown += piece
        assert shown == stream.text == TEXT
        assert stream.complete
        assert store.load("k").complete
        with client.resume("k", after=10) as stream:
            assert "".join(stream) == TEXT[10:]
            assert stream.finish_reason == "stop"


def test_the_reader_may_have_seen_more_than_was_stored(store):
    with (
        FakeServer(TEXT) as server,
        midstream.Client(server.endpoint("ollama"), store=store) as client,
    ):
        with client.stream("hi", key="k") as stream:
            next(iter(stream))
        behind = store.load("k")
        store.save("k", behind.model_copy(update={"text": TEXT[:7], "tokens": 3}))
        with client.resume("k", after=20) as stream:
            assert TEXT[:20] + "".join(stream) == TEXT


def test_two_readers_cannot_have_one_key(store):
    with (
        FakeServer(TEXT) as server,
        midstream.Client(server.endpoint("ollama"), store=store) as client,
        client.stream("hi", key="k") as stream,
    ):
        next(iter(stream))
        with (
            pytest.raises(midstream.UsageError, match="read elsewhere"),
            client.resume("k"),
        ):
            pass


def test_no_secret_is_stored(store):
    key = "sk-secret-0123456789"
    with FakeServer(TEXT) as server:
        endpoint = midstream.Endpoint(
            "openai",
            model="m",
            base_url=server.url("openai"),
            api_key=key,
            headers={"x-team": "team-secret-42"},
        )
        with (
            midstream.Client(endpoint, store=store) as client,
            client.stream("hi", key="k") as stream,
        ):
            stream.read()
    stored = store.load("k").model_dump_json()
    assert key not in stored
    assert "team-secret" not in stored


def test_a_key_without_a_store_and_a_key_that_is_not_there(store):
    with midstream.Client("ollama:m") as client:
        with pytest.raises(midstream.UsageError, match="need a store"):
            client.stream("hi", key="k")
        with pytest.raises(midstream.UsageError, match="need a store"):
            client.resume("k")
    with midstream.Client("ollama:m", store=store) as client:
        with (
            pytest.raises(midstream.UsageError, match="no stream 'never'"),
            client.resume("never"),
        ):
            pass
        with pytest.raises(midstream.UsageError, match="0 or more"):
            client.resume("k", after=-1)
    assert store.acquire("never", "me", 30), "a failed entry gives its lease back"
