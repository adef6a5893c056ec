"""What a store must do; bring your own if none of ours fits.

A key has one owner at a time. Owners are named ``HOLDER/NUMBER``: the holder is a
client, the number one of its streams, so that a client keeps all its leases with one
`renew`. A lease says who owns the key; how long that holds is said of the holder. Once
the holder's time is over others may take the key; until one does, its owner still has
it. Every write of an owner asks whether it is still the owner, in the same atomic step:
a process that slept does not write over what its successor wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from midstream._values.checkpoint import Checkpoint, Growth


class Store(Protocol):
    """Keeps checkpoints by key, and leases that let one process at a time continue.

    All calls may block and come from several threads; they are made in worker threads,
    and a stream waits for one no longer than 5 s. Every method may raise `StoreFailed`
    (a full disk, no server) and `UsageError` (what the caller can mend).
    """

    def save(
        self, key: str, checkpoint: Checkpoint, *, owner: str | None = None
    ) -> None:
        """Keep ``checkpoint`` under ``key``, in place of what was there.

        Args:
            key: Where.
            checkpoint: What.
            owner: Who must own the key; None: whoever owns it loses it.

        Raises:
            LeaseLost: ``owner`` does not own the key; nothing was written.
        """
        ...

    def append(self, key: str, growth: Growth, *, owner: str) -> None:
        """Add what is new to the checkpoint under ``key``.

        Args:
            key: Where something is stored.
            growth: What is new; an empty one (``Growth()``) only asks for the owner.
            owner: Who must own the key.

        Raises:
            LeaseLost: ``owner`` does not own the key, or nothing is stored there.
        """
        ...

    def load(self, key: str) -> Checkpoint | None:
        """The checkpoint under ``key`` with all that was appended, or None.

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
        """Delete what has not changed for ``older_than`` seconds and has no reader.

        Returns:
            How many were deleted.
        """
        ...

    def acquire(
        self, key: str, owner: str, seconds: float, *, take_over: bool = False
    ) -> bool:
        """Take the lease on ``key``, and renew its holder's time.

        Args:
            key: Whose lease.
            owner: Who asks: ``HOLDER/NUMBER``, a new number for each stream. A name
                without a slash is its own holder.
            seconds: How long all of the holder's leases hold unless renewed.
            take_over: Take it from whoever has it.

        Returns:
            False where another owner has it whose holder's time is not over. A process
            that is known to be dead holds nothing.
        """
        ...

    def renew(self, holder: str, seconds: float) -> None:
        """Hold all leases of ``holder`` for ``seconds`` from now.

        Leases that others took meanwhile stay theirs.
        """
        ...

    def release(self, key: str, owner: str) -> None:
        """Give the lease back; harmless where ``owner`` does not own the key."""
        ...

    def close(self) -> None:
        """Close what is open; checkpoints stay."""
        ...
