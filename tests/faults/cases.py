"""One case: who speaks, what goes wrong, how it is read, and what must come of it.

A case is drawn from a seed and its number alone. The number walks through all cells of
dialect, kind of fault and colour, so that every cell has its share; all else (places,
texts, strategies, how many drops) is drawn. Cases of one block have the same model, and
so can share servers.

Whether the stream must arrive whole (`Case.must`) is decided here, from what the
dialect says that it can: a client that gave up too easily would fail as well.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from texts import DISTINCT, SQUARE_FREE, TEXTS

import midstream
from midstream import ReasoningDelta, TextDelta, ToolCallDelta
from midstream._dialects import find
from midstream._values.events import Started
from midstream.testing import (
    ByteOrderMark,
    Chunking,
    Cut,
    ErrorEvent,
    Garbage,
    Gzip,
    LineEnds,
    Pings,
    Slow,
    Stall,
    Status,
    StayOpen,
)
from midstream.testing._fake.model import pieces_of
from midstream.testing._fake.sides import GRPC_DIALECTS, HTTP_SIDES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from midstream.testing import Fault

BLOCK = 96
COLOURS = ("sync", "asyncio", "trio")
PROMPT = "Tell me: 何か。"
OTHER = "A wholly different answer, 全く違う返事です。"

COMPLETE = "complete"
HONEST = "honest"
Must = str | type | tuple[type, ...]


@dataclass(frozen=True)
class Model:
    """What a server says; servers are made per model."""

    text: str
    split: str = "text"
    seed: int = 0
    script: str = ""
    habits: tuple[tuple[str, Any], ...] = ()

    @property
    def pieces(self) -> list[str]:
        return [p.decode() for p in pieces_of(self.text, "text", self.seed)]

    @property
    def events(self) -> Sequence[Any] | None:
        """A script in place of the text."""
        if not self.script:
            return None
        tokens = [TextDelta(piece) for piece in self.pieces]
        if self.script == "reasoning":
            thought = pieces_of(THOUGHT, "text", self.seed)
            return [*(ReasoningDelta(p.decode()) for p in thought), *tokens]
        first, *rest = ['{"city', '":"東', '京","n":', "1}"]
        call = ToolCallDelta(0, "call_1", "weather", first)
        return [*tokens, call, *(ToolCallDelta(0, arguments=r) for r in rest)]


THOUGHT = "Hmm, 考え中… let me see."
ARGUMENTS = '{"city":"東京","n":1}'


@dataclass(frozen=True)
class Leg:
    """A reader that does not read to the end.

    Attributes:
        way: ``"left"`` (it breaks off), ``"cancelled"`` (asyncio, trio; a blocking one
            has its stream closed by another thread), ``"killed"`` (another process).
        items: How many it reads before that; one that is cancelled does not count.
        seconds: Until it is cancelled; for which one that is killed outlives its last.
        scoped: Whether a cancel scope cancels it; else asyncio cancels the task itself.
    """

    way: str
    items: int = 0
    seconds: float = 0.0
    scoped: bool = True


@dataclass(frozen=True, kw_only=True)
class Case:
    """One stream.

    Attributes:
        number: Its place in the walk.
        dialect: Who begins.
        kind: What goes wrong.
        colour: Who reads.
        how: How it is read.
        model: What the server says.
        plan: Faults of the first endpoint, one item a stream.
        second: Who takes over, and what it says and does.
        resume: For `midstream.Resume`; None: no resuming.
        timeouts: For `midstream.Timeouts`.
        ask: For ``client.stream``.
        endpoint: For `midstream.Endpoint`.
        text: What must come.
        instead: What may come in its place.
        reasoning: As well.
        arguments: Of the tool call.
        must: ``"complete"``, ``"honest"`` (complete, or an error with a true prefix),
            or the errors of which one must come.
        finish: Finish reasons one of which a complete stream must have, if any.
        key: In the store, if it is kept.
        legs: Readers before the last one.
        moments: After how many seconds reads are cancelled, and whether by a scope;
            None, and the reads behind them, are left alone.
        connects: The most connections that may be needed, where that is known.
    """

    number: int
    dialect: str
    kind: str
    colour: str
    how: str = "events"
    model: Model
    plan: Sequence[Sequence[Fault]] = ()
    second: tuple[str, Model, Sequence[Sequence[Fault]]] | None = None
    down: str = ""
    resume: Mapping[str, Any] | None = field(default_factory=dict)
    timeouts: Mapping[str, Any] = field(default_factory=dict)
    ask: Mapping[str, Any] = field(default_factory=dict)
    endpoint: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    instead: str = ""
    reasoning: str = ""
    arguments: str = ""
    must: Must = COMPLETE
    finish: Sequence[str] = ()
    key: str = ""
    legs: Sequence[Leg] = ()
    moments: Sequence[tuple[float, bool] | None] = ()
    connects: int | None = None


UNTYPED = {
    *("ollama", "ollama-generate", "cohere", "lmstudio-native"),
    *("triton", "triton-grpc", "vllm-grpc"),
}
"""Dialects whose errors in mid-stream are words without a class."""
UNMARKED = {"triton"}
"""Dialects in which the proper end of the body is the end of the answer."""
MODELS = {"gemini": "gemini-2.0-flash"}
"""Models that are known to continue, where that depends on the model."""
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]


class Draw:
    """Draws the parts of one case."""

    def __init__(
        self, seed: int, number: int, dialect: str, model: Model, colour: str
    ) -> None:
        self.random = random.Random(f"{seed} {number}")
        self.number = number
        self.colour = colour
        self.dialect = dialect
        self.model = model
        self.strategies = find(dialect).strategies

    def one(self, *of: Any) -> Any:
        return self.random.choice(of)

    def after(self) -> int:
        """Deltas before something happens; sometimes more than there are."""
        return self.random.randint(0, len(self.model.pieces) + 1)

    def cut(self, kind: str) -> Cut:
        """A cut at a delta, or at a byte; gRPC's messages are whole or not there."""
        tidy = kind in ("half", "eof", "no_done")
        if tidy and self.dialect in UNMARKED:
            kind = "fin"
        if self.dialect in GRPC_DIALECTS:
            return Cut(self.after(), "fin" if kind == "half" else kind)
        if self.random.random() < 0.4:
            return Cut(kind=kind, at=self.random.randint(0, 120 * len(self.model.text)))
        return Cut(self.after(), kind)

    def drops(self, make: Callable[[], Fault]) -> list[list[Fault]]:
        """One drop, or several."""
        return [[make()] for _ in range(self.one(1, 1, 1, 2, 3, 5))]

    def resume(self, **fixed: Any) -> dict[str, Any]:
        """How to go on: the usual ways, or only some."""
        chosen = self.one(
            {},
            {},
            {"strategies": ("text",)},
            {"strategies": ("tokens", "text")},
            {"strategies": ("replay",)},
            {"strategies": ("rerun",)},
            {"strategies": ("replay", "tokens", "text", "rerun")},
        )
        if "strategies" in fixed:
            chosen = {}
        if self.model.text == SQUARE_FREE:
            # Elsewhere asking may take a true repetition for an echo of the last words.
            chosen = {"approximate": self.one(True, False), **chosen}
        return {"attempts": 12, **chosen, **fixed}


