"""The fake server answers as real servers do, over correct HTTP/1.1."""

import json
import socket
import struct
import threading

import httpx
import pytest

import midstream.testing
from midstream._values.errors import UsageError
from midstream._values.events import (
    End,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from midstream._values.usage import Usage
from midstream.testing import FakeServer, Stall, Status
from midstream.testing._fake.server import TEXT as DEFAULT

TEXT = "Hello, world. 日本語 👩‍👩‍👧 done."
DIALECTS = ["openai", "llama.cpp", "llama.cpp-completion", "ollama"]
each_dialect = pytest.mark.parametrize("dialect", DIALECTS)
prefilling = pytest.mark.parametrize("dialect", DIALECTS[1:])


def test_exports_are_sorted():
    names = midstream.testing.__all__
    assert names == sorted(names)
    assert all(hasattr(midstream.testing, name) for name in names)


@each_dialect
@pytest.mark.parametrize("split", ["text", "bytes"])
def test_whole_answer(talk, events, dialect, split):
    with FakeServer(split=split) as server:
        heard = talk(server).ask(dialect)
        entry = server.requests[0]
    found = events(dialect, heard.body)
    text = "".join(event.text for event in found if isinstance(event, TextDelta))
    assert text == entry.text == DEFAULT
    assert [e.reason for e in found if isinstance(e, Finish)] == ["stop"]
    assert isinstance(found[-1], End)
    assert (entry.dialect, entry.how, entry.ended) == (dialect, "top", "complete")
    assert entry.deltas == sum(isinstance(event, TextDelta) for event in found)


@prefilling
def test_continues_at_every_character(talk, dialect):
    for at in range(1, len(TEXT)):
        with FakeServer(TEXT) as server:
            talk(server).ask(dialect)
            assert talk(server).text(dialect, prefix=TEXT[:at]) == TEXT[at:]
            entry = server.requests[1]
        assert (entry.how, entry.prefix) == ("text", TEXT[:at])


@each_dialect
@pytest.mark.parametrize("prefix", ["Hello, worlds", "ello", "Hello,  ", TEXT + "!"])
def test_a_wrong_prefix_starts_from_the_top(talk, dialect, prefix):
    with FakeServer(TEXT) as server:
        talk(server).ask(dialect)
        assert talk(server).text(dialect, prefix=prefix) == TEXT
        assert server.requests[1].how == "top"


@prefilling
def test_the_whole_answer_as_prefix_leaves_nothing(talk, events, dialect):
    with FakeServer(TEXT) as server:
        talk(server).ask(dialect)
        found = events(dialect, talk(server).ask(dialect, prefix=TEXT).body)
    assert not any(isinstance(event, TextDelta) for event in found)
    assert isinstance(found[-1], End)


def test_openai_takes_a_trailing_assistant_message_for_an_ended_turn(talk):
    with FakeServer(TEXT) as server:
        talk(server).ask("openai")
        assert talk(server).text("openai", prefix="Hello") == TEXT


@pytest.mark.parametrize("dialect", ["openai", "llama.cpp", "ollama"])
def test_goes_on_when_asked_to(talk, text, dialect):
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Go on."},
    ]
    with FakeServer(TEXT) as server:
        body = {"messages": messages}
        assert talk(server).text(dialect, body=body) == TEXT[5:]
        assert server.requests[0].how == "ask"
        messages[1]["content"] = TEXT  # a whole answer and a new question
        assert talk(server).text(dialect, body=body) == TEXT
        assert server.requests[1].how == "top"


@pytest.mark.parametrize("dialect", ["llama.cpp", "ollama"])
def test_the_users_own_prefill_comes_before_the_answer(talk, dialect):
    with FakeServer(TEXT) as server:
        assert talk(server).text(dialect, prefix="Sure: ") == TEXT
        assert talk(server).text(dialect, prefix="Sure: Hello") == TEXT[5:]
        assert server.requests[1].prefix == "Hello"


def test_another_server_takes_over_a_raw_prompt(talk):
    server = FakeServer(TEXT, tokens=["He", "llo", ", world"])
    with server:
        ask = talk(server)
        rest = ask.text("llama.cpp-completion", prefix="Hello")
        assert rest == ", world"
        assert ask.text("llama.cpp-completion", prefix="Hello, w") == "orld"
    with FakeServer(tokens=["He", "llo"]) as server:
        ask = talk(server)
        assert ask.text("llama.cpp-completion", prefix="Hel") == "Hello"  # no edge
    with FakeServer(tokens=["He", "llo"], prompt="Hi") as server:
        assert talk(server).text("llama.cpp-completion", prefix="Hel") == "lo"


