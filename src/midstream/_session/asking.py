"""How a server is asked to go on: a flow of calls that gives a continuation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from midstream._dialects.base import Continuation, Generation, Received

if TYPE_CHECKING:
    from midstream._dialects.base import Flow
    from midstream._resume.policy import Resume
    from midstream._resume.server import Server
    from midstream._values.request import Request

_REPEATS = 3  # characters that a model must repeat to be taken for repeating itself


def generation(
    server: Server, request: Request, resume: Resume | None, handle: str
) -> Generation:
    """What a dialect is asked to produce.

    Args:
        server: Whom.
        request: What the caller asked.
        resume: The caller's policy.
        handle: An unguessable name for it.
    """
    return Generation(
        endpoint=server.endpoint,
        request=request,
        strategies=server.ways(resume) if resume else (),
        handle=handle,
        memory=server.memory,
    )


def continuation(
    way: str, server: Server, wanted: Generation, received: Received
) -> Flow[Continuation]:
    """A new generation that goes on behind what was received.

    Args:
        way: The strategy.
        server: Whom.
        wanted: What is to be produced.
        received: What had come.

    Raises:
        ResumeUnsupported: This strategy cannot, after all.
    """
    if way == "rerun":
        call = yield from server.dialect.begin(wanted)
        return Continuation(call=call, expect=received.text)
    found = yield from server.dialect.continuation(wanted, way, received)
    if server.endpoint.echo is not None:
        return replace(found, echo=server.endpoint.echo)
    return replace(found, least=_REPEATS if way == "ask" else 1)


def replay_from_begin(
    server: Server, wanted: Generation, received: Received
) -> Flow[Continuation]:
    """What another process began, sent again by the server that kept it.

    Args:
        server: Who keeps it.
        wanted: What that process had asked for, by its handle.
        received: What had come; it is expected again.

    Raises:
        ResumeUnsupported: It cannot be had, after all.
    """
    nothing = Received(response_id=received.response_id)
    found = yield from server.dialect.continuation(wanted, "replay", nothing)
    return replace(found, expect=received.text, keeps=None)
