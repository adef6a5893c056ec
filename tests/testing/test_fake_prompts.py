"""The fake Gemini, TGI, SGLang, Ollama and Triton, asked by a bare HTTP client."""

import json

import httpx
import pytest

from midstream.testing import ByteOrderMark, Cut, FakeServer, Gzip, LineEnds, Status

TEXT = "Hello, wide world."
GEMINI = "/v1beta/models/gemini-2.5-flash"
ASKS = {
    "gemini": (
        f"{GEMINI}:generateContent",
        {"contents": [{"parts": [{"text": "Hi"}]}]},
    ),
    "tgi": ("/", {"inputs": "Hi"}),
    "sglang": ("/generate", {"text": "Hi"}),
    "ollama-generate": (
        "/api/generate",
        {"model": "m", "prompt": "Hi", "stream": False},
    ),
    "triton": ("/v2/models/llm/generate", {"text_input": "Hi"}),
}


@pytest.fixture
def http():
    with httpx.Client(timeout=10, trust_env=False) as client:
        yield client


def post(http, server, name, route, body):
    return http.post(server.url(name) + route, json=body)


@pytest.mark.parametrize("name", ASKS)
def test_a_whole_answer_at_once(http, name):
    with FakeServer(TEXT) as server:
        answer = post(http, server, name, *ASKS[name])
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    document = document[0] if isinstance(document, list) else document
    names = "text", "response", "generated_text", "text_output"
    found = [document[key] for key in names if key in document]
    if name == "gemini":
        parts = document["candidates"][0]["content"]["parts"]
        found = ["".join(part["text"] for part in parts)]
    assert found == [TEXT]


@pytest.mark.parametrize(
    ("name", "route", "body", "status", "words"),
    [
        ("gemini", f"{GEMINI}:streamGenerateContent", {}, 400, "contents"),
        ("tgi", "/generate_stream", {}, 422, "inputs"),
        ("sglang", "/generate", {}, 400, "input_ids"),
        ("sglang", "/generate", {"text": "a", "input_ids": [3]}, 400, "input_ids"),
        ("sglang", "/generate", {"input_ids": [99999]}, 400, "99999"),
        ("ollama-generate", "/api/generate", {"prompt": "Hi"}, 400, "model"),
        (
            "ollama-generate",
            "/api/generate",
            {"model": "m", "prompt": "Hi", "raw": True, "system": "Be brief."},
            400,
            "raw mode",
        ),
        ("triton", "/v2/models/llm/generate_stream", {}, 400, "inputs"),
    ],
)
def test_what_they_refuse(http, name, route, body, status, words):
    with FakeServer(TEXT) as server:
        answer = post(http, server, name, route, body)
    assert answer.status_code == status
    assert words in answer.text
    assert "error" in answer.json()


def test_gemini_refuses_a_model_turn_of_later_models(http):
    turns = [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"text": "Hello"}]},
    ]
    route = "/v1beta/models/gemini-3.6-flash:streamGenerateContent"
    with FakeServer(TEXT) as server:
        answer = post(http, server, "gemini", route, {"contents": turns})
    assert answer.status_code == 400
    assert "ending with a model turn" in answer.text


def test_gemini_streams_an_array_unless_it_is_asked_for_events(http):
    route, body = f"{GEMINI}:streamGenerateContent", ASKS["gemini"][1]
    with FakeServer(TEXT) as server:
        array = post(http, server, "gemini", route, body)
        events = post(http, server, "gemini", f"{route}?alt=sse", body)
    assert array.headers["content-type"] == "application/json"
    assert events.headers["content-type"] == "text/event-stream"
    datas = [line.removeprefix("data: ") for line in events.text.splitlines() if line]
    assert array.json() == [json.loads(data) for data in datas]


@pytest.mark.parametrize("name", ["gemini", "tgi"])
def test_an_end_without_its_mark(http, name):
    route, body = ASKS[name]
    route = route.replace(":g", ":streamG") + "?alt=sse" if name == "gemini" else route
    with FakeServer(TEXT, faults=[Cut(kind="no_done")]) as server:
        answer = post(http, server, name, route, body | {"stream": True})
    assert '"finishReason"' not in answer.text
    assert '"generated_text":"' not in answer.text
    assert "Hell" in answer.text


