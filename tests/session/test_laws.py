"""The laws of the design, for every dialect that there is."""

import gc
import itertools
import tracemalloc

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from midstream import dialects
from midstream._dialects import find
from midstream._values.errors import Dropped, MidstreamError, TimedOut
from midstream._values.events import Finish, ReasoningDelta, Resumed, TextDelta
from midstream._values.exactness import Exactness
from midstream._values.interruptions import StreamInterrupted

DIALECTS = {name: find(name) for name in sorted(dialects())}
NAMES = list(DIALECTS)
WAYS = [
    (name, way)
    for name, dialect in DIALECTS.items()
    for way in (*dialect.strategies, "rerun")
    if way != "ask"
]
# OpenAI itself does not continue an item; servers that do are known by their marks.
WAYS.remove(("openai-responses", "text"))
ANSWER = "One, two — 日本語👩‍👧 é. Ha ha ha!\n\n  Three."

THINKERS = [n for n in NAMES if DIALECTS[n].writer().write(ReasoningDelta("hm"))]
FIRST = {"openai", "llama.cpp", "llama.cpp-completion", "ollama", "triton-grpc"}

# Where a clean end is no end.
DROPS = [n for n in NAMES if not DIALECTS[n].reader().eof()]

numbers = st.integers(0, 100_000)
answers = st.tuples(
    st.text(
        st.sampled_from('ha \n日é👩\u200d🏽e\u0301"\\{}:'), min_size=1, max_size=24
    ),
    st.lists(st.integers(0, 100), max_size=24),
)
drops = st.lists(
    st.tuples(st.integers(0, 4000), st.sampled_from(["eof", "reset", "stall"])),
    max_size=5,
)
reads = st.none() | st.integers(1, 40) | st.lists(numbers, max_size=6)


def cuts(world, name, model, places):
    """Drops somewhere in the first body; later bodies are shorter.

    A replay that ends cleanly without a byte says that there is no more.
    """
    records = world.bodies(name, model)
    grpc = DIALECTS[name].transport == "grpc"
    size = len(records) if grpc else len(b"".join(records))
    if world.ends_clean(name):
        places = [(at, how.replace("eof", "reset")) for at, how in places]
    return [world.Cut(max(at % (size + 1), how == "eof"), how) for at, how in places]


# -- 1: once, in order -----------------------------------------------------------------


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_a_cut_in_the_middle_is_survived_in_every_way(name, way, world):
    model = world.Model(ANSWER, range(0, 99, 3))
    records = world.bodies(name, model)
    grpc = DIALECTS[name].transport == "grpc"
    half = len(records) // 2 if grpc else len(b"".join(records)) // 2
    run = world.Run(name, model, [world.Cut(half)], resume=world.only(way)).run()
    assert run.error is None
    assert run.text == ANSWER
    assert run.strategies == ["begin", "begin" if way == "rerun" else way]
    [resumption] = run.session.history.resumes
    assert resumption.strategy == way
    assert ANSWER.startswith(ANSWER[: resumption.at])
    assert 0 < resumption.at < len(ANSWER)
    assert [e for e in run.events if type(e) is Resumed] == [Resumed(resumption)]
    assert (
        run.session.history.exactness is resumption.exactness is not Exactness.UNBROKEN
    )


@pytest.mark.parametrize(("name", "way"), WAYS)
@settings(max_examples=15, deadline=None)
@given(answer=answers, places=drops, reads=reads)
@example(answer=(ANSWER, list(range(99))), places=[(9, "eof")] * 3, reads=1)
def test_every_character_comes_once_over_any_number_of_drops(
    name, way, answer, places, reads, world
):
    model = world.Model(*answer)
    breaks = cuts(world, name, model, places)
    # Ids may fail to spell text whose last token is not whole; the text itself goes on.
    resume = world.only(way, "text") if way == "tokens" else world.only(way)
    run = world.Run(name, model, breaks, resume=resume, reads=reads).run()
    assert run.error is None, run.error
    assert run.text == model.text == run.session.ledger.main.text
    assert run.session.complete
    assert len([e for e in run.events if type(e) is Finish]) == 1
    assert run.session.metrics.replaced == 0


