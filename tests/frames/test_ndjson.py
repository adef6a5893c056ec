"""Newline-delimited JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._frames.ndjson import NDJSONFramer
from midstream._values.errors import EventTooLarge, WireError


def lines(*payloads):
    return [(payload, "") for payload in payloads]


def test_blank_lines_and_crlf_are_skipped_at_every_split(same):
    a, b, c = b'{"m":"a","done":false}', b'{"m":"b"}', b'{"done":true}'
    body = a + b"\r\n\n" + b + b"\n \t\r\n" + c + b"\n"
    assert same(NDJSONFramer, body) == (lines(a, b, c), [])


def test_unicode_line_separators_are_text(same):
    line = '{"t":"a\u2028b\u2029c\u0085d\x1c"}'.encode()
    assert same(NDJSONFramer, line + b"\n") == (lines(line), [])


def test_a_byte_order_mark_is_stripped_once(same):
    bom = b"\xef\xbb\xbf"
    body = bom + b"1\n" + bom + b"2\n"
    assert same(NDJSONFramer, body) == (lines(b"1", bom + b"2"), [])


def test_flush_gives_the_last_line_without_its_newline(same):
    assert same(NDJSONFramer, b'{"a":1}\n{"b"') == (lines(b'{"a":1}'), lines(b'{"b"'))
    assert same(NDJSONFramer, b'{"a":1}\n \r') == (lines(b'{"a":1}'), [])


def test_a_second_flush_gives_nothing():
    framer = NDJSONFramer()
    framer.decode(b"1")
    assert framer.flush() == lines(b"1")
    assert framer.flush() == []


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_beyond_the_limit_is_refused_whatever_the_split(size, end):
    body = b"1\n" + b"x" * 200 + end
    framer = NDJSONFramer(100)
    with pytest.raises(EventTooLarge):
        [framer.decode(body[at : at + size]) for at in range(0, len(body), size)]


def test_lines_do_not_count_together():
    framer = NDJSONFramer(10)
    assert framer.decode(b"x" * 9 + b"\n" + b"y" * 9) == lines(b"x" * 9)
    assert framer.decode(b"\n" + b"z" * 9 + b"\n") == lines(b"y" * 9, b"z" * 9)


def test_gzip_without_a_header_is_refused(splits):
    for pieces in splits(b"\x1f\x8b\x08"):
        framer = NDJSONFramer()
        with pytest.raises(WireError, match="gzip"):
            [framer.decode(piece) for piece in pieces]


@given(
    body=st.lists(
        st.sampled_from([b"1", b" ", b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b"\x85"])
    ).map(b"".join),
    marks=st.lists(st.integers(0, 1000), max_size=8),
)
def test_any_split_gives_the_same_lines(body, marks, framed, cut):
    assert framed(NDJSONFramer(), cut(body, marks)) == framed(NDJSONFramer(), [body])
