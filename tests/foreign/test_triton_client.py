"""NVIDIA's own client reads the fake Triton over gRPC."""

import queue

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from midstream.testing import ErrorEvent, FakeServer

TEXT = "Grüße! 日本語👩‍👩‍👧 the end."


def asked(prompt):
    text = tritonclient.grpc.InferInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(np.array([prompt.encode()], dtype=np.object_))
    return [text]


@pytest.fixture
def client_of():
    clients = []

    def made(server):
        address = server.url("triton-grpc").removeprefix("grpc://")
        clients.append(tritonclient.grpc.InferenceServerClient(address))
        return clients[-1]

    yield made
    for client in clients:
        client.close()


def streamed(client, prompt="Hi"):
    """The results of one request, up to the final one or an error."""
    answers = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put(error or result))
    client.async_stream_infer(
        "llm", asked(prompt), request_id="r1", enable_empty_final_response=True
    )
    results = []
    while True:
        answer = answers.get(timeout=10)
        if isinstance(answer, InferenceServerException):
            client.stop_stream(cancel_requests=True)
            raise answer
        results.append(answer)
        parameters = answer.get_response().parameters
        if parameters["triton_final_response"].bool_param:
            client.stop_stream()
            return results


def test_the_models_signature(client_of):
    with FakeServer(TEXT) as server:
        metadata = client_of(server).get_model_metadata("llm")
    assert "text_input" in {tensor.name for tensor in metadata.inputs}
    assert {tensor.name: tensor.datatype for tensor in metadata.outputs}[
        "num_output_tokens"
    ] == "UINT32"


@pytest.mark.parametrize("split", ["text", "bytes"])
def test_tensors_of_bytes_that_may_be_half_characters(client_of, split):
    with FakeServer(TEXT, split=split) as server:
        results = streamed(client_of(server))
    texts = [r.as_numpy("text_output") for r in results[:-1]]
    assert b"".join(text[0] for text in texts) == TEXT.encode()
    assert results[-2].as_numpy("finish_reason")[0] == b"stop"
    assert results[-1].as_numpy("text_output") is None
    assert {result.get_response().id for result in results} == {"r1"}


def test_a_continued_prompt(client_of):
    with FakeServer(TEXT) as server:
        client = client_of(server)
        streamed(client)
        results = streamed(client, "HiGrüße! ")
    texts = [r.as_numpy("text_output")[0] for r in results[:-1]]
    assert b"".join(texts).decode() == TEXT.removeprefix("Grüße! ")


def test_an_error_inside_the_stream(client_of):
    fault = ErrorEvent("out of memory", after=2)
    with (
        FakeServer(TEXT, faults=[fault]) as server,
        pytest.raises(InferenceServerException, match="out of memory"),
    ):
        streamed(client_of(server))
