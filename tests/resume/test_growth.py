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
        return client.stream("hi", extra={"n": 2})._session


def drop(stream):
    endpoint = stream.server.endpoint
    stream.history.resumes.append(
        Resumption(3, "why", "text", Exactness.TEXT, endpoint, 0.5)
    )
    stream.history.exactness = Exactness.TEXT


STEPS = st.one_of(
    words.map(lambda text: lambda s: s.ledger.add_text(TextDelta(text))),
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
                TextDelta("xy", tokens=len(ids) + 1, token_ids=tuple(ids))
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
    base, before, growths = stream.checkpoint(), seen(stream.standing()), []
    for steps in looks:
        for step in steps:
            step(stream)
        standing = stream.standing()
        news, now = growth(standing, before), seen(standing, before)
        assert now == seen(standing), "counted on from before, or anew"
        if news is None:
            base, growths = stream.checkpoint(), []
        else:
            json = news.model_dump_json(exclude_unset=True)
            growths.append(Growth.model_validate_json(json))
        before = now
    grown = base.grown(*growths)
    assert grown == whole(stream.standing()) == stream.checkpoint()
    assert Checkpoint.model_validate_json(grown.model_dump_json()) == grown
    assert (grown.exactness == "TEXT") == bool(stream.history.resumes)


def test_nothing_new_is_an_empty_growth():
    stream = session()
    standing = stream.standing()
    assert growth(standing, seen(standing)) == Growth()
    assert not growth(standing, seen(standing)).model_fields_set


def test_what_did_not_grow_but_is_another_is_told_whole():
    for change in (
        lambda s: s.ledger.forget_ids(),
        lambda s: s.ledger.start(Started("r", prompt_ids=(1, 2))),
        lambda s: s.ledger.load(Checkpoint(endpoint="e", request={}, text="other")),
    ):
        stream = session()
        before = seen(stream.standing())
        change(stream)
        assert growth(stream.standing(), before) is None


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
