"""What every store must do."""

import pytest

import midstream
from midstream import Checkpoint
from midstream._values.checkpoint import Growth
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


def test_only_the_owner_writes(store):
    assert store.acquire("a", "me", 30)
    store.save("a", checkpoint("mine"), owner="me")
    for late in (
        lambda: store.save("a", checkpoint("yours"), owner="you"),
        lambda: store.append("a", Growth(text="yours"), owner="you"),
        lambda: store.append("a", Growth(), owner="you"),
        lambda: store.save("b", checkpoint("yours"), owner="you"),
    ):
        with pytest.raises(midstream.LeaseLost):
            late()
    assert store.load("a").text == "mine"
    assert store.load("b") is None


def test_what_is_new_is_appended(store):
    assert store.acquire("a", "me", 30)
    with pytest.raises(midstream.LeaseLost):
        store.append("a", Growth(text="to nothing"), owner="me")
    store.save("a", checkpoint("one", tokens=1, token_ids=[1]), owner="me")
    store.append("a", Growth(text=" two", tokens=2, token_ids=[2]), owner="me")
    store.append("a", Growth(), owner="me")
    assert store.load("a").text == "one two"
    store.append("a", Growth(text=" 日本", complete=True), owner="me")
    whole = checkpoint("one two 日本", tokens=2, token_ids=[1, 2], complete=True)
    assert store.load("a") == whole
    store.save("a", checkpoint("anew"), owner="me")
    assert store.load("a").text == "anew"


def test_growing_is_a_change(store):
    assert store.acquire("a", "me", 30)
    store.save("a", checkpoint(), owner="me")
    store.save("b", checkpoint())
    store.append("a", Growth(text="x"), owner="me")
    assert store.keys() == ["b", "a"]
    store.delete("a")
    assert store.keys() == ["b"]
    assert store.load("a") is None


def test_a_stream_that_is_read_does_not_expire(store):
    assert store.acquire("a", "me", 30)
    store.save("a", checkpoint(), owner="me")
    store.save("b", checkpoint())
    assert store.expire(0) == 1
    assert store.keys() == ["a"]
    store.release("a", "me")
    assert store.expire(0) == 1


def test_one_renewal_keeps_all_leases_of_a_holder(store):
    assert store.acquire("a", "me/1", 30)
    assert store.acquire("b", "me/2", 0.001)
    assert _until(lambda: store.acquire("a", "you/1", 30)), "all end with the holder"
    store.renew("me", 30)
    assert not store.acquire("b", "you/2", 30), "nobody took it meanwhile"
    store.save("b", checkpoint(), owner="me/2")
    with pytest.raises(midstream.LeaseLost):
        store.save("a", checkpoint(), owner="me/1")


def test_a_lease_that_ran_out_is_still_its_owners_until_another_takes_it(store):
    assert store.acquire("a", "me/1", 30)
    assert store.acquire("b", "me/2", 0.001)
    assert _until(lambda: store.acquire("b", "you/1", 30))
    store.save("a", checkpoint("mine"), owner="me/1")
    assert store.acquire("a", "you/1", 30)
    with pytest.raises(midstream.LeaseLost):
        store.append("a", Growth(text="late"), owner="me/1")


def test_two_streams_of_one_client_are_two_owners(store):
    assert store.acquire("a", "me/1", 30)
    assert not store.acquire("a", "me/2", 30)
    assert store.acquire("a", "me/2", 30, take_over=True)
    with pytest.raises(midstream.LeaseLost):
        store.save("a", checkpoint(), owner="me/1")
    store.release("a", "me/1")
    assert not store.acquire("a", "you/1", 30)


def test_a_lease_is_taken_over(store):
    assert store.acquire("a", "me/1", 30)
    store.save("a", checkpoint("mine"), owner="me/1")
    assert store.acquire("a", "you/1", 30, take_over=True)
    assert not store.acquire("a", "me/1", 30)
    with pytest.raises(midstream.LeaseLost):
        store.append("a", Growth(text="late"), owner="me/1")


def test_who_saves_without_a_lease_ends_the_one_there_is(store):
    assert store.acquire("a", "me", 30)
    store.save("a", checkpoint("by hand"))
    with pytest.raises(midstream.LeaseLost):
        store.append("a", Growth(text="late"), owner="me")
    assert store.load("a").text == "by hand"


def test_every_way_of_writing_a_key_and_a_text(store):
    for key in "", "a b", "日本", "k:1/2*?[x]", "x" * 500:
        assert store.acquire(key, "me/1", 30)
        store.save(key, checkpoint("\0 'x' \U0001f468"), owner="me/1")
        store.append(key, Growth(text="\r\n"), owner="me/1")
        assert store.load(key).text == "\0 'x' \U0001f468\r\n"


def test_a_store_says_what_it_is(store):
    assert repr(store).startswith(type(store).__name__ + "(")


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
        with client.resume("k", have=TEXT[:20]) as stream:
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
