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


def main() -> None:
    """Run it; see the module's docstring."""
    options = arguments()
    blocks, total = chosen(options)
    began = time.monotonic()
    verdicts: list[Verdict] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("streams", total=total)
        for some in judged(options, blocks, began + options.seconds):
            verdicts += some
            bad = sum(bool(verdict.faults) for verdict in verdicts)
            note = f"streams, [red]{bad} wrong[/]" if bad else "streams, none wrong"
            progress.update(task, advance=len(some), description=note)
    seconds = time.monotonic() - began
    console.print(table(verdicts))
    failed = report(verdicts, options.seed, seconds)
    if total is not None and len(verdicts) < total:
        console.print(f"{options.seconds:g} s were over: {len(verdicts)} streams ran")
    sys.exit(1 if failed else 0)


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


def table(verdicts: Sequence[Verdict]) -> Table:
    """Streams by dialect and sort of fault; what is wrong stands out."""
    sorts = list(dict.fromkeys(kind.partition(":")[0] for kind in KINDS))
    counts: Counter[tuple[str, str, bool]] = Counter()
    for verdict in verdicts:
        wrong = bool(verdict.faults)
        for name in verdict.dialect, "all":
            for sort in verdict.kind.partition(":")[0], "all":
                counts[name, sort, wrong] += 1
    shown = Table("", *sorts, "all", title="Streams (wrong ones)", title_justify="left")
    shown.box, shown.padding, shown.pad_edge = SIMPLE_HEAD, (0, 0), False
    for column in shown.columns[1:]:
        column.justify = "right"
    for name in [*played(), "all"]:
        cells = []
        for sort in [*sorts, "all"]:
            well, wrong = counts[name, sort, False], counts[name, sort, True]
            cells.append(f"{well + wrong}" + f" [red]({wrong})[/]" * bool(wrong))
        shown.add_row(name, *cells, end_section=name == played()[-1])
    return shown


def report(verdicts: Sequence[Verdict], seed: int, seconds: float) -> int:
    """Print the failures and the sums; how many failures there are."""
    failed = sorted((v for v in verdicts if v.faults), key=lambda v: v.case)
    for verdict in failed[:SHOWN]:
        console.rule(f"{verdict.dialect}, {verdict.kind}, {verdict.colour}")
        for fault in verdict.faults:
            console.print(fault, markup=False, highlight=False)
        only = f"--only {verdict.case}"
        if not verdict.dialect:  # nobody knows which stream of the block it was
            only = f"--block {verdict.case // BLOCK}"
        command = f"python tests/faults/matrix.py --seed {seed} {only}"
        console.print(command, style="bold", soft_wrap=True)
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    console.rule()
    count = len(verdicts)
    console.print(
        f"seed {seed}: {count} streams in {seconds:.0f} s ({count / seconds:.0f}/s), "
        f"{sum(v.resumes for v in verdicts)} drops survived, "
        f"{sum(v.resumes > 1 for v in verdicts)} streams dropped more than once"
    )
    console.print(", ".join(f"{n} {name}" for name, n in outcomes.most_common()))
    well = "Not a character lost, none repeated, nothing passed off as whole."
    console.print(f"[red]{len(failed)} wrong[/]" if failed else f"[green]{well}[/]")
    return len(failed)


if __name__ == "__main__":
    main()