def played() -> list[str]:
    """Dialects that midstream speaks and the fake server plays."""
    both = {*HTTP_SIDES, *GRPC_DIALECTS} & midstream.dialects().keys()
    return sorted(both)


def can(dialect: str, resume: Mapping[str, Any], *, kept: bool = True) -> bool:
    """Whether a dialect has a way to go on from text, as far as it says.

    Args:
        dialect: Which.
        resume: What the caller allows.
        kept: Whether a server that can keep streams does.
    """
    policy = midstream.Resume(**resume)
    ways = {*find(dialect).strategies, "rerun"} & {*policy.ways}
    if dialect == "openai-responses":
        ways -= {"text"}  # only where a server behind it is seen to continue
    return bool(ways - (set() if kept else {"replay"}))


def _dropped(
    draw: Draw, plan: Any, *, spoiled: bool = False, **more: Any
) -> dict[str, Any]:
    """Drops that some way of resuming survives.

    Args:
        draw: Draws the rest.
        plan: The faults.
        spoiled: Whether what the server keeps is broken as well.
        more: Further facts.
    """
    resume = draw.resume()
    kept = draw.one(True, True, False)
    model = more.pop("model", draw.model)
    if not kept:
        model = replace(model, habits=(("replay", False), *model.habits))
    able = can(draw.dialect, resume, kept=kept and not spoiled)
    must = COMPLETE if able else HONEST
    return {"plan": plan, "resume": resume, "model": model, "must": must, **more}


