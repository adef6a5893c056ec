"""What a caller may give as a tokenizer."""

import pytest
import tiktoken
import tokenizers

from midstream._tokenizers.given import learn
from midstream._tokenizers.tiktoken_encoding import Tiktoken
from midstream._values.endpoint import Endpoint
from midstream._values.errors import UsageError


class Own:
    def encode(self, text):
        return text.encode()

    def token_bytes(self, id_):
        return bytearray([id_])


@pytest.mark.parametrize("kind", [str, lambda path: path], ids=["str", "path"])
def test_a_file_or_its_folder(folder, kind):
    whole, single = learn(kind(folder)), learn(kind(folder / "tokenizer.json"))
    for learned in (whole, single):
        assert learned.tokenizer.encode("!", whole=False) == [3]
    assert whole.template is not None
    assert whole.ends == {2}
    assert single.template is None
    assert single.ends == frozenset()


def test_a_tokenizer_of_the_library(folder):
    given = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    given.enable_truncation(1)
    learned = learn(given)
    assert len(learned.tokenizer.encode("!!", whole=False)) == 2
    assert given.truncation is not None


def test_an_encoding_or_its_name(monkeypatch):
    made = tiktoken.Encoding(
        "made",
        pat_str=".",
        mergeable_ranks={bytes([b]): b for b in range(256)},
        special_tokens={},
    )
    assert learn(made).tokenizer.token_bytes(65) == b"A"
    monkeypatch.setattr(tiktoken, "get_encoding", lambda _: made)
    assert isinstance(learn("cl100k_base").tokenizer, Tiktoken)


def test_an_encoding_that_cannot_be_had(monkeypatch):
    def no_network(name):
        raise ConnectionError("no route")

    monkeypatch.setattr(tiktoken, "get_encoding", no_network)
    with pytest.raises(UsageError, match="no route"):
        learn("cl100k_base")


def test_an_object_of_ones_own():
    learned = learn(Own())
    assert learned.tokenizer.encode("a", whole=True) == [97]
    assert learned.tokenizer.token_bytes(97) == b"a"
    assert learned.tokenizer.special == frozenset()
    named = type("Named", (Own,), {"special_ids": [1]})()
    assert learn(named).tokenizer.special == {1}


@pytest.mark.parametrize("given", [3, object(), "no-such-name", "/no/such/file"])
def test_nothing_of_the_kind(given):
    with pytest.raises(UsageError, match=r"no tokenizer|no file"):
        learn(given)


def test_a_file_that_cannot_be_read(folder, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    with pytest.raises(UsageError, match="Permission denied"):
        learn(folder)


def test_it_is_in_no_repr():
    endpoint = Endpoint("vllm-grpc", tokenizer=Own())
    assert "Own" not in f"{endpoint!r} {endpoint}"
