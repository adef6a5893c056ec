"""Leaving one stream of an HTTP/2 connection that others may share.

httpcore forgets a stream that is closed early and tells the server nothing, so that the
generation would go on. Its documented response extensions are enough to say it: the id
of the stream, and the network stream to write one whole frame to.
"""

from __future__ import annotations

_RST_STREAM = 3  # RFC 9113 §6.4
_CANCEL = 8  # §7


def reset_frame(stream_id: int) -> bytes:
    """RST_STREAM with the code CANCEL."""
    length = (4).to_bytes(3, "big")
    head = length + bytes((_RST_STREAM, 0)) + stream_id.to_bytes(4, "big")
    return head + _CANCEL.to_bytes(4, "big")
