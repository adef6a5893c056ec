"""JSON in and out, for bytes that may not be what they should be."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from midstream._dialects.documents import dumps, load_object, loads, named_event, spell
from midstream._values.errors import WireError

documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(documents)
@example({"t": "日本\u2028\x85😀\x00"})
def test_what_was_written_is_read(value):
    assert loads(dumps(value)) == value == loads(json.dumps(value).encode())


@given(st.text(st.characters(exclude_categories=[]), max_size=6))
@example("\ud83d")
@example("\ude00")
@example("\udce6\udc97")
@example("a\ud83d\udcffb\udc7f\udd00")
def test_halves_of_characters_survive_in_one_way_or_another(text):
    """A whole pair may come back as its character; bytes and halves as they were."""
    again = loads(dumps({"t": text}))["t"]
    assert spell(again).encode("utf-16", "surrogatepass") == spell(text).encode(
        "utf-16", "surrogatepass"
    )


def test_raw_bytes_come_back_as_surrogates():
    assert loads(b'{"t":"\xe4\xba"}') == {"t": "\udce4\udcba"}
    assert dumps({"t": "\udce4\udcba"}) == b'{"t":"\xe4\xba"}'


def test_half_a_pair_is_written_as_an_escape():
    assert dumps("x\ud83d") == b'"x\\ud83d"'


@pytest.mark.parametrize(
    "data", [b"", b"{", b"no", b"[1,]", b"\xff", b'{"a":1} x', b"[" * 5000, b"\x00"]
)
def test_what_is_no_json_is_a_wire_error(data):
    with pytest.raises(WireError) as caught:
        loads(data)
    assert isinstance(caught.value.__cause__, ValueError)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("data", [b"1", b"[]", b"null", b'"x"'])
def test_a_record_must_be_an_object(data):
    assert load_object(b'{"a": 1}') == {"a": 1}
    with pytest.raises(WireError, match="no JSON object"):
        load_object(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_a_wire_error(data):
    try:
        value = loads(data)
    except WireError:
        return
    assert loads(dumps(value)) == value or value != value  # noqa: PLR0124 - NaN


def test_a_named_event_repeats_its_name():
    assert named_event("ping", a=1) == b'event: ping\ndata: {"type":"ping","a":1}\n\n'
