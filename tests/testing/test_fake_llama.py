"""The fake llama.cpp: kept streams, ids that get lost, its tokenizer, its refusals."""

import json

import pytest

from midstream._dialects import find
from midstream._values.events import TextDelta
from midstream.testing import (
    Chunking,
    Cut,
    ErrorEvent,
    FakeServer,
    Pings,
    Slow,
    Status,
)
from midstream.testing._fake.kept import KeptStream
from midstream.testing._fake.script import Pen, Record

TEXT = "Hello, world. 日本語 👩‍👩‍👧 done."
KEEP = ["X-Conversation-Id: a b"]
both = pytest.mark.parametrize("dialect", ["llama.cpp", "llama.cpp-completion"])


def replay(talk, server, dialect, offset, **more):
    return talk(server).get(dialect, f"/v1/stream?conv_id=a%20b&from={offset}", **more)


@both
def test_replay_from_any_byte(talk, dialect):
    with FakeServer(TEXT, split="bytes", always=Pings()) as server:
        whole = talk(server).ask(dialect, headers=KEEP).body
        for offset in [*range(0, len(whole), 97), len(whole) - 1, len(whole)]:
            heard = replay(talk, server, dialect, offset)
            assert heard.body == whole[offset:]
            assert heard.chunks[-1] == b""
        assert replay(talk, server, dialect, len(whole) + 5).body == b""
        entry = server.streams[1]
    assert (entry.how, entry.path) == ("replay", "/v1/stream")
    assert entry.query == {"conv_id": "a b", "from": "0"}


@both
def test_a_kept_stream_survives_cuts_in_cuts(talk, text, dialect):
    faults = [Cut(at=333), Cut(2, "rst"), Cut(at=11, kind="mid_chunk"), Cut(1, "eof")]
    with FakeServer(TEXT, faults=faults) as server:
        body = talk(server).ask(dialect, headers=KEEP).body
        while server.streams[-1].ended == "cut":
            before = len(body)
            heard = replay(talk, server, dialect, before)
            body += heard.payload if heard.status != 200 else heard.body
            rest = heard.payload.rpartition(b"\r\n")[2]
            if server.streams[-1].ended == "cut" and heard.end == "fin":
                torn = server.streams[-1].body_bytes - (len(body) - before)
                body += rest[:torn] if torn else b""
        assert text(dialect, body) == TEXT


def test_a_replay_follows_the_stream_live(talk, text):
    with FakeServer(TEXT, faults=[Cut(2), Slow(0.001)]) as server:
        body = talk(server).ask("llama.cpp", headers=KEEP).body
        state = (
            talk(server)
            .post("llama.cpp", "/v1/streams/lookup", {"conversation_ids": ["a b", "x"]})
            .json
        )
        assert [(s["conversation_id"], s["is_done"]) for s in state] == [("a b", False)]
        assert state[0]["total_bytes"] >= len(body)
        body += replay(talk, server, "llama.cpp", len(body)).body
        assert text("llama.cpp", body) == TEXT
        state = (
            talk(server)
            .post("llama.cpp", "/v1/streams/lookup", {"conversation_ids": ["a b"]})
            .json
        )
        assert state[0]["is_done"]
        assert state[0]["total_bytes"] == len(body)


def test_delete_stops_and_forgets(talk, hearing, asking):
    with FakeServer(TEXT, faults=[Slow(0.005)]) as server:
        with talk(server).connect("llama.cpp") as sock:
            body = json.dumps(asking("llama.cpp")).encode()
            path = "/v1/chat/completions"
            sock.sendall(
                talk(server).request(
                    "llama.cpp", "POST", path, body, [*KEEP, "Connection: close"]
                )
            )
            server.wait_for(lambda entry: entry.deltas >= 2)
            gone = talk(server).send("llama.cpp", "DELETE", "/v1/stream?conv_id=a%20b")
            assert (gone.status, gone.payload) == (204, b"")
            heard = hearing(sock)
        assert server.streams[0].ended == "stopped"
        assert b"[DONE]" not in heard.body
        assert replay(talk, server, "llama.cpp", 0).status == 404
        again = talk(server).send("llama.cpp", "DELETE", "/v1/stream?conv_id=a%20b")
        assert again.status == 204


def test_the_same_id_replaces_the_older_stream(talk, text):
    with FakeServer(TEXT, faults=[Cut(2)]) as server:
        talk(server).ask("llama.cpp", headers=KEEP)
        whole = talk(server).ask("llama.cpp", headers=KEEP).body
        assert replay(talk, server, "llama.cpp", 0).body == whole


