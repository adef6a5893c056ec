"""The toy model: the same seed the same tokens, and a tokenizer that agrees with it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream._values.events import Finish, ReasoningDelta, TextDelta
from midstream.testing._fake.asked import Asked
from midstream.testing._fake.model import ToyModel, pieces_of
from midstream.testing._fake.places import Places
from midstream.testing._fake.voice import Manner, speak

patient = settings(deadline=None)  # how busy the machine is, is not the subject
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
splits = st.sampled_from(["text", "bytes"])
WHOLE = Manner(whole=True, ids=True, finish=lambda why: Finish(why, why))
RAW = Manner(whole=False, ids=False, finish=lambda why: Finish(why, why))


@patient
@given(texts, splits, st.integers(0, 5))
def test_pieces_are_the_text(text, split, seed):
    pieces = pieces_of(text, split, seed)
    assert b"".join(pieces) == text.encode()
    assert pieces == pieces_of(text, split, seed)
    assert all(pieces)


@patient
@given(texts, splits)
def test_tokenize_and_back(text, split):
    model = ToyModel(pieces_of("An answer. 日本語", split, 0))
    assert model.detokenize(model.tokenize(text.encode())) == text.encode()
    assert model.detokenize([1, *model.tokenize(b"abc"), 2]) == b"abc"


@patient
@given(texts, splits)
def test_the_answers_runs_have_the_answers_tokens(text, split):
    model = ToyModel(pieces_of(text, split, 0))
    ids = [step.id for step in model.steps]
    assert model.tokenize(text.encode()) == ids
    for start in range(len(ids)):
        part = b"".join(step.data for step in model.steps[start:])
        assert model.detokenize(model.tokenize(part)) == part


def test_a_run_may_be_a_later_one():
    model = ToyModel([b"ab", b"c", b"b", b"c"])
    assert model.tokenize(b"bc") == [model.id_of(b"b"), model.id_of(b"c")]
    assert model.tokenize(b"x") == [3 + ord("x")]


@patient
@given(texts, splits, st.data())
def test_every_prefix_leaves_the_rest(text, split, data):
    model = ToyModel(pieces_of(text, split, 1))
    answer = text.encode()
    cut = data.draw(st.integers(0, len(answer)))
    rest = model.rest(answer[:cut])
    assert rest is not None
    assert b"".join(step.data for step in rest) == answer[cut:]
    assert model.rest(answer[:cut] + b"\xff") is None


def test_reasoning_that_is_not_the_models():
    model = ToyModel([], events=[ReasoningDelta("ab"), TextDelta("c")])
    assert model.rest(b"c", b"abX") is None
    assert model.rest(b"", b"X") is None
    assert model.rest(b"", b"") == model.steps
    assert model.rest(b"", b"ab") == model.steps[1:]
    assert model.rest(b"c") == []


@patient
@given(
    texts,
    splits,
    st.lists(st.text(max_size=3), max_size=2),
    st.none() | st.integers(1, 20),
)
def test_what_is_said_is_a_begin_of_the_answer(text, split, stop, limit):
    model = ToyModel(pieces_of(text, split, 2))
    stops = tuple(s.encode("utf-8", "replace") for s in stop if s)
    asked = Asked(stop=stops, max_tokens=limit)
    for manner in WHOLE, RAW:
        events = list(speak([model.steps], asked, manner, tools=False))
        said = "".join(e.text for e in events if isinstance(e, TextDelta))
        data = said.encode("utf-8", "surrogateescape")
        assert text.encode().startswith(data)
        assert all(s not in data for s in stops)
        ends = [e.reason for e in events if isinstance(e, Finish)]
        if ends == ["eos"]:
            assert data == text.encode()
        assert len(ends) == 1


@patient
@given(texts, st.text(min_size=1, max_size=8), st.data())
def test_a_continued_prompt_is_found_again(answer, prompt, data):
    model = ToyModel(pieces_of(answer, "text", 3))
    places = Places(model)
    raw = Asked(opening=prompt.encode("utf-8", "replace"), raw=True)
    places_known = Places(model, prompt.encode("utf-8", "replace").decode())
    cut = data.draw(st.integers(0, len(answer)))
    prefix = answer[:cut].encode()
    again = Asked(opening=raw.opening + prefix, raw=True)
    found = places_known.find(again)
    assert found.prefix == prefix or found.prefix.endswith(prefix)
    if places.find(raw).how == "top":
        assert places.find(again).prefix == prefix


@pytest.mark.parametrize("raw", [True, False])
def test_an_answer_that_is_asked_for_twice(raw):
    places = Places(ToyModel([b"abc"]))
    for _ in range(2):
        assert places.find(Asked(opening=b"Q", raw=raw)).how == "top"
