"""The process matrix: what happens to processes that keep streams, on real stores.

    python tests/matrices/processes.py
    python tests/matrices/processes.py --cases 200 --seed 4
    python tests/matrices/processes.py --seed 4 --only 17

Processes are killed, stopped, forked; clocks jump, disks are full, databases locked,
Redis hangs and forgets (`process_cases`). Afterwards the text is right or the error
says so, and there never were two owners. At the end there is a table, and for each
failure the command that repeats it; the exit status is 1 if there is any.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

sys.path[:0] = [
    str(Path(__file__).parent),
    str(Path(__file__).parents[1] / "stores"),
]

from process_cases import Case, draw, kinds, run  # noqa: E402 - found by the line above

console = Console()


def main() -> None:
    """Run it; see the module's docstring."""
    options = arguments()
    numbers = options.only or range(options.cases)
    cases = [draw(options.seed, number) for number in numbers]
    began = time.monotonic()
    verdicts: list[tuple[Case, list[str]]] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with (
        Progress(*columns, console=console) as progress,
        ThreadPoolExecutor(options.at_once) as pool,
    ):
        task = progress.add_task("cases", total=len(cases))
        until = began + options.seconds
        running = [pool.submit(in_time, case, until) for case in cases]
        for future in as_completed(running):
            if (verdict := future.result()) is not None:
                verdicts.append(verdict)
            bad = sum(bool(faults) for _, faults in verdicts)
            note = f"cases, [red]{bad} wrong[/]" if bad else "cases, none wrong"
            progress.update(task, advance=1, description=note)
    console.print(table(verdicts))
    failed = [(case, faults) for case, faults in verdicts if faults]
    for case, faults in failed:
        console.print(f"\n[red]{case.number}[/] {case}", *faults, sep="\n  ")
        again = f"--seed {options.seed} --only {case.number}"
        console.print(f"  again: python tests/matrices/processes.py {again}")
    if len(verdicts) < len(cases):
        console.print(f"{options.seconds:g} s were over: {len(verdicts)} cases ran")
    console.print(f"{len(verdicts)} cases, {time.monotonic() - began:.0f} s")
    sys.exit(1 if failed else 0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Kill, stop and fork processes that keep streams; lose nothing."
    )
    parser.add_argument(
        "--cases",
        type=int,
        default=3 * kinds(),
        help=f"how many (default: {3 * kinds()}, each kind three times)",
    )
    parser.add_argument(
        "--seed", type=int, default=4, help="what all is drawn from (default: 4)"
    )
    parser.add_argument(
        "--only", type=int, nargs="+", help="the cases of these numbers alone"
    )
    parser.add_argument(
        "--at-once", type=int, default=3, help="side by side (default: 3)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=360.0,
        help="begin no more cases after so many seconds (default: 360)",
    )
    return parser.parse_args()


def in_time(case: Case, until: float) -> tuple[Case, list[str]] | None:
    """The verdict, unless the time is over."""
    return (case, run(case)) if time.monotonic() < until else None


def table(verdicts: list[tuple[Case, list[str]]]) -> Table:
    """How many of each kind ran, and how many were wrong."""
    found = Table("what happens", "store", "cases", "wrong")
    ran = Counter((case.name, case.store) for case, _ in verdicts)
    bad = Counter((case.name, case.store) for case, faults in verdicts if faults)
    for kind, count in sorted(ran.items()):
        found.add_row(*kind, str(count), str(bad[kind] or ""))
    return found


if __name__ == "__main__":
    main()
