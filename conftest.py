"""What holds for all tests: which run side by side; and the code blocks of the docs.

Tests run in several processes (pytest-xdist), each in any of them, but for two kinds of
groups: those with real servers, started once, which need all cores and come last; and
the code blocks of one page, which build on one another.

An example names the servers that its readers have; here a `FakeServer` stands behind
every address, so that each line really runs. Of shell blocks, `make` targets and
extras must exist.
"""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser
from xdist.scheduler import LoadScopeScheduling

import midstream
from midstream import _base_client, _dialects
from midstream.testing import FakeServer

ROOT = Path(__file__).parent
LIVE = ROOT / "tests/live"
EXAMPLES = ("localhost", "gpu1", "api.openai.com")

# How busy the machine is, is no property of the code.
settings.register_profile(
    "midstream", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("midstream")


def pytest_collection_modifyitems(items):
    """Mark the live tests, and put them behind all others."""
    for item in items:
        if LIVE in item.path.parents:
            item.add_marker("live")
    items.sort(key=lambda item: item.get_closest_marker("live") is not None)


class InGroups(LoadScopeScheduling):
    """Gives each test to whichever process is free, and a whole group to one."""

    def _split_scope(self, nodeid):
        """The group of a test; most are a group by themselves."""
        page = nodeid.partition("::")[0]
        if nodeid.startswith("tests/live/"):
            return "live"
        return page if page.endswith(".md") else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Our groups; the marks of ``--dist loadgroup`` are lost on pytest 9."""
    return InGroups(config, log)


@pytest.fixture(scope="module")
def _everywhere(tmp_path_factory):
    """One fake server behind the addresses that the examples name."""
    real, built_in = _base_client._server, midstream.dialects().keys()
    with FakeServer("An answer that streams. 途切れない答え。") as server:

        def redirected(endpoint):
            found = real(endpoint)
            base_url = found.endpoint.base_url or ""
            played = endpoint.dialect in built_in
            if played and any(host in base_url for host in EXAMPLES):
                url = server.url(endpoint.dialect)
                found.endpoint = found.endpoint.model_copy(update={"base_url": url})
            return found

        patch = pytest.MonkeyPatch()
        patch.setattr(_base_client, "_server", redirected)
        patch.setattr(_dialects, "_TABLE", dict(_dialects._TABLE))
        patch.chdir(tmp_path_factory.mktemp("docs"))
        yield
        patch.undo()


def _check_shell(example):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for line in example.parsed.splitlines():
        words = line.split("#")[0].split()
        if words[:1] == ["make"]:
            subprocess.run(
                ["make", "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True
            )
        for extra in re.findall(r"midstream\[(\w+)\]", line):
            assert extra in extras["project"]["optional-dependencies"]


pytest_collect_file = Sybil(
    parsers=[
        PythonCodeBlockParser(),
        CodeBlockParser("sh", _check_shell),
    ],
    patterns=["README.md", "docs/*.md", "docs/**/*.md"],
    fixtures=["_everywhere"],
).pytest()
