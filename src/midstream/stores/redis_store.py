"""A store in Redis, for many machines.

One string a stream, one sorted set of when each changed, one string a lease that
expires by itself. A lease is renewed and released by its owner only, which takes a
script: reading and writing must be one step.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from midstream._values.errors import ConnectFailed, UsageError
from midstream.stores.format import dump, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

    from midstream._values.checkpoint import Checkpoint

_ACQUIRE = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class RedisStore:
    """Keeps checkpoints in Redis (extra ``redis``).

    Args:
        server: ``redis://host:port/db``, or your own ``redis.Redis``, which stays open.
        prefix: Begins every key of this store.
        expire: Seconds after which Redis itself forgets a stream that did not change;
            None: never.

    Raises:
        UsageError: The extra is not installed.
    """

    def __init__(
        self,
        server: str | Redis,
        *,
        prefix: str = "midstream:",
        expire: float | None = None,
    ) -> None:
        try:
            import redis  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise UsageError(
                "RedisStore needs: pip install 'midstream[redis]'"
            ) from error
        self._errors = redis.exceptions.RedisError
        self._ours = isinstance(server, str)
        self._redis: Any = server
        if isinstance(server, str):
            self._redis = redis.Redis.from_url(server)
        self._prefix = prefix
        self._expire = expire
        self._index = f"{prefix}changed"
        self._acquire = self._redis.register_script(_ACQUIRE)
        self._release = self._redis.register_script(_RELEASE)

    def save(self, key: str, checkpoint: Checkpoint) -> None:
        """See `Store.save`."""
        life = None if self._expire is None else max(int(self._expire * 1000), 1)
        with self._faults(), self._redis.pipeline() as batch:
            batch.set(self._stream(key), dump(checkpoint), px=life)
            batch.zadd(self._index, {key: time.time()})
            batch.execute()

    def load(self, key: str) -> Checkpoint | None:
        """See `Store.load`."""
        with self._faults():
            text = self._redis.get(self._stream(key))
        return None if text is None else parse(text, key)

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        with self._faults(), self._redis.pipeline() as batch:
            batch.delete(self._stream(key), self._lease(key))
            batch.zrem(self._index, key)
            batch.execute()

    def keys(self) -> list[str]:
        """See `Store.keys`."""
        with self._faults():
            names = [_text(name) for name in self._redis.zrange(self._index, 0, -1)]
            return [name for name in names if self._redis.exists(self._stream(name))]

    def expire(self, older_than: float) -> int:
        """See `Store.expire`."""
        limit = time.time() - older_than
        with self._faults():
            old = self._redis.zrangebyscore(self._index, "-inf", limit)
        for name in old:
            self.delete(_text(name))
        return len(old)

    def acquire(self, key: str, owner: str, seconds: float) -> bool:
        """See `Store.acquire`; a dead process's lease ends with its seconds."""
        milliseconds = max(int(seconds * 1000), 1)
        with self._faults():
            return bool(self._acquire([self._lease(key)], [owner, milliseconds]))

    def release(self, key: str, owner: str) -> None:
        """See `Store.release`."""
        with self._faults():
            self._release([self._lease(key)], [owner])

    def close(self) -> None:
        """Close the connections that are ours."""
        if self._ours:
            self._redis.close()

    def _stream(self, key: str) -> str:
        return f"{self._prefix}stream:{key}"

    def _lease(self, key: str) -> str:
        return f"{self._prefix}lease:{key}"

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise ConnectFailed(f"the Redis store failed: {error}") from error


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