@each_dialect
def test_max_tokens(talk, events, dialect):
    name, where = {
        "openai": ("max_completion_tokens", None),
        "llama.cpp": ("max_tokens", None),
        "llama.cpp-completion": ("n_predict", None),
        "ollama": ("num_predict", "options"),
    }[dialect]
    with FakeServer(tokens=["a", "b", "c"]) as server:
        for limit, text, reason in [
            (2, "ab", "length"),
            (0, "a", "length"),
            (9, "abc", "stop"),
        ]:
            body = {where: {name: limit}} if where else {name: limit}
            found = events(dialect, talk(server).ask(dialect, body=body).body)
            assert "".join(e.text for e in found if isinstance(e, TextDelta)) == text
            assert [e.reason for e in found if isinstance(e, Finish)] == [reason]
    with FakeServer("abc") as server:
        body = {where: {name: -1}} if where else {name: -1}
        assert talk(server).text(dialect, body=body) == "abc"


@each_dialect
def test_stop_strings_are_held_back(talk, events, dialect):
    tokens = ["a", "<", "b", "<e", "n", "d>", "tail"]
    with FakeServer(tokens=tokens) as server:
        stop = {"stop": ["zzz", "<end>"]}
        body = {"options": stop} if dialect == "ollama" else stop
        found = events(dialect, talk(server).ask(dialect, body=body).body)
    texts = [e.text for e in found if isinstance(e, TextDelta)]
    assert texts == ["a", "<b"]
    raw = [e.raw for e in found if isinstance(e, Finish)]
    assert raw == ["word" if dialect == "llama.cpp-completion" else "stop"]


def test_a_stop_string_that_never_ends_comes_after_all(talk):
    with FakeServer(tokens=["a", "<", "end"]) as server:
        text = talk(server).text("openai", body={"stop": "<end>"})
        assert text == "a<end"
        assert talk(server).text("openai", body={"stop": "d!", "max_tokens": 2}) == "a<"
        assert talk(server).text("openai", body={"stop": ["", "<"]}) == "a"


def test_half_characters_are_held_and_lost_at_the_limit(talk, events):
    tokens = [b"\xe6", b"\x97", b"\xa5", b"ok", b"\xe6"]
    with FakeServer(tokens=tokens) as server:
        found = events(
            "llama.cpp-completion", talk(server).ask("llama.cpp-completion").body
        )
        deltas = [e for e in found if isinstance(e, TextDelta)]
        assert [(e.text, e.tokens) for e in deltas] == [("日", 3), ("ok", 1)]
        assert [len(e.token_ids) for e in deltas] == [1, 1]
        assert deltas[0].token_ids == (3 + 0xA5,)
        usage = [e.usage for e in found if isinstance(e, UsageReport)]
        assert usage[0].output_tokens == 5
        found = talk(server).text("llama.cpp-completion", body={"n_predict": 2})
        assert found == ""


def test_usage_is_reported_where_it_is_asked_for(talk, events):
    with FakeServer(tokens=["a", "b"]) as server:
        found = events("openai", talk(server).ask("openai").body)
        assert not any(isinstance(event, UsageReport) for event in found)
        body = {"stream_options": {"include_usage": True}}
        found = events("openai", talk(server).ask("openai", body=body).body)
        usage = next(e.usage for e in found if isinstance(e, UsageReport))
        assert usage.output_tokens == 2
        assert usage.input_tokens > 0


SCRIPT = [
    ReasoningDelta("I think "),
    ReasoningDelta("so."),
    TextDelta("Yes"),
    TextDelta("!"),
    RefusalDelta("no"),
    ToolCallDelta(0, "c1", "f", '{"a":'),
    ToolCallDelta(0, arguments="1}"),
]


def test_a_script_of_events(talk, events):
    with FakeServer(events=SCRIPT) as server:
        found = events("openai", talk(server).ask("openai").body)
    told = [
        e for e in found if isinstance(e, ReasoningDelta | RefusalDelta | TextDelta)
    ]
    assert [e.text for e in told] == ["I think ", "so.", "Yes", "!", "no"]
    calls = [e for e in found if isinstance(e, ToolCallDelta)]
    assert "".join(call.arguments for call in calls) == '{"a":1}'
    assert [e.reason for e in found if isinstance(e, Finish)] == ["tool_calls"]


