"""A real vLLM over gRPC: cut behind any token, the answer is the one that was not cut.

Nothing but ids is on the wire, and half of this model's tokens end in the middle of a
character. A proxy stands between, which hangs up behind as many messages as it is told.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import grpc
import pytest
from smg_grpc_proto import vllm_engine_pb2 as pb

import midstream
from midstream import Backoff, Exactness, Resume
from midstream.testing import FakeServer

SERVICE = "/vllm.grpc.engine.VllmEngine/"
CHAT = [{"role": "user", "content": "続けて"}]
LATIN = [{"role": "user", "content": "Tell me"}]
RAW = "吾輩は"
LIMIT = 79  # tokens; the last of them completes a character
QUICK = Backoff(initial=0.01, maximum=0.05)
MODEL = Path(__file__).parent / "models" / "ja"


class Proxy:
    """Passes RPCs on, and drops streams behind so many messages."""

    def __init__(self, address, cuts):
        self._cuts = list(cuts)
        self.requests = []
        self._channel = grpc.insecure_channel(address)
        self._pool = ThreadPoolExecutor(8)
        self._server = grpc.server(self._pool)
        self._server.add_generic_rpc_handlers((self._handler(),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def _handler(self):
        proxy = self

        class Handler(grpc.GenericRpcHandler):
            def service(self, details):
                run = functools.partial(proxy.pass_on, details.method)
                return grpc.unary_stream_rpc_method_handler(run)

        return Handler()

    def pass_on(self, method, content, context):
        cut = None
        if method.endswith("/Generate"):
            self.requests.append(pb.GenerateRequest.FromString(content))
            cut = self._cuts.pop(0) if self._cuts else None
        call = self._channel.unary_stream(method)(content)
        context.add_callback(call.cancel)
        for nth, message in enumerate(call):
            if nth == cut:
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            yield message
        if cut is not None:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *exc):
        self._server.stop(0).wait()
        self._pool.shutdown()
        self._channel.close()


def endpoint(address, **fields):
    return midstream.Endpoint("vllm-grpc", model="ja", base_url=address, **fields)


def options(ways):
    return {"resume": Resume(strategies=ways, backoff=QUICK) if ways else None}


def answer(address, *ways, prompt=CHAT, fields=None, **asked):
    with (
        midstream.Client(
            endpoint(address, **(fields or {})), **options(ways)
        ) as client,
        client.stream(prompt, temperature=0, **asked) as stream,
    ):
        stream.read()
    return stream


async def aanswer(address, *ways, prompt=CHAT, **asked):
    async with (
        midstream.AsyncClient(endpoint(address), **options(ways)) as client,
        client.stream(prompt, temperature=0, **asked) as stream,
    ):
        await stream.read()
    return stream


def in_colour(colour, *args, **asked):
    if colour == "sync":
        return answer(*args, **asked)
    return anyio.run(functools.partial(aanswer, *args, **asked), backend=colour)


def every_cut(server, way, *, colour="sync", step=1, **asked):
    """For each message of the answer: the stream that was cut behind it."""
    with Proxy(server.address, []) as proxy:
        address = f"127.0.0.1:{proxy.port}"
        whole = answer(address, **asked)
        messages = whole.usage.output_tokens
    for cut in range(1, messages, step):
        with Proxy(server.address, [cut]) as proxy:
            stream = in_colour(colour, f"127.0.0.1:{proxy.port}", way, **asked)
        assert stream.complete
        yield whole, stream, proxy.requests


@pytest.mark.parametrize(("colour", "step"), [("sync", 1), ("asyncio", 5), ("trio", 5)])
@pytest.mark.parametrize("prompt", [CHAT, RAW], ids=["chat", "raw"])
def test_cut_behind_every_token(vllm_grpc, colour, step, prompt):
    asked = {"prompt": prompt, "max_tokens": LIMIT}
    resumed = 0
    for whole, stream, requests in every_cut(
        vllm_grpc, "tokens", colour=colour, step=step, **asked
    ):
        assert stream.text == whole.text
        assert stream.finish_reason == whole.finish_reason == "length"
        if not stream.resumes or not stream.resumes[0].at:
            continue
        resumed += 1
        assert stream.exactness is Exactness.TOKENS
        first, second = (request.tokenized.input_ids for request in requests)
        came = len(second) - len(first)
        assert list(second[: len(first)]) == list(first)
        left = requests[1].sampling_params.max_tokens
        assert left + came == LIMIT
        assert stream.usage.output_tokens >= LIMIT
    assert resumed > (LIMIT - 10) // step
    assert len(whole.text.encode()) > 2 * len(whole.text)


def test_the_same_ids_come_again(vllm_grpc):
    asked = {"max_tokens": LIMIT}
    whole = answer(vllm_grpc.address, **asked)
    ids = whole.checkpoint().token_ids
    assert len(ids) == LIMIT
    with Proxy(vllm_grpc.address, [30, 20, 10]) as proxy:
        stream = answer(f"127.0.0.1:{proxy.port}", "tokens", **asked)
    assert stream.checkpoint().token_ids == ids
    assert stream.checkpoint().prompt_ids == whole.checkpoint().prompt_ids
    assert len(stream.resumes) == 3


@pytest.mark.parametrize("stop", ["生れた", "見当", "x + 1\n", "- a list"])
def test_stop_strings_over_the_cut(vllm_grpc, stop):
    asked = {"prompt": LATIN, "max_tokens": 400, "stop": [stop]}
    unstopped = answer(vllm_grpc.address, prompt=LATIN, max_tokens=400).text
    pairs = every_cut(vllm_grpc, "tokens", step=3, **asked)
    for whole, stream, _ in pairs:
        assert stream.text == whole.text == unstopped.partition(stop)[0]
        assert stream.finish_reason == "stop"


def test_the_stop_string_may_be_part_of_the_answer(vllm_grpc):
    asked = {"prompt": LATIN, "max_tokens": 400, "stop": ["生れた"]}
    keep = {"include_stop_str_in_output": True}
    stream = answer(vllm_grpc.address, **asked, extra=keep)
    assert stream.text.endswith("生れた")


def test_text_goes_on_as_text(vllm_grpc):
    asked = {"prompt": RAW, "max_tokens": LIMIT}
    for whole, stream, requests in every_cut(vllm_grpc, "text", step=9, **asked):
        if stream.resumes and stream.resumes[0].at:
            assert stream.exactness is Exactness.TEXT
            assert whole.text.startswith(stream.text[: stream.resumes[0].at])
            assert len(requests) == 2


def test_a_prompt_is_what_the_servers_template_makes(vllm_grpc):
    stream = answer(vllm_grpc.address, max_tokens=5)
    rendered = "<|im_start|>user\n続けて<|im_end|>\n<|im_start|>assistant\n"
    with_own = answer(
        vllm_grpc.address,
        max_tokens=5,
        fields={"tokenizer": MODEL, "template": lambda _: rendered},
    )
    assert stream.checkpoint().prompt_ids == with_own.checkpoint().prompt_ids
    assert stream.text == with_own.text
    assert stream.usage.input_tokens == len(stream.checkpoint().prompt_ids)


def test_the_servers_own_tokens_of_a_text_are_ours(vllm_grpc):
    """A prompt that goes as text, for want of an encoder, has the same answer."""

    class Decodes:
        def __init__(self):
            self._inner = midstream._tokenizers.given.learn(MODEL).tokenizer

        def token_bytes(self, id_):
            return self._inner.token_bytes(id_)

        def encode(self, text):
            raise midstream.UsageError("only the server can")

    whole = answer(vllm_grpc.address, prompt=RAW, max_tokens=LIMIT)
    stream = answer(
        vllm_grpc.address,
        prompt=RAW,
        max_tokens=LIMIT,
        fields={"tokenizer": Decodes()},
    )
    assert stream.text == whole.text
    assert stream.usage == whole.usage
    assert stream.checkpoint().prompt_ids == []


def test_logprobs_and_several_answers(vllm_grpc):
    with (
        midstream.Client(endpoint(vllm_grpc.address)) as client,
        # Always the most probable token; greedy decoding gives one answer only.
        client.stream(
            CHAT,
            temperature=1,
            max_tokens=LIMIT,
            extra={"top_k": 1, "n": 2, "logprobs": 1},
        ) as stream,
    ):
        deltas = [e for e in stream.events() if isinstance(e, midstream.TextDelta)]
    assert stream.choices[0].text == stream.choices[1].text == stream.text != ""
    told = [e for e in deltas if e.choice == 0 and e.token_ids]
    for delta in told:
        assert [one["token_id"] for one in delta.logprobs] == list(delta.token_ids)
        assert all(one["logprob"] <= 0 for one in delta.logprobs)
        assert all(len(one["top_logprobs"]) == 1 for one in delta.logprobs)
    assert stream.usage.output_tokens == 2 * LIMIT


def running(address):
    with grpc.insecure_channel(address) as channel:
        ask = channel.unary_unary(SERVICE + "GetLoads")
        loads = pb.GetLoadsResponse.FromString(ask(b"")).loads
    return sum(load.num_running_reqs for load in loads)


@pytest.mark.parametrize("colour", ["sync", "asyncio", "trio"])
def test_leaving_stops_the_engine(vllm_grpc, colour):
    async def leave():
        async with (
            midstream.AsyncClient(endpoint(vllm_grpc.address)) as client,
            client.stream(CHAT, max_tokens=900, temperature=0) as stream,
        ):
            async for _ in stream:
                if len(stream.text) > 20:
                    break
            assert running(vllm_grpc.address) == 1
            await stream.aclose()
            with anyio.fail_after(5):
                while running(vllm_grpc.address):  # noqa: ASYNC110 - its own state
                    await anyio.sleep(0.01)

    if colour != "sync":
        anyio.run(leave, backend=colour)
        return
    with (
        midstream.Client(endpoint(vllm_grpc.address)) as client,
        client.stream(CHAT, max_tokens=900, temperature=0) as stream,
    ):
        next(iter(stream))
        assert running(vllm_grpc.address) == 1
        stream.close()
        polls = 0
        while running(vllm_grpc.address):
            polls += 1
            assert polls < 500


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"prompt": "猫" * 3000}, midstream.ContextOverflow, "maximum model length"),
        ({"prompt": ""}, midstream.BadRequest, "cannot be empty"),
        (
            {"extra": {"min_tokens": 9}, "max_tokens": 3},
            midstream.BadRequest,
            "min_tok",
        ),
        ({"extra": {"logit_bias": {"5000": 1}}}, midstream.BadRequest, "vocab"),
    ],
)
def test_refused_before_the_stream(vllm_grpc, asked, error, words):
    with (
        midstream.Client(endpoint(vllm_grpc.address)) as client,
        client.stream(**{"prompt": RAW, **asked}) as stream,
        pytest.raises(error, match=words) as caught,
    ):
        stream.read()
    assert not caught.value.retryable


def test_ids_of_another_models_tokenizer(vllm_grpc):
    """They are refused; nobody tries again."""

    class Foreign:
        def encode(self, text):
            return [999_999]

        def token_bytes(self, id_):
            return b"?"

    with (
        midstream.Client(endpoint(vllm_grpc.address, tokenizer=Foreign())) as client,
        client.stream(RAW) as stream,
        pytest.raises(midstream.BadRequest, match="out of vocabulary"),
    ):
        stream.read()


def engines(pid):
    """The processes below a server that make its answers."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *engines(child)]
    return found


@pytest.fixture
def vllm_grpc_that_dies(vllm_grpc, _one):
    yield vllm_grpc
    _one.clear()
    vllm_grpc.stop()


def test_an_engine_that_dies_is_a_drop(vllm_grpc_that_dies):
    """The next server goes on from what came."""
    server = vllm_grpc_that_dies
    whole = answer(server.address, prompt=RAW, max_tokens=600)
    dying = threading.Event()
    with FakeServer(whole.text, prompt=RAW) as fake:
        other = fake.endpoint("vllm-grpc", model="ja")
        with (
            midstream.Client(
                endpoint(server.address),
                other,
                resume=Resume(attempts=2, backoff=QUICK),
            ) as client,
            client.stream(RAW, max_tokens=600, temperature=0) as stream,
        ):
            for _ in stream:
                if not dying.is_set() and len(stream.text) > 20:
                    dying.set()
                    for pid in engines(server.pid):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
        assert fake.streams[0].prefix
        assert stream.resumes[0].endpoint.base_url == fake.url("vllm-grpc")
    assert stream.text == whole.text
