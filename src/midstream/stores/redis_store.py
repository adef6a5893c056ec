"""A store in Redis, for many machines.

One string a stream with a whole checkpoint and one list of its growths, one sorted set
of when each changed, one string a key that names its owner, and one a holder that Redis
itself forgets when its time is over. Whatever asks and writes is a script: one step.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from midstream._values.errors import StoreFailed, UsageError
from midstream.stores.format import dump, fold
from midstream.stores.owners import holder_of, lost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

    from midstream._values.checkpoint import Checkpoint, Growth

_ANSWERS_WITHIN = 4.0  # seconds; a stream waits no longer than 5 for a store's call
_OWNED_FOR = 7 * 86400 * 1000
"""Milliseconds after which Redis forgets an owner that wrote nothing and never left."""
_LONGEST = 2**53  # milliseconds that Redis and Lua can count

_NOW = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
"""
_SAVE = (
    _NOW
    + """
local owner = redis.call('GET', KEYS[3])
if ARGV[1] == '' then redis.call('DEL', KEYS[3])
elseif owner ~= ARGV[1] then return 0
else redis.call('PEXPIRE', KEYS[3], ARGV[5]) end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('DEL', KEYS[2])
if ARGV[3] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
redis.call('ZADD', KEYS[4], now, ARGV[4])
return 1
"""
)
_APPEND = (
    _NOW
    + """
if redis.call('GET', KEYS[3]) ~= ARGV[1] then return 0 end
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if ARGV[2] == '' then return 1 end
redis.call('PEXPIRE', KEYS[3], ARGV[5])
redis.call('RPUSH', KEYS[2], ARGV[2])
if ARGV[3] ~= '' then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
redis.call('ZADD', KEYS[4], now, ARGV[4])
return 1
"""
)
_HELD = """
local owner = redis.call('GET', KEYS[1])
local held = false
if owner then
  held = redis.call('EXISTS', ARGV[1] .. string.match(owner, '^[^/]*')) == 1
end
"""
_ACQUIRE = (
    _HELD
    + """
if held and owner ~= ARGV[2] and ARGV[4] == '' then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[5])
redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
return 1
"""
)
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
_FORGET = (
    _HELD
    + """
if held and ARGV[2] == '' then return 0 end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
redis.call('ZREM', KEYS[4], ARGV[3])
return 1
"""
)
_SCRIPTS = {
    "save": _SAVE,
    "append": _APPEND,
    "acquire": _ACQUIRE,
    "release": _RELEASE,
    "forget": _FORGET,
}


