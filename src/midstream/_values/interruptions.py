"""A stream that could not be finished: a branch of the tree in `errors`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from midstream._values.errors import MidstreamError, publish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midstream._values.resumption import Resumption
    from midstream._values.tool_call import ToolCall


class StreamInterrupted(MidstreamError):
    """The stream broke and could not be finished; ``__cause__`` is the first drop.

    Attributes:
        text: Everything that was delivered.
        checkpoint: What is needed to continue later.
        resumes: The drops that were survived before this one.
        resumable: Whether a later attempt may continue from the checkpoint.
    """

    resumable: bool = True
    resumes: Sequence[Resumption] = ()


class ResumeUnsupported(StreamInterrupted):
    """No strategy that is allowed can continue this stream."""

    resumable = False


class ResumeDiverged(StreamInterrupted):
    """The continuation does not agree with what was already delivered."""


class ResumeExhausted(StreamInterrupted):
    """All attempts that `Resume` allows failed without progress."""


class ToolCallInterrupted(StreamInterrupted):
    """The stream broke in a tool call, which cannot be continued from a prefix.

    Attributes:
        tool_calls: The calls as far as they came; ``complete`` tells which are whole.
    """

    resumable = False
    tool_calls: Sequence[ToolCall] = ()


class LeaseLost(StreamInterrupted):
    """Another reader took this stream's key over."""


publish(StreamInterrupted)