@pytest.mark.parametrize("dialect", ["llama.cpp", "ollama"])
def test_a_script_goes_on_inside_reasoning_and_after_it(talk, events, dialect):
    with FakeServer(events=SCRIPT[:4]) as server:
        ask = talk(server)
        found = events(dialect, ask.ask(dialect, prefix="", reasoning="I think s").body)
        texts = [e.text for e in found if isinstance(e, ReasoningDelta | TextDelta)]
        assert texts == ["o.", "Yes", "!"]
        found = events(
            dialect, ask.ask(dialect, prefix="Yes", reasoning="I think so.").body
        )
        texts = [e.text for e in found if isinstance(e, ReasoningDelta | TextDelta)]
        assert texts == ["!"]
        found = events(dialect, ask.ask(dialect, prefix="Yes").body)
        texts = [e.text for e in found if isinstance(e, ReasoningDelta | TextDelta)]
        assert texts == ["!"]
        found = events(dialect, ask.ask(dialect, prefix="Yes", reasoning="I th").body)
        assert sum(isinstance(event, ReasoningDelta) for event in found) == 2


def test_a_script_with_its_own_end(talk, events):
    script = [TextDelta("a"), TextDelta("x", 1), TextDelta("b"), Finish("stop", "stop")]
    script += [Finish("length", "length", 1), UsageReport(Usage(1, 2))]
    with FakeServer(events=script) as server:
        body = {"stream_options": {"include_usage": True}}
        found = events("openai", talk(server).ask("openai", body=body).body)
    assert [(e.choice, e.text) for e in found if isinstance(e, TextDelta)] == [
        (0, "a"),
        (1, "x"),
        (0, "b"),
    ]
    assert [e.reason for e in found if isinstance(e, Finish)] == ["stop", "length"]
    assert [e.usage for e in found if isinstance(e, UsageReport)] == [Usage(1, 2)]


def test_several_choices_take_turns(talk, events):
    with FakeServer(tokens=["a", "b", "c"], choices=["xy"], split="bytes") as server:
        found = events("openai", talk(server).ask("openai", body={"n": 3}).body)
    said = [(e.choice, e.text) for e in found if isinstance(e, TextDelta)]
    assert said[:4] == [(0, "a"), (1, "x"), (2, "a"), (0, "b")]
    assert "".join(text for choice, text in said if choice == 1) == "xy"
    assert "".join(text for choice, text in said if choice == 2) == "abc"
    assert sorted(e.choice for e in found if isinstance(e, Finish)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("echo", "again"), [("none", ""), ("whole", "Hello"), (2, "lo"), (99, "Hello")]
)
def test_echo_of_the_prefix_token_by_token(talk, events, echo, again):
    with FakeServer(TEXT, echo=echo) as server:
        body = talk(server).ask("llama.cpp", prefix="Hello").body
        found = [e for e in events("llama.cpp", body) if isinstance(e, TextDelta)]
        assert "".join(e.text for e in found) == again + TEXT[5:]
        assert [e.text for e in found[: len(again)]] == list(again)
        assert talk(server).text("llama.cpp") == TEXT


def test_refuses_prefill(talk):
    with FakeServer(TEXT, prefill="refuse") as server:
        heard = talk(server).ask("llama.cpp", prefix="Hello")
        assert heard.status == 400
        assert (
            "does not support assistant message prefill"
            in heard.json["error"]["message"]
        )
        assert talk(server).text("llama.cpp") == TEXT


def test_closes_the_turn_instead_of_continuing_it(talk):
    with FakeServer(TEXT, prefill="restart") as server:
        assert talk(server).text("ollama", prefix="Hello") == TEXT


LINES = ["Line one.", "\n\n", "Line two."]


@pytest.mark.parametrize(
    ("whitespace", "prefix", "rest"),
    [
        ("keep", "Line one.\n\n", "Line two."),
        ("refuse", "Line one.", "\n\nLine two."),
        ("trim", "Line one.\n\n", "\n\nLine two."),
        ("skip", "Line one.", "Line two."),
        ("skip", "Line one.\n\n", "Line two."),
        ("one", "Line one.\n", "\nLine two."),
    ],
)
@pytest.mark.parametrize(
    "tokens", [LINES, ["".join(LINES)], ["Line one.\n\n", "Line two."]]
)
def test_whitespace_at_the_end_of_the_prefix(talk, whitespace, prefix, rest, tokens):
    with FakeServer(tokens=tokens, whitespace=whitespace) as server:
        assert talk(server).text("llama.cpp", prefix=prefix) == rest


