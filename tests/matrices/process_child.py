"""One process of the matrix: reads a keyed stream, and has something happen to it.

    python process_child.py JSON

The words of ``JSON`` are the fields of `Options`. What is read goes to standard output,
piece by piece and unbuffered; what became of it is one line of JSON on standard error.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from dataclasses import dataclass

import midstream
from midstream import Backoff, RedisStore, Resume, SQLiteStore
from midstream._keeping import keeper, lease, recorder
from midstream.stores import processes, redis_store

KEY = "k"


@dataclass
class Options:
    """What this process does.

    Attributes:
        endpoint: Who answers.
        store: A file, or an address of Redis.
        have: Go on behind this text; None: begin.
        take_over: Take the key from whoever has it.
        lease: Seconds.
        redis_answers: Seconds within which Redis has to.
        at: When so many characters were read …
        do: … this happens.
    """

    endpoint: str
    store: str
    have: str | None = None
    take_over: bool = False
    lease: float = 0.8
    redis_answers: float = 0.4
    at: int = 0
    do: str = ""


def main() -> None:
    options = Options(**json.loads(sys.argv[1]))
    for module in keeper, lease, recorder:
        module.LEASE = options.lease
    keeper.INTERVAL = 0.05
    recorder.AGAIN = 0.2
    redis_store._ANSWERS_WITHIN = options.redis_answers
    levels = Levels()
    logging.getLogger("midstream").addHandler(levels)
    logging.getLogger("midstream").setLevel(logging.INFO)
    is_redis = options.store.startswith("redis:")
    store = RedisStore(options.store) if is_redis else SQLiteStore(options.store)
    resume = Resume(strategies=("text",), backoff=Backoff(initial=0.02, maximum=0.2))
    facts = {"error": "", "words": "", "fork": ""}
    with midstream.Client(options.endpoint, resume=resume, store=store) as client:
        stream = opened(client, options)
        read, done = 0, not options.do
        try:
            with stream:
                for piece in stream:
                    os.write(1, piece.encode())
                    read += len(piece)
                    if not done and read >= options.at:
                        done = True
                        facts["fork"] = EVENTS[options.do](store, stream) or ""
        except midstream.MidstreamError as error:
            facts |= {"error": type(error).__name__, "words": str(error)}
    facts |= {"text": stream.text, "complete": stream.complete, "logs": levels.seen}
    os.write(2, json.dumps(facts).encode() + b"\n")


def opened(client, options):
    if options.have is None:
        return client.stream("Tell me.", key=KEY, max_tokens=4000)
    return client.resume(KEY, have=options.have, take_over=options.take_over)


class Levels(logging.Handler):
    """Which warnings there were."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def emit(self, record):
        self.seen.append(f"{record.levelname} {record.getMessage()}")


def jump(seconds):
    """The wall clock is set; what counts leases goes on."""

    def event(store, stream):
        wall = processes.wall
        processes.wall = lambda: wall() + seconds

    return event


def fork(store, stream):
    """The child reads on, too; says what it got."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(into, read_in_child(stream).encode())
        os._exit(0)
    os.close(into)
    os.waitpid(child, 0)
    return os.read(out, 1000).decode()


def fork_and_end(store, stream):
    """The parent ends at once; its child lives on and closes what it has."""
    child = os.fork()
    if child:
        os._exit(0)
    facts = {"fork": read_in_child(stream), "text": stream.text}
    stream.close()
    os.write(2, json.dumps(facts).encode() + b"\n")
    os._exit(0)


def read_in_child(stream):
    try:
        return next(iter(stream))
    except midstream.MidstreamError as error:
        return type(error).__name__


def fill(store, stream):
    """The disk is full from now on."""
    with store._lock:
        [(pages,)] = store._database.execute("PRAGMA page_count")
        store._database.execute(f"PRAGMA max_page_count = {pages}")


def free(store, stream):
    """And has room again a while later."""
    fill(store, stream)
    time.sleep(0.3)
    with store._lock:
        store._database.execute("PRAGMA max_page_count = 100000")


EVENTS = {
    "jump": jump(3600),
    "jump_back": jump(-3600),
    "fork": fork,
    "fork_and_end": fork_and_end,
    "fill": fill,
    "fill_and_free": free,
}

if __name__ == "__main__":
    main()
