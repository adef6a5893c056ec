"""The house's shape: no circle of imports, no class that knows too much."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import midstream

ROOT = Path(midstream.__file__).parent
LINES = 250  # of a class
ATTRIBUTES = 12  # that an __init__ sets


def _modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        yield ".".join(parts).removesuffix(".__init__"), ast.parse(path.read_text())


MODULES = dict(_modules())
CLASSES = [
    pytest.param(node, id=f"{module}.{node.name}")
    for module, tree in MODULES.items()
    for node in ast.walk(tree)
    if isinstance(node, ast.ClassDef)
]


def _named(node):
    """The modules of the house that an import names, as type checkers read it."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & MODULES.keys()
    if isinstance(node, ast.ImportFrom):
        inner = {f"{node.module}.{alias.name}" for alias in node.names}
        return inner & MODULES.keys() or {node.module} & MODULES.keys()
    return set()


def test_no_import_leads_back_also_for_type_checkers():
    imports = {
        module: set().union(*map(_named, ast.walk(tree))) - {module}
        for module, tree in MODULES.items()
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as circle:
        pytest.fail(" → ".join(circle.args[1]))


@pytest.mark.parametrize("cls", CLASSES)
def test_a_class_fits_a_few_screens(cls):
    assert cls.end_lineno - cls.lineno < LINES


@pytest.mark.parametrize("cls", CLASSES)
def test_an_object_is_made_of_few_parts(cls):
    inits = (node for node in cls.body if getattr(node, "name", "") == "__init__")
    parts = {
        node.attr
        for init in inits
        for node in ast.walk(init)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == "self"
    }
    assert len(parts) <= ATTRIBUTES, sorted(parts)
