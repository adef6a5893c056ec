"""What is new, again and again, adds up to the whole; and costs no more than it."""

from hypothesis import given
from hypothesis import strategies as st

import midstream
from midstream import ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta, Usage
from midstream._resume.growth import growth, seen, whole
from midstream._resume.ledger import Text
from midstream._values.checkpoint import Checkpoint, Growth
from midstream._values.events import Finish, Started
from midstream._values.exactness import Exactness
from midstream._values.resumption import Resumption

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def session():
    with midstream.Client("ollama:m") as client:
        return client._session("hi", extra={"n": 2})


def drop(stream):
    endpoint = stream.server.endpoint
    stream.resumes.append(Resumption(3, "why", "text", Exactness.TEXT, endpoint, 0.5))
    stream.exactness = Exactness.TEXT


STEPS = st.one_of(
    words.map(lambda text: lambda s: s.ledger.add_text(TextDelta(text), whole=True)),
    words.map(lambda text: lambda s: s.ledger.add_side(ReasoningDelta(text))),
    words.map(lambda text: lambda s: s.ledger.add_side(RefusalDelta(text, choice=1))),
    st.tuples(st.integers(0, 2), words).map(
        lambda call: (
            lambda s: s.ledger.add_tool(
                ToolCallDelta(call[0], f"id{call[0]}", "f", call[1])
            )
        )
    ),
    st.lists(st.integers(0, 9), min_size=1, max_size=3).map(
        lambda ids: (
            lambda s: s.ledger.add_text(
                TextDelta("xy", tokens=len(ids) + 1, token_ids=tuple(ids)), whole=True
            )
        )
    ),
    st.just(lambda s: s.ledger.start(Started("r1", "m"))),
    st.just(lambda s: s.ledger.report(Usage(3, 4))),
    st.just(lambda s: s.ledger.forget_ids()),
    st.just(lambda s: s.ledger.forget_open()),
    st.just(lambda s: s.ledger.choice(1).add_text("other")),
    st.just(lambda s: s.ledger.choice(0).finish(Finish("stop", "eos"))),
    st.just(drop),
)


@given(st.lists(st.lists(STEPS, max_size=4), max_size=6))
def test_growths_add_up_to_the_whole(looks):
    stream = session()
    base, before, growths = whole(stream), seen(stream), []
    for steps in looks:
        for step in steps:
            step(stream)
        news, now = growth(stream, before), seen(stream, before)
        assert now == seen(stream), "counted on from before, or anew"
        if news is None:
            base, growths = whole(stream), []
        else:
            json = news.model_dump_json(exclude_unset=True)
            growths.append(Growth.model_validate_json(json))
        before = now
    grown = base.grown(*growths)
    assert grown == whole(stream) == stream.checkpoint()
    assert Checkpoint.model_validate_json(grown.model_dump_json()) == grown
    assert (grown.exactness == "TEXT") == bool(stream.resumes)


def test_nothing_new_is_an_empty_growth():
    stream = session()
    assert growth(stream, seen(stream)) == Growth()
    assert not growth(stream, seen(stream)).model_fields_set


def test_what_did_not_grow_but_is_another_is_told_whole():
    for change in (
        lambda s: s.ledger.forget_ids(),
        lambda s: s.ledger.start(Started("r", prompt_ids=(1, 2))),
        lambda s: s.ledger.load(Checkpoint(endpoint="e", request={}, text="other")),
    ):
        stream = session()
        before = seen(stream)
        change(stream)
        assert growth(stream, before) is None


@given(st.lists(words, max_size=600), st.integers(0, 2000))
def test_a_texts_end_is_what_follows_a_length(pieces, length):
    text = Text()
    for piece in pieces:
        text.add(piece)
    assert text.since(length) == str(text)[length:]


def test_the_end_of_a_long_text_is_found_from_its_end():
    class Block(str):
        __slots__ = ()
        seen = 0

        def __len__(self):
            Block.seen += 1
            return super().__len__()

    text = Text()
    text._blocks = [Block("x" * 1000) for _ in range(10_000)]
    text.length = 10_000_000
    text.add("end")
    assert text.since(10_000_000 - 10) == "x" * 10 + "end"
    assert Block.seen == 1