@pytest.mark.parametrize(("name", "way"), [w for w in WAYS if w[0] in THINKERS])
@settings(max_examples=8, deadline=None)
@given(answer=answers, places=drops, reads=reads)
def test_reasoning_comes_once_or_the_stream_says_that_it_broke(
    name, way, answer, places, reads, world
):
    model = world.Model(*answer, reasoning="hm, ha ha")
    breaks = cuts(world, name, model, places)
    run = world.Run(name, model, breaks, resume=world.only(way), reads=reads).run()
    assert run.text == run.session.ledger.main.text
    assert run.reasoning == run.session.ledger.main.reasoning
    assert model.reasoning.startswith(run.reasoning)
    if run.error is None:
        assert run.text == model.text
    else:
        assert isinstance(run.error, StreamInterrupted)
        assert model.text.startswith(run.text)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10, deadline=None)
@given(answer=answers, places=drops, reads=reads)
def test_ways_may_follow_each_other_in_one_stream(name, answer, places, reads, world):
    model = world.Model(*answer)
    breaks = cuts(world, name, model, places)
    breaks = [end for one in breaks for end in (one, world.Refused(404, b"{}"))]
    resume = world.only("replay", "tokens", "text", "rerun")
    run = world.Run(name, model, breaks, resume=resume, reads=reads).run()
    if run.error is None:
        assert run.text == model.text
    else:
        assert model.text.startswith(run.text)


# -- 2: never unsay --------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_text_only_grows(name, world):
    model = world.Model(ANSWER, range(0, 99, 2))
    breaks = cuts(world, name, model, [(at * 37, "reset") for at in range(1, 9)])
    run = world.Run(name, model, breaks, resume=world.only("rerun"), reads=5)
    shown = ""
    receive = run.session.receive

    def watched(piece, now):
        nonlocal shown
        events = receive(piece, now)
        shown += "".join(e.text for e in events if type(e) is TextDelta)
        assert run.session.ledger.main.text == shown
        return events

    run.session.receive = watched
    assert run.run().text == shown == ANSWER


# -- 3: complete means said so ---------------------------------------------------------


def places(records, *, every):
    """Byte offsets of a body: all, or some and all that are near a record's end."""
    ends = list(itertools.accumulate(map(len, records), initial=0))
    near = {end + more for end in ends for more in range(-4, 2)}
    return [at for at in range(ends[-1] + 1) if at in near or at % every == 0]


@pytest.mark.parametrize(
    ("name", "how", "every"),
    [
        *((name, "eof", 1 if name in FIRST else 11) for name in DROPS),
        *((name, "reset", 31) for name in NAMES),
        *((name, "stall", 97) for name in NAMES),
    ],
)
def test_a_body_cut_at_any_byte_is_never_a_success(name, how, every, world):
    model = world.Model("日a", [3])
    records = world.bodies(name, model)
    grpc = DIALECTS[name].transport == "grpc"
    body = records if grpc else b"".join(records)
    ended = False
    for at in range(len(body) + 1) if grpc else places(records, every=every):
        cut = world.Cut(at, how) if grpc else world.Said(body[:at], how)
        run = world.Run(name, model, [cut]).run()
        assert model.text.startswith(run.text)
        if run.session.complete:
            ended = True
            assert run.error is None
            assert run.text == model.text
            assert run.session.ledger.finished or at >= len(body) - 2
        else:
            assert not ended, "complete with fewer bytes, broken with more"
            assert type(run.error) is StreamInterrupted
            assert isinstance(run.error.__cause__, Dropped | TimedOut)
            assert run.error.text == run.text
            assert run.error.resumable
    assert ended


# -- 4: any split, same events ---------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in NAMES if DIALECTS[n].transport != "grpc"])
@settings(max_examples=8, deadline=None)
@given(answer=answers, marks=st.lists(numbers, max_size=8), at=numbers)
def test_any_split_gives_the_same_events(name, answer, marks, at, world):
    model = world.Model(*answer, reasoning="hm")
    size = len(b"".join(world.bodies(name, model)))
    for end in (
        world.Cut(size, "eof"),
        world.Cut(at % size),
        world.Cut(at % size, "eof"),
    ):

        def seen(reads, end=end):
            run = world.Run(name, model, [end], reads=reads).run()
            return run.events, str(run.error), run.session.history.notes

        assert seen(marks) == seen(1) == seen(None)


# -- 5: bounded ------------------------------------------------------------------------


def grown(run, piece, times):
    """Bytes that a run holds after so many more records."""
    before = tracemalloc.get_traced_memory()[0]
    for _ in itertools.repeat(None, times):
        run.session.receive(piece, run.now)
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


