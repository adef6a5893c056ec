"""What must be stored to go on later; `restoring` reads it back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from midstream._values.checkpoint import Checkpoint, StoredResumption

if TYPE_CHECKING:
    from midstream._dialects.base import Received
    from midstream._resume.history import History
    from midstream._resume.ledger import Ledger
    from midstream._resume.server import Server
    from midstream._values.request import Request
    from midstream._values.resumption import Resumption
    from midstream._values.usage import Usage


def checkpoint(
    server: Server,
    request: Request,
    ledger: Ledger,
    history: History,
    received: Received,
    *,
    handle: str,
    complete: bool,
) -> Checkpoint:
    """The stream as it is now.

    Args:
        server: Who answers.
        request: What was asked.
        ledger: What came.
        history: How it came about.
        received: The same as a continuation needs it.
        handle: The generation's name, for servers that keep it.
        complete: Whether all of it came.
    """
    return Checkpoint(
        **dict(ledger.main.stored()),
        endpoint=str(server.endpoint),
        request=request.model_dump(mode="json", exclude_unset=True),
        others={
            index: choice.stored()
            for index, choice in ledger.choices.items()
            if choice is not ledger.main
        },
        tokens=received.tokens,
        token_ids=list(received.token_ids),
        gaps=list(received.gaps),
        prompt_ids=list(received.prompt_ids),
        response_id=received.response_id,
        handle=handle,
        offset=received.offset,
        cursor=received.cursor,
        usage=_stored(ledger.usage),
        spent=_stored(ledger.spent),
        exactness=history.exactness,
        resumptions=[_stored_resumption(one) for one in history.resumes],
        complete=complete,
    )


def _stored(usage: Usage | None) -> dict[str, object] | None:
    return None if usage is None else asdict(usage)


def _stored_resumption(one: Resumption) -> StoredResumption:
    return StoredResumption(
        at=one.at,
        reason=one.reason,
        strategy=one.strategy,
        exactness=one.exactness,
        endpoint=str(one.endpoint),
        gap=one.gap,
    )
