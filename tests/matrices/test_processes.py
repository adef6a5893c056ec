"""A sample of the process matrix: each kind once, on one store or the other."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "stores")]

from process_cases import SCENARIOS, Case, draw, kinds, run  # noqa: E402 - as above

SEED = 8
SAMPLE = [
    Case(number, name, stores[number % len(stores)], f"{SEED}/{number}")
    for number, (name, (_, stores)) in enumerate(SCENARIOS.items())
]


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_what_happens_to_processes(case):
    assert run(case) == []


def test_numbers_draw_every_kind():
    drawn = {(case.name, case.store) for case in (draw(1, n) for n in range(kinds()))}
    assert len(drawn) == kinds() > len(SCENARIOS)