def cut_of(kind: str) -> Callable[[Draw], dict[str, Any]]:
    """Connections that end in one way."""
    return lambda draw: _dropped(
        draw,
        draw.drops(lambda: draw.cut(kind)),
        spoiled=kind in ("half", "eof", "no_done"),
    )


def mixed_cuts(draw: Draw) -> dict[str, Any]:
    kinds = ("fin", "rst", "mid_chunk", "half", "eof", "no_done")
    return _dropped(draw, draw.drops(lambda: draw.cut(draw.one(*kinds))), spoiled=True)


def before_headers(draw: Draw) -> dict[str, Any]:
    plan = [[draw.cut("fin")]] if draw.one(True, False) else []
    return _dropped(draw, [*plan, [Cut(kind=draw.one("fin", "rst"))]])


def stall(draw: Draw) -> dict[str, Any]:
    after = draw.one(None, 0, draw.after(), draw.after())
    every = draw.one(None, None, 0.02)
    if draw.dialect in GRPC_DIALECTS:
        every = None  # gRPC's keep-alives are no messages
    fault = Stall(after, ping_every=every)
    limits = {"idle": 0.5, "first_token": 1.0}
    return _dropped(draw, [[fault]], timeouts=limits)


def slow(draw: Draw) -> dict[str, Any]:
    delay = Slow(0.001, first=draw.one(None, 0.05))
    return _dropped(draw, [[delay, *draw.one([], [draw.cut("fin")])], [delay]])


def error_event(draw: Draw) -> dict[str, Any]:
    type_, status = draw.one(
        ("overloaded_error", 529), ("server_error", 500), (None, 503)
    )
    fault = ErrorEvent(
        "try again",
        after=draw.after(),
        type=type_,
        status=status,
        then=draw.one("eof", "eof", "done", "stall", "go_on"),
    )
    found = _dropped(draw, [[fault]], spoiled=True)
    if draw.dialect in UNTYPED:
        found["must"] = HONEST  # it does not say that it may pass
    return found


