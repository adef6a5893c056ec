"""The fake vLLM over gRPC, as vLLM's own stubs and Hugging Face's tokenizers see it."""

import hashlib
import io
import zipfile

import grpc
import pytest
import tokenizers
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto import vllm_engine_pb2_grpc as rpcs
from smg_grpc_proto.generated import common_pb2

from midstream._tokenizers.bundle import unzip
from midstream.testing import ErrorEvent, FakeServer
from midstream.testing._fake.asked import template
from midstream.testing._fake.sides import vllm

TEXT = "Hi, 日本語 👩‍👩‍👧 <|end|> done."
CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]


class Client:
    """The generated stub."""

    def __init__(self, server):
        address = server.url("vllm-grpc").removeprefix("grpc://")
        self.channel = grpc.insecure_channel(address, options=CHANNEL)
        self.stub = rpcs.VllmEngineStub(self.channel)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.channel.close()

    def files(self):
        asked = common_pb2.GetTokenizerRequest()
        chunks = list(self.stub.GetTokenizer(asked))
        data = b"".join(chunk.data for chunk in chunks)
        assert [chunk.sha256 for chunk in chunks[:-1]] == [""] * (len(chunks) - 1)
        assert chunks[-1].sha256 == hashlib.sha256(data).hexdigest()
        return data

    def tokenizer(self):
        with zipfile.ZipFile(io.BytesIO(self.files())) as archive:
            return tokenizers.Tokenizer.from_str(
                archive.read("tokenizer.json").decode()
            )

    def generate(self, ids=(), *, text=None, n=1, **params):
        sampling = pb.SamplingParams(n=n, **params)
        request = pb.GenerateRequest(
            request_id="r1", stream=True, sampling_params=sampling, text=text
        )
        if text is None:
            request.tokenized.input_ids.extend(ids)
        return list(self.stub.Generate(request))


def ids_in(messages, index=0):
    chunks = [m.chunk for m in messages if m.HasField("chunk")]
    return [id_ for c in chunks if c.index == index for id_ in c.token_ids]


def ends(messages):
    return [m.complete for m in messages if m.HasField("complete")]


@pytest.mark.parametrize("split", ["text", "bytes"])
def test_a_whole_answer_of_ids(split):
    with FakeServer(TEXT, split=split) as server, Client(server) as client:
        tokenizer = client.tokenizer()
        prompt = tokenizer.encode("Why?").ids
        messages = client.generate(prompt)
        entry = server.streams[0]
    ids = ids_in(messages)
    assert tokenizer.decode(ids) == TEXT
    (end,) = ends(messages)
    assert end.finish_reason == "stop"
    assert list(end.output_ids) == ids[-1:]
    assert end.prompt_tokens == messages[0].chunk.prompt_tokens == len(prompt)
    assert {m.chunk.completion_tokens for m in messages[:-1]} == {1}
    assert entry.body["input_ids"] == prompt
    assert entry.body["request_id"] == "r1"
    assert entry.how == "top"


def test_it_goes_on_from_ids_and_from_text():
    with FakeServer(TEXT, split="bytes") as server, Client(server) as client:
        tokenizer = client.tokenizer()
        prompt = tokenizer.encode("Why?").ids
        ids = ids_in(client.generate(prompt))
        assert ids_in(client.generate([*prompt, *ids[:7]])) == ids[7:]
        rest = ids_in(client.generate(text="Why?Hi, 日"))
        assert tokenizer.decode(rest) == TEXT.removeprefix("Hi, 日")
        assert [entry.how for entry in server.streams] == ["top", "tokens", "text"]


def test_stop_text_is_among_the_ids_and_then_it_ends():
    with FakeServer(TEXT) as server, Client(server) as client:
        tokenizer = client.tokenizer()
        messages = client.generate(text="Why?", stop=["<|end|>"])
    said = tokenizer.decode(ids_in(messages))
    assert said.startswith(TEXT.partition("<|end|>")[0] + "<|end|>")
    assert ends(messages)[0].finish_reason == "stop"


def test_a_limit_and_what_seemed_a_stop_string():
    with FakeServer(TEXT) as server, Client(server) as client:
        messages = client.generate(text="Why?", max_tokens=3, stop=["Hi!"])
        whole = client.generate(text="Why?", stop=["done.."])
    assert len(ids_in(messages)) == 3
    assert ends(messages)[0].finish_reason == "length"
    assert len(ids_in(whole)) == len(whole) - 1


def test_several_answers():
    with FakeServer("one", choices=["zwei"]) as server, Client(server) as client:
        tokenizer = client.tokenizer()
        messages = client.generate(text="Why?", n=2)
    assert tokenizer.decode(ids_in(messages, 0)) == "one"
    assert tokenizer.decode(ids_in(messages, 1)) == "zwei"
    assert {end.index for end in ends(messages)} == {0, 1}


def test_an_error_is_a_status():
    fault = ErrorEvent("boom", after=2, status=500, type=None)
    with FakeServer(TEXT, faults=[fault]) as server, Client(server) as client:
        with pytest.raises(grpc.RpcError) as caught:
            client.generate(text="Why?")
        assert server.streams[0].deltas == 2
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert caught.value.details() == "boom"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"ids": [999_999]}, "Token id 999999 is out of vocabulary"),
        ({"ids": []}, "The decoder prompt cannot be empty"),
        ({"text": ""}, "The decoder prompt cannot be empty"),
    ],
)
def test_refusals_in_vllms_words(asked, words):
    with FakeServer(TEXT) as server, Client(server) as client:
        with pytest.raises(grpc.RpcError) as caught:
            client.generate(**asked)
        assert server.streams[0].ended == "refused"
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == words


def test_its_template_is_the_fake_servers_own():
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    with FakeServer(TEXT) as server, Client(server) as client:
        files = unzip(client.files())
    assert files.template.render(chat).encode() == template(chat)


def test_its_files_come_in_chunks(monkeypatch):
    monkeypatch.setattr(vllm, "_CHUNK", 100)
    with FakeServer(TEXT) as server, Client(server) as client:
        data = client.files()
    assert len(data) > 1000
    assert unzip(data).ends == {2}
