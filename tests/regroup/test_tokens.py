"""Pieces of n tokens."""

import pytest
import tiktoken

from midstream._regroup import Tokens
from midstream._regroup.tokens import LIMIT
from midstream._values.errors import UsageError

ENCODING = tiktoken.Encoding(
    name="bytes",
    pat_str=r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s+(?!\S)|\s",
    mergeable_ranks={bytes([i]): i for i in range(256)} | {b" a": 256, b"bc": 257},
    special_tokens={},
)


class Counting:
    """Counts the characters that are encoded."""

    def __init__(self):
        self.read = 0

    def encode_ordinary(self, text, /):
        self.read += len(text)
        return ENCODING.encode_ordinary(text)

    def decode_with_offsets(self, tokens, /):
        return ENCODING.decode_with_offsets(tokens)


def test_the_server_counts():
    by = Tokens(3)
    assert by.feed("Hel", 0.0, tokens=1) == []
    assert by.feed("lo", 0.0, tokens=1) == []
    assert by.feed(" wor", 0.0, tokens=1) == []
    assert by.feed("ld", 0.0, tokens=1) == ["Hello wor"]
    assert by.feed(" this is", 0.0, tokens=5) == []
    assert by.feed("\n", 0.0, tokens=3) == ["ld this is", "\n"]
    assert by.flush() == []


def test_tokens_without_text_count():
    by = Tokens(2)
    assert by.feed("", 0.0, tokens=1) == []
    assert by.feed("", 0.0, tokens=1) == []
    assert by.feed("東", 0.0, tokens=1) == []
    assert by.feed("", 0.0, tokens=4) == []
    assert by.feed("京", 0.0, tokens=1) == ["東"]
    assert by.flush() == ["京"]


def test_a_piece_ends_after_the_cluster_its_last_token_is_in():
    by = Tokens(1)
    assert by.feed("👩", 0.0, tokens=1) == []
    assert by.feed("\u200d", 0.0, tokens=1) == []
    assert by.feed("👩", 0.0, tokens=1) == []
    assert by.feed("a", 0.0, tokens=1) == ["👩\u200d👩"]
    assert by.flush() == ["a"]


def test_tiktoken_counts_where_the_server_does_not():
    by = Tokens(2, encoding=ENCODING)
    assert by.feed("bcbc", 0.0) == []
    assert by.feed("bc", 0.0) == []
    assert by.feed(" a", 0.0) == ["bcbc"]
    assert by.feed(" a a", 0.0) == ["bc a"]
    assert by.flush() == [" a a"]
    assert by.feed("東。京", 0.0) == []
    assert by.flush() == ["東", "。", "京"]


def test_counted_and_uncounted_texts_can_be_mixed():
    by = Tokens(4, encoding=ENCODING)
    assert by.feed("bcbc", 0.0) == []
    assert by.feed("xyz", 0.0, tokens=2) == []
    assert by.feed(" a", 0.0) == ["bcbcxyz"]
    assert by.flush() == [" a"]


@pytest.mark.parametrize("word", ["bc a ", "東京。", "unbroken", "👩"])
def test_nothing_is_encoded_twice(word):
    counting = Counting()
    by = Tokens(10, encoding=counting)
    text = word * 300
    pieces = [piece for char in text for piece in by.feed(char, 0.0)]
    pieces += by.flush()
    assert "".join(pieces) == text
    assert counting.read == len(text)


def test_max_wait_begins_a_new_piece():
    by = Tokens(3, max_wait=1.0)
    by.feed("ab", 0.0, tokens=2)
    assert by.deadline == 1.0
    assert by.feed("", 1.0) == ["ab"]
    assert by.deadline is None
    assert by.feed("cd", 1.5, tokens=2) == []
    assert by.deadline == 2.5
    assert by.feed("ef", 1.6, tokens=1) == []
    assert by.feed("g", 1.6, tokens=1) == ["cdef"]


def test_text_that_counts_as_nothing_is_bounded():
    by = Tokens(3)
    assert by.feed("a" * (2 * LIMIT), 0.0, tokens=0) == ["a" * LIMIT]
    assert by.feed("b" * LIMIT + "\n", 0.0, tokens=3) == [
        "a" * LIMIT,
        "b" * LIMIT,
        "\n",
    ]


def test_a_missing_vocabulary_is_told_with_the_cure(monkeypatch):
    def fail(name):
        raise OSError("no network")

    monkeypatch.setattr(tiktoken, "get_encoding", fail)
    by = Tokens(2)
    assert by.feed("ab", 0.0, tokens=1) == []
    with pytest.raises(UsageError, match="TIKTOKEN_CACHE_DIR") as caught:
        by.feed("cd", 0.0)
    assert isinstance(caught.value.__cause__, OSError)
    assert by.flush() == ["ab"]


def test_the_vocabulary_is_loaded_by_its_name(monkeypatch):
    names = []
    monkeypatch.setattr(
        tiktoken, "get_encoding", lambda name: names.append(name) or ENCODING
    )
    by = Tokens(1, encoding="o200k_base")
    assert by.feed("a a", 0.0) + by.feed(" a", 0.0) + by.flush() == ["a", " a", " a"]
    assert names == ["o200k_base"]


@pytest.mark.parametrize("n", [0, -1, 1.5, "8", None, True])
def test_wrong_counts_are_refused(n):
    with pytest.raises(UsageError, match=r"tokens a piece, 1 or more: Tokens\(8\)"):
        Tokens(n)


@pytest.mark.parametrize("encoding", [None, 7, ENCODING.encode_ordinary])
def test_what_cannot_count_is_refused(encoding):
    with pytest.raises(UsageError, match=r"Tokens\(8, encoding=\"cl100k_base\"\)"):
        Tokens(2, encoding=encoding)
