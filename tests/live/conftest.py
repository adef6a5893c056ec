"""Real servers, each started once, when the first test asks for it.

A server that cannot start fails the tests that wanted it, with its log or with the
command that installs it; nothing is skipped. All of them listen on free loopback ports.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import socket
from pathlib import Path

import anyio
import pytest

import midstream
from midstream.testing._process import ChildServer, ServerNotStarted, answers
from midstream.testing.llama import LlamaServer

HERE = Path(__file__).resolve().parent
TRITON = HERE.parent.parent / ".cache" / "triton"
BIND_ATTEMPTS = 3
STARTS_WITHIN = 120.0  # seconds


class TritonServer:
    """The real tritonserver with the fake model of triton_models/.

    Args:
        folder: Where the server's files for this run go.
    """

    def __init__(self, folder):
        self._child = ChildServer("tritonserver")
        self._folder = folder
        self._notes = folder / "requests.jsonl"
        self._ports = (0, 0)
        self._starts = 0

    @property
    def http_url(self):
        return f"http://127.0.0.1:{self._ports[0]}"

    @property
    def grpc_url(self):
        return f"127.0.0.1:{self._ports[1]}"

    @property
    def pid(self):
        return self._child.pid

    @property
    def running(self):
        return self._child.running

    def log(self):
        return self._child.log()

    def requests(self):
        """What the model noted of each request that is over.

        A list of dicts: id, prompt_bytes, started, ended, end (stop, length, final,
        cancelled, error) and times, when each token was sent (seconds, time.time()).
        """
        if not self._notes.exists():
            return []
        return [json.loads(line) for line in self._notes.read_text().splitlines()]

    def start(self):
        """Start on free ports, or on the same ones as before."""
        if self._ports != (0, 0):
            self._start()
            return
        for attempt in range(BIND_ATTEMPTS):
            self._ports = free_ports(2)
            try:
                self._start()
            except ServerNotStarted:
                # Another process may have taken a port in the meantime.
                taken = "Address already in use" in self.log()
                if not taken or attempt + 1 == BIND_ATTEMPTS:
                    raise
            else:
                return

    def stop(self):
        """End it; requests that are still running are cut."""
        self._child.stop()
        self._sweep()

    def kill(self):
        """End it and its model's process at once (SIGKILL)."""
        self._child.kill()
        self._sweep()

    def restart(self):
        """Start it again on the same ports."""
        self.kill()
        self.start()

    def _start(self):
        server = TRITON / "pytriton/tritonserver"
        program = server / "bin/tritonserver"
        if not program.exists():
            raise ServerNotStarted(
                f"there is no {program}: python tests/live/fetch_triton.py brings it"
            )
        http, grpc = self._ports
        self._starts += 1
        self._child.start(
            [
                # Should these tests be killed, nobody else would end it.
                *("setpriv", "--pdeathsig", "TERM"),
                str(program),
                f"--model-repository={HERE / 'triton_models'}",
                f"--backend-directory={server / 'backends'}",
                f"--backend-config=python,shm-region-prefix-name={self._region}",
                "--http-address=127.0.0.1",
                f"--http-port={http}",
                "--grpc-address=127.0.0.1",
                f"--grpc-port={grpc}",
                "--allow-metrics=false",
                "--exit-timeout-secs=1",
            ],
            ready=lambda: answers("127.0.0.1", http, "/v2/health/ready"),
            deadline=STARTS_WITHIN,
            environment={
                "FAKE_LLM_LOG": str(self._notes),
                "LD_LIBRARY_PATH": str(TRITON / "nvidia_pytriton.libs"),
                # The model's process embeds the system's Python 3.11, which looks for
                # its library along PATH, where another Python may come first.
                "PATH": "/usr/bin:/bin",
                "HOME": str(self._folder),
            },
        )

    @property
    def _region(self):
        """New for each start: a crashed server's locks stay locked."""
        return f"midstream_{os.getpid()}_{self._folder.name}_{self._starts}_"

    def _sweep(self):
        """Remove the shared memory that a killed server leaves behind."""
        for region in Path("/dev/shm").glob(f"{self._region}*"):
            region.unlink(missing_ok=True)


def free_ports(count):
    """Ports that were free a moment ago; all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return tuple(sock.getsockname()[1] for sock in sockets)
    finally:
        for sock in sockets:
            sock.close()


@pytest.fixture(scope="session")
def llama():
    """The real llama.cpp with SmolLM2, two slots; shared by all tests."""
    with LlamaServer("smollm2") as server:
        yield server


@pytest.fixture(scope="session")
def llama_url(llama):
    return llama.url


@pytest.fixture(scope="session")
def gemma():
    """The real llama.cpp with Gemma 3: many languages, a sliding window.

    One slot, for its results depend on how what came before was batched: a prefix
    continued in another slot is evaluated anew and may round to another token.
    """
    with LlamaServer("gemma3", slots=1, swa_full=True) as server:
        yield server


@pytest.fixture(scope="session")
def gemma_url(gemma):
    return gemma.url


@pytest.fixture(scope="session")
def triton(tmp_path_factory):
    """The real tritonserver; shared by all tests."""
    server = TritonServer(tmp_path_factory.mktemp("triton"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def triton_http_url(triton):
    return triton.http_url


@pytest.fixture(scope="session")
def triton_grpc_url(triton):
    """``host:port``, as gRPC channels and endpoint strings want it."""
    return triton.grpc_url


@pytest.fixture(scope="session")
def ends_of_events():
    """Tells where each event of an answer's body ends, as it is on the wire."""

    def told(url, route, body):
        host, port = url.removeprefix("http://").split(":")
        content = json.dumps({**body, "stream": True})
        request = (
            f"POST {route} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
            f"\r\n{content}"
        )
        with socket.create_connection((host, int(port)), timeout=60) as line:
            line.sendall(request.encode())
            answered = b"".join(iter(lambda: line.recv(65536), b""))
        wire = answered.partition(b"\r\n\r\n")[2]
        return [found.end() for found in re.finditer(rb"\n\n", wire)]

    return told


@pytest.fixture(scope="session")
def fake_llm():
    """The module of Triton's model, for what it will say."""
    path = HERE / "triton_models/llm/1/fake_llm.py"
    spec = importlib.util.spec_from_file_location("fake_llm", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read(endpoint, prompt, client, asked):
    with midstream.Client(endpoint, **client) as opened:
        with opened.stream(prompt, **asked) as stream:
            stream.read()
        return stream


async def _aread(endpoint, prompt, client, asked):
    async with midstream.AsyncClient(endpoint, **client) as opened:
        async with opened.stream(prompt, **asked) as stream:
            await stream.read()
        return stream


@pytest.fixture(params=["sync", "asyncio", "trio"])
def read(request):
    """Reads a whole answer in one of three colours; gives the stream."""

    def run(endpoint, prompt, *, client, **asked):
        given = endpoint, prompt, client, asked
        if request.param == "sync":
            return _read(*given)
        return anyio.run(functools.partial(_aread, *given), backend=request.param)

    return run
