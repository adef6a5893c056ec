"""gRPC's words in ours: statuses, addresses, options."""

import pytest

from midstream._dialects.base import Call
from midstream._transports.grpc_status import failure, metadata, options, target
from midstream._values.errors import (
    AuthenticationFailed,
    BadRequest,
    ConnectFailed,
    ContextOverflow,
    Dropped,
    EventTooLarge,
    NotFound,
    RateLimited,
    ServerError,
    ServerFailed,
)

REFUSED = "failed to connect to all addresses; last error: … Connection refused"


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        ("UNAVAILABLE", REFUSED, ConnectFailed),
        ("UNAVAILABLE", "DNS resolution failed for nowhere", ConnectFailed),
        ("UNAVAILABLE", "Stream removed (Socket closed)", Dropped),
        ("UNAVAILABLE", "Too many pings", Dropped),
        ("CANCELLED", "", Dropped),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", Dropped),
        ("UNKNOWN", "Stream removed", Dropped),
        ("INTERNAL", "Received RST_STREAM with error code 2", Dropped),
        ("INTERNAL", "Error generating stream", ServerFailed),
        ("UNKNOWN", "Exception calling application: boom", ServerFailed),
        ("DATA_LOSS", "gone", ServerFailed),
        ("ABORTED", "try again", ServerFailed),
        ("INVALID_ARGUMENT", "no", BadRequest),
        ("INVALID_ARGUMENT", "exceeds the maximum context length", ContextOverflow),
        ("OUT_OF_RANGE", "no", BadRequest),
        ("UNIMPLEMENTED", "decoupled transaction policy", BadRequest),
        ("ALREADY_EXISTS", "no", BadRequest),
        ("FAILED_PRECONDITION", "no", BadRequest),
        ("NOT_FOUND", "no", NotFound),
        ("UNAUTHENTICATED", "no", AuthenticationFailed),
        ("PERMISSION_DENIED", "no", AuthenticationFailed),
        ("RESOURCE_EXHAUSTED", "slow down", RateLimited),
        (
            "RESOURCE_EXHAUSTED",
            "CLIENT: Received message larger than max (9 vs. 4)",
            EventTooLarge,
        ),
        (
            "RESOURCE_EXHAUSTED",
            "Received message larger than max (9 vs. 4)",
            EventTooLarge,
        ),
        (
            "RESOURCE_EXHAUSTED",
            "SERVER: Received message larger than max (9 vs. 4)",
            BadRequest,
        ),
    ],
)
def test_statuses(code, details, kind):
    error = failure(code, details, heard=False)
    assert type(error) is kind
    assert details in str(error)
    if isinstance(error, ServerError):
        assert error.type == code
        assert error.status is None
        assert error.retryable is isinstance(error, RateLimited | ServerFailed)


def test_no_connection_after_a_message_is_a_drop():
    assert type(failure("UNAVAILABLE", REFUSED, heard=True)) is Dropped


def test_a_broken_server_in_mid_stream_says_nothing_of_another_try():
    assert not failure("INTERNAL", "boom", heard=True).retryable


def test_what_the_server_asks_for():
    trailers = {"grpc-retry-pushback-ms": "1500", "key-bin": b"\0"}
    error = failure("RESOURCE_EXHAUSTED", "", heard=False, trailers=trailers)
    assert error.retry_after == 1.5
    trailers = {"x-should-retry": "true"}
    assert failure("INTERNAL", "", heard=True, trailers=trailers).retryable


def test_targets():
    assert target("grpc://host:1/path") == ("host:1", False)
    assert target("grpcs://user:secret@[::1]:1") == ("[::1]:1", True)


def test_metadata_of_a_call():
    call = Call(url="", headers={"X-A": "1"}, secrets={"authorization": "2"})
    assert metadata(call) == (("x-a", "1"), ("authorization", "2"))


def test_options_have_no_keepalive():
    chosen = dict(options(5, 100))
    assert chosen["grpc.max_receive_message_length"] == 100
    assert chosen["grpc.min_reconnect_backoff_ms"] == 6000  # ours is over first
    assert not [name for name in chosen if "keepalive" in name or "ping" in name]
    assert "grpc.min_reconnect_backoff_ms" not in dict(options(None, 100))
