"""A real redis-server, which can be stopped, and restarted empty."""

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager

STARTS_WITHIN = 20.0  # seconds


class RedisServer:
    """A real redis-server on a free loopback port, in memory alone."""

    def __init__(self, folder):
        self._program = shutil.which("redis-server")
        assert self._program, "RedisStore's tests need redis-server (Debian package)"
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self._child = self._start()

    def _start(self):
        options = ["--port", self._port, "--bind", "127.0.0.1", "--dir", self._folder]
        options += ["--save", "", "--appendonly", "no"]
        child = subprocess.Popen(
            [self._program, *map(str, options)], stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + STARTS_WITHIN
        while True:
            assert child.poll() is None, "redis-server ended at once"
            assert time.monotonic() < deadline, "redis-server does not answer"
            with socket.socket() as client:
                client.settimeout(1)
                if client.connect_ex(("127.0.0.1", self._port)) == 0:
                    return child

    def restart(self):
        """Kill it and start an empty one."""
        self._child.kill()
        self._child.wait()
        self._child = self._start()

    @contextmanager
    def stopped(self):
        """It hangs meanwhile: connections stand, nothing is answered."""
        os.kill(self._child.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._child.pid, signal.SIGCONT)

    def end(self):
        self._child.kill()
        self._child.wait()