def error_for_good(draw: Draw) -> dict[str, Any]:
    fault = ErrorEvent(
        "no",
        after=draw.random.randint(0, len(draw.model.pieces) // 2),
        type="invalid_request_error",
        status=400,
    )
    must = HONEST if draw.dialect in UNTYPED else midstream.ServerError
    return {"plan": [[fault]], "must": must}


def status(draw: Draw) -> dict[str, Any]:
    code = draw.one(408, 409, 429, 500, 502, 503, 529)
    header = draw.one({}, {"Retry-After": "0.02"}, {"retry-after-ms": "10"})
    refusal = Status(code, "later", headers=header)
    begun = [[draw.cut("fin")]] if draw.one(True, False) else []
    return _dropped(draw, [*begun, *[[refusal]] * draw.one(1, 2, 3)])


def status_for_good(draw: Draw) -> dict[str, Any]:
    return {
        "plan": [[Status(draw.one(400, 401, 403, 404), "no")]],
        "must": midstream.ServerError,
    }


def failover(draw: Draw) -> dict[str, Any]:
    others = [name for name in played() if name != draw.dialect]
    second = draw.one(*others)
    killer = draw.one(Status(401), Status(404), Status(503), Cut(), Cut(0, "rst"))
    resume = draw.resume(attempts=2)
    begun = [[draw.cut(draw.one("fin", "rst", "eof"))]]
    plan = [*begun, *[[killer]] * 60]
    ends = [[draw.cut("fin")]] if draw.one(True, False) else []
    both = can(second, resume, kept=False)
    return {
        "plan": plan,
        "second": (second, draw.model, ends),
        "down": draw.one("", "", "port"),
        "resume": resume,
        "must": COMPLETE if both else HONEST,
    }


def nobody(draw: Draw) -> dict[str, Any]:
    """The first endpoint's port is closed from the beginning."""
    second = draw.one(*(name for name in played() if name != draw.dialect))
    return {
        "second": (second, draw.model, []),
        "down": "begin",
        "resume": draw.resume(attempts=2),
    }


def diverging(draw: Draw) -> dict[str, Any]:
    """Another answer comes where the same one was asked again."""
    second = draw.one(*played())
    first = Cut(draw.random.randint(3, max(len(draw.model.pieces) // 2, 3)))
    return {
        "plan": [[first], *[[Status(401)]] * 9],
        "second": (second, Model(OTHER), []),
        "instead": OTHER,  # where nothing had come yet
        "resume": {"strategies": ("rerun",), "attempts": 1},
        "must": midstream.ResumeDiverged,
    }


def travel(draw: Draw) -> dict[str, Any]:
    """Harmless by itself: how the body travels."""
    faults = draw.one(
        [Chunking("whole")],
        [Chunking("close")],
        [Chunking(draw.random.randint(1, 40))],
        [Chunking(1000)],
        [Gzip()],
        [ByteOrderMark()],
        [LineEnds("\r\n")],
        [ByteOrderMark(), LineEnds("\r\n"), Gzip(), Chunking(7)],
        [Pings(draw.one(1, 3), every=draw.one(1, 4))],
        [Pings(), Gzip(), Chunking("whole")],
        [StayOpen()],
        [Gzip(announced=False)],
    )
    cut = draw.one([], [draw.cut(draw.one("fin", "rst", "half", "eof"))])
    found = _dropped(draw, [[*faults, *cut], faults], spoiled=True)
    if Gzip(announced=False) in faults:
        found["must"] = HONEST  # it is told what it is, and not guessed at
    return found


def byte_by_byte(draw: Draw) -> dict[str, Any]:
    model = replace(draw.model, text=draw.model.text[:24])
    draw.model = model
    cut = draw.one([], [draw.cut("fin")])
    found = _dropped(draw, [[Chunking("bytes"), *cut]])
    return {**found, "text": model.text}


def half_characters(draw: Draw) -> dict[str, Any]:
    model = replace(draw.model, split="bytes")
    draw.model = model
    kinds = ("fin", "rst", "mid_chunk", "half", "eof")
    return _dropped(draw, draw.drops(lambda: draw.cut(draw.one(*kinds))), spoiled=True)


def echo(draw: Draw) -> dict[str, Any]:
    """The server repeats the prefix, and the endpoint says so."""
    if draw.dialect == "vllm-grpc":
        return mixed_cuts(draw)  # it sends text as ids, and these are never echoed
    how = draw.one("whole", "tail")
    texts = [TEXTS[name] for name in DISTINCT] if how == "whole" else [SQUARE_FREE]
    draw.model = replace(draw.model, text=draw.one(*texts))
    size = "whole" if how == "whole" else draw.one(1, 3, 9)
    model = replace(draw.model, habits=(("echo", size), ("replay", False)))
    resume = {"strategies": ("text",), "attempts": 12}
    return {
        "plan": draw.drops(lambda: draw.cut("fin")),
        "model": model,
        "resume": resume,
        "endpoint": {"echo": how},
        "text": model.text,
        "must": COMPLETE if can(draw.dialect, resume, kept=False) else HONEST,
    }


def whitespace(draw: Draw) -> dict[str, Any]:
    """Servers that refuse or trim whitespace at the prefix's end."""
    text = TEXTS[draw.one("whitespace", "code", "markdown")]
    draw.model = replace(draw.model, text=text)
    dialect = find(draw.dialect)
    prefill = getattr(dialect, "prefill", None)
    trims = getattr(dialect, "strip", False) or getattr(prefill, "trims", False)
    ways = ("refuse", "trim") if trims else ("keep",)
    model = replace(draw.model, habits=(("whitespace", draw.one(*ways)),))
    resume = {"strategies": draw.one(("text",), ("tokens", "text")), "attempts": 12}
    if trims and "tokens" in dialect.strategies:
        resume["strategies"] = ("text",)
    return {
        "plan": draw.drops(lambda: draw.cut("fin")),
        "model": model,
        "resume": resume,
        "text": text,
        "must": COMPLETE if can(draw.dialect, resume, kept=False) else HONEST,
    }


def no_prefill(draw: Draw) -> dict[str, Any]:
    """The server refuses an open turn: the next way, or an honest end."""
    model = replace(draw.model, habits=(("prefill", "refuse"), ("replay", False)))
    again = draw.one(True, False)
    ways = ("tokens", "text", "rerun") if again else ("tokens", "text")
    return {
        "plan": [[draw.cut("fin")]],
        "model": model,
        "resume": {"strategies": ways, "attempts": 12},
        "must": COMPLETE if again else HONEST,
    }


def asked(draw: Draw) -> dict[str, Any]:
    """Approximate by its nature; this model goes on exactly."""
    draw.model = replace(draw.model, text=SQUARE_FREE)
    resume = {"strategies": (), "approximate": True, "attempts": 12}
    return {
        "plan": draw.drops(lambda: draw.cut(draw.one("fin", "eof"))),
        "model": replace(draw.model, habits=(("replay", False),)),
        "resume": resume,
        "text": draw.model.text,
        "must": COMPLETE if "ask" in draw.strategies else HONEST,
    }


def budget(draw: Draw) -> dict[str, Any]:
    """Whitespace that a server trims and says again costs a token, so there is none."""
    draw.model = replace(draw.model, text=SQUARE_FREE)
    pieces = draw.model.pieces
    most = draw.random.randint(1, len(pieces))
    found = _dropped(draw, draw.drops(lambda: draw.cut("fin")))
    done = most == len(pieces)
    return {
        **found,
        "ask": {"max_tokens": most},
        "text": "".join(pieces[:most]),
        "finish": ("stop", "length") if done else ("length",),
    }


def stop_string(draw: Draw) -> dict[str, Any]:
    text = draw.model.text
    at = draw.random.randint(1, len(text) - 4)
    word = text[at : at + draw.one(1, 2, 4)]
    found = _dropped(draw, draw.drops(lambda: draw.cut("fin")))
    knows = "stop" in _names(draw.dialect)
    return {
        **found,
        "ask": {"stop": [word]} if knows else {},
        "text": text[: text.find(word)] if knows else text,
    }


def _names(dialect: str) -> set[str]:
    """Whether a dialect can be told of stop strings."""
    unable = {"openai-responses", "lmstudio-native"}
    return set() if dialect in unable else {"stop"}


def garbage(draw: Draw) -> dict[str, Any]:
    fault = Garbage(
        draw.one(b"data: \xff\xfe{nonsense\n\n", b'data: {"a":\n\n', b"\x00\x01\n\n"),
        after=draw.after(),
        then=draw.one("go_on", "eof"),
    )
    return {"plan": [[fault]], "resume": draw.resume(), "must": HONEST}


def says(dialect: str, event: Any) -> bool:
    """Whether a dialect has a place for an event."""
    spoken = find(dialect)
    writer, reader, framer = spoken.writer(), spoken.reader(), spoken.framer()
    written = [*writer.write(Started()), *writer.write(event)]
    records = [record for data in written for record in framer.decode(data)]
    heard = [one for record in records for one in reader.read(*record)]
    return any(type(one) is type(event) for one in heard)


def reasoning(draw: Draw) -> dict[str, Any]:
    if not says(draw.dialect, ReasoningDelta("x")):
        return mixed_cuts(draw)
    draw.model = replace(draw.model, script="reasoning")
    found = _dropped(draw, draw.drops(lambda: Cut(draw.random.randint(0, 30))))
    found["resume"]["approximate"] = False  # a model that is asked thinks anew
    return {**found, "reasoning": THOUGHT, "must": HONEST}


def tool_call(draw: Draw) -> dict[str, Any]:
    if not says(draw.dialect, ToolCallDelta(0, "call_1", "weather", "{}")):
        return mixed_cuts(draw)
    text = draw.model.text[:12]
    draw.model = replace(draw.model, text=text, script="tools")
    found = _dropped(draw, draw.drops(lambda: Cut(draw.random.randint(0, 12))))
    return {
        **found,
        "ask": {"tools": TOOLS},
        "text": text,
        "arguments": ARGUMENTS,
        "must": HONEST,
    }


def no_resume(draw: Draw) -> dict[str, Any]:
    """Resuming switched off: a cut answer is an error, never the end."""
    kind = "fin" if draw.dialect in UNMARKED else draw.one("fin", "eof")
    cut = Cut(draw.random.randint(0, len(draw.model.pieces) // 2), kind)
    return {"plan": [[cut]], "resume": None, "must": midstream.StreamInterrupted}


def _unhurried(draw: Draw) -> list[list[Fault]]:
    """Connections that are slow enough to be left on the way; some drop as well."""
    cuts = [draw.cut(draw.one("fin", "rst")) for _ in range(draw.one(0, 0, 1, 2))]
    pace = Slow(draw.one(0.002, 0.002, 0.0005))
    return [*([pace, cut] for cut in cuts), *[[pace]] * 9]


def kept(draw: Draw) -> dict[str, Any]:
    """A stream with a key, read to its end by one reader."""
    found = _dropped(draw, draw.drops(lambda: draw.cut(draw.one("fin", "rst"))))
    return {**found, "key": f"stream-{draw.number}"}


def _in_legs(draw: Draw, legs: Sequence[Leg]) -> dict[str, Any]:
    """Readers that leave tell the server, which then forgets what it kept."""
    found = _dropped(draw, _unhurried(draw), spoiled=True)
    return {**found, "key": f"stream-{draw.number}", "legs": legs}


def left(draw: Draw) -> dict[str, Any]:
    """Readers that break off; others, elsewhere in the process, go on."""
    most = len(draw.model.pieces)
    items = [draw.random.randint(0, most) for _ in range(draw.one(1, 1, 2, 4))]
    return _in_legs(draw, [Leg("left", at) for at in items])


def sent_away(draw: Draw) -> dict[str, Any]:
    """Readers that are cancelled; others go on."""
    return _in_legs(draw, [_cancellation(draw) for _ in range(draw.one(1, 1, 2, 4))])


def _cancellation(draw: Draw) -> Leg:
    seconds = draw.random.uniform(0, 0.1)
    return Leg("cancelled", seconds=seconds, scoped=draw.one(True, False))


def cancelled_reads(draw: Draw) -> dict[str, Any]:
    """One reader, whose reads are cancelled again and again; it reads on."""
    if draw.colour == "sync":
        return sent_away(draw)  # a blocking read cannot be cancelled
    plan = _unhurried(draw)
    unbroken = len(plan[0]) == 1
    most = draw.one(0.001, 0.004, 0.01)  # a piece often takes 0.002
    calm = [None] * draw.one(0, draw.random.randint(0, len(draw.model.pieces)))
    moments = [
        (draw.one(0.0, *[draw.random.uniform(0, most)] * 9), draw.one(True, False))
        for _ in range(draw.one(5, 50, 300, 300))
    ]
    found = _dropped(draw, plan)
    connects = 1 + _refuses_to_keep(draw.dialect, found) if unbroken else None
    return {**found, "moments": [*calm, *moments], "connects": connects}


def _refuses_to_keep(dialect: str, found: Mapping[str, Any]) -> bool:
    """Whether the first request is refused for replay's sake, and made anew."""
    ways = midstream.Resume(**found["resume"]).ways
    asked = "replay" in ways and dialect in {"openai-responses", "vllm-responses"}
    return asked and ("replay", False) in found["model"].habits


def another_process(draw: Draw) -> dict[str, Any]:
    """Begun by a process that is killed, and continued by this one."""
    items = draw.random.randint(1, len(draw.model.pieces))
    leg = Leg("killed", items, seconds=draw.one(0.0, 0.0, 0.02, 0.3))
    return _in_legs(draw, [leg])


KINDS: dict[str, Callable[[Draw], dict[str, Any]]] = {
    "cut: FIN": cut_of("fin"),
    "cut: RST": cut_of("rst"),
    "cut: in a chunk": cut_of("mid_chunk"),
    "cut: half a record": cut_of("half"),
    "cut: tidy end": cut_of("eof"),
    "cut: no end marker": cut_of("no_done"),
    "cut: mixed": mixed_cuts,
    "cut: before headers": before_headers,
    "time: stalled": stall,
    "time: slow": slow,
    "error: in mid-stream": error_event,
    "error: for good": error_for_good,
    "status: then well": status,
    "status: for good": status_for_good,
    "failover: in mid-stream": failover,
    "failover: nobody listens": nobody,
    "rerun: it diverges": diverging,
    "bytes: framing": travel,
    "bytes: one by one": byte_by_byte,
    "bytes: half characters": half_characters,
    "seam: echo": echo,
    "seam: whitespace": whitespace,
    "seam: prefill refused": no_prefill,
    "seam: asked to go on": asked,
    "seam: budget": budget,
    "seam: stop string": stop_string,
    "bytes: garbage": garbage,
    "channel: reasoning": reasoning,
    "channel: tool call": tool_call,
    "resume: off": no_resume,
    "keyed: to the end": kept,
    "keyed: left": left,
    "keyed: killed": another_process,
    "cancel: reads": cancelled_reads,
    "cancel: readers": sent_away,
}
"""What goes wrong; before the colon of what sort it is."""
HOWS = ("events", "events", "pieces", "words", "graphemes", "read")


def cells() -> list[tuple[str, str]]:
    """Every dialect with every kind of fault, well mixed."""
    every = [(dialect, kind) for dialect in played() for kind in KINDS]
    random.Random(4).shuffle(every)
    return every


def draw(seed: int, number: int) -> Case:
    """The case of that number."""
    block = number // BLOCK
    of_block = random.Random(f"{seed} block {block}")
    model = Model(TEXTS[of_block.choice(sorted(TEXTS))], seed=of_block.randint(0, 999))
    every = cells()
    dialect, kind = every[number % len(every)]
    colour = COLOURS[block % len(COLOURS)]
    drawing = Draw(seed, number, dialect, model, colour)
    found = KINDS[kind](drawing)
    facts = {"model": drawing.model, "text": drawing.model.text, **found}
    if facts["text"] == TEXTS["repeats"]:
        # Nothing is repeated that is not said twice: declared echoes do not apply.
        facts["endpoint"] = {"echo": "none", **facts.get("endpoint", {})}
    return Case(
        number=number,
        dialect=dialect,
        kind=kind,
        colour=colour,
        how=drawing.one(*HOWS),
        **facts,
    )
