"""The same tests for every store, Redis over a real server of its own."""

import shutil
import socket
import subprocess
import time

import pytest

from midstream import MemoryStore, RedisStore, SQLiteStore

STARTS_WITHIN = 20.0  # seconds


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory):
    """A real redis-server on a free loopback port."""
    program = shutil.which("redis-server")
    assert program, "the tests of RedisStore need redis-server (Debian: redis-server)"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("redis")
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    child = subprocess.Popen(
        [program, *options, "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + STARTS_WITHIN
    while True:
        assert child.poll() is None, "redis-server ended at once"
        assert time.monotonic() < deadline, "redis-server does not answer"
        with socket.socket() as client:
            client.settimeout(1)
            if client.connect_ex(("127.0.0.1", port)) == 0:
                break
    yield f"redis://127.0.0.1:{port}/0"
    child.terminate()
    child.wait()


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
