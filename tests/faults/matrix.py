"""The fault matrix: thousands of streams, each broken in its way, and none is wrong.

    make test-faults
    python tests/faults/matrix.py --streams 50000 --seed 4
    python tests/faults/matrix.py --seconds 28800 --seed 5
    python tests/faults/matrix.py --seed 4 --only 137

Every stream is drawn from the seed and its number (`cases`), run against servers that
break on purpose (`running`), and judged (`judging`). Several processes run at once. At
the end there is a table, and for each failure the command that repeats it; the exit
status is 1 if there is any.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cases import BLOCK, KINDS, draw, played
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from running import Verdict, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STREAMS = 50000
SHOWN = 40  # failures that are printed in full

console = Console()


@dataclass
class Tally:
    """What became of all streams so far; it does not grow with their number.

    Attributes:
        streams: How many ran.
        wrong: How many verdicts have faults.
        cells: The same by dialect and sort of fault, and by whether it was wrong.
        outcomes: Ends, by name.
        resumes: Drops that were survived.
        dropped_again: Streams with more than one.
        shown: The first failures, for printing in full.
    """

    streams: int = 0
    wrong: int = 0
    cells: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    resumes: int = 0
    dropped_again: int = 0
    shown: list[Verdict] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """One more."""
        wrong = bool(verdict.faults)
        self.wrong += wrong
        if wrong and len(self.shown) < SHOWN:
            self.shown.append(verdict)
        if not verdict.dialect:  # of a whole block
            return
        self.streams += 1
        for name in verdict.dialect, "all":
            for sort in verdict.kind.partition(":")[0], "all":
                self.cells[name, sort, wrong] += 1
        self.outcomes[verdict.outcome] += 1
        self.resumes += verdict.resumes
        self.dropped_again += verdict.resumes > 1


def main() -> None:
    """Run it; see the module's docstring."""
    options = arguments()
    blocks, total = chosen(options)
    console.print(f"seed {options.seed}")
    began = time.monotonic()
    tally = Tally()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("streams", total=total)
        for some in judged(options, blocks, began + options.seconds):
            for verdict in some:
                tally.add(verdict)
            bad = f"[red]{tally.wrong} wrong[/]" if tally.wrong else "none wrong"
            note = f"streams, {bad}"
            progress.update(task, advance=len(some), description=note)
    seconds = time.monotonic() - began
    console.print(table(tally))
    report(tally, options.seed, seconds)
    if total is not None and tally.streams < total:
        console.print(f"{options.seconds:g} s were over: {tally.streams} streams ran")
    sys.exit(1 if tally.wrong else 0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Break streams; lose nothing.")
    parser.add_argument(
        "--streams",
        type=int,
        help="how many (default: 50000; with --seconds alone, no limit)",
    )
    parser.add_argument(
        "--seed", type=int, default=4, help="what all is drawn from (default: 4)"
    )
    parser.add_argument(
        "--only", type=int, nargs="+", help="the streams of these numbers alone"
    )
    parser.add_argument(
        "--processes", type=int, default=3, help="side by side (default: 3)"
    )
    parser.add_argument("--block", type=int, help="the streams of this block alone")
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="begin no more streams after so many seconds (default: no limit)",
    )
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> tuple[Iterator[Sequence[int]], int | None]:
    """The numbers of the streams, block by block, and how many if there is an end."""
    if options.only:
        blocks: dict[int, list[int]] = {}
        for number in options.only:
            blocks.setdefault(number // BLOCK, []).append(number)
        return iter(blocks.values()), len(options.only)
    if options.block is not None:
        return iter([range(options.block * BLOCK, (options.block + 1) * BLOCK)]), BLOCK
    most = options.streams
    if most is None:
        if math.isfinite(options.seconds):
            endless = itertools.count(0, BLOCK)
            return (range(first, first + BLOCK) for first in endless), None
        most = STREAMS
    firsts = range(0, most, BLOCK)
    return (range(first, min(first + BLOCK, most)) for first in firsts), most


def judged(
    options: argparse.Namespace, waiting: Iterator[Sequence[int]], until: float
) -> Iterator[list[Verdict]]:
    """The verdicts, block by block, as they are ready."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, context) as pool:
        running = {
            pool.submit(block_of, options.seed, some)
            for _, some in zip(range(options.processes), waiting, strict=False)
        }
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
                if time.monotonic() < until and (some := next(waiting, None)):
                    running.add(pool.submit(block_of, options.seed, some))


def block_of(seed: int, numbers: Sequence[int]) -> list[Verdict]:
    """Run some cases of one block, in a process of its own."""
    warnings.simplefilter("error")
    return run([draw(seed, number) for number in numbers])


def table(tally: Tally) -> Table:
    """Streams by dialect and sort of fault; what is wrong stands out."""
    sorts = list(dict.fromkeys(kind.partition(":")[0] for kind in KINDS))
    shown = Table("", *sorts, "all", title="Streams (wrong ones)", title_justify="left")
    shown.box, shown.padding, shown.pad_edge = SIMPLE_HEAD, (0, 0), False
    for column in shown.columns[1:]:
        column.justify = "right"
    for name in [*played(), "all"]:
        cells = []
        for sort in [*sorts, "all"]:
            well, wrong = tally.cells[name, sort, False], tally.cells[name, sort, True]
            cells.append(f"{well + wrong}" + f" [red]({wrong})[/]" * bool(wrong))
        shown.add_row(name, *cells, end_section=name == played()[-1])
    return shown


def report(tally: Tally, seed: int, seconds: float) -> None:
    """Print the first failures and the sums."""
    for verdict in sorted(tally.shown, key=lambda v: v.case):
        console.rule(f"{verdict.dialect}, {verdict.kind}, {verdict.colour}")
        for fault in verdict.faults:
            console.print(fault, markup=False, highlight=False)
        only = f"--only {verdict.case}"
        if not verdict.dialect:  # nobody knows which stream of the block it was
            only = f"--block {verdict.case // BLOCK}"
        command = f"python tests/faults/matrix.py --seed {seed} {only}"
        console.print(command, style="bold", soft_wrap=True)
    console.rule()
    console.print(
        f"seed {seed}: {tally.streams} streams in {seconds:.0f} s "
        f"({tally.streams / seconds:.0f}/s), {tally.resumes} drops survived, "
        f"{tally.dropped_again} streams dropped more than once"
    )
    ends = tally.outcomes.most_common()
    console.print(", ".join(f"{count} {name}" for name, count in ends))
    well = "Not a character lost, none repeated, nothing passed off as whole."
    bad = f"[red]{tally.wrong} wrong[/]"
    console.print(bad if tally.wrong else f"[green]{well}[/]")


if __name__ == "__main__":
    main()
