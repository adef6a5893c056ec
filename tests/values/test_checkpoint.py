"""What is needed to continue later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from midstream._values.checkpoint import Answer, Checkpoint
from midstream._values.tool_call import ToolCall

encodable = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
counts = st.integers(0, 2**31)
calls = st.lists(
    st.builds(
        ToolCall,
        index=counts,
        id=st.none() | encodable,
        name=st.none() | encodable,
        arguments=encodable,
    ),
    max_size=2,
)


@given(
    st.builds(
        Checkpoint,
        endpoint=encodable,
        request=st.just({"prompt": "p", "extra": {"a": [1, None]}}),
        text=encodable,
        reasoning=encodable,
        refusal=encodable,
        tool_calls=calls,
        others=st.dictionaries(
            counts, st.builds(Answer, text=encodable, tool_calls=calls), max_size=2
        ),
        tokens=counts,
        token_ids=st.lists(st.integers(-1, 2**40), max_size=4),
        gaps=st.lists(st.tuples(counts, counts, encodable), max_size=2),
        response_id=st.none() | encodable,
        offset=counts,
        cursor=st.none() | encodable | st.dictionaries(encodable, counts, max_size=2),
        complete=st.booleans(),
    )
)
def test_it_survives_json(checkpoint):
    assert Checkpoint.model_validate_json(checkpoint.model_dump_json()) == checkpoint


def test_another_format_is_not_mistaken_for_ours():
    for more in {"version": 2}, {"unknown": 1}, {"endpoint": None}:
        with pytest.raises(ValidationError):
            Checkpoint.model_validate({"endpoint": "e", "request": {}, **more})


def test_what_knew_no_calls_is_still_read():
    old = Checkpoint.model_validate({"endpoint": "e", "request": {}, "text": "x"})
    assert (old.text, old.tool_calls, old.refusal, old.others) == ("x", [], "", {})


def test_it_does_not_change():
    checkpoint = Checkpoint(endpoint="e", request={})
    with pytest.raises(ValidationError):
        checkpoint.text = "x"
