"""Limits, and the one deadline that reads look at."""

import socket
from dataclasses import fields
from math import inf, nan

import pytest

from midstream._values.errors import UsageError
from midstream._values.timeouts import LONGEST, Deadline, Timeouts


def test_the_defaults_are_those_of_the_contract():
    defaults = Timeouts()
    assert (defaults.connect, defaults.first_token, defaults.idle) == (10, 120, 30)
    assert defaults.total is None
    assert defaults.idle_with_pings is None


@pytest.mark.parametrize("name", [field.name for field in fields(Timeouts)])
def test_every_limit_can_be_switched_off_and_none_be_impossible(name):
    assert getattr(Timeouts(**{name: None}), name) is None
    assert getattr(Timeouts(**{name: 0.1}), name) == 0.1
    for wrong in 0, -1, -inf, nan, "5", True, [5]:
        with pytest.raises(UsageError, match=rf"Timeouts\({name}="):
            Timeouts(**{name: wrong})


@pytest.mark.parametrize("name", [field.name for field in fields(Timeouts)])
def test_a_limit_that_no_wait_can_take_is_none(name):
    for limit in inf, 1e10, 1e308, 10**400, LONGEST + 1:
        assert getattr(Timeouts(**{name: limit}), name) is None
    assert getattr(Timeouts(**{name: LONGEST}), name) == LONGEST


def test_the_longest_limit_fits_a_socket():
    with socket.socket() as sock:
        sock.settimeout(LONGEST)
        with pytest.raises(OverflowError):
            sock.settimeout(LONGEST * 1e6)


def test_a_deadline_says_which_limit_passed():
    deadline = Deadline()
    assert deadline.at == inf
    deadline.kind, deadline.seconds = "idle", 3.0
    error = deadline.error()
    assert (error.kind, error.seconds) == ("idle", 3.0)
