"""Calls of servers that speak gRPC: one address for any way to write it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream._dialects.asking import bearer
from midstream._dialects.base import Call
from midstream._values.errors import UsageError

if TYPE_CHECKING:
    from midstream._dialects.base import Generation


def rpc(generation: Generation, method: str, content: bytes, *, port: int) -> Call:
    """One RPC of the endpoint's server.

    Args:
        generation: Whose endpoint is asked.
        method: The full name of the RPC.
        content: The serialized message.
        port: Where such a server usually listens.

    Raises:
        UsageError: The endpoint's address has no host.
    """
    return Call(
        url=address(generation.endpoint.base_url or "", port),
        method=method,
        content=content,
        secrets=bearer(generation),
    )


def address(url: str, port: int) -> str:
    """``grpc://host:port`` or ``grpcs://host:port`` for any way to write it.

    Raises:
        UsageError: There is no host in it.
    """
    scheme, _, rest = url.rpartition("://")
    host = rest.partition("/")[0].rpartition("@")[2]
    if not host:
        raise UsageError(f"{url!r} has no host; write HOST:PORT, grpc:// or grpcs://")
    if ":" not in host.rpartition("]")[2]:
        host = f"{host}:{port}"
    return f"{'grpcs' if scheme in {'grpcs', 'https'} else 'grpc'}://{host}"
