"""What only the Redis store does."""

import sys

import pytest
import redis

import midstream
from midstream import Checkpoint, RedisStore

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
    store = RedisStore("redis://127.0.0.1:1/0")
    with pytest.raises(midstream.ConnectFailed, match="Redis store failed"):
        store.load("k")
    store.close()


def test_the_extra_is_named_when_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(midstream.UsageError, match=r"midstream\[redis\]"):
        RedisStore("redis://127.0.0.1/0")
