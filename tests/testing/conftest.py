"""A client that shows every byte: plain sockets, no HTTP library in between."""

import json
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from midstream._dialects import find
from midstream._values.events import TextDelta

ROUTES = {
    "openai": "/v1/chat/completions",
    "llama.cpp": "/v1/chat/completions",
    "llama.cpp-completion": "/completion",
    "ollama": "/api/chat",
}


@dataclass
class Heard:
    """What came back on a connection.

    Attributes:
        wire: Everything.
        end: "fin", "rst", or None while it is open.
    """

    wire: bytes
    end: str | None

    @property
    def head(self):
        return self.wire.partition(b"\r\n\r\n")[0].decode()

    @property
    def status(self):
        return int(self.head.split()[1])

    @property
    def payload(self):
        return self.wire.partition(b"\r\n\r\n")[2]

    @property
    def chunks(self):
        """The whole chunks of the body; the last one is empty if it ended properly."""
        rest, found = self.payload, []
        while True:
            size, mark, rest = rest.partition(b"\r\n")
            if not mark or len(rest) < int(size, 16) + 2:
                return found
            found.append(rest[: int(size, 16)])
            rest = rest[int(size, 16) + 2 :]

    @property
    def body(self):
        return b"".join(self.chunks)

    @property
    def json(self):
        return json.loads(self.payload)


class Talk:
    """Asks a fake server over plain sockets."""

    def __init__(self, server):
        self.server = server

    def connect(self, dialect="openai"):
        url = urlsplit(self.server.url(dialect))
        return socket.create_connection((url.hostname, url.port), timeout=10)

    def request(self, dialect, method, path, body=b"", headers=(), version="1.1"):
        prefix = urlsplit(self.server.url(dialect)).path
        lines = [f"{method} {prefix}{path} HTTP/{version}", "Host: fake", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body

    def send(self, dialect, method, path, body=b"", headers=(), *, until=None, **more):
        """One request on a connection of its own, and all that comes back."""
        closing = ["Connection: close", *headers]
        with self.connect(dialect) as sock:
            sock.sendall(self.request(dialect, method, path, body, closing, **more))
            return hear(sock, until)

    def get(self, dialect, path, **more):
        return self.send(dialect, "GET", path, **more)

    def post(self, dialect, path, document, **more):
        return self.send(dialect, "POST", path, json.dumps(document).encode(), **more)

    def ask(self, dialect, *, prefix=None, reasoning=None, body=None, **more):
        """Ask for a stream, perhaps in continuation of a prefix."""
        document = question(dialect, prefix, reasoning) | (body or {})
        return self.post(dialect, ROUTES[dialect], document, **more)

    def text(self, dialect, **more):
        """The text of a stream."""
        return text_of(dialect, self.ask(dialect, **more).body)


def hear(sock, until=None):
    """Read to the end, or until some bytes have come."""
    wire = b""
    try:
        while data := sock.recv(65536):
            wire += data
            if until is not None and until in wire:
                return Heard(wire, None)
    except ConnectionResetError:
        return Heard(wire, "rst")
    return Heard(wire, "fin")


def question(dialect, prefix=None, reasoning=None):
    if dialect == "llama.cpp-completion":
        return {"prompt": "Hi" + (prefix or ""), "stream": True}
    messages = [{"role": "user", "content": "Hi"}]
    if prefix is not None:
        thought = "thinking" if dialect == "ollama" else "reasoning_content"
        more = {thought: reasoning} if reasoning else {}
        messages.append({"role": "assistant", "content": prefix, **more})
    return {"model": "m", "messages": messages, "stream": True}


def events_of(dialect, body):
    """All events of a body, with the dialect's own framer and reader."""
    kind = find(dialect)
    framer, reader = kind.framer(), kind.reader()
    found = [*framer.decode(body), *framer.flush()]
    return [event for data, name in found for event in reader.read(data, name)]


def text_of(dialect, body):
    events = events_of(dialect, body)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.fixture
def talk():
    """Makes a Talk of a server."""
    return Talk


@pytest.fixture
def events():
    """Reads the events of a body."""
    return events_of


@pytest.fixture
def text():
    """Reads the text of a body."""
    return text_of


@pytest.fixture
def hearing():
    """Reads a socket."""
    return hear


@pytest.fixture
def asking():
    """The document that asks for a stream."""
    return question
