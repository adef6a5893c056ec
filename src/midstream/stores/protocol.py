"""What a store must do; bring your own if none of ours fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from midstream._values.checkpoint import Checkpoint


class Store(Protocol):
    """Keeps checkpoints by key, and leases that let one process at a time continue.

    All calls may block and come from several threads; async clients make them in
    worker threads.
    """

    def save(self, key: str, checkpoint: Checkpoint) -> None:
        """Keep ``checkpoint`` under ``key``, in place of an older one."""
        ...

    def load(self, key: str) -> Checkpoint | None:
        """The checkpoint under ``key``, or None.

        Raises:
            UsageError: What is stored there is of a format this version cannot read.
        """
        ...

    def delete(self, key: str) -> None:
        """Forget ``key`` and its lease; an unknown key is no error."""
        ...

    def keys(self) -> list[str]:
        """All keys, the oldest change first."""
        ...

    def expire(self, older_than: float) -> int:
        """Delete what has not changed for ``older_than`` seconds.

        Returns:
            How many were deleted.
        """
        ...

    def acquire(self, key: str, owner: str, seconds: float) -> bool:
        """Take or renew the lease on ``key``.

        Args:
            key: Whose lease.
            owner: Who asks: one name a stream, new each time.
            seconds: How long it holds unless renewed.

        Returns:
            False where another living owner holds it. A lease of a process that is
            known to be dead holds no longer.
        """
        ...

    def release(self, key: str, owner: str) -> None:
        """Give the lease back; harmless where ``owner`` does not hold it."""
        ...

    def close(self) -> None:
        """Close what is open; checkpoints stay."""
        ...
