"""When to try again."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._resume.policy import (
    Backoff,
    Resume,
    endures,
    fails_over,
    pause,
    restarts,
    resumable,
)
from midstream._values.errors import (
    AuthenticationFailed,
    BadRequest,
    ConnectFailed,
    ContextOverflow,
    Dropped,
    EventTooLarge,
    NotFound,
    Overloaded,
    RateLimited,
    ServerFailed,
    TimedOut,
    UsageError,
    WireError,
)
from midstream._values.interruptions import ResumeDiverged, ResumeUnsupported

RANDOM = random.Random(7)


def test_the_defaults_are_those_of_the_contract():
    assert Resume() == Resume(
        attempts=5,
        backoff=Backoff(initial=0.25, maximum=10, jitter=True),
        approximate=False,
        strategies=("replay", "tokens", "text"),
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: Backoff(initial=-1),
        lambda: Backoff(initial=2, maximum=1),
        lambda: Resume(attempts=-1),
        lambda: Resume(strategies=("replay", "magic")),
        lambda: Resume(strategies="text"),
    ],
)
def test_what_cannot_be_is_the_callers_mistake(make):
    with pytest.raises(UsageError):
        make()


def test_waits_double_up_to_the_most():
    backoff = Backoff(initial=0.25, maximum=3, jitter=False)
    waits = [backoff.delay(attempt, RANDOM) for attempt in range(1, 8)]
    assert waits == [0.25, 0.5, 1.0, 2.0, 3, 3, 3]
    assert Backoff(jitter=False).delay(10_000, RANDOM) == 10
    assert Backoff(initial=0, maximum=0).delay(3, RANDOM) == 0


@given(attempt=st.integers(1, 2000), seed=st.integers(0, 9))
def test_jitter_takes_the_upper_half_of_the_wait(attempt, seed):
    full = Backoff(jitter=False).delay(attempt, RANDOM)
    assert full / 2 <= Backoff().delay(attempt, random.Random(seed)) <= full


def test_jitter_differs_from_client_to_client():
    waits = {Backoff().delay(3, random.Random(seed)) for seed in range(20)}
    assert len(waits) == 20


@pytest.mark.parametrize(
    ("strategies", "approximate", "ways"),
    [
        (("replay", "text"), False, ("replay", "text")),
        (("replay", "text"), True, ("replay", "text", "ask")),
        (("ask", "text"), False, ("text",)),
        (("ask", "text"), True, ("text", "ask")),
        ((), True, ("ask",)),
        ((), False, ()),
        (["rerun"], False, ("rerun",)),
    ],
)
def test_asking_comes_last_and_only_if_it_is_allowed(strategies, approximate, ways):
    assert Resume(strategies=strategies, approximate=approximate).ways == ways


@pytest.mark.parametrize(
    ("fault", "drop", "elsewhere"),
    [
        (Dropped("x"), True, True),
        (ConnectFailed("x"), True, True),
        (TimedOut("connect"), True, True),
        (TimedOut("first_token"), True, True),
        (TimedOut("idle"), True, True),
        (TimedOut("total"), False, False),
        (Overloaded("x", retryable=True), True, True),
        (ServerFailed("x"), False, False),
        (BadRequest("x"), False, False),
        (BadRequest("x", retryable=True), True, True),
        (RateLimited("x", retryable=False), False, False),
        (AuthenticationFailed("x"), False, True),
        (NotFound("x"), False, True),
        (ResumeUnsupported("x"), False, True),
        (ResumeDiverged("x"), False, False),
        (WireError("x"), True, True),
        (EventTooLarge("x"), False, False),
        (ContextOverflow("x"), False, True),
        (UsageError("x"), False, False),
    ],
)
def test_what_counts_as_a_drop(fault, drop, elsewhere):
    assert resumable(fault) is drop
    assert fails_over(fault) is elsewhere


FIXED = Backoff(initial=1, maximum=8, jitter=False)


@pytest.mark.parametrize(
    ("fault", "attempt", "seconds"),
    [
        (Dropped("x"), 1, 0),
        (TimedOut("idle"), 1, 0),
        (Dropped("x"), 2, 1),
        (Dropped("x"), 9, 8),
        (ConnectFailed("x"), 1, 1),
        (Overloaded("x"), 1, 1),
        (Overloaded("x", retry_after=7.5), 1, 7.5),
        (Overloaded("x", retry_after=120), 3, 120),
        (WireError("x"), 1, 0),
        (RateLimited("x", retry_after=0.01), 4, 0.01),
    ],
)
def test_how_long_to_wait(fault, attempt, seconds):
    assert pause(fault, attempt, FIXED, RANDOM) == seconds


@pytest.mark.parametrize(("wish", "kept"), [(120, True), (121, False), (1e9, False)])
def test_a_wait_that_is_too_long_is_not_kept(wish, kept):
    assert endures(RateLimited("x", retry_after=wish)) is kept


@pytest.mark.parametrize(
    ("text", "at", "anew"),
    [
        ("The sea is deep. The sea is deep. ", 17, True),
        ("TheThe", 3, True),
        ("ThTh", 2, False),
        ("The cat. The dog. ", 9, False),
        ("The sea is wide and blue. The sea is wide and blue and", 26, True),
        ("The", 3, False),
        ("", 0, False),
    ],
)
def test_whether_a_server_begins_anew(text, at, anew):
    assert restarts(text, at) is anew


@pytest.mark.parametrize(("text", "at"), [("ha ha ha ", 6), ("TheTheThe", 6)])
def test_an_answer_that_repeats_itself_may_do_so_again(text, at):
    assert not restarts(text, at)
    assert restarts(text, at, again=True)
