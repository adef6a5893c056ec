"""Ids to text: any split gives the same, and ids count with whole characters only."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._dialects.base import Generation
from midstream._resume.ledger import Ledger
from midstream._session.channels import Channels
from midstream._tokenizers.detokenizer import Detokenizer, Speech
from midstream._values.endpoint import Endpoint
from midstream._values.request import Request

TEXT = st.text(
    st.one_of(
        st.sampled_from("ab c日本語👩‍👧é"), st.characters(exclude_categories=["Cs"])
    ),
    max_size=30,
)


class Pieces:
    """A vocabulary of given pieces."""

    special = frozenset({0})

    def __init__(self, *pieces):
        self._pieces = (b"<end>", *pieces)

    def token_bytes(self, id_):
        return self._pieces[id_]

    def encode(self, text, *, whole):
        raise NotImplementedError


def speech(*pieces, **how):
    return Speech(tokenizer=Pieces(*pieces), silent={0}, **how)


STRICT = Generation(
    endpoint=Endpoint("vllm-grpc", errors="strict"), request=Request(prompt="p")
)


def shards(data, cuts):
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [p for a, b in itertools.pairwise(edges) if (p := data[a:b])]


@given(TEXT, st.lists(st.integers(0)), st.lists(st.integers(0)), st.booleans())
def test_any_tokens_in_any_chunks(text, cuts, borders, stops):
    """Whatever the tokens and chunks, the ids that count spell a begin of the text."""
    tokens = shards(text.encode(), cuts)
    how = speech(*tokens, stop=["日本", "b c"] if stops else ())
    machine, channels, ledger = Detokenizer(how), Channels(STRICT), Ledger(0, None)
    ids = list(range(1, len(tokens) + 1))
    edges = [0, *sorted({b % (len(ids) + 1) for b in borders}), len(ids)]
    said = ""
    chunks = [ids[a:b] for a, b in itertools.pairwise(edges)]
    for deltas in [*map(machine.feed, chunks), machine.flush()]:
        for delta in deltas:
            whole = channels.text(delta)
            said += whole.text
            ledger.add_text(whole)
        received = ledger.received(0, None)
        kept = list(received.token_ids)
        assert kept == ids[: len(kept)]
        assert received.tokens == len(kept)
        if not machine.stopped:
            assert said.startswith(how.spell(kept).decode())
    want = text
    if stops:
        ends = [text.find(w) + len(w) for w in how.stop if w in text]
        want = text[: min(ends)] if ends else text
        want = next((want.removesuffix(w) for w in how.stop if want.endswith(w)), want)
    assert said == want or (machine.stopped and want.startswith(said))


def texts(deltas):
    return [(delta.text, delta.tokens, delta.token_ids) for delta in deltas]


def test_half_characters_go_on_and_their_ids_wait():
    machine = Detokenizer(speech(b" \xe6", b"\x97", b"\xa5!"))
    assert texts(machine.feed([1])) == [(" \udce6", 0, ())]
    assert texts(machine.feed([2])) == [("\udc97", 0, ())]
    assert texts(machine.feed([3])) == [("\udca5!", 3, (1, 2, 3))]
    assert machine.flush() == []


def test_a_chunk_of_many():
    machine = Detokenizer(speech(b"a", b"b\xe6", b"\x97\xa5", b"c\xe6"), choice=2)
    deltas = machine.feed([1, 2, 3, 4])
    assert texts(deltas) == [("ab日", 3, (1, 2, 3)), ("c\udce6", 0, ())]
    assert {delta.choice for delta in deltas} == {2}
    assert texts(machine.flush()) == [("", 1, (4,))]


def test_control_tokens_are_silent_but_count():
    machine = Detokenizer(speech(b"a"))
    assert texts(machine.feed([1, 0])) == [("a", 2, (1, 0))]
    assert speech(b"a").spell([1, 0, 1]) == b"aa"


def test_logprobs_stay_with_their_ids():
    machine = Detokenizer(speech(b"\xe6", b"\x97\xa5", b"x"))
    (half,) = machine.feed([1], ["one"])
    assert half.logprobs is None
    (whole,) = machine.feed([2], ["two"])
    assert whole.logprobs == ["one", "two"]
    (plain,) = machine.feed([3])
    assert plain.logprobs is None


def test_what_may_begin_a_stop_string_waits_with_its_id():
    machine = Detokenizer(speech(b"a<", b"b", b"|", stop=["<|"]))
    assert texts(machine.feed([1])) == [("a", 0, ())]
    assert texts(machine.feed([2])) == [("<b", 2, (1, 2))]
    assert machine.feed([1]) != []
    assert machine.feed([3]) == []
    assert machine.stopped
    assert machine.feed([2]) == []
    assert texts(machine.flush()) == [("", 3, (1, 3, 2))]


def test_what_waits_at_the_end_is_text():
    machine = Detokenizer(speech(b"a<", stop=["<|"]))
    machine.feed([1])
    assert texts(machine.flush()) == [("<", 1, (1,))]


@pytest.mark.parametrize(("least", "said"), [(0, "a"), (1, "aba"), (2, "abab")])
def test_nothing_stops_before_the_least_tokens(least, said):
    machine = Detokenizer(speech(b"ab", stop=["b"], min_tokens=least))
    deltas = machine.feed([1, 1]) + machine.flush()
    assert "".join(delta.text for delta in deltas) == said
