"""What only the Redis store does."""

import sys

import pytest
import redis

import midstream
from midstream import Checkpoint, RedisStore
from midstream.stores import redis_store

CHECKPOINT = Checkpoint(endpoint="ollama:m", request={"prompt": "hi"}, text="so far")


def test_a_clients_own_connection_stays_open(redis_url):
    own = redis.Redis.from_url(redis_url, decode_responses=True)
    store = RedisStore(own, prefix="own:")
    store.save("k", CHECKPOINT)
    store.close()
    assert store.keys() == ["k"]
    assert own.ping()
    own.close()


def test_redis_itself_forgets_old_streams(redis_url):
    store = RedisStore(redis_url, prefix="short:", expire=0.001)
    store.save("k", CHECKPOINT)
    assert any(store.load("k") is None for _ in range(10_000))
    assert store.keys() == []
    store.close()


def test_no_redis_answers():
    store = RedisStore("redis://:secret@127.0.0.1:1/0")
    with pytest.raises(midstream.StoreFailed, match=r"127\.0\.0\.1:1/0") as failed:
        store.load("k")
    assert "secret" not in str(failed.value)
    store.close()


@pytest.mark.parametrize("url", ["http://h", "redis://h:port/0", "127.0.0.1:6379"])
def test_an_address_that_cannot_be(url):
    with pytest.raises(midstream.UsageError, match="no address of Redis"):
        RedisStore(url)


def test_what_another_program_put_there_is_no_foreign_error(redis_url):
    own = redis.Redis.from_url(redis_url)
    store = RedisStore(redis_url, prefix="junk:")
    own.lpush("junk:stream:list", "x")
    own.set("junk:stream:text", "no json")
    own.set("junk:stream:bytes", b"\xff\xfe")
    own.set("junk:growths:grown", "no list")
    own.set("junk:stream:grown", CHECKPOINT.model_dump_json())
    for key in "list", "text", "bytes", "grown":
        with pytest.raises((midstream.UsageError, midstream.StoreFailed)):
            store.load(key)
    own.lpush("junk:owner:k", "x")
    with pytest.raises(midstream.StoreFailed):
        store.acquire("k", "me", 1)
    store.close()
    own.close()


def test_a_server_that_hangs_is_not_waited_for(redis_server, monkeypatch):
    monkeypatch.setattr(redis_store, "_ANSWERS_WITHIN", 0.1)
    store = RedisStore(redis_server.url)
    assert store.acquire("k", "me", 30)
    with redis_server.stopped(), pytest.raises(midstream.StoreFailed):
        store.save("k", CHECKPOINT, owner="me")
    assert store.acquire("k", "me", 30), "and is used again when it is back"
    store.close()


def test_a_server_that_restarts_empty_has_no_owners(redis_server):
    store = RedisStore(redis_server.url)
    assert store.acquire("k", "me", 30)
    redis_server.restart()
    with pytest.raises(midstream.LeaseLost):
        store.save("k", CHECKPOINT, owner="me")
    assert store.acquire("k", "me", 30)
    store.save("k", CHECKPOINT, owner="me")
    assert store.load("k") == CHECKPOINT
    store.close()


def test_the_extra_is_named_when_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(midstream.UsageError, match=r"midstream\[redis\]"):
        RedisStore("redis://127.0.0.1/0")
