"""The house's floors: what each module may import, and what an import loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import midstream

ROOT = Path(midstream.__file__).parent

FLOORS = [  # DESIGN: a floor imports only lower floors, and its own
    {"_values"},
    {"_frames", "_utf8"},
    {"_dialects", "_regroup", "_metrics", "_tokenizers"},
    {"_resume"},
    {"_session"},
    {"_transports", "_keeping", "stores"},
    {"_streaming"},
    {"_base_client", "client", "heal", "testing", "cli", "__init__"},
]
SANS_IO = set().union(*FLOORS[:5])
IO = {
    "anyio",
    "asyncio",
    "grpc",
    "httpcore",
    "httpx",
    "httpx_sse",
    "select",
    "socket",
    "ssl",
    "threading",
    "time",
    "trio",
}
WIRE = {"httpcore", "httpx", "httpx_sse", "grpc"}
# The public face takes the user's own client and hands out an SSE record.
FACES = {"client", "heal", "testing", "cli"}


def part(module: str) -> str:
    """``midstream._frames.sse`` → ``_frames``."""
    return [*module.split("."), "__init__"][1]


def floor(name: str) -> int:
    return next(number for number, names in enumerate(FLOORS) if name in names)


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        yield ".".join(parts).removesuffix(".__init__"), path


def is_typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports(node: ast.AST, *, typing: bool = False):
    """The modules that a file imports when it runs, inside functions as well.

    Args:
        node: Where to look.
        typing: Whether those count too that only type checkers follow.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            yield child.module
            yield from (
                f"{child.module}.{alias.name}"
                for alias in child.names
                if child.module == "midstream"
            )
        elif is_typing_only(child) and not typing:
            yield from (name for part in child.orelse for name in imports(part))
        else:
            yield from imports(child, typing=typing)


MODULES = dict(modules())
IMPORTS = {
    name: sorted(set(imports(ast.parse(path.read_text()))))
    for name, path in MODULES.items()
}


def test_the_floors_hold_every_module_and_no_other():
    parts = {part(name) for name in MODULES}
    assert parts <= set().union(*FLOORS)
    assert parts >= SANS_IO


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_its_own_floor_and_lower_ones(name):
    mine = part(name)
    tree = ast.parse(MODULES[name].read_text())
    for other in imports(tree, typing=True):
        if not other.startswith("midstream") or other == "midstream":
            continue
        above = part(other) if part(other) in set().union(*FLOORS) else "__init__"
        assert floor(above) <= floor(mine), f"{name} imports {other}"


@pytest.mark.parametrize("name", [n for n in MODULES if part(n) in SANS_IO])
def test_the_inner_floors_do_no_io_and_have_no_clock(name):
    foreign = {other.partition(".")[0] for other in IMPORTS[name]}
    assert not foreign & IO


@pytest.mark.parametrize("name", [n for n in MODULES if part(n) not in FACES])
def test_only_the_transports_know_the_wire(name):
    foreign = {other.partition(".")[0] for other in IMPORTS[name]}
    assert part(name) == "_transports" or not foreign & WIRE


@pytest.mark.parametrize("name", ["_regroup", "_metrics"])
def test_what_works_alone_imports_nothing_of_the_rest(name):
    for module in (n for n in MODULES if part(n) == name):
        own = [o for o in IMPORTS[module] if o.startswith("midstream")]
        assert all(part(o) in {name, "_values"} for o in own), own


def test_import_midstream_is_light():
    heavy = (
        "grpc tiktoken rich regex trio google.protobuf typer redis tokenizers h2 jinja2"
    )
    program = (
        "import sys, midstream; "
        f"sys.exit(' '.join(n for n in {heavy.split()} if n in sys.modules) or 0)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.stderr == ""
    assert run.returncode == 0


def test_a_client_of_all_dialects_builds_no_protobuf_messages():
    program = (
        "import sys, midstream; "
        "names = [f'{name}:m@http://host' for name in midstream.dialects()]; "
        "midstream.Client(*names).close(); "
        "sys.exit('google.protobuf' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], check=False)
    assert run.returncode == 0
