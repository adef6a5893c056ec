"""What a re-aggregator is: three members, so that users can bring their own."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Regrouper(Protocol):
    """Turns the pieces a stream happens to come in into those an application wants.

    One instance serves one stream. It does no I/O and reads no clock: its driver
    hands in the text and the time. The pieces of all `feed` calls and of `flush`,
    joined, are exactly the text that was fed, and none of them is empty.
    """

    def feed(self, text: str, now: float) -> list[str]:
        """Take text and give the pieces that are ready.

        Args:
            text: What came; ``""`` when the call is made for the deadline's sake.
            now: The driver's monotonic clock, in seconds.

        Returns:
            The pieces, in order; often none.
        """
        ...

    def flush(self) -> list[str]:
        """Give all that is left, as the stream has ended.

        Returns:
            The last pieces.
        """
        ...

    @property
    def deadline(self) -> float | None:
        """When `feed` must be called with ``""`` although nothing came.

        Seconds on the driver's clock; None while nothing has to go out by itself.
        """
        ...
