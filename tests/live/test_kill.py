"""SIGKILL of the reading process in mid-answer of the real llama.cpp."""

import os
import random
import runpy
from pathlib import Path

import pytest

ROUNDS = int(os.environ.get("MIDSTREAM_KILLS", "3"))  # `MIDSTREAM_KILLS=50` for all
TOKENS = 48
STORY = "Write a short story about a lighthouse keeper."
RAW = "The lighthouse keeper"
TOOLS = runpy.run_path(str(Path(__file__).parents[1] / "kill" / "conftest.py"))


@pytest.mark.parametrize(
    ("dialect", "prompt", "ways"),
    [
        ("llama.cpp", STORY, ["replay"]),
        ("llama.cpp", STORY, ["text"]),
        ("llama.cpp-completion", RAW, ["tokens", "text"]),
    ],
)
def test_killed_at_random_moments(llama_url, tmp_path, dialect, prompt, ways):
    """Replay gives the text of any sampling, a prefix that of greedy decoding.

    How many tokens the text was that was shown and not stored, a prefix can only guess:
    there the answer may end a few tokens earlier or later than its limit.
    """

    def killing(tokens):
        endpoint = f"{dialect}@{llama_url}"
        options = {"ways": ways, "prompt": prompt, "tokens": tokens}
        return TOOLS["Killing"](endpoint, tmp_path, **options)

    child = killing(TOKENS)
    child.whole("warm")  # the prompt is evaluated once, so that caches are equal
    whole = child.whole("whole")
    longer = killing(TOKENS * 2).whole("longer")
    assert longer.startswith(whole)
    source = random.Random(11)
    resumed = set()
    for number in range(ROUNDS):
        shown, joined, facts = child.kill_and_go_on(f"k{number}", source, len(whole))
        assert whole.startswith(shown)
        assert joined == facts["text"]
        assert facts["complete"]
        if ways == ["replay"]:
            assert joined == whole
        assert longer.startswith(joined)
        assert abs(len(joined) - len(whole)) < len(whole) // 4
        resumed |= set(facts["ways"])
    assert resumed <= {"begin", *ways}
    assert resumed
