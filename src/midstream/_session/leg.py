"""One connection's way from bytes to signals with whole characters.

Framer, reader, channels and seam in a row. A `TextDelta` that leaves the leg with text
has nothing open behind it: a token whose text waits, for the rest of a character or for
the seam to decide, leaves with the text that settles it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from midstream._resume.seam import Seam
from midstream._session.channels import Channels
from midstream._session.joining import Joining
from midstream._session.shapes import SHAPE_FAULTS, shaped
from midstream._values.errors import ServerError, WireError
from midstream._values.events import (
    End,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from midstream._values.interruptions import ResumeDiverged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from midstream._dialects.base import Continuation, Dialect, Generation
    from midstream._session.repeated import Repeated
    from midstream._values.errors import MidstreamError
    from midstream._values.events import Event, Signal

_COUNTS = (int, type(None))
_ENDS = (End, Finish)


@dataclass(slots=True)
class _Connection:
    """What of a leg is of its present connection; a replay has one more.

    Attributes:
        began_at: The leg's offset when it was opened.
        answered: Whether the server streams on it.
        ended: Whether its body ended properly.
        heard: Whether a record of it was read.
    """

    began_at: int = 0
    answered: bool = False
    ended: bool = False
    heard: bool = False


class Leg:
    """One connection of a generation.

    Args:
        dialect: Who speaks.
        generation: What was asked.
        strategy: How it was asked: ``"begin"``, or a strategy of resuming.

    Attributes:
        offset: Bytes of body received.
        opened: Whether the server began to stream, on whatever connection.
        fault: What the last bytes held behind their signals.
    """

    __slots__ = (
        "_channels",
        "_connection",
        "_framer",
        "_joining",
        "_reader",
        "_repeated",
        "dialect",
        "fault",
        "generation",
        "offset",
        "opened",
        "strategy",
    )

    def __init__(
        self, dialect: Dialect, generation: Generation, strategy: str = "begin"
    ) -> None:
        self.dialect = dialect
        self.generation = generation
        self.strategy = strategy
        self.offset = 0
        self.opened = False
        self.fault: MidstreamError | None = None
        self._connection = _Connection()
        self._framer = dialect.framer()
        self._reader = dialect.reader(generation)
        self._channels = Channels(generation)
        self._joining: Joining | None = None
        self._repeated: Repeated | None = None

    def join(self, continuation: Continuation, text: str) -> None:
        """What comes is joined to ``text``, which was delivered before."""
        if continuation.reader is not None:
            self._reader = continuation.reader
        seam = Seam(continuation, text, self.generation.request.stop or ())
        if seam.open:
            self._joining = Joining(seam, continuation.again)

    def repeat(self, repeated: Repeated) -> None:
        """The channels beside the text come again from their begin."""
        self._repeated = repeated

    def replay(self, continuation: Continuation) -> None:
        """The stream itself goes on, on a new connection.

        Same body: the decoding state stays as it is. Same records: a new body, read by
        the same reader.
        """
        self.strategy = "replay"
        if continuation.keeps != "body":
            self._framer = self.dialect.framer()
            self.offset = 0
        self._connection = _Connection(began_at=self.offset)

    def open(self) -> None:
        """The server streams, on this connection."""
        self.opened = self._connection.answered = True

    @property
    def answered(self) -> bool:
        """Whether the server streams on the present connection."""
        return self._connection.answered

    def hang_up(self) -> None:
        """The connection has ended."""
        self._connection = _Connection(began_at=self.offset)

    def spent(self, fault: MidstreamError) -> bool:
        """Whether what a server keeps of this stream has nothing more to give.

        It reported an error, or a replay of it ended properly without a new byte. A
        server that has no room for the replay keeps the stream all the same.
        """
        connection = self._connection
        nothing_new = self.strategy == "replay" and self.offset == connection.began_at
        return connection.answered and (
            isinstance(fault, ServerError) or (connection.ended and nothing_new)
        )

    @property
    def cursor(self) -> object:
        """The reader's place to replay from."""
        return self._reader.cursor

    @property
    def stopped(self) -> bool:
        """Whether a stop string over the seam ended it, unknown to the server."""
        return self._joining is not None and self._joining.stopped

    @property
    def repeated(self) -> int:
        """Characters that came again and were dropped."""
        text = 0 if self._joining is None else self._joining.repeated
        return text if self._repeated is None else text + self._repeated.characters

    @property
    def replaced(self) -> int:
        """How many U+FFFD were put in for bytes that are no UTF-8."""
        return self._channels.replaced

    def receive(self, piece: bytes) -> list[Event | Signal]:
        """What the next bytes say; a fault behind it is left in `fault`."""
        self.offset += len(piece)
        try:
            records = self._framer.decode(piece)
        except WireError as error:
            signals = self._read(error.records)
            self.fault = self.fault or error
            return signals
        return self._read(records)

    def eof(self) -> tuple[list[Event | Signal], bool]:
        """What the end of the body says, and whether its last record was left open.

        Half a record is no fault of the wire: the body was cut, and a replay of the
        same body will bring its other half.
        """
        self._connection.ended = True
        held = deepcopy(self._framer)
        rest = self._framer.flush()
        signals = self._read(rest)
        if not rest or isinstance(self.fault, WireError):
            self._framer = held
        if isinstance(self.fault, WireError):
            self.fault = None
            return signals, False
        # Nothing is an answer of no tokens; bytes without one record are none at all.
        speaks = self._connection.heard or not self.offset
        if self.fault is None and speaks and not (signals and type(signals[-1]) is End):
            self._hear(signals, self._reader.eof)
        return signals, bool(rest)

    def last_words(self) -> list[Event | Signal]:
        """What a last record without its end says at a drop, if it ends the answer.

        Else nothing is read of it: a replay of the same body brings its other half.
        """
        before = self._framer, self._reader, self._channels, self._joining, self.fault
        self._framer = deepcopy(self._framer)
        rest = self._framer.flush()
        if rest:
            parts = deepcopy((self._reader, self._channels, self._joining))
            self._reader, self._channels, self._joining = parts
            signals = self._read(rest)
            if any(type(signal) in _ENDS for signal in signals):
                self.fault = None
                return signals
        self._framer, self._reader, self._channels, self._joining, self.fault = before
        return []

    def flush(self) -> str:
        """The text that waited until the answer's end; raises `ResumeDiverged`."""
        if self._repeated is not None:
            self._repeated.flush()
        rest = self._channels.decoder.flush()
        return rest if self._joining is None else self._joining.flush(rest)

    def flush_others(self) -> list[TextDelta]:
        """Half a character with which another of n answers ended."""
        return self._channels.flush_others()

    def _read(self, records: Iterable[tuple[bytes, str]]) -> list[Event | Signal]:
        read = self._reader.read
        signals: list[Event | Signal] = []
        for record in records:
            self._connection.heard = True
            if not self._hear(signals, read, *record):
                break
        return signals

    def _hear(
        self,
        signals: list[Event | Signal],
        read: Callable[..., list[Event | Signal]],
        *record: Any,
    ) -> bool:
        """Add what a record says; gives whether more may follow."""
        try:
            return self._clean(read(*record), signals)
        except ResumeDiverged as error:
            self.fault = error
        except WireError as error:
            self.fault = WireError(error.words, offset=self.offset)
            self.fault.__cause__ = error.__cause__
        except SHAPE_FAULTS as error:
            excerpt = repr(record[0][:80]) if record else "its end"
            words = f"a record of an unexpected shape: {excerpt}"
            self.fault = WireError(words, offset=self.offset)
            self.fault.__cause__ = error
        return False

    def _clean(self, said: list[Event | Signal], signals: list[Event | Signal]) -> bool:
        """Add what was said, in whole characters; gives whether more may follow."""
        channels, joining = self._channels, self._joining
        for each in said:
            signal = each if self._repeated is None else self._repeated.new(each)
            if signal is None:
                continue
            if type(signal) is TextDelta:
                plain = signal.text.isascii() and signal.choice == channels.choice
                if signal.token_ids or type(signal.tokens) not in _COUNTS:
                    plain = False
                joined = joining is None or not joining.open
                if plain and joined and not channels.decoder.pending:
                    signals.append(signal)
                    continue
                signals.append(self._text(signal))
                if self.stopped:
                    signals += [Finish("stop", "stop", channels.choice), End()]
                    return False
            elif type(signal) is Failure:
                self.fault = signal.error
                return False
            else:
                signals.append(self._side(signal))
                if type(signal) is End:
                    return False
        return True

    def _text(self, delta: TextDelta) -> TextDelta:
        """Its whole characters, and of these what is new."""
        delta, joining = self._channels.text(delta), self._joining
        if joining is None or not joining.open:
            return delta
        return joining.join(delta) if delta.choice == self._channels.choice else delta

    def _side(self, signal: Event | Signal) -> Event | Signal:
        """What is no text of the answer."""
        match signal:
            case ReasoningDelta() | RefusalDelta():
                return self._channels.reasoning(signal)
            case ToolCallDelta():
                return self._channels.tool(signal)
            case _:
                return shaped(signal)
