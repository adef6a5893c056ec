"""Hugging Face's client reads TGI's own route as the fake server writes it."""

import contextlib

import huggingface_hub
import huggingface_hub.errors
import pytest

from midstream.testing import ErrorEvent, FakeServer, Pings, Status

TEXT = "Grüße! 日本語👩‍👩‍👧 the end."


@pytest.fixture
def client_of():
    with contextlib.ExitStack() as stack:

        def made(server):
            client = huggingface_hub.InferenceClient(model=server.url("tgi"))
            return stack.enter_context(client)

        yield made


@pytest.mark.parametrize("split", ["text", "bytes"])
def test_a_stream_of_tokens(client_of, split):
    with FakeServer(TEXT, split=split, faults=[Pings(data=b":\n\n")]) as server:
        tokens = list(
            client_of(server).text_generation(
                "Hi", stream=True, details=True, max_new_tokens=200
            )
        )
    spoken = [one.token for one in tokens if not one.token.special]
    assert "".join(token.text for token in spoken) == TEXT
    assert tokens[-1].generated_text == TEXT
    assert tokens[-1].details.finish_reason == "eos_token"
    assert tokens[-1].details.generated_tokens == len(spoken)
    assert [one.generated_text for one in tokens[:-1]] == [None] * (len(tokens) - 1)


def test_only_the_text(client_of):
    with FakeServer(TEXT) as server:
        pieces = list(client_of(server).text_generation("Hi", stream=True))
    assert "".join(pieces) == TEXT + "</s>"  # it takes special tokens for text


def test_a_whole_answer_at_once(client_of):
    with FakeServer(TEXT) as server:
        answer = client_of(server).text_generation("Hi", details=True)
    assert answer.generated_text == TEXT
    assert answer.details.finish_reason == "eos_token"


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("validation", huggingface_hub.errors.ValidationError),
        ("generation", huggingface_hub.errors.GenerationError),
        ("overloaded", huggingface_hub.errors.OverloadedError),
    ],
)
def test_an_error_with_status_200(client_of, kind, error):
    fault = ErrorEvent("broke down", after=2, type=kind)
    with (
        FakeServer(TEXT, faults=[fault]) as server,
        pytest.raises(error, match="broke down"),
    ):
        list(client_of(server).text_generation("Hi", stream=True))


def test_a_status(client_of):
    with (
        FakeServer(TEXT, faults=[Status(422, "too long")]) as server,
        pytest.raises(huggingface_hub.errors.ValidationError, match="too long"),
    ):
        list(client_of(server).text_generation("Hi", stream=True))