def test_whitespace_alone_may_be_all_that_is_left(talk):
    with FakeServer(tokens=["a", " "], whitespace="skip") as server:
        assert talk(server).text("llama.cpp", prefix="a") == ""


def test_trailing_whitespace_is_refused(talk):
    with FakeServer(TEXT, whitespace="refuse") as server:
        heard = talk(server).ask("llama.cpp", prefix="Hello, ")
        assert heard.status == 400
        assert "trailing whitespace" in heard.json["error"]["message"]


@each_dialect
def test_without_stream_one_document(talk, dialect):
    with FakeServer(TEXT) as server:
        heard = talk(server).ask(dialect, body={"stream": False})
        assert server.streams == []
    assert "Content-Type: application/json" in heard.head
    reply = heard.json
    match dialect:
        case "ollama":
            assert reply["message"]["content"] == TEXT
            assert reply["done"]
        case "llama.cpp-completion":
            assert (reply["content"], reply["stop_type"]) == (TEXT, "eos")
        case _:
            assert reply["choices"][0]["message"]["content"] == TEXT
            assert reply["choices"][0]["finish_reason"] == "stop"


def test_one_document_of_a_script(talk):
    with FakeServer(events=SCRIPT) as server:
        options = {"stream": False, "stream_options": {"include_usage": True}}
        reply = talk(server).ask("openai", body=options).json
        message = reply["choices"][0]["message"]
        assert message["reasoning_content"] == "I think so."
        assert message["tool_calls"][0]["function"] == {
            "name": "f",
            "arguments": '{"a":1}',
        }
        assert message["tool_calls"][0]["id"] == "c1"
        assert reply["usage"]["completion_tokens"] == 4
    script = [ReasoningDelta("hm"), ToolCallDelta(0, "c", "f", "{}", closed=True)]
    with FakeServer(events=script) as server:
        message = talk(server).ask("ollama", body={"stream": False}).json["message"]
        assert message["thinking"] == "hm"
        assert message["tool_calls"] == [{"function": {"name": "f", "arguments": {}}}]


# ── HTTP ────────────────────────────────────────────────────────────────────────────


def test_one_connection_for_many_requests():
    with FakeServer(TEXT) as server, httpx.Client() as client:
        for _ in range(3):
            assert client.get(server.url("openai") + "/v1/models").status_code == 200
            url = server.url("ollama") + "/api/chat"
            assert client.post(url, json={"model": "m", "messages": []}).text
        assert server.connections == 1
        assert server.open_connections == 1


def test_requests_back_to_back(talk, hearing):
    with FakeServer(TEXT) as server, talk(server).connect() as sock:
        get = talk(server).request("openai", "GET", "/v1/models")
        last = talk(server).request("openai", "GET", "/x", b"", ["Connection: close"])
        sock.sendall(get + get + last)
        wire = hearing(sock).wire
    assert wire.count(b"HTTP/1.1 200 OK") == 2
    assert wire.count(b"HTTP/1.1 404 Not Found") == 1


def test_a_chunked_request(talk, hearing, asking):
    body = json.dumps(asking("openai")).encode()
    half = len(body) // 2
    with FakeServer(TEXT) as server, talk(server).connect() as sock:
        headers = [
            "Transfer-Encoding: chunked",
            "Expect: 100-continue",
            "Connection: close",
        ]
        head = talk(server).request(
            "openai", "POST", "/v1/chat/completions", b"", headers
        )
        sock.sendall(head)
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        for part in body[:half], body[half:]:
            sock.sendall(b"%x;ext\r\n%s\r\n" % (len(part), part))
        sock.sendall(b"0\r\nTrailer: x\r\n\r\n")
        assert hearing(sock).status == 200
        assert server.requests[0].content == body


def test_a_request_in_small_pieces(talk, hearing, asking):
    body = json.dumps(asking("openai")).encode()
    with FakeServer(TEXT) as server, talk(server).connect() as sock:
        path, closing = "/v1/chat/completions", ["Connection: close"]
        for byte in talk(server).request("openai", "POST", path, body, closing):
            sock.sendall(bytes([byte]))
        assert hearing(sock).status == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET / FTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nspace : x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"x" * (1 << 20) + b"y",
    ],
)
def test_what_is_no_http(talk, hearing, request_):
    with FakeServer(TEXT) as server, talk(server).connect() as sock:
        sock.sendall(request_)
        heard = hearing(sock)
    assert heard.status == 400
    assert "Connection: close" in heard.head


