"""What keeping a stream costs: CPU per token with an `SQLiteStore`, and without.

The server, a process of its own, sends one event every few milliseconds, as a model
does; the client reads it in a process that does nothing else. All CPU time of that
process counts, so that of the thread that looks after keyed streams as well. With and
without take turns in rounds, so that a noisy machine is noisy for both.

Run it: ``python tests/benchmarks/store_cost.py [tokens] [rounds] [milliseconds]``.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import midstream
from midstream import SQLiteStore

EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764000000,'
    b'"model":"m","choices":[{"index":0,"delta":{"content":" hello"},'
    b'"finish_reason":null}]}\n\n'
)
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
GOAL = 1.10


def serve(listener: socket.socket, tokens: int, pause: float) -> None:
    """Answer each connection with ``tokens`` events, ``pause`` seconds apart."""
    while True:
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with peer:
            while not peer.recv(65536).endswith(b"}"):
                pass
            peer.sendall(HEAD)
            for _ in range(tokens):
                time.sleep(pause)
                peer.sendall(CHUNK)
            peer.sendall(END)


def read(client: midstream.Client, key: str | None) -> float:
    """CPU seconds that one answer takes in this process, its threads included."""
    begin = time.process_time()
    with client.stream("Go.", key=key) as stream:
        for _ in stream:
            pass
    assert stream.complete
    return time.process_time() - begin


def main(tokens: int = 3000, rounds: int = 7, milliseconds: float = 2) -> None:
    """Print the table."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = os.fork()
    if server == 0:
        threading.excepthook = lambda _: None
        serve(listener, tokens, milliseconds / 1000)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    costs: dict[str, list[float]] = {"without": [], "SQLiteStore": []}
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "streams.db")
        with midstream.Client(f"openai:m@{url}", store=store) as client:
            read(client, None)
            for number in range(rounds):
                costs["without"].append(read(client, None))
                costs["SQLiteStore"].append(read(client, f"stream-{number}"))
        store.close()
    os.kill(server, 9)
    os.waitpid(server, 0)
    for name, each in costs.items():
        ratio = statistics.median(map(float.__truediv__, each, costs["without"]))
        cost = statistics.median(each) / tokens * 1e6
        print(f"{name:12} {cost:6.1f} us a token   {ratio:.2f}")  # noqa: T201 - the table
    print(f"goal: {GOAL:.2f} at most")  # noqa: T201 - as above


if __name__ == "__main__":
    main(*map(float if "." in "".join(sys.argv[1:]) else int, sys.argv[1:]))
