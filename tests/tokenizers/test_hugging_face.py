"""tokenizer.json of every kind: the bytes of its ids are the text that was encoded."""

import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from midstream._tokenizers.hugging_face import HuggingFace
from midstream._values.errors import UsageError

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<▁"))


def spelled(tokenizer, ids):
    return b"".join(map(tokenizer.token_bytes, ids))


@given(TEXT)
def test_byte_level_ids_spell_the_text(japanese, text):
    assert spelled(japanese, japanese.encode(text, whole=False)) == text.encode()


@given(TEXT)
def test_byte_fallback_ids_spell_the_text_behind_a_space(llama, text):
    want = f" {text}" if text else ""
    assert spelled(llama, llama.encode(text, whole=False)) == want.encode()


@given(st.lists(st.integers(3, 419)))
def test_ids_spell_what_the_library_decodes(japanese, folder, ids):
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert spelled(japanese, ids).decode("utf-8", "replace") == library.decode(ids)


def test_control_tokens_and_added_ones(llama, japanese):
    assert llama.special == {0, 1}
    assert japanese.special == {0, 1, 2}
    assert llama.token_bytes(300) == b"<think>"
    assert llama.token_bytes(1) == b"<s>"
    assert japanese.encode("<|im_end|>", whole=False) == [2]


def test_ids_that_only_pad_the_matrices_have_no_bytes(llama):
    assert llama.token_bytes(299) == llama.token_bytes(1 << 20) == b""


def test_the_begin_of_a_sequence_comes_once(llama):
    assert llama.encode("the", whole=True) == [1, 272]
    assert llama.encode("the", whole=False) == [272]
    begun = llama.encode("<s>the", whole=True)
    assert begun[0] == 1
    assert begun[1] != 1
    assert llama.encode("", whole=False) == []
    assert llama.encode("", whole=True) == [1]


def test_an_empty_text_may_have_no_ids(japanese):
    assert japanese.encode("", whole=True) == []


def test_neither_cut_nor_padded(llama):
    assert len(llama.encode("the abc the abc", whole=False)) > 2


def test_a_vocabulary_of_scores(documents):
    unigram = HuggingFace(json.dumps(documents["unigram"]))
    assert unigram.token_bytes(1) == b" hello"
    assert unigram.token_bytes(3) == b"x"
    assert spelled(unigram, unigram.encode("hello", whole=False)) == b" hello"


def test_another_decoder_is_the_librarys(documents):
    pieces = HuggingFace(json.dumps(documents["word_piece"]))
    ids = pieces.encode("walking dog.", whole=False)
    assert ids == [1, 2, 3, 4]
    assert [pieces.token_bytes(id_) for id_ in ids] == [b" walk", b"ing", b" dog", b"."]


@pytest.mark.parametrize(
    "decoder",
    [
        {"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Fuse"}]},
        {"type": "ByteLevel"},
    ],
)
def test_byte_level_inside_a_sequence(documents, decoder):
    document = documents["unigram"] | {"decoder": decoder}
    assert HuggingFace(json.dumps(document)).token_bytes(3) == b"x"


def test_a_replacement_that_is_none_of_the_space(documents):
    replace = {"type": "Replace", "pattern": {"String": "x"}, "content": "y"}
    document = documents["unigram"] | {"decoder": replace}
    assert HuggingFace(json.dumps(document)).token_bytes(3) == b"y"


def test_no_decoder_at_all(documents):
    document = documents["unigram"] | {"decoder": None}
    tokenizer = HuggingFace(json.dumps(document))
    with pytest.raises(UsageError, match="no decoder"):
        tokenizer.token_bytes(3)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", b"\xff", '{"model": {"vocab": 3}}']
)
def test_no_such_file(text):
    with pytest.raises(UsageError, match=r"no tokenizer\.json"):
        HuggingFace(text)


def test_a_text_without_ids(documents):
    """The library wants a token for what is unknown."""
    model = documents["word_piece"]["model"] | {"vocab": {"walk": 1}}
    tokenizer = HuggingFace(json.dumps(documents["word_piece"] | {"model": model}))
    with pytest.raises(UsageError, match="no ids for a text"):
        tokenizer.encode("dog", whole=False)


def test_what_the_library_refuses(documents):
    document = documents["unigram"] | {"model": {"vocab": {"x": 1}, "type": "New"}}
    with pytest.raises(UsageError, match=r"no tokenizer\.json"):
        HuggingFace(json.dumps(document)).encode("x", whole=True)


def test_answers_need_no_package_but_prompts_do(folder, without):
    tokenizer = HuggingFace((folder / "tokenizer.json").read_text())
    without("tokenizers")
    assert tokenizer.token_bytes(3) == b"!"
    with pytest.raises(UsageError, match=r"midstream\[tokenizers\]"):
        tokenizer.encode("x", whole=False)
