"""A real answer arrives whole, however often its connection is cut.

    make demo                     English, with SmolLM2
    make demo PROMPT=ja           Japanese, with Gemma 3
    python docs/examples/demo.py --help

It starts the real llama.cpp server on loopback, asks it for an answer over an unharmed
connection, then for the same one through a `Cutter`: a proxy that ends or resets the
connection at random bytes, at least five times. What arrives is compared with the
unbroken answer, character by character. This is done twice: with the replay buffer of
the server, and without it, by sending back what was received. The exit status is 0 only
if nothing was lost or repeated in either.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import midstream

try:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ImportError:
    sys.exit("the demo needs the extra `local`: pip install 'midstream[local]'")

from midstream.testing.cutter import Cutter
from midstream.testing.llama import LlamaServer

if TYPE_CHECKING:
    from collections.abc import Iterator

FEWEST_CUTS = 5
BYTES_PER_TOKEN = 150  # of an event of llama.cpp, roughly
QUESTION = "Write a short story about a lighthouse keeper and her cat."
# Gemma 3 270M is a base model: it does not answer, it goes on; and soon in circles,
# which would hide a repetition of ours, so it is asked not to.
BEGINNING = "日本の四季について。春は"
NO_CIRCLES = {"repeat_penalty": 1.2}
WAYS = {
    "replay": midstream.Resume(),
    "prefix": midstream.Resume(strategies=("tokens", "text")),
}

console = Console(highlight=False)


@dataclass
class Run:
    """One answer and how it came.

    Attributes:
        stream: The stream, over by now.
        text: What it said.
        fin: Connections that were ended.
        rst: Connections that were reset.
    """

    stream: midstream.Stream
    text: str
    fin: int = 0
    rst: int = 0


def main() -> None:
    options = arguments()
    model = "gemma3" if options.japanese else "smollm2"
    dialect = "llama.cpp-completion" if options.japanese else "llama.cpp"
    console.print(f"Starting llama.cpp with {model} …")
    prompt = options.prompt or (BEGINNING if options.japanese else QUESTION)
    ask = {"max_tokens": options.tokens, "temperature": 0, "seed": options.seed}
    ask["extra"] = NO_CIRCLES if options.japanese else {}
    try:
        # One slot: a continuation in another one would not find what was computed,
        # and evaluating it anew, in larger batches, rounds differently.
        with LlamaServer(model, slots=1, swa_full=True) as server:
            # The prompt is evaluated once and kept: first tokens can be compared.
            with (
                midstream.Client(f"{dialect}@{server.url}") as client,
                client.stream(prompt, max_tokens=1) as stream,
            ):
                stream.read()
            console.print(f"[bold]llama.cpp[/] with {model} on {server.url}")
            console.print(Text(prompt, style="italic"))
            console.rule("unbroken")
            unbroken = answer(f"{dialect}@{server.url}", prompt, ask)
            runs = {}
            for way, resume in WAYS.items():
                console.rule(f"cut {options.cuts} times, {way}")
                between = (2 * BYTES_PER_TOKEN, highest_cut(options))
                with Cutter.random(
                    server.url, seed=options.seed, count=options.cuts, between=between
                ) as cutter:
                    endpoint = f"{dialect}@{cutter.url}"
                    runs[way] = answer(endpoint, prompt, ask, resume, cutter)
    except midstream.MidstreamError as error:
        console.print(Text(f"\n{type(error).__name__}: {error}", style="red"))
        sys.exit(1)
    sys.exit(0 if report(unbroken, runs) else 1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Cut a real answer's connection again and again; lose nothing."
    )
    parser.add_argument("--prompt", help="what to ask (default: a short story)")
    parser.add_argument(
        "--japanese", action="store_true", help="in Japanese, with Gemma 3"
    )
    parser.add_argument(
        "--tokens", type=int, default=160, help="length of the answer (default: 160)"
    )
    parser.add_argument(
        "--cuts", type=int, default=6, help="how often to cut, 5 or more (default: 6)"
    )
    parser.add_argument(
        "--seed", type=int, default=7, help="of the cuts and of the model (default: 7)"
    )
    options = parser.parse_args()
    if options.cuts < FEWEST_CUTS:
        parser.error(f"--cuts must be {FEWEST_CUTS} or more")
    if options.tokens < 4 * options.cuts:
        parser.error("--tokens must be four times --cuts or more, to leave room")
    return options


def highest_cut(options: argparse.Namespace) -> int:
    """The highest byte of a connection to cut at, such that all cuts find an answer.

    Positions are half of that on average, so a good part of the answer is left over.
    """
    return int(1.1 * BYTES_PER_TOKEN * options.tokens / options.cuts)


def answer(
    endpoint: str,
    prompt: str,
    ask: dict,
    resume: midstream.Resume | None = None,
    cutter: Cutter | None = None,
) -> Run:
    """Stream one answer to the terminal, with a mark where the connection was cut."""
    with (
        midstream.Client(endpoint, resume=resume) as client,
        client.stream(prompt, **ask) as stream,
    ):
        for text, style in pieces(stream, cutter):
            console.print(Text(text, style=style), end="", soft_wrap=True)
        console.print()
    kinds = [made.kind for made in cutter.cuts] if cutter else []
    return Run(stream, stream.text, kinds.count("fin"), kinds.count("rst"))


def pieces(
    stream: midstream.Stream, cutter: Cutter | None
) -> Iterator[tuple[str, str]]:
    """The text as it comes, and the marks, each with its style."""
    marked = 0
    for event in stream.events():
        match event:
            case midstream.TextDelta():
                yield event.text, ""
            case midstream.Resumed() if cutter is not None:
                # Two cuts with nothing between them are continued at once.
                for made in cutter.cuts[marked:]:
                    marked += 1
                    yield f"✂{made.kind.upper()}", "bold red"
            case _:
                pass


def compare(whole: str, got: str) -> tuple[int, int]:
    """How many characters of `whole` are not in `got`, and how many are too many."""
    lost = repeated = 0
    matcher = SequenceMatcher(None, whole, got, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            lost += b - a
            repeated += d - c
    return lost, repeated


def report(unbroken: Run, runs: dict[str, Run]) -> bool:
    """Print the table; whether all went well."""
    columns = {"unbroken": unbroken, **runs}
    compared = {way: compare(unbroken.text, run.text) for way, run in columns.items()}
    table = Table("", *columns, title="What arrived", title_justify="left")
    rows = {
        "cuts": lambda way, run: (
            f"{run.fin + run.rst} ({run.fin} FIN, {run.rst} RST)" if way in runs else ""
        ),
        "characters": lambda _, run: str(len(run.text)),
        "characters lost": lambda way, _: number(compared[way][0]),
        "characters repeated": lambda way, _: number(compared[way][1]),
        "strategy": lambda _, run: ", ".join(
            sorted({resumption.strategy for resumption in run.stream.resumes})
        ),
        "exactness": lambda _, run: run.stream.exactness.name,
        "first token": lambda _, run: milliseconds(run.stream.metrics.ttft),
        "between tokens, p50": lambda _, run: milliseconds(run.stream.metrics.itl.p50),
        "between tokens, p95": lambda _, run: milliseconds(run.stream.metrics.itl.p95),
        "lost to drops": lambda way, run: (
            milliseconds(run.stream.metrics.gap) if way in runs else ""
        ),
    }
    for name, cell in rows.items():
        table.add_row(name, *(cell(way, run) for way, run in columns.items()))
    console.print()
    console.print(table)
    well = True
    for way, run in runs.items():
        cuts = run.fin + run.rst
        if cuts < FEWEST_CUTS:
            console.print(
                f"[red]{way}: only {cuts} cuts, the answer was too short[/] (--tokens)"
            )
        if any(compared[way]):
            console.print(f"[red]{way}: the answer is not the unbroken one[/]")
        well = well and cuts >= FEWEST_CUTS and not any(compared[way])
    if well:
        console.print("[green]Not a character lost, none repeated.[/]")
    return well


def number(count: int) -> str:
    return f"[{'red' if count else 'green'}]{count}[/]"


def milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.1f} ms"


if __name__ == "__main__":
    main()