def test_offsets_and_names_that_are_not_there(talk):
    with FakeServer(TEXT, replay_window=100) as server:
        whole = talk(server).ask("llama.cpp", headers=KEEP).body
        lost = replay(talk, server, "llama.cpp", len(whole) - 101)
        assert lost.status == 400
        assert lost.json["error"]["message"] == "Stream offset lost, please restart"
        assert replay(talk, server, "llama.cpp", len(whole) - 100).status == 200
        assert talk(server).get("llama.cpp", "/v1/stream").status == 400
        assert (
            talk(server).get("llama.cpp", "/v1/stream?conv_id=a&from=x").status == 400
        )
        unknown = talk(server).get("llama.cpp", "/v1/stream?conv_id=nobody")
        assert unknown.status == 404
        assert unknown.json == {
            "error": {
                "code": 404,
                "message": "File Not Found",
                "type": "not_found_error",
            }
        }


def test_an_older_server_keeps_nothing(talk):
    with FakeServer(TEXT, replay=False, faults=[Cut(2)]) as server:
        talk(server).ask("llama.cpp", headers=KEEP)
        assert replay(talk, server, "llama.cpp", 0).status == 404
        lookup = talk(server).post("llama.cpp", "/v1/streams/lookup", {})
        assert lookup.status == 404
        assert len(server.streams) == 1


def test_a_stream_without_an_id_is_not_kept(talk):
    with FakeServer(TEXT) as server:
        talk(server).ask("llama.cpp")
        assert replay(talk, server, "llama.cpp", 0).status == 404


def test_a_replay_can_fail(talk):
    with FakeServer(TEXT, faults=[Cut(2), Status(503), Chunking("whole")]) as server:
        talk(server).ask("llama.cpp", headers=KEEP)
        assert replay(talk, server, "llama.cpp", 0).status == 503
        assert replay(talk, server, "llama.cpp", 0).status == 200


@pytest.mark.parametrize("split", ["text", "bytes"])
def test_ids_continue_exactly(talk, events, split):
    with FakeServer(TEXT, split=split) as server:
        ask = talk(server)
        prompt = ask.post(
            "llama.cpp",
            "/tokenize",
            {"content": "Hi", "add_special": True, "parse_special": True},
        ).json["tokens"]
        assert prompt[0] == 1
        ids = ask.post("llama.cpp", "/tokenize", {"content": TEXT}).json["tokens"]
        body = ask.ask("llama.cpp-completion", body={"prompt": prompt}).body
        found = [
            e for e in events("llama.cpp-completion", body) if isinstance(e, TextDelta)
        ]
        assert sum(event.tokens for event in found) == len(ids)
        for cut in range(1, len(ids)):
            told = ask.post("llama.cpp", "/detokenize", {"tokens": ids[:cut]}).json
            for again in [*prompt, *ids[:cut]], ["Hi", *ids[:cut]]:
                rest = ask.ask("llama.cpp-completion", body={"prompt": again}).body
                entry = server.requests[-1]
                assert entry.how == "tokens"
                assert entry.prefix.encode("utf-8", "surrogateescape") == b"".join(
                    bytes([id_ - 3]) if id_ < 1000 else piece(ask, id_)
                    for id_ in ids[:cut]
                )
            assert isinstance(told["content"], str)
            if split == "text":
                mixed = [*prompt, entry.prefix]
                assert (
                    ask.text("llama.cpp-completion", body={"prompt": mixed})
                    == TEXT[len(entry.prefix) :]
                )
            assert rest.endswith(b"\n\n")


def piece(ask, id_):
    found = ask.post("llama.cpp", "/detokenize", {"tokens": [id_]}).json["content"]
    if "\ufffd" not in found:
        return found.encode()
    model = ask.server._mind.world.model
    return model.detokenize([id_])


def test_the_tokenizer_gives_lost_ids_again(talk, events):
    """What a client does to repair them: tokenize the character."""
    with FakeServer(tokens=[b"\xe6", b"\x97\xa5", "本", "!"]) as server:
        ask = talk(server)
        body = ask.ask("llama.cpp-completion").body
        first = next(
            e for e in events("llama.cpp-completion", body) if isinstance(e, TextDelta)
        )
        assert (first.text, first.tokens, len(first.token_ids)) == ("日", 2, 1)
        ids = ask.post("llama.cpp", "/tokenize", {"content": "日"}).json["tokens"]
        assert len(ids) == 2
        assert ids[-1] == first.token_ids[0]


def test_pieces_that_are_no_utf_8_come_as_bytes(talk):
    with FakeServer(tokens=[b"\xe6\x97", b"\xa5", "ok"]) as server:
        body = {"content": "日ok", "with_pieces": True}
        pieces = talk(server).post("llama.cpp", "/tokenize", body).json["tokens"]
        assert [p["piece"] for p in pieces] == [[0xE6, 0x97], [0xA5], "ok"]


