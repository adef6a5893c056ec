"""Servers written by hand, and the six ways a call can go out.

A server here is a script that is run on a thread for each connection and says every
byte itself. A test is one coroutine, which each *way* runs: blocking (its awaits never
suspend, because the servers are threads), on asyncio, on trio; over our own client and
over the user's.
"""

from __future__ import annotations

import contextlib
import inspect
import queue
import socket
import ssl
import struct
import threading
import time
from math import inf

import anyio
import httpx
import pytest
import trustme

from midstream._dialects.base import Call
from midstream._transports import pool
from midstream._transports.http import AsyncHttpTransport, HttpTransport
from midstream._values.timeouts import Deadline

PATIENCE = 20.0
"""Seconds after which a test that should have ended has failed."""


class Peer:
    """One connection, as the server has it."""

    def __init__(self, sock, server):
        self.sock = sock
        self.server = server
        self._rest = b""

    def request(self):
        """Read one request: its head as text, its body as bytes."""
        while b"\r\n\r\n" not in self._rest:
            more = self.sock.recv(65536)
            if not more:
                raise ConnectionResetError
            self._rest += more
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        length = int(headers.get("content-length", 0))
        body = bytearray(self._rest[:length])
        self._rest = self._rest[length:]
        while len(body) < length:
            body += self.sock.recv(min(65536, length - len(body)))
        request = Request(lines[0], headers, body)
        self.server.requests.append(request)
        return request

    def send(self, data):
        self.sock.sendall(data)

    def head(self, *lines, status="200 OK", chunked=True):
        lines = [f"HTTP/1.1 {status}", *lines]
        if chunked:
            lines.append("Transfer-Encoding: chunked")
        self.send("\r\n".join([*lines, "", ""]).encode())

    def chunk(self, data):
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self):
        self.send(b"0\r\n\r\n")

    def reset(self):
        """End it with RST."""
        linger = struct.pack("ii", 1, 0)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.sock.close()

    def wait_gone(self):
        """Wait until the client has closed the connection."""
        self.sock.settimeout(PATIENCE)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while self.sock.recv(65536):
                pass
        self.server.gone.put(time.monotonic())


class Request:
    def __init__(self, line, headers, body):
        self.line = line
        self.headers = headers
        self.body = body


class Server:
    """Runs ``script(peer)`` for each connection."""

    def __init__(self, script, context=None):
        self.script = script
        self.context = context
        self.requests = []
        self.connections = 0
        self.gone = queue.Queue()
        self.failures = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._socks = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self):
        scheme = "http" if self.context is None else "https"
        host = "127.0.0.1" if self.context is None else "localhost"
        return f"{scheme}://{host}:{self.port}/v1/x"

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.connections += 1
                self._socks.append(sock)
                thread = threading.Thread(target=self._run, args=(sock,))
                self._threads.append(thread)
                thread.start()

    def _run(self, sock):
        with contextlib.suppress(OSError):
            try:
                if self.context is not None:
                    sock = self.context.wrap_socket(sock, server_side=True)
                    self._socks.append(sock)
                self.script(Peer(sock, self))
            except Exception as error:
                if not isinstance(error, OSError):
                    self.failures.append(error)
                raise
            finally:
                sock.close()

    def wait_gone(self):
        """Wait until a script has seen its client leave."""
        return self.gone.get(timeout=PATIENCE)

    async def left(self):
        """The same, while the event loop runs on."""
        try:
            anyio.get_current_task()
        except RuntimeError:
            return self.wait_gone()
        return await anyio.to_thread.run_sync(self.wait_gone)

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for sock in self._socks:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for sock in self._socks:
            sock.close()
        assert not self.failures


@pytest.fixture
def serve():
    """Start a server: ``serve(script)``, ``serve(script, context)``."""
    servers = []

    def start(script, context=None):
        servers.append(Server(script, context))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="session")
def authority():
    return trustme.CA()


@pytest.fixture(scope="session")
def server_context(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def trust(authority, tmp_path, monkeypatch):
    """Let clients that are made in this test trust the servers of it."""
    path = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(path))
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    pool.ssl_context.cache_clear()
    yield
    pool.ssl_context.cache_clear()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


class _Blocking:
    """A blocking thing whose methods can be awaited."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        found = getattr(self.inner, "close" if name == "aclose" else name)
        if not inspect.ismethod(found):
            return found

        async def call(*args):
            result = found(*args)
            return _Blocking(result) if name == "open" else result

        return found if name == "interrupt" else call


class Way:
    """One way of sending calls: a colour, and whose client."""

    def __init__(self, colour, owner):
        self.colour = colour
        self.owner = owner

    def __repr__(self):
        return f"{self.colour}-{self.owner}"

    @property
    def blocking(self):
        return self.colour == "thread"

    def __call__(self, talk, *, connect=PATIENCE, **options):
        """Run ``await talk(transport)``; options are those of the user's client."""
        options.setdefault("verify", pool.ssl_context())  # making one takes 30 ms
        if self.blocking:
            return self._block(talk, connect, options)
        return anyio.run(self._await, talk, connect, options, backend=self.colour)

    def _block(self, talk, connect, options):
        with contextlib.ExitStack() as stack:
            client = None
            if self.owner == "user":
                client = stack.enter_context(httpx.Client(**options))
            transport = HttpTransport(client, connect=connect)
            stack.callback(transport.close)
            with pytest.raises(StopIteration) as done:
                talk(_Blocking(transport)).send(None)
        return done.value.value

    async def _await(self, talk, connect, options):
        async with contextlib.AsyncExitStack() as stack:
            client = None
            if self.owner == "user":
                client = await stack.enter_async_context(httpx.AsyncClient(**options))
            transport = AsyncHttpTransport(client, connect=connect)
            stack.push_async_callback(transport.aclose)
            return await talk(transport)


WAYS = [
    Way(colour, owner)
    for colour in ("thread", "asyncio", "trio")
    for owner in ("ours", "user")
]


@pytest.fixture
def ways():
    return {(way.colour, way.owner): way for way in WAYS}


@pytest.fixture(params=WAYS, ids=repr)
def way(request):
    return request.param


@pytest.fixture(params=[way for way in WAYS if not way.blocking], ids=repr)
def async_way(request):
    return request.param


@pytest.fixture(params=[way for way in WAYS if way.blocking], ids=repr)
def blocking_way(request):
    return request.param


@pytest.fixture
def call():
    """Make a call: ``call(url, **fields)``."""

    def make(url, **fields):
        fields.setdefault("content", b"{}")
        return Call(url=url, **fields)

    return make


@pytest.fixture
def within():
    """Make a deadline: ``within(seconds, kind)``."""

    def make(seconds=PATIENCE, kind="first_token"):
        deadline = Deadline()
        deadline.at = time.monotonic() + seconds if seconds < inf else inf
        deadline.kind = kind
        deadline.seconds = seconds
        return deadline

    return make
