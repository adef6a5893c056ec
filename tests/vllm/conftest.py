"""A real vLLM on the CPU, with the model of models/ja; one at a time.

It takes a minute or two to start, so each kind is started once, when the first test
asks for it. What is missing fails the tests that want it, with the command that brings
it; nothing is skipped. See install.py.
"""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import httpx
import pytest

from midstream.testing._process import ChildServer, ServerNotStarted, answers

HERE = Path(__file__).resolve().parent
VLLM = HERE.parent.parent / ".cache" / "vllm"
MODEL = HERE / "models" / "ja"
STARTS_WITHIN = 600.0  # seconds; a quiet machine needs one minute
GRACE = 30.0  # seconds that it may take to leave
CONTEXT = 1024  # tokens of prompt and answer
MARK = "vLLM gRPC server started on"


def pytest_collection_modifyitems(items):
    """Everything in this folder talks to a real server."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("live")


class VllmServer:
    """The real `vllm serve`, over HTTP or gRPC, on a free loopback port.

    Args:
        grpc: Whether it speaks gRPC, and then nothing else.
        options: Further options of the command line.
    """

    def __init__(self, *, grpc=False, options=()):
        self._child = ChildServer("vLLM")
        self._grpc = grpc
        self._options = list(options)
        self.port = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self):
        """``host:port``, as gRPC channels and endpoint strings want it."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self):
        return self._child.pid

    def log(self):
        return self._child.log()

    def start(self):
        program = VLLM / "bin" / "vllm"
        if not (VLLM / "stamp").exists():
            raise ServerNotStarted(
                f"there is no vLLM in {VLLM}: python tests/vllm/install.py brings it"
            )
        if self.port == 0:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
        self._child.start(
            [
                # Should these tests be killed, nobody else would end it.
                *("setpriv", "--pdeathsig", "TERM"),
                *(str(program), "serve", str(MODEL)),
                *("--host", "127.0.0.1", "--port", str(self.port)),
                *("--served-model-name", "ja", "--max-model-len", str(CONTEXT)),
                # Whole precision and no compiled graph: what is greedy is the same
                # in every batch.
                *("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "8"),
                *(["--grpc"] * self._grpc),
                *self._options,
            ],
            ready=self._ready,
            deadline=STARTS_WITHIN,
            environment=os.environ
            | {
                "HF_HUB_OFFLINE": "1",
                "TRANSFORMERS_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "DO_NOT_TRACK": "1",
                "VLLM_CPU_KVCACHE_SPACE": "1",
            },
        )

    def stop(self):
        """Ask it to leave; answers under way are aborted, as it says to clients."""
        self._child.stop(grace=GRACE)

    def metric(self, name):
        """The sum of a Prometheus metric over its labels."""
        text = httpx.get(f"{self.url}/metrics").text
        found = re.findall(
            rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE
        )
        assert found, f"vLLM has no metric {name}"
        return sum(map(float, found))

    def detokenize(self, ids):
        body = {"model": "ja", "tokens": list(ids)}
        return httpx.post(f"{self.url}/detokenize", json=body).json()["prompt"]

    def stream(self, route, body):
        """The events of a streamed answer as they are: data lines, parsed."""
        with httpx.stream("POST", self.url + route, json=body, timeout=60) as answer:
            lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]

    def _ready(self):
        if self._grpc:
            return MARK in self.log()
        return answers("127.0.0.1", self.port, "/health")


@pytest.fixture(scope="session")
def _one():
    """The server that runs; another kind takes its place, two would not fit."""
    running = []
    yield running
    for server in running:
        server.stop()


def _served(running, **kind):
    name = repr(sorted(kind.items()))
    for server in running:
        if server.kind == name:
            return server
        server.stop()
    running.clear()
    server = VllmServer(**kind)
    server.kind = name
    server.start()
    running.append(server)
    return server


@pytest.fixture
def vllm(_one):
    """vLLM over HTTP; shared by all tests that ask for it."""
    return _served(_one)


@pytest.fixture
def vllm_grpc(_one):
    """vLLM over gRPC."""
    return _served(_one, grpc=True)


@pytest.fixture
def vllm_that_leaves(_one):
    """vLLM over HTTP; the test may stop it, the next one gets another."""
    server = _served(_one)
    yield server
    _one.clear()
    server.stop()
