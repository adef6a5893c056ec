"""Whether the end of a body is one, or may be a cut.

Chunks have a last one, a length is reached or not, HTTP/2 says that a stream ends. A
body with none of these ends with its connection, as it does where the server died: that
is no end for a stream, though a document may be read so. A compressed body ends with a
trailer, whatever brought it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream._values.errors import Dropped

if TYPE_CHECKING:
    import httpx

    from midstream._transports.inflate import Inflater


class Undelimited(Dropped):
    """The connection ended, and nothing says whether the body had."""


def cut_short(response: httpx.Response, inflater: Inflater | None) -> Dropped | None:
    """Why the end that came may be none; None: it is the server's.

    Args:
        response: The answer, read to its end.
        inflater: What undid its Content-Encoding.
    """
    if inflater is not None and not inflater.whole:
        return Dropped("the compressed body ended before its trailer")
    if response.is_success and not _delimited(response):
        return Undelimited("the connection ended, and with it a body without a length")
    return None


def _delimited(response: httpx.Response) -> bool:
    # What comes from no network has no version: its end is the application's.
    version = response.extensions.get("http_version", b"")
    headers = response.headers
    return (
        not version.startswith(b"HTTP/1")
        or "content-length" in headers
        or "transfer-encoding" in headers
    )
