"""The sockets below: what was sent before a reset arrives, whatever the client does."""

import socket
import threading
import time

import pytest

from midstream.testing._fake.marks import Watch
from midstream.testing._fake.wire import Closing, HungUp, Line


@pytest.fixture
def pair():
    """A line, its client, and the socket that tells it to stop."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname(), timeout=10) as client,
    ):
        sock, _ = listener.accept()
        stop, stopper = socket.socketpair()
        line = Line(sock, stop)
        with stop, stopper:
            yield line, client, stopper
        line.close()


def fill(line):
    """Send until the kernel takes no more."""
    line._sock.setblocking(False)
    sent = 0
    try:
        while True:
            sent += line._sock.send(bytes(65536))
    except BlockingIOError:
        line._sock.setblocking(True)
        return sent


def read_all(client):
    """How many bytes came, and how it ended."""
    got = 0
    try:
        while data := client.recv(65536):
            got += len(data)
    except ConnectionResetError:
        return got, "rst"
    return got, "fin"


def test_a_reset_waits_for_what_was_sent(pair):
    line, client, _ = pair
    sent = fill(line)
    thread = threading.Thread(target=line.reset)
    thread.start()
    assert read_all(client) == (sent, "rst")
    thread.join()
    assert not line.alive


def test_a_reset_gives_up_when_the_server_closes(pair):
    line, _, stopper = pair
    fill(line)
    stopper.send(b"!")
    begin = time.monotonic()
    line.reset()
    assert time.monotonic() - begin < 1


def test_a_reset_does_not_wait_for_ever(pair, monkeypatch):
    monkeypatch.setattr("midstream.testing._fake.wire._DRAIN", 0.01)
    line, _, _ = pair
    fill(line)
    line.reset()
    assert not line.alive


def test_what_ends_a_wait(pair):
    line, client, stopper = pair
    line.wait(0)
    line.wait(0.001)
    client.shutdown(socket.SHUT_WR)
    with pytest.raises(HungUp):
        line.wait(None)
    stopper.send(b"!")
    with pytest.raises(Closing):
        line.wait(None)
    with pytest.raises(Closing):
        line.read_request()


def test_sending_to_nobody(pair):
    line, client, _ = pair
    client.close()
    with pytest.raises(HungUp):
        line.send(bytes(1 << 26))
    line.close()
    line.abort()


@pytest.mark.parametrize("side", ["client", "server", "stop"])
def test_joined_until_one_side_ends(pair, side):
    line, client, stopper = pair
    near, far = socket.socketpair()
    thread = threading.Thread(target=line.join, args=(near, Watch()))
    thread.start()
    client.sendall(b"ping")
    assert far.recv(4) == b"ping"
    far.sendall(b"pong")
    assert client.recv(4) == b"pong"
    {"client": client.close, "server": far.close, "stop": lambda: stopper.send(b"!")}[
        side
    ]()
    thread.join(5)
    assert not thread.is_alive()
    near.close()
    far.close()
