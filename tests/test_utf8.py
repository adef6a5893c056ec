"""The shared UTF-8 decoder: whole characters from any pieces."""

import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from midstream._dialects.documents import loads
from midstream._utf8 import REPLACEMENT, Utf8Decoder
from midstream._values.errors import WireError

HARD = "日本語👩‍👩‍👧e\u0301🇯🇵\u2028\x85ascii\ufffd\U0010ffff"
texts = st.text(max_size=12) | st.just(HARD)
marks = st.lists(st.integers(0, 200), max_size=8)


def cut(whole, places):
    edges = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    return [whole[a:b] for a, b in itertools.pairwise(edges)]


def escaped(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def halves(text: str) -> str:
    """UTF-16 code units as a string: what a JSON text with \\u escapes may hold."""
    units = text.encode("utf-16-le")
    return "".join(
        chr(int.from_bytes(units[at : at + 2], "little"))
        for at in range(0, len(units), 2)
    )


def decoded(pieces, errors="replace"):
    """The decoder and what it gave; each piece can be encoded."""
    decoder = Utf8Decoder(errors)
    given_out = [decoder.decode(piece) for piece in pieces]
    given_out.append(decoder.flush())
    for piece in given_out:
        piece.encode()
    return decoder, "".join(given_out)


# -- any split -------------------------------------------------------------------------


@given(text=texts, places=marks)
@example(text=HARD, places=range(200))
@pytest.mark.parametrize("errors", ["replace", "strict"])
def test_text_cut_anywhere_comes_out_whole(text, places, errors):
    data = text.encode()
    as_bytes = cut(data, places)
    as_escapes = [escaped(piece) for piece in as_bytes]
    mixed = [
        piece if at % 2 else escaped(piece)
        for at, piece in enumerate(cut(data, places))
    ]
    for pieces in as_bytes, as_escapes, mixed, cut(text, places):
        decoder, out = decoded(pieces, errors)
        assert out == text
        assert decoder.replaced == 0
        assert not decoder.pending


@given(text=texts, places=marks)
@example(text=HARD, places=range(200))
def test_surrogate_pairs_cut_anywhere_come_out_whole(text, places):
    decoder, out = decoded(cut(halves(text), places), "strict")
    assert out == text
    assert decoder.replaced == 0


@given(data=st.binary(max_size=24), places=marks)
@example(data=b"\xe6\x97\xe6\x97\xa5\xf0\x9f\x98", places=range(9))
@example(data=b"\xed\xa0\x80\xc0\x80\xf5", places=range(9))
@example(data=b"\xef\xbf\xbd\xff\xef\xbf", places=range(9))
def test_bytes_that_are_no_utf8_are_replaced_as_python_does(data, places):
    expected = data.decode("utf-8", "replace")
    genuine = data.count(REPLACEMENT.encode())
    for pieces in cut(data, places), [escaped(p) for p in cut(data, places)]:
        decoder, out = decoded(pieces)
        assert out == expected
        assert decoder.replaced == expected.count(REPLACEMENT) - genuine


@given(
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=3),
            st.text(st.characters(exclude_categories=[]), max_size=3),
            st.sampled_from(["\ud83d", "\ude00", "\udce6", "\udc97", b"\xe6", b"\x97"]),
        ),
        max_size=8,
    )
)
@example(pieces=["\ud83d", b"a"])
@example(pieces=["\udce6", "\ud83d", "\ude00"])
@example(pieces=["\ud83d", "\ud83d", "\ude00", "\udcff"])
def test_whatever_comes_each_piece_given_out_can_be_encoded(pieces):
    decoder, out = decoded(pieces)
    assert decoder.replaced <= out.count(REPLACEMENT)
    assert not decoder.pending


# -- pieces ----------------------------------------------------------------------------


def test_half_a_character_waits_and_is_never_shown():
    decoder = Utf8Decoder()
    assert decoder.decode(b"a\xe6\x97") == "a"
    assert decoder.pending
    assert decoder.decode("") == ""
    assert decoder.decode(b"\xa5b") == "日b"
    assert not decoder.pending


