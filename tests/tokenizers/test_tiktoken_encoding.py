"""tiktoken's encodings, with a vocabulary made here."""

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from midstream._tokenizers.tiktoken_encoding import Tiktoken

RANKS = {bytes([byte]): byte for byte in range(256)} | {
    b"he": 256,
    b"\xe6\x97": 257,
    b" \xe6\x97": 258,
}


@pytest.fixture(scope="module")
def encoding():
    return tiktoken.Encoding(
        "made",
        pat_str=r"\s?\S+|\s+",
        mergeable_ranks=RANKS,
        special_tokens={"<|end|>": 300},
    )


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_ids_spell_the_text(encoding, text):
    tokenizer = Tiktoken(encoding)
    ids = tokenizer.encode(text, whole=True)
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()


def test_tokens_in_mid_character(encoding):
    tokenizer = Tiktoken(encoding)
    assert tokenizer.encode("he 日", whole=False) == [256, 258, 0xA5]
    assert tokenizer.token_bytes(258) == b" \xe6\x97"


def test_control_tokens(encoding):
    tokenizer = Tiktoken(encoding)
    assert tokenizer.special == {300}
    assert tokenizer.encode("he<|end|>", whole=False) == [256, 300]
    assert tokenizer.token_bytes(300) == b"<|end|>"
    assert tokenizer.token_bytes(299) == b""
