"""Stores: where checkpoints of keyed streams survive their process."""

from __future__ import annotations

from midstream.stores.memory import MemoryStore
from midstream.stores.protocol import Store

__all__ = ["MemoryStore", "Store"]
