"""Objects of a JSON array, in whatever pieces they come."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._frames.json_array import JSONArrayFramer
from midstream._frames.sse_or_array import SSEOrArrayFramer
from midstream._values.errors import EventTooLarge, WireError

GEMINI = (
    b'[{\n  "a": "x"\n}\n,\r\n{"a": [{"b": 1}, [2]]}\n,\r\n{"c": "]}[{\\\\\\"}"}\n]\n'
)
OBJECTS = st.lists(
    st.dictionaries(
        st.text(max_size=3),
        st.recursive(
            st.text('"\\{}[],\n é語' + "x", max_size=6) | st.integers() | st.none(),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(st.text(max_size=2), inner, max_size=2)
            ),
            max_leaves=4,
        ),
        max_size=3,
    ),
    max_size=4,
)


def test_each_object_comes_when_its_brace_closes(same):
    records, rest = same(JSONArrayFramer, GEMINI)
    assert rest == []
    assert [json.loads(data) for data, name in records if name == ""] == [
        {"a": "x"},
        {"a": [{"b": 1}, [2]]},
        {"c": ']}[{\\"}'},
    ]
    framer = JSONArrayFramer()
    assert framer.decode(b'[{"a": 1}') == [(b'{"a": 1}', "")]
    assert framer.decode(b"\n") == framer.decode(b"]") == framer.flush() == []


@given(OBJECTS, st.lists(st.integers(0), max_size=6), st.booleans(), st.data())
def test_any_split_gives_the_same_objects(framed, cut, objects, marks, plain, data):
    body = json.dumps(
        objects, ensure_ascii=plain, indent=data.draw(st.none() | st.just(1))
    )
    records, rest = framed(JSONArrayFramer(), cut(body.encode(), marks))
    assert [json.loads(record) for record, _ in records] == objects
    assert rest == []


def test_raw_bytes_that_are_no_utf8_pass(framed):
    records, _ = framed(JSONArrayFramer(), [b'[{"a":"\xe4', b'\xba"}]'])
    assert records == [(b'{"a":"\xe4\xba"}', "")]


def test_the_end_of_the_body_gives_what_is_open(framed):
    assert framed(JSONArrayFramer(), [b'[{"a": "x'])[1] == [(b'{"a": "x', "")]
    framer = JSONArrayFramer()
    framer.decode(b'{"a"')
    assert framer.flush() == [(b'{"a"', "")]
    assert framer.flush() == []


@pytest.mark.parametrize("body", [b"[1]", b'["a"]', b"[{}, x]", b"null", b"[{}}"])
def test_what_is_no_array_of_objects(framed, body):
    with pytest.raises(WireError, match="no object in a JSON array"):
        framed(JSONArrayFramer(), [body])


@pytest.mark.parametrize("make", [JSONArrayFramer, SSEOrArrayFramer])
def test_an_object_beyond_the_limit(framed, make):
    body = b'[{"a": "' + b"x" * 40 + b'"}]'
    for pieces in [body], [body[at : at + 1] for at in range(len(body))]:
        with pytest.raises(EventTooLarge, match="more than 40 bytes"):
            framed(make(40), pieces)
    assert len(framed(make(60), [body])[0]) == 1


EVENTS = b'data: {"a": 1}\n\ndata: {"b": "["}\n\n'


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\r\n"])
@pytest.mark.parametrize("body", [GEMINI, EVENTS, b": ping\n\n" + EVENTS])
def test_the_first_byte_tells_events_from_an_array(same, before, body):
    records, rest = same(SSEOrArrayFramer, before + body)
    assert [json.loads(data) for data, _ in records] == (
        [{"a": 1}, {"b": "["}]
        if b"data:" in body
        else [{"a": "x"}, {"a": [{"b": 1}, [2]]}, {"c": ']}[{\\"}'}]
    )
    assert rest == []


def test_a_late_error_without_its_field_is_an_event(framed):
    records, rest = framed(SSEOrArrayFramer(), [EVENTS, b'{\n "error": {}\n}\n'])
    assert len(records) == 2
    assert rest == [(b'{\n "error": {}\n}', "")]


@pytest.mark.parametrize("body", [b"", b"\r\n ", b"\xef\xbb"])
def test_a_body_without_a_record(framed, body):
    assert framed(SSEOrArrayFramer(), [body]) == ([], [])


def test_compressed_bytes_are_refused(framed):
    with pytest.raises(WireError, match="gzip"):
        framed(SSEOrArrayFramer(), [b"\x1f\x8b\x08\x00"])