class RedisStore:
    """Keeps checkpoints in Redis (extra ``redis``).

    Args:
        server: ``redis://host:port/db``, or your own ``redis.Redis``, which stays open;
            give that one a ``socket_timeout``.
        prefix: Begins every key of this store.
        expire: Seconds after which Redis itself forgets a stream that did not change;
            None: never.

    Raises:
        UsageError: The extra is not installed, or the address cannot be.
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
        self._errors = redis.exceptions
        self._ours = isinstance(server, str)
        self._redis: Any = _connected(server) if isinstance(server, str) else server
        self._prefix = prefix
        self._life = "" if expire is None else str(_milliseconds(expire))
        self._index = f"{prefix}changed"
        self._script = {
            name: self._redis.register_script(text) for name, text in _SCRIPTS.items()
        }

    def __repr__(self) -> str:
        """With its address, without its password."""
        told = self._redis.connection_pool.connection_kwargs
        where = told.get("path") or f"{told.get('host')}:{told.get('port')}"
        return f"RedisStore({where}/{told.get('db') or 0}, prefix={self._prefix!r})"

    def save(
        self, key: str, checkpoint: Checkpoint, *, owner: str | None = None
    ) -> None:
        """See `Store.save`."""
        words = owner or "", dump(checkpoint), self._life, key, _OWNED_FOR
        with self._faults():
            saved = self._script["save"](self._stream(key), words)
        if not saved:
            raise lost(key)

    def append(self, key: str, growth: Growth, *, owner: str) -> None:
        """See `Store.append`."""
        text = dump(growth) if growth.model_fields_set else ""
        words = owner, text, self._life, key, _OWNED_FOR
        with self._faults():
            saved = self._script["append"](self._stream(key), words)
        if not saved:
            raise lost(key)

    def load(self, key: str) -> Checkpoint | None:
        """See `Store.load`."""
        checkpoint, growths, *_ = self._stream(key)
        with self._faults(), self._redis.pipeline() as batch:
            batch.get(checkpoint)
            batch.lrange(growths, 0, -1)
            text, news = batch.execute()
        return None if text is None else fold(text, news, key)

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        self._forget(key, "always")

    def keys(self) -> list[str]:
        """See `Store.keys`."""
        with self._faults():
            names = [_text(name) for name in self._redis.zrange(self._index, 0, -1)]
            with self._redis.pipeline() as batch:
                for name in names:
                    batch.exists(self._stream(name)[0])
                there = batch.execute()
        return [name for name, exists in zip(names, there, strict=True) if exists]

    def expire(self, older_than: float) -> int:
        """See `Store.expire`."""
        with self._faults():
            seconds, millionths = self._redis.time()
            limit = seconds + millionths / 1e6 - older_than
            old = self._redis.zrangebyscore(self._index, "-inf", limit)
        return sum(self._forget(_text(name), "") for name in old)

    def acquire(
        self, key: str, owner: str, seconds: float, *, take_over: bool = False
    ) -> bool:
        """See `Store.acquire`; a dead process's lease ends with its seconds."""
        rows = self._owner(key), self._holder(holder_of(owner))
        how = "take" if take_over else ""
        words = self._holder(""), owner, _milliseconds(seconds), how, _OWNED_FOR
        with self._faults():
            return bool(self._script["acquire"](rows, words))

    def renew(self, holder: str, seconds: float) -> None:
        """See `Store.renew`."""
        with self._faults():
            self._redis.set(self._holder(holder), "1", px=_milliseconds(seconds))

    def release(self, key: str, owner: str) -> None:
        """See `Store.release`."""
        with self._faults():
            self._script["release"]([self._owner(key)], [owner])

    def close(self) -> None:
        """Close the connections that are ours."""
        if self._ours:
            self._redis.close()

    def _forget(self, key: str, how: str) -> int:
        checkpoint, growths, owner, index = self._stream(key)
        with self._faults():
            rows = [owner, checkpoint, growths, index]
            return int(self._script["forget"](rows, [self._holder(""), how, key]))

    def _stream(self, key: str) -> list[str]:
        """Where a stream is, as its scripts want it."""
        stream, growths = f"{self._prefix}stream:{key}", f"{self._prefix}growths:{key}"
        return [stream, growths, self._owner(key), self._index]

    def _owner(self, key: str) -> str:
        return f"{self._prefix}owner:{key}"

    def _holder(self, name: str) -> str:
        return f"{self._prefix}holder:{name}"

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (
            self._errors.AuthenticationError,
            self._errors.NoPermissionError,
        ) as error:
            raise UsageError(f"{self!r} does not let you in: {error}") from error
        except (self._errors.RedisError, OSError) as error:
            raise StoreFailed(f"{self!r} cannot be used: {error}") from error
        except UnicodeError as error:
            raise UsageError(f"{self!r} cannot keep this: {error}") from error


def _connected(url: str) -> Any:
    """A client that neither waits long nor sends twice: no append may come twice."""
    import redis  # noqa: PLC0415 - an extra
    from redis.backoff import NoBackoff  # noqa: PLC0415 - as above
    from redis.retry import Retry  # noqa: PLC0415 - as above

    try:
        return redis.Redis.from_url(
            url,
            socket_timeout=_ANSWERS_WITHIN,
            socket_connect_timeout=_ANSWERS_WITHIN,
            retry=Retry(NoBackoff(), 0),
        )
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"this is no address of Redis: {error}; give redis://host:port/db"
        ) from error


def _milliseconds(seconds: float) -> int:
    return max(int(min(seconds * 1000, _LONGEST)), 1)


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