@pytest.mark.parametrize(
    "request_",
    [
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5",
    ],
)
def test_a_request_that_ends_too_early(talk, hearing, request_):
    with FakeServer(TEXT) as server, talk(server).connect() as sock:
        sock.sendall(request_)
        sock.shutdown(1)
        assert hearing(sock).status == 400


def test_a_client_that_says_nothing_or_resets(talk):
    with FakeServer(TEXT) as server:
        talk(server).connect().close()
        sock = talk(server).connect()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        assert talk(server).text("openai") == TEXT


def test_http_1_0_closes_unless_asked(talk, hearing):
    with FakeServer(TEXT) as server:
        for headers, count in ([], 1), (["Connection: keep-alive"], 2):
            with talk(server).connect() as sock:
                get = talk(server).request(
                    "openai", "GET", "/x", headers=headers, version="1.0"
                )
                last = talk(server).request("openai", "GET", "/x", version="1.0")
                sock.sendall(get + last)
                assert hearing(sock).wire.count(b"404 Not Found") == count


def test_head_has_no_body(talk):
    with FakeServer(TEXT) as server:
        heard = talk(server).send("openai", "HEAD", "/v1/models")
        assert (heard.status, heard.payload) == (200, b"")
        assert "Content-Length: " in heard.head
        assert talk(server).send("openai", "HEAD", "/x").payload == b""


@each_dialect
def test_unknown_routes_and_methods(talk, dialect):
    with FakeServer(TEXT) as server:
        heard = talk(server).get(dialect, "/nowhere?a=1&b=")
        assert heard.status == 404
        assert server.requests[0].query == {"a": "1", "b": ""}
        routes = {"llama.cpp-completion": "/completion", "ollama": "/api/chat"}
        path = routes.get(dialect, "/v1/chat/completions")
        assert talk(server).get(dialect, path).status == 405


@each_dialect
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"messages":[]}'])
def test_bodies_that_are_no_question(talk, dialect, body):
    path = {"llama.cpp-completion": "/completion", "ollama": "/api/chat"}
    with FakeServer(TEXT) as server:
        route = path.get(dialect, "/v1/chat/completions")
        heard = talk(server).send(dialect, "POST", route, body)
        assert heard.status == 400
        assert "error" in heard.json


def test_the_key(talk):
    with FakeServer(TEXT, api_key="s3cret") as server:
        heard = talk(server).ask("openai")
        assert heard.status == 401
        assert server.requests[0].ended == "refused"
        for header in "Authorization: Bearer s3cret", "x-api-key: s3cret":
            assert talk(server).ask("openai", headers=[header]).status == 200


def test_a_status_for_a_whole_route(talk):
    with FakeServer(TEXT, routes={"/tokenize": Status(501, "no")}) as server:
        assert (
            talk(server).post("llama.cpp", "/tokenize", {"content": "a"}).status == 501
        )
        assert talk(server).send("llama.cpp", "HEAD", "/tokenize").payload == b""


# ── the server as an object ─────────────────────────────────────────────────────────


def test_urls_tell_dialects_apart():
    with FakeServer() as server:
        base = f"http://127.0.0.1:{server.port}"
        assert server.url("openai") == base
        assert server.url("ollama") == base
        assert server.url("llama.cpp") == f"{base}/llama.cpp"
        assert server.endpoint("ollama") == f"ollama:fake@{base}"
        assert server.endpoint("openai", "m") == f"openai:m@{base}"
        with pytest.raises(UsageError, match="does not speak 'morse'"):
            server.url("morse")
    with FakeServer(plays="llama.cpp") as server:
        base = f"http://127.0.0.1:{server.port}"
        assert server.url("llama.cpp") == base
        assert server.url("openai") == f"{base}/openai"


def test_what_cannot_be():
    with pytest.raises(UsageError):
        FakeServer(tokens=["a"], events=[TextDelta("a")])
    with pytest.raises(UsageError):
        FakeServer(plays="morse")
    server = FakeServer()
    with pytest.raises(UsageError, match="not open"):
        server.url("openai")
    with pytest.raises(UsageError, match="not open"):
        server.refuse_connections()


