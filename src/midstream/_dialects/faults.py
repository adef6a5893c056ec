"""What servers say when they fail, in all the shapes they say it, to one error class.

The class follows the server's own code or type, then the HTTP status, since an error
may come with status 200 in mid-stream. Generic types (OpenAI calls a wrong key an
``invalid_request_error``) yield to a status that says more.
"""

from __future__ import annotations

import math
import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from midstream._dialects.documents import loads
from midstream._values.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    NotFound,
    Overloaded,
    RateLimited,
    ServerError,
    ServerFailed,
    WireError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_TYPES: dict[str, type[ServerError]] = {
    # OpenAI and its kin
    "invalid_api_key": AuthenticationFailed,
    "authentication_error": AuthenticationFailed,
    "permission_error": AuthenticationFailed,
    "permission_denied_error": AuthenticationFailed,
    "model_not_found": NotFound,
    "not_found_error": NotFound,
    "notfounderror": NotFound,
    "rate_limit_exceeded": RateLimited,
    "rate_limit_error": RateLimited,
    "insufficient_quota": RateLimited,
    "requests": RateLimited,
    "tokens": RateLimited,
    "context_length_exceeded": ContextOverflow,
    "string_above_max_length": ContextOverflow,
    "engine_overloaded": Overloaded,
    "service_unavailable_error": Overloaded,
    "service_unavailable": Overloaded,
    "internalservererror": ServerFailed,
    "internal_error": ServerFailed,
    "internal_server_error": ServerFailed,
    "badrequesterror": BadRequest,
    "bad_request": BadRequest,
    "bio_policy": BadRequest,
    "data_residency_mismatch": BadRequest,
    "invalid_prompt": BadRequest,
    "misalignment_policy_violation": BadRequest,
    "not_implemented": BadRequest,
    "empty_image_file": BadRequest,
    "failed_to_download_image": BadRequest,
    "image_content_policy_violation": BadRequest,
    "image_file_not_found": BadRequest,
    "image_file_too_large": BadRequest,
    "image_parse_error": BadRequest,
    "image_too_large": BadRequest,
    "image_too_small": BadRequest,
    "invalid_base64_image": BadRequest,
    "invalid_image": BadRequest,
    "invalid_image_format": BadRequest,
    "invalid_image_mode": BadRequest,
    "invalid_image_url": BadRequest,
    "unsupported_image_media_type": BadRequest,
    # Anthropic
    "billing_error": AuthenticationFailed,
    "overloaded_error": Overloaded,
    "timeout_error": ServerFailed,
    "request_too_large": BadRequest,
    # Google
    "unauthenticated": AuthenticationFailed,
    "permission_denied": AuthenticationFailed,
    "not_found": NotFound,
    "resource_exhausted": RateLimited,
    "unavailable": Overloaded,
    "deadline_exceeded": ServerFailed,
    "internal": ServerFailed,
    "invalid_argument": BadRequest,
    "failed_precondition": BadRequest,
    # llama.cpp
    "exceed_context_size_error": ContextOverflow,
    "unavailable_error": Overloaded,
    # LM Studio
    "job_not_found": NotFound,
    # TGI
    "overloaded": Overloaded,
    "validation": BadRequest,
    "template_error": BadRequest,
    "tool_error": BadRequest,
    "generation": ServerFailed,
    "incomplete_generation": ServerFailed,
    "incomplete_generation_stream": ServerFailed,
}
_GENERIC: dict[str, type[ServerError]] = {
    "invalid_request_error": BadRequest,
    "invalid_request": BadRequest,
    "api_error": ServerFailed,
    "server_error": ServerFailed,
    "error": ServerFailed,
}
_STATUS: dict[int, type[ServerError]] = {
    401: AuthenticationFailed,
    402: AuthenticationFailed,
    403: AuthenticationFailed,
    404: NotFound,
    405: NotFound,
    408: ServerFailed,
    409: ServerFailed,
    424: ServerFailed,
    429: RateLimited,
    499: ServerFailed,
    503: Overloaded,
    529: Overloaded,
}
_RETRYABLE = (RateLimited, Overloaded, ServerFailed)
_OVERFLOW = re.compile(
    r"context (size|length|window)|maximum context|prompt is too long|n_ctx"
    r"|exceeds the model'?s? (maximum|context)|max_new_tokens\W+must be <="
    r"|must have less than \d+ tokens|longer than the maximum model length",
    re.IGNORECASE,
)
_UNABLE = re.compile(
    r"(image|audio|video) input is not supported",  # llama.cpp says it with status 500
    re.IGNORECASE,
)
_STATUS_CODE = re.compile(r"[45][0-9]{2}", re.ASCII)
_WHOLE = 4096  # characters of a message that are worth keeping