def test_unknown_ids_are_refused(talk):
    with FakeServer(TEXT) as server:
        heard = talk(server).ask("llama.cpp-completion", body={"prompt": [99999]})
        assert heard.status == 400
        heard = talk(server).post("llama.cpp", "/detokenize", {"tokens": [99999]})
        assert heard.status == 400


@pytest.mark.parametrize("body", [b"{", b"[]"])
def test_bodies_that_are_no_object(talk, body):
    with FakeServer(TEXT) as server:
        heard = talk(server).send("llama.cpp", "POST", "/tokenize", body)
        assert heard.status == 400
        assert heard.json["error"]["type"] == "invalid_request_error"


def test_the_template_and_a_prefix_behind_it(talk):
    messages = [{"role": "system", "content": "Be."}, {"role": "user", "content": "Hi"}]
    with FakeServer(TEXT) as server:
        ask = talk(server)
        prompt = ask.post("llama.cpp", "/apply-template", {"messages": messages}).json[
            "prompt"
        ]
        assert prompt == "<|system|>\nBe.\n<|user|>\nHi\n<|assistant|>\n"
        for at in range(1, len(TEXT)):
            rest = ask.text("llama.cpp-completion", body={"prompt": prompt + TEXT[:at]})
            assert rest == TEXT[at:]
        messages.append({"role": "assistant", "content": "Hel"})
        prompt = ask.post("llama.cpp", "/apply-template", {"messages": messages}).json[
            "prompt"
        ]
        assert ask.text("llama.cpp-completion", body={"prompt": prompt}) == TEXT[3:]
        empty = ask.post("llama.cpp", "/apply-template", {}).json
        assert empty == {"prompt": "<|assistant|>\n"}


def test_the_chat_tells_the_count_of_tokens(talk):
    with FakeServer(tokens=["a", "b"]) as server:
        body = {"timings_per_token": True}
        chunks = talk(server).ask("llama.cpp", body=body).chunks
    records = [json.loads(chunk[6:]) for chunk in chunks if b"choices" in chunk]
    counts = [record.get("timings", {}).get("predicted_n") for record in records]
    assert counts == [None, 1, 2, 2]


@pytest.mark.parametrize(
    ("flags", "status"),
    [
        ({"continue_final_message": True}, 400),
        ({"continue_final_message": True, "add_generation_prompt": True}, 400),
        ({"continue_final_message": True, "add_generation_prompt": False}, 200),
        ({"continue_final_message": False}, 200),
    ],
)
def test_the_two_flags_exclude_each_other(talk, flags, status):
    with FakeServer(TEXT) as server:
        heard = talk(server).ask("llama.cpp", prefix="Hello", body=flags)
        assert heard.status == status


def test_two_assistant_messages_at_the_end_are_refused(talk):
    messages = [{"role": "assistant", "content": "a"}] * 2
    with FakeServer(TEXT) as server:
        assert talk(server).ask("llama.cpp", body={"messages": messages}).status == 400


def test_an_empty_assistant_message_breaks_the_prompt(talk):
    with FakeServer(TEXT) as server:
        assert talk(server).text("llama.cpp", prefix="") == "assistant\n" + TEXT


def test_parts_are_joined_with_blank_lines(talk):
    parts = [{"type": "text", "text": "He"}, {"type": "text", "text": "llo"}]
    with FakeServer("He\n\nllo you") as server:
        assert talk(server).text("llama.cpp", prefix=parts) == " you"


def test_other_routes(talk):
    with FakeServer() as server:
        for path in "/health", "/v1/health", "/v1/models", "/models":
            heard = talk(server).get("llama.cpp", path)
            assert heard.status == 200
            assert "Server: llama.cpp" in heard.head
        assert talk(server).text("llama.cpp") == server.text


def test_a_kept_stream_that_failed_stays_failed(talk):
    with FakeServer(TEXT, faults=[ErrorEvent("boom", after=1)]) as server:
        whole = talk(server).ask("llama.cpp", headers=KEEP).body
        assert b"boom" in whole
        assert replay(talk, server, "llama.cpp", 0).body == whole
        assert replay(talk, server, "llama.cpp", len(whole)).body == b""


def test_a_stopped_stream_says_so_once():
    pen = Pen(writer=find("llama.cpp").writer())
    stream = KeptStream(iter([Record(b"a", "delta"), Record(b"b", "delta")]), pen)
    followed = stream.follow()
    assert next(followed).data == b"a"
    stream.stopped = True
    assert [record.kind for record in followed] == ["stopped"]
