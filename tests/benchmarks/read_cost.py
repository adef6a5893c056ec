"""What one network read costs the client: CPU per small SSE event on loopback.

The server, a process of its own, writes one event, waits until the client has said over
a pipe that it has it, and writes the next: no two events ever share a read. The
variants take turns in rounds, so that a noisy machine is noisy for all of them.

Run it: ``python tests/benchmarks/read_cost.py [events] [rounds]``.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import sys
import threading
import time

import httpx

from midstream._dialects.base import Call
from midstream._transports.http import AsyncHttpTransport, HttpTransport
from midstream._values.timeouts import Deadline

EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764000000,'
    b'"model":"m","choices":[{"index":0,"delta":{"content":" hello"},'
    b'"finish_reason":null}]}\n\n'
)
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def serve(listener: socket.socket, acks: int, events: int) -> None:
    """Answer each connection with ``events`` events, one per acknowledgement."""
    while True:
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with peer:
            while not peer.recv(65536).endswith(b"{}"):
                pass
            peer.sendall(HEAD)
            for _ in range(events):
                peer.sendall(CHUNK)
                os.read(acks, 1)
            peer.sendall(b"0\r\n\r\n")


class Bench:
    """The variants; each returns CPU seconds for all events."""

    def __init__(self, url: str, acks: int) -> None:
        self.url = url
        self.acks = acks
        self.call = Call(url=url, content=b"{}")

    def ack(self) -> None:
        os.write(self.acks, b".")

    def httpx_sync(self) -> float:
        with (
            httpx.Client() as client,
            client.stream("POST", self.url, content=b"{}") as response,
        ):
            begin = time.thread_time()
            for _ in response.iter_raw():
                self.ack()
            return time.thread_time() - begin

    def midstream_sync(self) -> float:
        transport = HttpTransport(connect=10)
        deadline = self.deadline()
        body = transport.open(self.call, deadline)
        begin = time.thread_time()
        while body.read() is not None:
            deadline.at = time.monotonic() + 30
            self.ack()
        cost = time.thread_time() - begin
        transport.close()
        return cost

    def stock_sync(self) -> float:
        with httpx.Client() as client:
            transport = HttpTransport(client, connect=10)
            deadline = self.deadline()
            body = transport.open(self.call, deadline)
            begin = time.thread_time()
            while body.read() is not None:
                deadline.at = time.monotonic() + 30
                self.ack()
            cost = time.thread_time() - begin
            transport.close()
            return cost

    async def httpx_async(self) -> float:
        async with (
            httpx.AsyncClient() as client,
            client.stream("POST", self.url, content=b"{}") as response,
        ):
            begin = time.thread_time()
            async for _ in response.aiter_raw():
                self.ack()
            return time.thread_time() - begin

    async def midstream_async(self) -> float:
        transport = AsyncHttpTransport(connect=10)
        cost = await self.drain(transport)
        await transport.aclose()
        return cost

    async def stock_async(self) -> float:
        async with httpx.AsyncClient() as client:
            transport = AsyncHttpTransport(client, connect=10)
            cost = await self.drain(transport)
            await transport.aclose()
            return cost

    async def drain(self, transport: AsyncHttpTransport) -> float:
        deadline = self.deadline()
        body = await transport.open(self.call, deadline)
        begin = time.thread_time()
        while await body.read() is not None:
            deadline.at = time.monotonic() + 30
            self.ack()
        return time.thread_time() - begin

    @staticmethod
    def deadline() -> Deadline:
        deadline = Deadline()
        deadline.at = time.monotonic() + 120
        return deadline


def main(events: int = 5000, rounds: int = 7) -> None:
    """Print the table."""
    listener = socket.create_server(("127.0.0.1", 0))
    reading, writing = os.pipe()
    server = os.fork()
    if server == 0:
        threading.excepthook = lambda _: None
        serve(listener, reading, events)
    bench = Bench(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", writing)
    variants = {
        "httpx.Client iter_raw": bench.httpx_sync,
        "midstream HttpTransport": bench.midstream_sync,
        "  over a user's Client": bench.stock_sync,
        "httpx.AsyncClient aiter_raw": lambda: asyncio.run(bench.httpx_async()),
        "midstream AsyncHttpTransport": lambda: asyncio.run(bench.midstream_async()),
        "  over a user's AsyncClient": lambda: asyncio.run(bench.stock_async()),
    }
    costs: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            costs[name].append(run() / events * 1e6)
    os.kill(server, 9)
    os.waitpid(server, 0)
    for name, each in costs.items():
        base = costs["httpx.Client iter_raw" if "A" not in name else BARE_ASYNC]
        ratio = statistics.median(map(float.__truediv__, each, base))
        row = f"{name:32} {statistics.median(each):6.1f} us a read   {ratio:.2f}"
        print(row)  # noqa: T201 - the table is what it is for


BARE_ASYNC = "httpx.AsyncClient aiter_raw"

if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