def server_error(
    content: bytes, *, status: int | None, headers: Mapping[str, str] | None = None
) -> ServerError:
    """The typed error for the body of an answer that is not a stream.

    Args:
        content: The body: JSON in any of the known shapes, SSE around it, or text.
        status: The HTTP status.
        headers: The headers, names in lower case.
    """
    body = content.strip()
    for prefix in b"event: error\n", b"data:":
        body = body.removeprefix(prefix).strip()
    try:
        payload = loads(body)
    except WireError:
        payload = body.decode("utf-8", "replace")
    return error_of(payload, status=status, headers=headers)


def error_of(
    payload: Any,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> ServerError:
    """The typed error for a parsed error document.

    Args:
        payload: ``{"error": …}`` with an object or a string inside, a list around it,
            the inner object alone, or a plain string.
        status: The HTTP status, None in mid-stream.
        headers: The headers, names in lower case.
    """
    fault = _innermost(payload)
    words = [
        str(fault[key])
        for key in ("code", "type", "error_type", "status")
        if isinstance(fault.get(key), str)
    ]
    numbers = map(fault.get, ("http_status_code", "code", "status", "status_code"))
    number = next(filter(None, map(_http_status, numbers)), None)
    message = _message(fault).encode("utf-8", "replace").decode()
    message = message or f"the server answered {status or number or 'an error'}"
    cls = _class(words, status if number is None else number, message)
    if status is not None and cls is ServerFailed and not words:
        cls = _by_status(status)
    retryable = issubclass(cls, _RETRYABLE) and "insufficient_quota" not in words
    if isinstance(fault.get("retryable"), bool):
        retryable = fault["retryable"]
    retry_after = None
    if headers is not None:
        retry_after = _retry_after(headers)
        asked = headers.get("x-should-retry", "").lower()
        retryable = {"true": True, "false": False}.get(asked, retryable)
    return cls(
        message[:_WHOLE],
        status=status if status is not None else number,
        type=words[-1] if words else None,
        retry_after=retry_after,
        retryable=retryable,
    )


def _http_status(value: Any) -> int | None:
    """A status of failure, where an API's own code may be as well."""
    if isinstance(value, str) and _STATUS_CODE.fullmatch(value):
        value = int(value)
    return value if isinstance(value, int) and 400 <= value < 600 else None  # noqa: PLR2004 - HTTP


def _innermost(payload: Any) -> dict[str, Any]:
    while isinstance(payload, list) and payload:
        payload = payload[0]
    if not isinstance(payload, dict):
        return {"message": "" if payload is None else str(payload)}
    inner = payload.get("error")
    if isinstance(inner, dict):
        return inner
    if isinstance(inner, str):
        return {**payload, "message": inner}
    return payload


def _message(fault: dict[str, Any]) -> str:
    for key in "message", "detail", "error":
        if fault.get(key):
            return str(fault[key])
    return ""


def _class(words: list[str], status: int | None, message: str) -> type[ServerError]:
    for word in words:
        known = _TYPES.get(word.lower().replace(" ", "_"))
        if known is not None:
            overflow = known is BadRequest and _OVERFLOW.search(message)
            return ContextOverflow if overflow else known
    generic = next((_GENERIC[w] for w in words if w in _GENERIC), None)
    by_status = None if status is None or status < 400 else _by_status(status)  # noqa: PLR2004 - HTTP
    if by_status is None or (by_status is BadRequest and generic is not None):
        by_status = generic or ServerFailed
    if by_status is BadRequest and _OVERFLOW.search(message):
        return ContextOverflow
    if by_status is ServerFailed and _UNABLE.search(message):
        return BadRequest
    return by_status


def _by_status(status: int) -> type[ServerError]:
    known = _STATUS.get(status)
    if known is not None:
        return known
    return BadRequest if status < 500 else ServerFailed  # noqa: PLR2004 - HTTP


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, as the headers ask: milliseconds, seconds, or a date."""
    for name, scale in ("retry-after-ms", 0.001), ("retry-after", 1.0):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * scale
        except ValueError:
            seconds = _until(value, headers.get("date"))
        if seconds > 0 and math.isfinite(seconds):
            return seconds
    return None


def _until(when: str, date: str | None) -> float:
    """Seconds from the server's own clock to the date it named; 0 for nonsense."""
    try:
        wait = parsedate_to_datetime(when) - parsedate_to_datetime(date or "")
    except (OverflowError, TypeError, ValueError):
        return 0
    return wait.total_seconds()