@pytest.mark.parametrize("name", ["gemini", "tgi", "ollama-generate"])
@pytest.mark.parametrize("more", [ByteOrderMark(), LineEnds("\r"), Gzip()])
def test_the_only_record_loses_its_mark_whatever_is_around_it(http, name, more):
    """A mark at the begin, other line ends: the thread died of them."""
    route, body = ASKS[name]
    route = route.replace(":g", ":streamG") + "?alt=sse" if name == "gemini" else route
    with FakeServer(events=[], faults=[[more, Cut(kind="no_done")]]) as server:
        answer = post(http, server, name, route, body | {"stream": True})
    assert answer.status_code == 200
    assert '"finishReason"' not in answer.text
    assert '"generated_text":"' not in answer.text
    assert '"done":true' not in answer.text


def test_what_else_they_tell(http):
    with FakeServer(TEXT) as server:
        models = http.get(server.url("gemini") + "/v1beta/models").json()
        base = server.url("triton") + "/v2"
        assert models["models"]
        assert http.get(f"{base}/health/ready").status_code == 200
        about = http.get(f"{base}/models/llm").json()
        assert about["inputs"][0]["name"] == "text_input"
        config = http.get(f"{base}/models/llm/versions/1/config").json()
        assert config == {"name": "llm", "parameters": {}}
        assert http.get(f"{base}/repository").status_code == 404
        assert http.delete(f"{base}/models/llm").status_code == 404
        generate = f"{base}/models/llm/generate"
        assert http.get(generate).status_code == 405


def test_sglangs_tokenizer(http):
    with FakeServer(TEXT) as server:
        base = server.url("sglang") + "/v1"
        told = http.post(f"{base}/tokenize", json={"prompt": "Hi"}).json()
        ids = {"tokens": told["tokens"]}
        assert http.post(f"{base}/detokenize", json=ids).json() == {"text": "Hi"}
        unknown = http.post(f"{base}/detokenize", json={"tokens": [99999]})
        assert unknown.status_code == 400


def test_ollama_renders_without_generating(http):
    asked = {"model": "m", "prompt": "Hi", "system": "Be brief."}
    with FakeServer(TEXT) as server:
        route, rendering = "/api/generate", {**asked, "_debug_render_only": True}
        told = post(http, server, "ollama-generate", route, rendering).json()
        assert server.streams == []
    rendered = told["_debug_info"]["rendered_template"]
    assert rendered.index("Be brief.") < rendered.index("Hi")


def test_sampling_parameters_of_triton_from_wherever_they_are(http):
    route = "/v2/models/llm/generate"
    document = json.dumps({"max_tokens": 2})
    with FakeServer(tokens=["a ", "b ", "c "]) as server:
        for more in (
            {"max_tokens": 2},
            {"parameters": {"max_tokens": 2}},
            {"sampling_parameters": document},
        ):
            answer = post(http, server, "triton", route, {"text_input": "Hi", **more})
            assert answer.json()["text_output"] == "a b "
            assert answer.json()["finish_reason"] == "length"


def test_a_key_in_googles_header(http):
    route, body = ASKS["gemini"]
    with FakeServer(TEXT, api_key="secret") as server:
        url = server.url("gemini") + route
        refused = http.post(url, json=body)
        assert refused.json()["error"]["code"] == 401
        answer = http.post(url, json=body, headers={"x-goog-api-key": "secret"})
        assert answer.status_code == 200


@pytest.mark.parametrize("name", ["sglang", "tgi"])
def test_errors_in_their_own_documents(http, name):
    with FakeServer(TEXT, faults=[Status(503, "busy"), Status(400, "no")]) as server:
        busy = post(http, server, name, *ASKS[name]).json()
        no = post(http, server, name, *ASKS[name]).json()
    assert "busy" in str(busy)
    assert "no" in str(no)
    if name == "sglang":
        assert busy["error"]["type"] == "InternalServerError"
        assert no["error"] | {"type": "BadRequest"} == no["error"]
    else:
        assert busy == {"error": "busy", "error_type": "overloaded"}