def test_opening_and_closing_twice(talk):
    server = FakeServer("abc")
    server.start()
    server.start()
    assert talk(server).text("openai") == "abc"
    server.close()
    server.close()
    server.start()
    assert talk(server).text("openai") == "abc"
    server.close()


def test_several_at_once(talk):
    with FakeServer("one") as first, FakeServer("two") as second:
        assert first.port != second.port
        assert talk(first).text("openai") == "one"
        assert talk(second).text("openai") == "two"


def test_waiting(talk):
    with FakeServer(TEXT, faults=[Stall(1)]) as server:
        with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
            server.wait_for_request(timeout=0.01)
        thread = threading.Thread(
            target=lambda: talk(server).ask("openai", until=b"\n\n\r\n" * 1)
        )
        thread.start()
        assert server.wait_for_request().path == "/v1/chat/completions"
        assert server.wait_for_stream().streams
        assert server.wait_for_hangup().hung_up
        thread.join()
        with pytest.raises(TimeoutError):
            server.wait_for(lambda entry: entry.hung_up, 2, timeout=0)


def test_what_is_recorded(talk):
    with FakeServer(TEXT) as server:
        talk(server).ask("ollama", headers=["X-Mine: yes"])
        entry = server.requests[0]
    assert (entry.number, entry.method, entry.path) == (0, "POST", "/api/chat")
    assert entry.headers["x-mine"] == "yes"
    assert entry.body["messages"] == [{"role": "user", "content": "Hi"}]
    assert json.loads(entry.content) == entry.body
    assert not entry.hung_up


def test_the_same_seed_the_same_tokens(talk):
    bodies = []
    for seed in 1, 1, 2:
        with FakeServer(TEXT, seed=seed) as server:
            bodies.append(talk(server).ask("ollama").body)
    assert bodies[0] == bodies[1] != bodies[2]


# ── one dialect alone ───────────────────────────────────────────────────────────────


def test_ollamas_repeat_guard(talk, events):
    with FakeServer(tokens=["ha "] * 50) as server:
        found = events("ollama", talk(server).ask("ollama").body)
    assert sum(isinstance(event, TextDelta) for event in found) == 30
    assert not any(isinstance(event, Finish | End) for event in found)


def test_ollamas_other_routes(talk):
    with FakeServer() as server:
        assert "version" in talk(server).get("ollama", "/api/version").json
        assert talk(server).get("ollama", "/api/tags").json["models"]


def test_public_classes_say_that_they_are_of_this_module():
    names = midstream.testing.__all__
    classes = [getattr(midstream.testing, name) for name in names]
    modules = {cls.__module__ for cls in classes if isinstance(cls, type)}
    assert modules == {"midstream.testing"}
    assert all(cls.__doc__ for cls in classes if isinstance(cls, type))


# -- what is remembered ----------------------------------------------------------------


def test_the_last_requests_are_remembered_and_numbered_on(talk):
    with FakeServer("Hi.", keep=3) as server:
        for _ in range(5):
            talk(server).text("openai")
        assert [entry.number for entry in server.requests] == [2, 3, 4]
        assert [entry.number for entry in server.streams] == [2, 3, 4]
        assert server.wait_for_stream(3).number == 4


def test_prompts_and_kept_streams_are_bounded_as_well(talk):
    with FakeServer("Hi.", keep=2) as server:
        for at in range(5):
            headers = [f"X-Conversation-Id: c{at}"]
            talk(server).ask("llama.cpp", headers=headers)
            prompt = {"inputs": f"prompt {at}"}
            talk(server).post("tgi", "/generate_stream", prompt)
        world, places = server._mind.world, server._mind.places
        assert list(world.kept._streams) == ["c3", "c4"]
        assert all(len(known) <= 2 for known in places._openings.values())
        assert len(places._openings) <= 2


# -- threads that die ------------------------------------------------------------------


def broken(entry):
    raise ZeroDivisionError(f"no plan for {entry.path}")


def test_what_a_serving_thread_dies_of_is_raised_by_close(talk):
    server = FakeServer("Hi.", faults=broken)
    server.start()
    assert talk(server).ask("openai").wire == b""
    with pytest.raises(RuntimeError, match="no plan for") as caught:
        server.close()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    server.close()


def test_a_failing_test_keeps_its_own_error_and_learns_of_the_thread(talk):
    with pytest.raises(KeyError) as caught, FakeServer(faults=broken) as server:
        talk(server).ask("openai")
        raise KeyError
    assert "no plan for" in caught.value.__notes__[0]
