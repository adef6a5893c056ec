"""What servers say when they fail, in all the shapes they say it."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from midstream._dialects.faults import error_of, server_error
from midstream._values.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    NotFound,
    Overloaded,
    RateLimited,
    ServerError,
    ServerFailed,
)


def of(document, status=None, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return server_error(body, status=status, headers=names)


# -- documented bodies -----------------------------------------------------------------

OPENAI = "message", "m"
BODIES = [
    # OpenAI
    (401, {"type": "invalid_request_error", "code": "invalid_api_key"}, "auth", False),
    (404, {"type": "invalid_request_error", "code": "model_not_found"}, "none", False),
    (429, {"type": "requests", "code": "rate_limit_exceeded"}, "rate", True),
    (429, {"type": "insufficient_quota", "code": "insufficient_quota"}, "rate", False),
    (400, {"type": "invalid_request_error", "code": None, "param": "n"}, "bad", False),
    (400, {"code": "context_length_exceeded"}, "context", False),
    (500, {"type": "server_error", "code": None}, "failed", True),
    (503, {"type": "service_unavailable_error"}, "busy", True),
    # llama.cpp
    (400, {"code": 400, "type": "exceed_context_size_error"}, "context", False),
    (400, {"code": 400, "type": "invalid_request_error"}, "bad", False),
    (401, {"code": 401, "type": "authentication_error"}, "auth", False),
    (404, {"code": 404, "type": "not_found_error"}, "none", False),
    (503, {"code": 503, "type": "unavailable_error"}, "busy", True),
    (500, {"code": 500, "type": "server_error"}, "failed", True),
    # vLLM
    (400, {"type": "BadRequestError", "param": None, "code": 400}, "bad", False),
    (404, {"type": "NotFoundError", "code": 404}, "none", False),
    (500, {"type": "InternalServerError", "code": 500}, "failed", True),
    # Anthropic, in mid-stream too
    (529, {"type": "overloaded_error"}, "busy", True),
    (200, {"type": "overloaded_error"}, "busy", True),
    (None, {"type": "rate_limit_error"}, "rate", True),
    (None, {"type": "invalid_request_error"}, "bad", False),
    (None, {"type": "api_error"}, "failed", True),
    (403, {"type": "permission_error"}, "auth", False),
    (400, {"type": "billing_error"}, "auth", False),
    # Google
    (503, {"code": 503, "status": "UNAVAILABLE"}, "busy", True),
    (429, {"code": 429, "status": "RESOURCE_EXHAUSTED"}, "rate", True),
    (400, {"code": 400, "status": "INVALID_ARGUMENT"}, "bad", False),
    (403, {"code": 403, "status": "PERMISSION_DENIED"}, "auth", False),
    # an own code that is no HTTP status
    (429, {"code": "1113"}, "rate", True),
    (429, {"code": 1302}, "rate", True),
    (400, {"code": 1210, "type": "other"}, "bad", False),
    (None, {"code": 0}, "failed", True),
    (None, {"code": 504}, "failed", True),
    (None, {"code": "429"}, "rate", True),
    (None, {"http_status_code": 422}, "bad", False),
    (None, {"retryable": False, "type": "server_error"}, "failed", False),
    (400, {"retryable": True}, "bad", True),
]
CLASSES = {
    "auth": AuthenticationFailed,
    "bad": BadRequest,
    "busy": Overloaded,
    "context": ContextOverflow,
    "failed": ServerFailed,
    "none": NotFound,
    "rate": RateLimited,
}


@pytest.mark.parametrize(("status", "fault", "kind", "retryable"), BODIES)
@pytest.mark.parametrize("wrapped", ["object", "list", "bare"])
def test_the_class_follows_code_and_type_then_the_status(
    status, fault, kind, retryable, wrapped
):
    fault = {"message": "m", **fault}
    document = {"object": {"error": fault}, "list": [{"error": fault}]}
    error = of(document.get(wrapped, fault), status)
    assert type(error) is CLASSES[kind]
    assert error.retryable is retryable
    assert error.message == "m"
    if status is not None:
        assert error.status == status


@pytest.mark.parametrize(
    ("status", "cls", "retryable"),
    [
        (400, BadRequest, False),
        (401, AuthenticationFailed, False),
        (402, AuthenticationFailed, False),
        (403, AuthenticationFailed, False),
        (404, NotFound, False),
        (405, NotFound, False),
        (408, ServerFailed, True),
        (409, ServerFailed, True),
        (413, BadRequest, False),
        (418, BadRequest, False),
        (422, BadRequest, False),
        (424, ServerFailed, True),
        (429, RateLimited, True),
        (499, ServerFailed, True),
        (500, ServerFailed, True),
        (502, ServerFailed, True),
        (503, Overloaded, True),
        (504, ServerFailed, True),
        (529, Overloaded, True),
        (301, BadRequest, False),
    ],
)
def test_the_status_alone(status, cls, retryable):
    for body in b"", b"{}", b"<html>bad gateway</html>", b'{"error": "m"}':
        error = of(body, status)
        assert type(error) is cls
        assert error.retryable is retryable
        assert error.status == status


# -- shapes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message", "type_"),
    [
        (b'{"error": {"message": "m", "type": "t"}}', "m", "t"),
        (b'{"error": "m"}', "m", None),
        (b'{"error": "m", "error_type": "validation"}', "m", "validation"),
        (b'{"message": "m"}', "m", None),
        (b'{"detail": "m"}', "m", None),
        (b'{"detail": [{"loc": ["body"]}]}', "[{'loc': ['body']}]", None),
        (b'[{"error": {"message": "m"}}]', "m", None),
        (b'[[[{"error": "m"}]]]', "m", None),
        (b'data: {"error": "m"}\n\n', "m", None),
        (b'data:{"error":"m"}', "m", None),
        (b'event: error\ndata: {"error": {"message": "m"}}\n\n', "m", None),
        (b"m", "m", None),
        (b'"m"', "m", None),
        (b"\xff m", "\ufffd m", None),
        (b"", "the server answered 500", None),
        (b"null", "the server answered 500", None),
        (b"{}", "the server answered 500", None),
        (b"[]", "[]", None),
        (b'{"error": null}', "the server answered 500", None),
        (b'{"error": {"message": "\\ud83d"}}', "?", None),
    ],
)
def test_every_shape_gives_its_words(body, message, type_):
    error = of(body, 500)
    assert error.message == message
    assert error.type == type_
    assert error.status == 500


def test_without_a_status_and_words_there_is_still_a_message():
    assert error_of({}).message == "the server answered an error"
    assert error_of({"code": 503}).message == "the server answered 503"
    assert error_of(None).status is None


def test_a_long_message_is_cut():
    assert len(of(b"x" * 10_000, 500).message) == 4096


@pytest.mark.parametrize(
    "message",
    [
        "request (3031 tokens) exceeds the available context size (2048 tokens)",
        "This model's maximum context length is 4096 tokens",
        "prompt is too long: 9 tokens > 8 maximum",
        "`inputs` must be <= 4. Given: max_new_tokens must be <= 4, max_new_tokens 5",
        "too long for n_ctx",
        "Prompt length (3) exceeds the model's maximum context",
    ],
)
@pytest.mark.parametrize("fault", [{}, {"type": "BadRequestError"}])
def test_a_bad_request_about_the_context_is_an_overflow(message, fault):
    error = of({"error": {**fault, "message": message}}, 400)
    assert type(error) is ContextOverflow
    assert not error.retryable
    assert type(of({"error": {"message": message}}, 500)) is ServerFailed


# -- when to come back -----------------------------------------------------------------

NOW = "Wed, 21 Oct 2026 07:28:00 GMT"
LATER = "Wed, 21 Oct 2026 07:28:30 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "1"}, 1),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after_ms": "250"}, 0.25),
        ({"retry_after_ms": "250", "retry_after": "9"}, 0.25),
        ({"retry_after_ms": "soon", "retry_after": "9"}, 9),
        ({"retry_after_ms": "0", "retry_after": "9"}, 9),
        ({"retry_after": "0"}, None),
        ({"retry_after": "-3"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": LATER, "date": NOW}, 30),
        ({"retry_after": NOW, "date": LATER}, None),
        ({"retry_after": LATER}, None),
        ({"retry_after": LATER, "date": "now"}, None),
        ({"retry_after": "Wed, 21 Oct 2026 07:28:30 -0000", "date": NOW}, None),
        ({"retry_after": "Wed, 21 Oct 2026 07:28:30 +" + "9" * 20, "date": NOW}, None),
        ({}, None),
    ],
)
def test_how_long_the_server_asks_to_wait(headers, seconds):
    assert of({}, 429, **headers).retry_after == seconds


@pytest.mark.parametrize(
    ("status", "asked", "retryable"),
    [
        (503, "false", False),
        (400, "true", True),
        (400, "TRUE", True),
        (503, "maybe", True),
        (400, "maybe", False),
    ],
)
def test_the_server_may_say_whether_to_retry(status, asked, retryable):
    assert of({}, status, x_should_retry=asked).retryable is retryable


# -- anything --------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "message", "code", "type", "status", "detail", "retryable"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(values, st.none() | st.integers(100, 599))
@example({"error": {"code": "²"}}, 400)
@example({"error": {"code": 10**5000}}, 400)
@example({"error": {"code": "9" * 5000}}, 400)
@example({"error": {"type": "\ud83d", "message": "\udcff"}}, None)
def test_any_document_is_a_typed_error(document, status):
    error = error_of(document, status=status, headers={})
    assert isinstance(error, ServerError)
    assert str(error)
    error.message.encode()


@given(st.binary(max_size=60), st.integers(300, 599), st.text(max_size=12))
@example(b"[" * 900 + b"]" * 900, 500, "")
@example(b'{"error":' * 900 + b"1" + b"}" * 900, 500, "")
@example(b'{"error":{"message":' + b"[" * 900 + b"]" * 900 + b"}}", 500, "")
def test_any_body_and_header_is_a_typed_error(body, status, header):
    headers = {"retry-after": header, "retry-after-ms": header, "date": header}
    error = server_error(body, status=status, headers=headers)
    assert error.message
    assert error.status == status


@pytest.mark.parametrize("kind", ["image", "audio"])
def test_what_a_model_cannot_take_is_the_callers_mistake(kind):
    words = f"{kind} input is not supported - hint: you may need to provide the mmproj"
    error = of({"error": {"code": 500, "message": words, "type": "server_error"}}, 500)
    assert type(error) is BadRequest
    assert not error.retryable
