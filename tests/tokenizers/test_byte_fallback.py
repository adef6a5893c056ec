"""SentencePiece's spellings: the space's mark, and lone bytes."""

from midstream._tokenizers import byte_fallback


def test_spaces_stay_where_they_are():
    assert byte_fallback.decode("▁the▁") == b" the "
    assert byte_fallback.decode_words("▁the") == b" the"


def test_lone_bytes():
    assert byte_fallback.decode("<0xE6>") == b"\xe6"
    assert byte_fallback.decode("<0x0A>") == b"\n"
    assert byte_fallback.decode("<0xG0>") == b"<0xG0>"
    assert byte_fallback.decode("a<0xE6>") == b"a<0xE6>"
    assert byte_fallback.decode_words("<0xE6>") == b"<0xE6>"
