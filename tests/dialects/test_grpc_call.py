"""Addresses of gRPC servers, however they are written."""

import pytest

from midstream._dialects.base import Generation
from midstream._dialects.grpc_call import address, rpc
from midstream._values.endpoint import Endpoint
from midstream._values.errors import UsageError
from midstream._values.request import Request


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("gpu1", "grpc://gpu1:7"),
        ("gpu1:8", "grpc://gpu1:8"),
        ("grpc://gpu1/path", "grpc://gpu1:7"),
        ("http://user:secret@gpu1", "grpc://gpu1:7"),
        ("https://gpu1", "grpcs://gpu1:7"),
        ("grpcs://[::1]:9", "grpcs://[::1]:9"),
        ("[::1]", "grpc://[::1]:7"),
    ],
)
def test_addresses(url, want):
    assert address(url, 7) == want


def test_a_call():
    endpoint = Endpoint("x", base_url="gpu1", api_key="secret", headers={"A": "b"})
    asked = Generation(endpoint=endpoint, request=Request.of(prompt="x"))
    call = rpc(asked, "/a.B/C", b"content", port=7)
    assert (call.url, call.method, call.content) == (
        "grpc://gpu1:7",
        "/a.B/C",
        b"content",
    )
    assert call.secrets == {"authorization": "Bearer secret", "a": "b"}


def test_no_host():
    endpoint = Endpoint("x")
    asked = Generation(endpoint=endpoint, request=Request.of(prompt="x"))
    with pytest.raises(UsageError, match="no host"):
        rpc(asked, "/a.B/C", b"", port=7)
