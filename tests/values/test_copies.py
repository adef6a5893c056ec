"""Errors and events are values: copied and pickled, they are what they were."""

import copy
import dataclasses
import inspect
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import pytest

import midstream
from midstream._values import errors, events, interruptions

ERRORS = sorted(
    {
        cls
        for module in (errors, interruptions)
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if issubclass(cls, midstream.MidstreamError)
    },
    key=lambda cls: cls.__name__,
)
EVENTS = [
    cls
    for _, cls in inspect.getmembers(events, inspect.isclass)
    if dataclasses.is_dataclass(cls) and cls.__module__ == events.__name__
]
PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
ENDPOINT = midstream.Endpoint(
    "openai",
    model="m",
    base_url="https://bob:password@host/v1?sig=query",
    api_key="sk-a-secret-key",
    headers={"x-key": "a-secret-header"},
    template=lambda _: "a function cannot be pickled",
)
RESUMPTION = midstream.Resumption(
    7, "dropped", "text", midstream.Exactness.TEXT, ENDPOINT, 0.5
)
CALL = midstream.ToolCall(0, "id", "look", '{"a": ')


class Stubborn(Exception):
    """As httpx's HTTPStatusError: pickled, it cannot be made again."""

    def __init__(self, message, *, response):
        super().__init__(message)
        self.response = response


def made(cls, cause=None):
    """One error of the class, with all that a stream hangs on it."""
    if issubclass(cls, midstream.TimedOut):
        error = cls("idle", 2.5)
    elif issubclass(cls, midstream.ServerError):
        error = cls("no", status=503, type="t", retry_after=1.5, retryable=True)
    elif issubclass(cls, midstream.WireError):
        error = cls("no JSON", offset=12)
        error.records = [(b"{}", "ping")]
    else:
        error = cls("what is wrong")
    error.text = "so far"
    error.endpoint = "openai:m@https://host"
    error.checkpoint = midstream.Checkpoint(endpoint="openai", request={}, text="so")
    error.resumes = (RESUMPTION,)
    error.tool_calls = [CALL]
    error.add_note("What to do.")
    error.__cause__ = cause
    return error


def facts(error):
    """All that can be told of an error."""
    kept = dict(vars(error))
    kept["resumes"] = [str(drop.endpoint.dialect) for drop in error.resumes]
    cause = error.__cause__ and (type(error.__cause__), str(error.__cause__))
    return type(error), str(error), repr(error), error.args, kept, cause


def pickled(protocol):
    return lambda value: pickle.loads(pickle.dumps(value, protocol))


WAYS = [copy.copy, copy.deepcopy, *map(pickled, PROTOCOLS)]


@pytest.mark.parametrize("cls", ERRORS)
@pytest.mark.parametrize("way", WAYS)
def test_an_error_copied_again_and_again_stays_what_it_was(cls, way):
    error = made(cls, midstream.Dropped("the line broke"))
    again = error
    for _ in range(3):
        again = way(again)
    assert again is not error
    assert facts(again) == facts(error)


@pytest.mark.parametrize("cls", ERRORS)
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy])
def test_a_note_on_a_copy_is_the_copys_own(cls, way):
    error = made(cls)
    way(error).add_note("mine")
    assert error.__notes__ == ["What to do."]


def test_a_deep_copy_has_calls_of_its_own():
    error = made(midstream.ToolCallInterrupted)
    copy.deepcopy(error).tool_calls[0].arguments += "1}"
    assert error.tool_calls == [dataclasses.replace(CALL)]


@pytest.mark.parametrize("cls", ERRORS)
def test_a_foreign_cause_travels_or_its_words_do(cls):
    there = pickle.loads(pickle.dumps(made(cls, OSError(104, "reset"))))
    assert isinstance(there.__cause__, OSError)
    error = made(cls, Stubborn("refused", response=lambda: None))
    for _ in range(3):
        error = pickle.loads(pickle.dumps(error))
    assert str(error.__cause__) == f"{__name__}.Stubborn: refused"
    assert copy.copy(made(cls, there)).__cause__ is there


def test_no_secret_travels_with_an_error():
    data = pickle.dumps(made(midstream.StreamInterrupted))
    for secret in b"sk-a-secret-key", b"a-secret-header", b"password", b"query":
        assert secret not in data


def event_of(cls):
    values = {
        "usage": midstream.Usage(1, 2),
        "resumption": RESUMPTION,
        "error": made(midstream.Overloaded),
        "text": "té\udce6",
        "arguments": "{",
        "index": 1,
        "reason": "stop",
    }
    names = [field.name for field in dataclasses.fields(cls)]
    return cls(**{name: values[name] for name in names if name in values})


def told(event):
    values = [getattr(event, field.name) for field in dataclasses.fields(event)]
    return [
        facts(value) if isinstance(value, Exception) else str(value)
        for value in values
        if not isinstance(value, midstream.Resumption)
    ]


@pytest.mark.parametrize("cls", EVENTS)
@pytest.mark.parametrize("way", WAYS)
def test_an_event_copied_again_and_again_stays_what_it_was(cls, way):
    event = event_of(cls)
    again = event
    for _ in range(3):
        again = way(again)
    assert type(again) is cls
    assert told(again) == told(event)


def test_a_survived_drop_travels_without_what_its_endpoint_hides():
    assert copy.copy(RESUMPTION) is copy.deepcopy(RESUMPTION) is RESUMPTION
    there = pickle.loads(pickle.dumps(RESUMPTION))
    assert str(there.endpoint) == str(ENDPOINT)
    assert there == dataclasses.replace(RESUMPTION, endpoint=there.endpoint)


def raised(name):
    """Raise it in another process."""
    raise made(getattr(midstream, name)) from Stubborn("no", response=None)


def test_errors_come_out_of_a_process_pool():
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        names = [cls.__name__ for cls in ERRORS]
        futures = [pool.submit(raised, name) for name in names]
        for cls, future in zip(ERRORS, futures, strict=True):
            error = future.exception(timeout=60)
            assert type(error) is cls
            assert str(error) == str(made(cls))
            assert error.text == "so far"
            assert error.checkpoint == made(cls).checkpoint
