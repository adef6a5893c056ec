"""The fixture makes servers and closes them when the test ends."""

import socket

import pytest

from midstream.testing import FakeServer, pytest_plugin

midstream_server = pytest_plugin.midstream_server


@pytest.fixture
def ports():
    """Afterwards nobody listens any more."""
    found = []
    yield found
    for port in found:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_servers_of_all_kinds(ports, midstream_server, talk):
    first, second = midstream_server("abc"), midstream_server(text="xyz", seed=3)
    assert isinstance(first, FakeServer)
    ports += [first.port, second.port]
    assert talk(first).text("openai") == "abc"
    assert talk(second).text("ollama") == "xyz"
