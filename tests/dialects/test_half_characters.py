"""Halves of surrogate pairs and bytes that are no UTF-8, inside JSON strings."""

import pytest

from midstream._values.events import TextDelta

WRITTEN = {
    "gemini": b'data: {"candidates":[{"content":{"parts":[{"text":"%s"}]}}]}\n\n',
    "tgi": b'data:{"token":{"id":1,"text":"%s"}}\n\n',
    "ollama": b'{"message":{"content":"%s"}}\n',
    "ollama-generate": b'{"response":"%s"}\n',
    "triton": b'data: {"text_output":"%s"}\n\n',
}


def pieces(wire, name, *texts):
    body = b"".join(WRITTEN[name] % text for text in texts)
    said = wire.signals(name, body)
    return [one.text for one in said if isinstance(one, TextDelta)]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_pair_may_come_in_two_records(wire, name):
    assert pieces(wire, name, rb"x\ud83d", rb"\ude00y") == ["x", "😀y"]


@pytest.mark.parametrize("name", WRITTEN)
def test_so_may_the_bytes_of_a_character(wire, name):
    assert pieces(wire, name, b"x\xe6\x97", b"\xa5y") == ["x", "日y"]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_byte_that_is_no_utf8_is_replaced(wire, name):
    assert "".join(pieces(wire, name, b"a\xffb")) == "a\ufffdb"
