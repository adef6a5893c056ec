"""A printable letter for each byte, as GPT-2 has it."""

from hypothesis import given
from hypothesis import strategies as st

from midstream._tokenizers import byte_level


def test_known_letters():
    assert byte_level.decode("ĠHello") == b" Hello"
    assert byte_level.decode("Ċ") == b"\n"
    assert byte_level.decode("æĹ¥") == "日".encode()
    assert len(set(byte_level.LETTERS.values())) == 256


@given(st.binary())
def test_bytes_come_back(data):
    letters = byte_level.encode(data)
    assert byte_level.decode(letters) == data
    assert letters.isprintable()


def test_an_added_token_is_its_own_text():
    assert byte_level.decode("<|日本|>") == "<|日本|>".encode()
    assert byte_level.decode("a b") == b"a b"
