"""A real server in a child process, for tests and the demo.

The child writes its log into an unlinked file, so that nothing has to read a pipe
while it runs and nothing is left behind. Readiness is polled, never slept for: a
server that dies or hangs while it starts raises with the end of its own log. Its
standard input is a pipe that the parent never writes to: when the parent is gone,
however it went, the child reads the end of it and can leave. Each server leads a
process group: what it started itself goes with it, even when it had no time to see to
that.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import tempfile
import time
from typing import IO, TYPE_CHECKING

from midstream._values.errors import MidstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_POLL = 0.02  # seconds between two looks at a server that is starting
_LOG_LINES = 40  # of the log, as many as an error shows


class ServerNotStarted(MidstreamError):
    """A server died, or was not ready in time; the message ends with its log."""


class ChildServer:
    """One server program: start, wait until it answers, stop or kill, start again.

    Args:
        name: What errors call it, ``"llama.cpp"``.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None  # while the process is there
        self._kept = ""

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise MidstreamError(f"{self._name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What the server wrote so far, or until it ended."""
        if self._log is None:
            return self._kept
        # pread: the child writes through the same open file, whose offset is its own.
        descriptor = self._log.fileno()
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, size, 0).decode("utf-8", "replace")

    def start(
        self,
        command: Sequence[str],
        *,
        ready: Callable[[], bool],
        deadline: float,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run `command` and return when `ready` says so.

        Args:
            command: The program and its arguments.
            ready: Asked again and again; true once the server can be used.
            deadline: Seconds the server has to become ready.
            environment: The child's environment, the parent's when None.

        Raises:
            ServerNotStarted: It ended or was not ready in time; it is gone then.
        """
        self.kill()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _end()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the caller's own program
                command,
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env=environment,
                process_group=0,
            )
        except OSError as error:
            self._close_log()
            raise ServerNotStarted(f"{self._name}: {error}") from error
        until = time.monotonic() + deadline
        try:
            while not ready():
                status = self._process.poll()
                if status is not None:
                    raise self._failure(f"ended with status {status}")
                if time.monotonic() > until:
                    raise self._failure(f"was not ready after {deadline:g} s")
                time.sleep(_POLL)
        except BaseException:
            self.kill()
            raise

    def found(self, pattern: str) -> str | None:
        """The first group of the first match of `pattern` in the log, if any."""
        match = re.search(pattern, self.log(), re.MULTILINE)
        return match and match.group(1)

    def stop(self, *, grace: float = 10.0) -> None:
        """Ask the server to end, and kill it if it does not; harmless when stopped.

        Args:
            grace: Seconds between SIGTERM and SIGKILL.
        """
        self._end(signal.SIGTERM, grace)

    def kill(self) -> None:
        """End the server at once (SIGKILL); harmless when it is stopped."""
        self._end(signal.SIGKILL, None)

    def _end(self, how: signal.Signals, grace: float | None) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
        with contextlib.suppress(ProcessLookupError):  # nobody is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self._close_log()

    def _close_log(self) -> None:
        self._kept = self.log()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _failure(self, what: str) -> ServerNotStarted:
        lines = self.log().splitlines()[-_LOG_LINES:]
        log = "\n".join(lines) if lines else "(it wrote nothing)"
        return ServerNotStarted(f"{self._name} {what}; its log ends with:\n{log}")


def answers(host: str, port: int, path: str) -> bool:
    """Whether a GET on `path` gives status 200; a refused connection is a no.

    Args:
        host: Where to ask.
        port: Where to ask.
        path: What to ask for, ``"/health"``.
    """
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
