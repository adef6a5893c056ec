"""What is given through ``extra`` under an API's own name is the standard parameter.

Each dialect's table is held against what the dialect itself writes: a name that it
sends and does not declare would not shrink on a resume.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import midstream
from midstream import UsageError
from midstream._dialects import find
from midstream._dialects.base import Received, Reply
from midstream._dialects.vllm_messages import engine
from midstream._values.api_names import ApiNames, normalised, places
from midstream._values.endpoint import Endpoint
from midstream._values.interruptions import ResumeUnsupported
from midstream._values.request import Request

STANDARD = {
    "max_tokens": 20,
    "temperature": 0.25,
    "top_p": 0.5,
    "stop": ["zq", "zz"],
    "seed": 4711,
    "tools": [{"type": "function", "function": {"name": "look"}}],
}
ALL = sorted(midstream.dialects())
HTTP = [name for name in ALL if find(name).transport == "http"]
PROMPT = "the prompt"


def endpoint(name, url=None):
    base = url or find(name).default_url or "http://localhost:1"
    return Endpoint(name, model="gemini-2.5-flash", base_url=base)


ENDPOINTS = [endpoint(name) for name in ALL]
ENDPOINTS += [
    endpoint(name, "http://localhost:1")
    for name in ("openai", "openai-responses", "anthropic")
]
SPOTS = [
    pytest.param(asked, place, name, id=f"{asked}-{place}")
    for asked in ENDPOINTS
    for place, name in find(asked.dialect).api_names(asked).standard.items()
]


def nested(place, value):
    for part in reversed(place.split(".")):
        value = {part: value}
    return value


def names_of(asked):
    return find(asked.dialect).api_names(asked)


def taken(asked, extra, **fields):
    request = Request.of(prompt=PROMPT, extra=extra, **fields)
    return normalised(request, [names_of(asked)])


@pytest.mark.parametrize(("asked", "place", "name"), SPOTS)
def test_a_parameter_in_extra_is_the_standard_one(asked, place, name):
    standard = Request.of(prompt=PROMPT, **{name: STANDARD[name]})
    assert taken(asked, nested(place, STANDARD[name])) == standard


@pytest.mark.parametrize(("asked", "place", "name"), SPOTS)
def test_what_stands_beside_it_stays(asked, place, name):
    deep, _, _ = place.rpartition(".")
    beside = nested(f"{deep}.own" if deep else "own", 1)
    both = nested(place, STANDARD[name])
    if deep:
        both[deep]["own"] = 1
    else:
        both |= beside
    assert taken(asked, both).extra == beside


@pytest.mark.parametrize(("asked", "place", "name"), SPOTS)
def test_two_words_for_one_thing_must_agree(asked, place, name):
    extra = nested(place, STANDARD[name])
    assert taken(asked, extra, **{name: STANDARD[name]}).extra == {}
    other = {"tools": [], "stop": ["other"]}.get(name, 1)
    with pytest.raises(UsageError, match=f"give {name}=… alone") as caught:
        taken(asked, extra, **{name: other})
    assert place in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "place"),
    [(spot.values[0], spot.values[1]) for spot in SPOTS if "max" in spot.values[2]],
)
def test_what_is_no_limit_stays_for_the_server(asked, place):
    extra = nested(place, -1)
    assert taken(asked, extra).extra == extra
    assert taken(asked, extra).max_tokens is None
    with pytest.raises(UsageError, match="max_tokens"):
        taken(asked, extra, max_tokens=20)


def test_two_names_for_the_limit_must_agree():
    extra = {"max_tokens": 20, "max_completion_tokens": 20}
    assert taken(endpoint("openai"), extra).max_tokens == 20
    with pytest.raises(UsageError, match="max_completion_tokens=30"):
        taken(endpoint("openai"), {**extra, "max_completion_tokens": 30})


def test_the_names_of_all_endpoints_are_taken():
    request = Request.of(
        prompt=PROMPT, extra={"options": {"num_predict": 20}, "random_seed": 7}
    )
    apis = [names_of(endpoint(name)) for name in ("ollama", "mistral")]
    assert normalised(request, apis) == Request.of(prompt=PROMPT, max_tokens=20, seed=7)


def test_one_stop_string_is_a_list_of_one():
    assert taken(endpoint("openai"), {"stop": "x"}, stop=["x"]).stop == ["x"]


def test_tritons_document_of_sampling_parameters_may_be_its_json():
    extra = {"sampling_parameters": '{"max_tokens": 20, "best_of": 1}'}
    found = taken(endpoint("triton"), extra)
    assert (found.max_tokens, found.extra) == (
        20,
        {"sampling_parameters": {"best_of": 1}},
    )
    for text in "no JSON", "[20]", '"max_tokens"':
        given = {"sampling_parameters": text}
        assert taken(endpoint("triton"), given).extra == given


def test_extra_that_nobody_names_is_left_alone():
    extra = {"options": {"num_predict": 20}}
    assert normalised(Request.of(prompt="p", extra=extra), [ApiNames()]).extra == extra


@pytest.mark.parametrize("asked", ENDPOINTS, ids=str)
def test_the_prompt_is_never_given_through_extra(asked):
    fields = names_of(asked).prompt
    assert fields
    for name in fields:
        for value in "text", [], False, None:
            with pytest.raises(UsageError, match="The prompt is the first argument"):
                taken(asked, {name: value})


def test_a_flag_as_it_is_sent_anyway_is_no_mistake():
    assert taken(endpoint("openai"), {"stream": True}).extra == {"stream": True}


# -- held against what is written ------------------------------------------------------


def triton_model(*inputs):
    tensors = [
        {"name": name, "datatype": "BYTES", "shape": [1]}
        for name in ("text_input", *inputs)
    ]
    outputs = [{"name": "text_output", "datatype": "BYTES", "shape": [1]}]
    document = {"name": "llm", "inputs": tensors, "outputs": outputs}
    return Reply(200, {}, json.dumps(document).encode())


MODELS = {
    "plain": triton_model("stop_words"),  # the rest as request parameters
    "document": triton_model("sampling_parameters"),
    "ensemble": triton_model("max_tokens", "temperature", "top_p", "stop_words"),
    "llm-api": triton_model(
        "sampling_param_max_tokens", "sampling_param_stop", "sampling_param_seed"
    ),
}
CASES = [(asked, "plain") for asked in ENDPOINTS if asked.dialect in HTTP]
CASES += [(endpoint("triton"), model) for model in MODELS if model != "plain"]


def sayable(asked):
    """The standard parameters, without those that this API cannot say."""
    allowed = set(names_of(asked).standard.values())
    return {name: value for name, value in STANDARD.items() if name in allowed}


def generation(wire, asked, request):
    made = wire.generation(asked, strategies=("text", "ask"))
    return type(made)(
        endpoint=asked, request=request, strategies=("text", "ask"), handle="h"
    )


def begun(wire, asked, request, model):
    flow = find(asked.dialect).begin(generation(wire, asked, request))
    return wire.body(wire.run(flow, MODELS[model])[1])


def leaves(part, path=()):
    """Every value of a body with its place."""
    if isinstance(part, str) and part.startswith("{"):
        part = json.loads(part)
    if isinstance(part, dict):
        for name, inner in part.items():
            yield from leaves(inner, (*path, name))
    else:
        yield ".".join(path), part


@pytest.mark.parametrize(("asked", "model"), CASES, ids=str)
def test_every_name_that_is_written_is_declared(wire, asked, model):
    said = sayable(asked)
    body = begun(wire, asked, Request.of(prompt=PROMPT, **said), model)
    names = names_of(asked)
    found = {
        names.standard.get(place, place): value
        for place, value in leaves(body)
        for mine in said.values()
        if value == mine
    }
    assert {name: found.get(name) for name in said} == said
    for place, value in leaves(body):
        if PROMPT in json.dumps(value) or place == "stream":
            assert place.partition(".")[0] in names.prompt, place


def rendered(model):
    """The answer to the call before a continuation: Triton's, or Ollama's."""
    document = json.loads(MODELS[model].content)
    shown = {"_debug_info": {"rendered_template": PROMPT}}
    return Reply(200, {}, json.dumps(document | shown).encode())


@pytest.mark.parametrize(("asked", "model"), CASES, ids=str)
def test_a_limit_in_extra_shrinks_as_the_standard_one(wire, asked, model):
    received = Received(text="so far", tokens=7, left=13)
    limits = [p for p, name in names_of(asked).standard.items() if name == "max_tokens"]
    assert limits
    asks = [taken(asked, nested(place, 20)) for place in limits]
    asks.append(Request.of(prompt=PROMPT, max_tokens=20))
    for strategy in {"text", "ask"} & set(find(asked.dialect).strategies):
        bodies = []
        for request in asks:
            flow = find(asked.dialect).continuation(
                generation(wire, asked, request), strategy, received
            )
            try:
                bodies.append(wire.body(wire.run(flow, rendered(model))[1].call))
            except ResumeUnsupported:
                bodies.append(None)
        assert bodies == [bodies[-1]] * len(bodies)
        if bodies[-1] is not None:
            assert 13 in dict(leaves(bodies[-1])).values()
            assert 20 not in dict(leaves(bodies[-1])).values()


def test_vllms_own_names_over_grpc_are_those_of_its_message():
    fields = engine().SamplingParams.DESCRIPTOR.fields
    known = {field.name: field.name for field in fields}
    known |= {field.json_name: field.name for field in fields}
    mine = names_of(endpoint("vllm-grpc", "grpc://h:1")).standard
    assert mine == {
        name: ours for name, ours in known.items() if ours in {*mine.values()}
    }
    assert set(mine.values()) == set(STANDARD) - {"tools"}


@given(
    st.recursive(st.integers(), lambda x: st.dictionaries(st.text(), x), max_leaves=9)
)
def test_any_extra_is_either_taken_or_left(value):
    extra = {"options": value, "parameters": value}
    api = ApiNames(places({"max_tokens": "num_predict"}, "options"))
    request = normalised(Request.of(prompt="p", extra=extra), [api])
    assert request.extra["parameters"] == value
    inner = value.get("num_predict") if isinstance(value, dict) else None
    if isinstance(inner, int) and inner > 0:
        assert request.max_tokens == inner
        assert "num_predict" not in request.extra.get("options", {})
    else:
        assert request.extra == extra
