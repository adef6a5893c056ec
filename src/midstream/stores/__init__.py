"""Stores: where checkpoints of keyed streams survive their process."""

from __future__ import annotations

from midstream.stores.memory import MemoryStore
from midstream.stores.protocol import Store
from midstream.stores.redis_store import RedisStore
from midstream.stores.sqlite import SQLiteStore

__all__ = ["MemoryStore", "RedisStore", "SQLiteStore", "Store"]
