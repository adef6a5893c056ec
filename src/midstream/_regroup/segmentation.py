r"""Where text may be cut: edges of grapheme clusters (UAX #29) in growing text.

No cluster can be proven finished before the character after it has come: a family
joiner, a second flag letter or a late accent may still follow. So ``tail`` tells
where the last, still growing cluster begins, and callers keep it back. Only after a
line feed or another control character nothing can be joined (GB4). At a deadline less
is asked: ``presentable`` keeps back only what a reader would see is not whole.

All functions take text that begins at an edge. Between two ASCII characters the
answer is immediate (only CR LF stay together); otherwise the search goes back to the
nearest character that surely begins a cluster and on from there by ``\X``, so the
work depends on the length of the cluster, not on that of the text.
"""

import re
from functools import cache
from types import ModuleType

CLUSTER_LIMIT = 256
"""Code points after which an endless cluster is let go unfinished.

Real ones are far shorter: the longest emoji sequences have ten code points, and
UAX #15 (stream-safe text) allows 30 marks on a base. It is the longest text ``\\X``
is shown at once, too, as it counts a run of flag letters from its start each time.
"""

_ascii_clusters = re.compile(r"\r\n|.", re.DOTALL).findall


@cache
def rules() -> ModuleType:
    """Load the Unicode patterns on first need.

    Returns:
        The module ``patterns``.
    """
    from midstream._regroup import patterns  # noqa: PLC0415 - loads regex: 20 ms

    return patterns


def tail(text: str) -> int:
    """Find where the last, possibly growing cluster begins.

    Args:
        text: Text that begins at an edge.

    Returns:
        Its index; the length of the text when nothing at its end can grow.
    """
    size = len(text)
    if not size:
        return 0
    last = text[-1]
    if last < "\x80":
        if (last < " " and last != "\r") or last == "\x7f":
            return size
        if size == 1 or text[-2] < "\x80":
            return size - 1
    elif rules().FINISHED.match(last):
        return size
    return _until(text, size - 1)


def presentable(text: str) -> int:
    """Find how much may be shown when waiting is over.

    Args:
        text: Text that begins at an edge.

    Returns:
        The length of the text; less its last cluster if that is visibly unfinished,
        or a CR whose LF may follow.
    """
    if not text or "\r" != text[-1] < "\x80":
        return len(text)
    unfinished = text[-1] == "\r" or rules().UNFINISHED.search(text, tail(text))
    return tail(text) if unfinished else len(text)


def is_edge(text: str, at: int) -> bool:
    """Tell whether text may be cut at an index.

    Args:
        text: Text that begins at an edge.
        at: An index of a character, so that what follows the cut is known.

    Returns:
        Whether no cluster spans the index.
    """
    after = text[at]
    if after < "\x80" and text[at - 1] < "\x80":
        return after != "\n" or text[at - 1] != "\r"
    return rules().FIRM.match(text, at) is not None or _until(text, at) == at


def edge_until(text: str, at: int) -> int:
    """Find the last edge at or before an index.

    Args:
        text: Text that begins at an edge.
        at: An index of a character, so that what follows the cut is known.

    Returns:
        The edge; 0 when one cluster spans all of it.
    """
    return at if at == 0 or is_edge(text, at) else _until(text, at)


def edge_from(text: str, at: int) -> int:
    """Find the first edge at or after an index.

    Args:
        text: Text that begins at an edge.
        at: An index, 1 or more.

    Returns:
        The edge; the length of the text when there is none before it.
    """
    size = len(text)
    if at >= size or is_edge(text, at):
        return min(at, size)
    if text[at] == "\n":  # the second half of a CR LF
        return at + 1
    end = _until(text, at)
    cluster = rules().CLUSTER
    while end < at:
        end += cluster.match(text[end : end + CLUSTER_LIMIT]).end()
    return end


def clusters(text: str) -> list[str]:
    """Split text into grapheme clusters.

    Args:
        text: Text that begins at an edge.

    Returns:
        The clusters; one that is longer than ``CLUSTER_LIMIT`` comes in parts.
    """
    if text.isascii():
        return _ascii_clusters(text) if "\r" in text else list(text)
    found: list[str] = []
    find = rules().CLUSTER.findall
    start, size = 0, len(text)
    while start < size:
        part = find(text[start : start + CLUSTER_LIMIT])
        start += CLUSTER_LIMIT
        if start < size and len(part) > 1:
            # The window may have cut its last cluster: begin the next one there.
            start -= len(part.pop())
        found += part
    return found


def _until(text: str, at: int) -> int:
    """Find the last edge at or before an index by walking from a firm one."""
    if text[at] == "\n" and text[at - 1] == "\r":
        return at - 1  # at the start of a text, CR LF is the only cluster with an LF
    patterns = rules()
    firm = patterns.LAST_FIRM.search(text, 0, at + 1)
    start: int = firm.start() if firm else 0
    end = start
    while end <= at:
        start = end
        end += patterns.CLUSTER.match(text[end : end + CLUSTER_LIMIT]).end()
        if end >= len(text):
            break
    return start
