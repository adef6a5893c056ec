"""What must not run side by side stays in one process: pages, and real servers."""

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ("README.md", "docs/how-to/resume.md", "docs/how-to/testing.md")


def test_each_page_runs_in_one_process_and_pages_in_several():
    """Their code blocks build on one another, so they would fail elsewhere."""
    words = ["-v", "-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words, *PAGES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    workers = defaultdict(set)
    for line in done.stdout.splitlines():
        if " PASSED " in line:
            worker, _, name = line.partition(" PASSED ")
            workers[name.partition("::")[0]].add(worker.split()[0])
    assert set(workers) == set(PAGES)
    assert all(len(some) == 1 for some in workers.values())
    assert len(set.union(*workers.values())) == 2


def test_live_tests_are_one_group_and_come_last(request):
    config = request.config
    (hook,) = [
        found.function
        for found in config.hook.pytest_xdist_make_scheduler.get_hookimpls()
        if found.plugin_name.endswith("conftest.py")
    ]
    group = hook.__globals__["InGroups"]._split_scope
    assert group(None, "tests/live/test_a.py::test_b[x]") == "live"
    assert group(None, "tests/live/test_c.py::test_d") == "live"
    assert group(None, "docs/a.md::line:1,column:1") == "docs/a.md"
    assert group(None, "tests/a.py::test_b[a.md]") == "tests/a.py::test_b[a.md]"
    live = [item.get_closest_marker("live") is None for item in request.session.items]
    assert live == sorted(live, reverse=True)
