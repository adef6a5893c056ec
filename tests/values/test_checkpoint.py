"""What is needed to continue later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from midstream._values.checkpoint import Answer, Checkpoint, Growth, Survived
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
        exactness=st.sampled_from(["UNBROKEN", "TEXT"]),
        writer=encodable,
    )
)
def test_it_survives_json(checkpoint):
    assert Checkpoint.model_validate_json(checkpoint.model_dump_json()) == checkpoint


def test_another_format_is_not_mistaken_for_ours():
    for more in {"version": 3}, {"unknown": 1}, {"endpoint": None}:
        with pytest.raises(ValidationError):
            Checkpoint.model_validate({"endpoint": "e", "request": {}, **more})


def test_what_knew_no_calls_is_still_read():
    old = Checkpoint.model_validate({"endpoint": "e", "request": {}, "text": "x"})
    assert (old.text, old.tool_calls, old.refusal, old.others) == ("x", [], "", {})


def test_it_does_not_change():
    checkpoint = Checkpoint(endpoint="e", request={})
    with pytest.raises(ValidationError):
        checkpoint.text = "x"


def test_the_first_format_is_read_as_it_is():
    first = Checkpoint.model_validate({"version": 1, "endpoint": "e", "request": {}})
    assert (first.version, first.exactness, first.resumptions) == (1, "UNBROKEN", [])
    assert Checkpoint(endpoint="e", request={}).version == 2


@pytest.mark.parametrize(
    "junk",
    [
        {"exactness": "PERFECT"},
        {"resumptions": [{"at": 1}]},
        {"others": {"x": {}}},
        {"request": []},
        {"tool_calls": [{"index": "one"}]},
    ],
)
def test_what_nobody_can_use_is_refused(junk):
    with pytest.raises(ValidationError):
        Checkpoint.model_validate({"endpoint": "e", "request": {}} | junk)


def test_growth_appends_texts_and_replaces_the_rest():
    drop = Survived(
        at=2, reason="r", strategy="text", exactness="TEXT", endpoint="e", gap=0.1
    )
    whole = Checkpoint(
        endpoint="e", request={"prompt": "p"}, text="a", token_ids=[1], tokens=1
    ).grown(
        Growth(text="b", token_ids=[2], tokens=2, response_id="r"),
        Growth(resumptions=[drop], exactness="TEXT", endpoint="f"),
        Growth(text="c", gaps=[(1, 1, "b")], finished=True, finish_reason="stop"),
    )
    assert (whole.text, whole.token_ids, whole.tokens) == ("abc", [1, 2], 2)
    assert (whole.response_id, whole.endpoint, whole.exactness) == ("r", "f", "TEXT")
    assert (whole.gaps, whole.resumptions) == ([(1, 1, "b")], [drop])
    assert (whole.finished, whole.finish_reason) == (True, "stop")
    assert whole.request == {"prompt": "p"}


def test_growth_of_calls_and_of_other_answers():
    whole = Checkpoint(
        endpoint="e",
        request={},
        tool_calls=[ToolCall(0, "c", "f", '{"a')],
        others={1: Answer(text="x")},
    ).grown(
        Growth(tool_calls=[ToolCall(0, "c", "f", '":1}')]),
        Growth(
            tool_calls=[ToolCall(0, "c", "f", "", complete=True), ToolCall(1, "d")],
            others={1: Answer(text="y", finished=True), 2: Answer(text="new")},
        ),
    )
    first = ToolCall(0, "c", "f", '{"a":1}', complete=True)
    assert whole.tool_calls == [first, ToolCall(1, "d")]
    assert whole.others == {1: Answer(text="xy", finished=True), 2: Answer(text="new")}
