"""Prints docs/reference/dialects.md from the table of dialects itself.

    python docs/reference/make_dialects.py > docs/reference/dialects.md

A test holds the file to what this prints.
"""

from __future__ import annotations

import midstream

HEAD = """\
# Dialects

What `midstream.dialects()` tells, as tables; made by `docs/reference/make_dialects.py`.

An endpoint is written `DIALECT[:MODEL][@URL]`. Where a dialect has a usual address,
`@URL` may be left out; base URLs are given with or without `/v1`.
"""

ADDRESSES = """
## Addresses and keys

| dialect | framing | route | default URL | key |
|---|---|---|---|---|
"""

RESUMING = """
## Ends, resuming, proof

A stream is complete when its end marker was seen. Strategies are tried from left to
right; `ask` only with `Resume(approximate=True)`; `rerun` works with every dialect,
where it is allowed. What each is worth stands in [Rules of
resuming](../explanation/resume-rules.md).

Proof: a server's name alone means that the real server was run; "bytes of" means its
recorded bytes; the other names are official clients that read what the fake server
writes, without complaint and to the same text.

| dialect | whole when | resumed by | proved by |
|---|---|---|---|
"""


def row(*cells: str) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |\n"


def page() -> str:
    """The whole page."""
    facts = [fact for _, fact in sorted(midstream.dialects().items())]
    text = HEAD + ADDRESSES
    for fact in facts:
        keys = ", ".join(f"`{name}`" for name in fact.key_variables)
        url = f"`{fact.default_url}`" if fact.default_url else ""
        text += row(f"`{fact.name}`", fact.framing, f"`{fact.route}`", url, keys)
    text += RESUMING
    for fact in facts:
        ways = ", ".join(
            f"{way} (`{exactness.name}`)" for way, exactness in fact.strategies.items()
        )
        text += row(f"`{fact.name}`", fact.end, ways, ", ".join(fact.proof))
    return text


if __name__ == "__main__":
    print(page(), end="")
