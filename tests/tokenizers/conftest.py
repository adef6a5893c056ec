"""Vocabularies: a real byte-level one, and small ones of the other kinds."""

import json
import sys
from pathlib import Path

import pytest

from midstream._tokenizers.hugging_face import HuggingFace

JA = Path(__file__).parents[1] / "vllm" / "models" / "ja"

SENTENCE_PIECE = {
    "version": "1.0",
    "truncation": {"max_length": 2, "stride": 0, "strategy": "LongestFirst"}
    | {"direction": "Right"},
    "padding": None,
    "added_tokens": [
        {"id": i, "content": c, "special": s, "single_word": False, "lstrip": False}
        | {"rstrip": False, "normalized": False}
        for i, c, s in [(0, "<unk>", True), (1, "<s>", True), (300, "<think>", False)]
    ],
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    },
    "pre_tokenizer": None,
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    },
    "decoder": {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    },
    "model": {
        "type": "BPE",
        "dropout": None,
        "unk_token": "<unk>",
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": True,
        "vocab": {"<unk>": 0, "<s>": 1}
        | {f"<0x{byte:02X}>": 2 + byte for byte in range(256)}
        | {piece: 258 + nth for nth, piece in enumerate("▁abctheo")}
        | {"▁t": 270, "▁th": 271, "▁the": 272, "日": 273},
        "merges": [["▁", "t"], ["▁t", "h"], ["▁th", "e"]],
    },
}
UNIGRAM = {
    **SENTENCE_PIECE,
    "added_tokens": [],
    "normalizer": None,
    "post_processor": None,
    "truncation": None,
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁"}
    | {"prepend_scheme": "always", "split": True},
    "decoder": {"type": "Metaspace", "replacement": "▁"}
    | {"prepend_scheme": "always", "split": True},
    "model": {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [["<unk>", 0.0], ["▁hello", -1.0], ["▁", -2.0], ["x", -3.0]],
        "byte_fallback": False,
    },
}
WORD_PIECE = {
    **UNIGRAM,
    "pre_tokenizer": {"type": "Whitespace"},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0, "walk": 1, "##ing": 2, "dog": 3, ".": 4},
    },
}


@pytest.fixture(scope="session")
def folder():
    """A model's files."""
    return JA


@pytest.fixture(scope="session")
def japanese():
    """A byte-level vocabulary of 420 tokens."""
    return HuggingFace((JA / "tokenizer.json").read_bytes())


@pytest.fixture(scope="session")
def llama():
    """A vocabulary with byte fallback, and a token that begins each sequence."""
    return HuggingFace(json.dumps(SENTENCE_PIECE))


@pytest.fixture(scope="session")
def documents():
    """Files to be changed by tests."""
    return {
        "sentence_piece": SENTENCE_PIECE,
        "unigram": UNIGRAM,
        "word_piece": WORD_PIECE,
    }


@pytest.fixture
def without(monkeypatch):
    """Packages as if they were not installed."""

    def forget(*names):
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return forget
