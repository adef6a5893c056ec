"""midstream: LLM token streams that do not break."""

import logging as _logging

from midstream._dialects import dialects, register
from midstream._dialects.base import Dialect
from midstream._dialects.facts import DialectFacts
from midstream._dialects.openai_chat import OpenAIChat, Prefill
from midstream._metrics import Latency, Metrics
from midstream._regroup import (
    Frames,
    Graphemes,
    Lines,
    Markdown,
    Regrouper,
    Sentences,
    Tokens,
    Words,
)
from midstream._resume.ledger import Choice
from midstream._resume.policy import Backoff, Resume
from midstream._streaming.pacing import aregroup, regroup
from midstream._streaming.stream import AsyncStream, Stream
from midstream._values.checkpoint import Checkpoint
from midstream._values.endpoint import Endpoint
from midstream._values.errors import (
    AuthenticationFailed,
    BadRequest,
    ConnectFailed,
    ContextOverflow,
    Dropped,
    EventTooLarge,
    MidstreamError,
    NotFound,
    Overloaded,
    RateLimited,
    ServerError,
    ServerFailed,
    StoreFailed,
    StreamBusy,
    StreamNotFound,
    TimedOut,
    TransportError,
    UsageError,
    WireError,
)
from midstream._values.events import (
    Event,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Resumed,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream._values.exactness import Exactness
from midstream._values.interruptions import (
    LeaseLost,
    ResumeDiverged,
    ResumeExhausted,
    ResumeUnsupported,
    StreamInterrupted,
    ToolCallInterrupted,
)
from midstream._values.message import Message
from midstream._values.resumption import Resumption
from midstream._values.timeouts import Timeouts
from midstream._values.tool_call import ToolCall
from midstream._values.usage import Usage
from midstream.client import AsyncClient, Client
from midstream.stores import MemoryStore, RedisStore, SQLiteStore, Store

__version__ = "0.1.0"

# Whoever sets up no logging is told nothing: a drop that was survived is no news on
# the terminal where its answer is printed.
_logging.getLogger(__name__).addHandler(_logging.NullHandler())

__all__ = [
    "AsyncClient",
    "AsyncStream",
    "AuthenticationFailed",
    "Backoff",
    "BadRequest",
    "Checkpoint",
    "Choice",
    "Client",
    "ConnectFailed",
    "ContextOverflow",
    "Dialect",
    "DialectFacts",
    "Dropped",
    "Endpoint",
    "Event",
    "EventTooLarge",
    "Exactness",
    "Finish",
    "Frames",
    "Graphemes",
    "Latency",
    "LeaseLost",
    "Lines",
    "Markdown",
    "MemoryStore",
    "Message",
    "Metrics",
    "MidstreamError",
    "NotFound",
    "OpenAIChat",
    "Overloaded",
    "Prefill",
    "RateLimited",
    "ReasoningDelta",
    "RedisStore",
    "RefusalDelta",
    "Regrouper",
    "Resume",
    "ResumeDiverged",
    "ResumeExhausted",
    "ResumeUnsupported",
    "Resumed",
    "Resumption",
    "SQLiteStore",
    "Sentences",
    "ServerError",
    "ServerFailed",
    "Store",
    "StoreFailed",
    "Stream",
    "StreamBusy",
    "StreamInterrupted",
    "StreamNotFound",
    "TextDelta",
    "TimedOut",
    "Timeouts",
    "Tokens",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallInterrupted",
    "TransportError",
    "Usage",
    "UsageError",
    "UsageReport",
    "WireError",
    "Words",
    "__version__",
    "aregroup",
    "dialects",
    "register",
    "regroup",
]
