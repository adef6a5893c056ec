"""One connection's way from bytes to signals with whole characters.

Framer, reader, decoder and seam in a row. Each channel of each choice has a decoder of
its own, since a server may stop in the middle of a character in one and go on in
another.
"""

from __future__ import annotations

from array import array
from copy import deepcopy
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from midstream._resume.seam import Seam
from midstream._utf8 import Utf8Decoder
from midstream._values.errors import ServerError, WireError
from midstream._values.events import (
    End,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream._values.interruptions import ResumeDiverged
from midstream._values.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from midstream._dialects.base import Continuation, Dialect, Generation
    from midstream._values.endpoint import Endpoint
    from midstream._values.errors import MidstreamError
    from midstream._values.events import Event, Signal

SHAPE_FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading raises where a server's JSON is not of the documented shape."""

_COUNTS = (int, type(None))


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
        repeated: Characters that came again and were dropped.
        pending: Whether half a character of the text waits.
    """

    __slots__ = (
        "_again",
        "_answered",
        "_began_at",
        "_choice",
        "_decoder",
        "_ended",
        "_framer",
        "_held",
        "_reader",
        "_seam",
        "_sides",
        "dialect",
        "fault",
        "generation",
        "offset",
        "opened",
        "repeated",
        "strategy",
    )

    def __init__(
        self, dialect: Dialect, generation: Generation, strategy: str = "begin"
    ) -> None:
        self.generation = generation
        self.strategy = strategy
        self.offset = self._began_at = 0
        self.opened = self._answered = False
        self._ended = False
        self.fault: MidstreamError | None = None
        self.dialect = dialect
        self._choice = generation.request.choice
        self._framer = dialect.framer()
        self._reader = dialect.reader(generation)
        self._decoder = Utf8Decoder(generation.endpoint.errors)
        self._sides: dict[tuple[int, str], Utf8Decoder] = {}
        self._seam: Seam | None = None
        self._held: list[TextDelta] = []
        self._again = 0
        self.repeated = 0

    def join(self, continuation: Continuation, text: str) -> None:
        """What comes is joined to ``text``, which was delivered before."""
        if continuation.reader is not None:
            self._reader = continuation.reader
        self._again = continuation.again
        seam = Seam(continuation, text, self.generation.request.stop or ())
        self._seam = seam if seam.open else None

    def replay(self, continuation: Continuation) -> None:
        """The stream itself goes on, on a new connection.

        Same body: the decoding state stays as it is. Same records: a new body, read by
        the same reader.
        """
        self.strategy = "replay"
        self._answered = self._ended = False
        self._began_at = self.offset
        if continuation.keeps != "body":
            self._framer = self.dialect.framer()
            self.offset = self._began_at = 0

    def open(self) -> None:
        """The server streams, on this connection."""
        self.opened = self._answered = True

    def spent(self, fault: MidstreamError) -> bool:
        """Whether what a server keeps of this stream has nothing more to give.

        It reported an error, or a replay of it ended properly without a new byte. A
        server that has no room for the replay keeps the stream all the same.
        """
        nothing_new = self.strategy == "replay" and self.offset == self._began_at
        return self._answered and (
            isinstance(fault, ServerError) or (self._ended and nothing_new)
        )

    def same_model(self, other: Endpoint) -> bool:
        """Whether another endpoint has the same model, as far as one can know."""
        mine = self.generation.endpoint
        if mine.model is None or other.model is None:
            return mine is other or mine.dialect == other.dialect
        return mine.model == other.model

    @property
    def cursor(self) -> object:
        """The reader's place to replay from."""
        return self._reader.cursor

    @property
    def pending(self) -> bool:
        """Whether half a character of the text waits."""
        return self._decoder.pending

    @property
    def stopped(self) -> bool:
        """Whether a stop string over the seam ended it, unknown to the server."""
        return self._seam is not None and self._seam.stopped

    @property
    def replaced(self) -> int:
        """How many U+FFFD were put in for bytes that are no UTF-8."""
        decoders = [self._decoder, *self._sides.values()]
        return sum(decoder.replaced for decoder in decoders)

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
        self._ended = True
        held = deepcopy(self._framer)
        rest = self._framer.flush()
        signals = self._read(rest)
        if not rest or isinstance(self.fault, WireError):
            self._framer = held
        if isinstance(self.fault, WireError):
            self.fault = None
            return signals, False
        if self.fault is None and not (signals and type(signals[-1]) is End):
            self._hear(signals, self._reader.eof)
        return signals, bool(rest)

    def flush(self) -> str:
        """The text that waited until the answer's end."""
        rest = self._decoder.flush()
        if self._seam is None:
            return rest
        return "" if self._seam.stopped else self._seam.feed(rest) + self._seam.flush()

    def flush_others(self) -> list[TextDelta]:
        """Half a character with which another of n answers ended."""
        rests = [
            TextDelta(decoder.flush(), choice, 0)
            for (choice, channel), decoder in self._sides.items()
            if channel == "text"
        ]
        return [delta for delta in rests if delta.text]

    def _read(self, records: Iterable[tuple[bytes, str]]) -> list[Event | Signal]:
        read = self._reader.read
        signals: list[Event | Signal] = []
        for record in records:
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
        for signal in said:
            if type(signal) is TextDelta:
                plain = signal.text.isascii() and signal.choice == self._choice
                if signal.token_ids or type(signal.tokens) not in _COUNTS:
                    plain = False
                if plain and self._seam is None and not self._decoder.pending:
                    signals.append(signal)
                    continue
                signals.append(self._text(signal))
                if self.stopped:
                    signals += [Finish("stop", "stop", self._choice), End()]
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
        text = delta.text
        _integers(delta.choice, delta.tokens or 0, *delta.token_ids)
        if delta.choice != self._choice:
            return replace(delta, text=self._decoded(text, delta.choice, "text"))
        if self._decoder.pending or not text.isascii():
            text = self._decoder.decode(text)
        if self._seam is not None:
            return self._join(self._seam, replace(delta, text=text))
        return delta if text is delta.text else replace(delta, text=text)

    def _join(self, seam: Seam, delta: TextDelta) -> TextDelta:
        """What of it is new; tokens that only repeat do not count once more."""
        repeating, new = seam.repeating, seam.feed(delta.text)
        if repeating and not new:
            self._held.append(delta)
            self.repeated += len(delta.text)
            return TextDelta("", delta.choice, 0)
        held, self._held = self._held, []
        if self._again:
            # Where ids run ahead of their text, new ones came with the old text.
            joined = self._without_repeated(_merged([*held, delta], new))
        elif len(new) > len(delta.text) or not any(one.text for one in held):
            joined = _merged([*held, delta], new)  # it was no repetition
        else:
            joined = replace(delta, text=new)
        if not seam.open and not seam.stopped and not self._again:
            self._seam = None
        return joined

    def _without_repeated(self, delta: TextDelta) -> TextDelta:
        tokens = 1 if delta.tokens is None else delta.tokens
        gone = min(self._again, tokens)
        self._again -= gone
        return replace(delta, tokens=tokens - gone, token_ids=delta.token_ids[gone:])

    def _side(self, signal: Event | Signal) -> Event | Signal:
        """Text of the other channels."""
        match signal:
            case Started():
                ids = _integers(*signal.prompt_ids)
                return Started(_word(signal.id), _word(signal.model), ids)
            case UsageReport(usage=usage):
                counts = {name: _count(n) for name, n in asdict(usage).items()}
                counts["estimated"] = usage.estimated
                return UsageReport(Usage(**counts))
            case Finish(choice=choice):
                _integers(choice)
                return Finish(_word(signal.reason), _word(signal.raw), choice)
            case ReasoningDelta(text=text) | RefusalDelta(text=text):
                _integers(signal.choice, signal.tokens or 0)
                channel = type(signal).__name__
                whole = self._decoded(text, signal.choice, channel)
                return signal if whole is text else replace(signal, text=whole)
            case ToolCallDelta(arguments=text):
                _integers(signal.index, signal.choice, signal.tokens or 0)
                whole = self._decoded(text, signal.choice, f"tool {signal.index}")
                id_, name = _word(signal.id), _word(signal.name)
                return replace(signal, id=id_, name=name, arguments=whole)
            case _:
                return signal

    def _decoded(self, text: str, choice: int, channel: str) -> str:
        decoder = self._sides.get((choice, channel))
        if decoder is None:
            if text.isascii():
                return text
            decoder = Utf8Decoder(self.generation.endpoint.errors)
            self._sides[choice, channel] = decoder
        return decoder.decode(text)


def _integers(*values: int) -> tuple[int, ...]:
    """The values, if they are integers of 64 bits.

    Raises:
        TypeError: One is none.
        OverflowError: One is larger.
    """
    return tuple(array("q", values))


def _word(value: object) -> str | None:
    """A name, whole characters only; some servers number what others name."""
    if value is None:
        return None
    return str(value).encode("utf-8", "replace").decode()


def _count(value: object) -> Any:
    """A number of tokens; what is none is not known."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def _merged(deltas: list[TextDelta], text: str) -> TextDelta:
    """Deltas that waited for each other as one."""
    tokens = sum(1 if one.tokens is None else one.tokens for one in deltas)
    ids = tuple(id_ for one in deltas for id_ in one.token_ids)
    return TextDelta(text, deltas[-1].choice, tokens, ids, deltas[-1].logprobs)
