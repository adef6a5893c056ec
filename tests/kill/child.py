"""The process that is killed: streams a keyed answer, or goes on with one.

    python child.py ENDPOINT STORE KEY STRATEGIES          begin
    python child.py ENDPOINT STORE KEY STRATEGIES AFTER    go on after characters
    python child.py ENDPOINT STORE KEY STRATEGIES =TEXT    go on after this text

What it reads it writes to standard output, piece by piece and unbuffered, as bytes.
Once the stream has ended, a last line on standard error is JSON with what became of it.
"""

import json
import os
import sys

import midstream
from midstream import Backoff, Resume, SQLiteStore

ASK = {"temperature": 0, "seed": 7}
if limit := os.environ.get("TOKENS"):
    ASK["max_tokens"] = int(limit)


def main():
    endpoint, path, key, strategies, *after = sys.argv[1:]
    resume = Resume(
        strategies=strategies.split(","), backoff=Backoff(initial=0.02, maximum=0.2)
    )
    prompt = os.environ.get("PROMPT", "Tell me.")
    with midstream.Client(endpoint, resume=resume, store=SQLiteStore(path)) as client:
        if after and after[0].startswith("="):
            stream = client.resume(key, have=after[0][1:])
        elif after:
            stream = client.resume(key, after=int(after[0]))
        else:
            stream = client.stream(prompt, key=key, **ASK)
        try:
            with stream:
                for piece in stream:
                    os.write(1, piece.encode())
        except midstream.UsageError as error:
            sys.exit(f"UsageError: {error}")
    facts = {
        "text": stream.text,
        "complete": stream.complete,
        "ways": [resumption.strategy for resumption in stream.resumes],
    }
    os.write(2, json.dumps(facts).encode())


main()
