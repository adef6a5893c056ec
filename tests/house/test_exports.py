"""The public names: flat, sorted, complete."""

import inspect
import types

import pytest

import midstream


def test_all_is_sorted_and_flat():
    names = midstream.__all__
    assert names == sorted(names)
    assert len(names) == len(set(names))
    assert not any("." in name for name in names)


def test_all_is_reality():
    public = {
        name
        for name, value in vars(midstream).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public | {"__version__"} == set(midstream.__all__)


def test_every_error_is_public():
    def family(error):
        yield error
        for kind in error.__subclasses__():
            if kind.__module__ == "midstream":
                yield from family(kind)

    classes = set(family(midstream.MidstreamError))
    assert classes <= {getattr(midstream, name) for name in midstream.__all__}


CLASSES = [
    name for name in midstream.__all__ if inspect.isclass(getattr(midstream, name))
]


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_class_says_that_it_is_of_midstream_and_what_it_is_for(name):
    cls = getattr(midstream, name)
    assert cls.__name__ == name
    assert cls.__module__.partition(".")[0] == "midstream"
    assert inspect.getdoc(cls)


@pytest.mark.parametrize(
    "name",
    [n for n in midstream.__all__ if inspect.isfunction(getattr(midstream, n))],
)
def test_a_public_function_has_a_docstring_and_types(name):
    function = getattr(midstream, name)
    assert inspect.getdoc(function)
    assert "return" in function.__annotations__


def test_the_contract_names_are_there():
    contract = """
        Client AsyncClient Endpoint Message Timeouts Resume Backoff Exactness
        TextDelta ReasoningDelta RefusalDelta ToolCallDelta UsageReport Resumed Finish
        Usage Resumption Checkpoint Tokens Words Sentences Lines Graphemes Frames
        regroup aregroup register dialects
    """
    assert set(contract.split()) <= set(midstream.__all__)