@pytest.mark.parametrize("name", ["openai", "llama.cpp-completion", "ollama"])
def test_memory_is_the_answers_text_and_its_ids(name, world):
    model = world.Model("tea ", [])
    run = world.Run(name, model)
    run.opens.append(run.drive(run.session.connect(run.now)))
    run.session.opened(200, {})
    [record] = [r for r in world.bodies(name, model) if b"tea " in r]
    many = record * 50  # 50 tokens a read
    run.session.receive(many, run.now)
    tracemalloc.start()
    try:
        first, more = grown(run, many, 200), grown(run, many, 800)
    finally:
        tracemalloc.stop()
    text, ids = 4 * 40_000, 8 * 40_000
    assert first < 10_000 * 12 + 60_000
    assert more < text + ids * 1.3 + 60_000
    assert run.session.ledger.main.characters == 50 * 1001 * 4


# -- 7: one tree of errors -------------------------------------------------------------

garbage = st.one_of(
    st.binary(max_size=80),
    st.lists(
        st.sampled_from(
            [
                b"data: ",
                b"event: error\n",
                b"{",
                b"}",
                b'"',
                b":",
                b"[",
                b"]",
                b"null",
                b"\n",
                b"\n\n",
                b"\r",
                b"\xff",
                b"error",
                b"[DONE]",
                b"1e999",
                b",",
                b"1",
            ]
        ),
        max_size=20,
    ).map(b"".join),
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(body=garbage, how=st.sampled_from(["eof", "reset"]), reads=reads)
def test_garbage_raises_nothing_but_ours(name, body, how, reads, world):
    run = world.Run(name, world.Model("x"), [world.Said(body, how)], reads=reads).run()
    assert run.error is None or isinstance(run.error, MidstreamError)
    if run.error is not None:
        assert run.error.text == run.text
        assert run.error.checkpoint.text == run.text


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 10**25)
    | st.floats()
    | st.sampled_from(["", "x", "日", "stop", "error", "\ud83d", "\udcff"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["a", "text", "type", "index"]), inner, max_size=2
        )
    ),
    max_leaves=3,
)


@pytest.mark.parametrize("name", [n for n in NAMES if DIALECTS[n].transport != "grpc"])
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_fields_of_any_type_raise_nothing_but_ours(name, data, world, mutate):
    """A record as the server writes it, one or two of its fields replaced."""
    records = world.bodies(name, world.Model("日ab", [3, 4], reasoning="hm"))
    at = data.draw(st.integers(0, len(records) - 1))
    for _ in range(data.draw(st.integers(1, 2))):
        where, value = data.draw(numbers), data.draw(json_values)
        records[at] = mutate(records[at], where, value)
    end = world.Said(b"".join(records))
    run = world.Run(name, world.Model("日ab"), [end]).run()
    assert run.error is None or isinstance(run.error, MidstreamError)
    assert run.session.checkpoint().model_dump_json()
    if run.error is not None:
        assert run.error.checkpoint.text == run.error.text


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(body=garbage, status=st.sampled_from([300, 400, 401, 404, 418, 429, 500, 503]))
def test_any_body_of_an_error_is_a_typed_error(name, body, status, world):
    refused = world.Refused(status, body, {})
    run = world.Run(name, world.Model("x"), [refused]).run()
    assert isinstance(run.error, MidstreamError)
    assert run.error.status == status
    assert run.error.message


# -- 9: secrets stay -------------------------------------------------------------------

KEY = "sk-this-is-a-secret-0123456789"
TOKEN = "token-of-a-proxy-987654"


def chain(error):
    while error is not None:
        yield error
        error = error.__cause__


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("resumed", [False, True])
def test_no_key_is_in_anything_that_is_shown(name, resumed, world):
    words = f"key {KEY} with {TOKEN} has no room".encode()
    document = b'{"error": {"type": "overloaded_error", "message": "%s"}}' % words
    model = world.Model(ANSWER, range(9))
    size = len(world.bodies(name, model))
    first = world.Cut(size if DIALECTS[name].transport == "grpc" else 500)
    breaks = [first] + [world.Refused(529, document, {})] * (2 if resumed else 9)
    run = world.Run(
        name,
        model,
        breaks,
        resume=world.only("text", "rerun", attempts=3),
        endpoint={"api_key": KEY, "headers": {"X-Proxy": TOKEN}},
    ).run()
    shown = [
        run.session.history.notes,
        run.session.history.resumes,
        run.session.server.endpoint,
    ]
    shown += [
        run.session.checkpoint().model_dump_json(),
        run.opens,
        run.calls,
        run.asked,
    ]
    for error in chain(run.error):
        shown += [error, repr(error), error.args, vars(error)]
    for one in shown:
        assert KEY not in f"{one} {one!r}"
        assert TOKEN not in f"{one} {one!r}"
    assert (run.error is None) is resumed or first.at == size
