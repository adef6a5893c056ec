"""The same tests for every store, Redis over a real server of its own."""

import sys
from pathlib import Path

import pytest

from midstream import MemoryStore, RedisStore, SQLiteStore

sys.path.insert(0, str(Path(__file__).parent))

from redis_server import RedisServer


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory):
    """A server that all tests share."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server.url
    server.end()


@pytest.fixture
def redis_server(tmp_path):
    """A server of one's own, to stop and restart."""
    server = RedisServer(tmp_path)
    yield server
    server.end()


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store(request, tmp_path):
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "sqlite":
        made = SQLiteStore(tmp_path / "folder" / "streams.db")
    else:
        url = request.getfixturevalue("redis_url")
        made = RedisStore(url, prefix=f"{tmp_path.name}:")
    yield made
    made.close()