def test_half_a_pair_waits_for_its_other_half_in_the_next_record():
    decoder = Utf8Decoder()
    records = [b'{"t":"x\\ud83d"}', b'{"t":"\\ude00y"}']
    assert [decoder.decode(loads(record)["t"]) for record in records] == ["x", "😀y"]
    assert decoder.replaced == 0


def test_raw_bytes_in_json_are_joined_over_records():
    decoder = Utf8Decoder()
    records = [b'{"t":"\xe4\xba"}', b'{"t":"\xac!"}']
    assert [decoder.decode(loads(record)["t"]) for record in records] == ["", "京!"]


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["\ud83d", "x"], "\ufffdx"),
        (["\ud83dx"], "\ufffdx"),
        (["\ude00"], "\ufffd"),
        (["\udd00\ude00"], "\ufffd\ufffd"),
        (["\ud83d", "\ud83d\ude00"], "\ufffd😀"),
        (["\ud83d", b"x"], "\ufffdx"),
        (["\ud83d", b"\xe6\x97", b"\xa5"], "\ufffd日"),
        ([b"\xe6\x97", "x"], "\ufffdx"),
        ([b"\xe6\x97", "\ud83d", "\ude00"], "\ufffd😀"),
        ([b"\xe6\x97", "\ud83d"], "\ufffd\ufffd"),
    ],
)
def test_halves_without_their_other_half_are_replaced_in_their_place(pieces, text):
    decoder, out = decoded(pieces)
    assert out == text
    assert decoder.replaced == text.count("\ufffd")


def test_one_bad_byte_does_not_end_the_stream():
    decoder, out = decoded([loads(b'{"t":"a\xffb"}')["t"], "c"])
    assert out == "a\ufffdbc"
    assert decoder.replaced == 1


def test_the_end_inside_a_character_gives_one_replacement():
    decoder = Utf8Decoder()
    assert decoder.decode(b"x\xe6\x97") == "x"
    assert decoder.flush() == "\ufffd"
    assert decoder.replaced == 1
    assert decoder.flush() == ""


@pytest.mark.parametrize("half", [b"\xe6\x97", "\udce6\udc97", "\ud83d"])
def test_a_forgotten_half_leaves_no_trace(half):
    decoder = Utf8Decoder()
    assert decoder.decode(half) == ""
    assert decoder.pending
    decoder.forget()
    assert not decoder.pending
    assert decoder.decode("日") == "日"
    assert decoder.flush() == ""
    assert decoder.replaced == 0


@pytest.mark.parametrize("text", ["plain", "日本", ""])
def test_whole_text_is_passed_on_without_a_copy(text):
    assert Utf8Decoder().decode(text) is text


@pytest.mark.parametrize(
    "pieces",
    [[b"a\xff"], ["a\udcff"], ["\ude00"], ["\ud83d", "x"], ["\ud83d", b"x"]],
)
def test_strict_raises_a_wire_error(pieces):
    decoder = Utf8Decoder("strict")
    with pytest.raises(WireError, match=r"UTF-8|surrogate"):
        [decoder.decode(piece) for piece in pieces]


@pytest.mark.parametrize("half", [b"\xe6\x97", "\ud83d"])
def test_strict_raises_at_the_end_inside_a_character(half):
    decoder = Utf8Decoder("strict")
    assert decoder.decode(half) == ""
    with pytest.raises(WireError, match=r"UTF-8|surrogate"):
        decoder.flush()


def test_the_cause_of_a_strict_error_is_kept():
    with pytest.raises(WireError) as caught:
        Utf8Decoder("strict").decode(b"\xff")
    assert isinstance(caught.value.__cause__, UnicodeDecodeError)


def test_json_with_escapes_gives_the_text_however_it_is_cut():
    document = json.dumps({"t": HARD})  # all of it as \\u escapes
    decoder, out = decoded([loads(document.encode())["t"]])
    assert out == HARD
    assert decoder.replaced == 0
