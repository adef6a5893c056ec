"""Stop strings, fed in any pieces: the answer ends in front of the first one."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._tokenizers.stop_strings import StopStrings

LETTERS = st.text("ab日本", max_size=12)


def pieces(data, cuts):
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def first(text, stop):
    """Where the string that is whole first begins and ends."""
    ends = [(text.find(w) + len(w), n) for n, w in enumerate(stop) if w in text]
    if not ends:
        return None
    end, nth = min(ends)
    return end - len(stop[nth]), end


@given(
    LETTERS,
    st.lists(st.text("ab日本", min_size=1, max_size=4)),
    st.lists(st.integers(0)),
)
def test_any_pieces_end_at_the_first_stop_string(text, stop, cuts):
    byte_by_byte = [bytes([byte]) for byte in text.encode()]
    wanted = first(text, stop)
    for parts in (byte_by_byte, pieces(text.encode(), cuts)):
        machine = StopStrings(stop)
        said = b"".join(map(machine.feed, parts))
        assert machine.matched is (wanted is not None)
        whole = said + machine.flush()
        if wanted is None:
            assert whole == text.encode()
        elif parts is byte_by_byte:
            assert whole == text[: wanted[0]].encode()
        assert not machine.holding


@given(LETTERS, st.lists(st.text("ab日本", min_size=1, max_size=4)))
def test_a_kept_stop_string_is_said_and_nothing_waits(text, stop):
    machine = StopStrings(stop, keep=True)
    said = b""
    for byte in text.encode():
        said += machine.feed(bytes([byte]))
        assert not machine.holding
    wanted = first(text, stop)
    assert said + machine.flush() == text[: wanted[1] if wanted else None].encode()


def test_nothing_waits_but_what_may_begin_a_stop_string():
    machine = StopStrings(["<|end|>", "<end>"])
    assert machine.feed(b"x<") == b"x"
    assert machine.holding
    assert machine.feed(b"|e") == b""
    assert machine.feed(b"n<") == b"<|en"
    assert machine.feed(b"e") == b""
    assert machine.feed(b"x") == b"<ex"
    assert not machine.holding


def test_nothing_is_said_behind_it():
    machine = StopStrings(["b"])
    assert machine.feed(b"abc") == b"a"
    assert machine.feed(b"d") == machine.flush() == b""


def test_the_one_that_is_whole_first_counts():
    assert StopStrings(["bcd", "c"]).feed(b"abcd") == b"ab"
    assert StopStrings(["bcd", "c"], keep=True).feed(b"abcd") == b"abc"


def test_unarmed_it_says_what_would_stop_and_holds_what_may_still():
    machine = StopStrings(["ab"])
    assert machine.feed(b"ab", armed=False) == b"ab"
    assert machine.feed(b"a", armed=False) == b""
    assert machine.feed(b"bc") == b""
    assert machine.matched


@pytest.mark.parametrize("stop", [[], [""]])
def test_none(stop):
    machine = StopStrings(stop)
    assert machine.feed(b"abc") == b"abc"
    assert machine.flush() == b""
