"""vLLM over gRPC: ids go there and ids come back; words are made here.

Source: WIRE §11; smg-grpc-proto ``vllm_engine.proto``, smg-grpc-servicer
``vllm/servicer.py``, vLLM 0.32 run for real. The tokenizer is the caller's, or the one
the server hands out (``GetTokenizer``: a zip in chunks, its SHA-256 with the last); it
is asked for once per endpoint. The chat template in it makes the prompt of messages.

Proto3 cannot tell zero from nothing: what is not ``optional`` gets its neutral value,
not zero. Prompts go as ids, as only these can be continued exactly; a raw prompt that
cannot be encoded here goes as text, and is continued as text.

A new connection sends the prompt's ids and the answer's, under a new request id. The
ids kept spell whole characters; what came beyond them is expected again. The server is
left by closing the call, which stops the engine at once; no Abort is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from midstream._dialects.asking import (
    COMPLETION_NAMES,
    least_tokens,
    merge,
    parameters,
    raw_prompt,
)
from midstream._dialects.base import CONSTRAINTS, Continuation, Dialect
from midstream._dialects.grpc_call import rpc
from midstream._dialects.protobuf import extra, parse
from midstream._dialects.vllm_chunks import Asked, ChunkReader, ChunkWriter
from midstream._dialects.vllm_messages import GENERATE, TOKENIZER, common, engine
from midstream._frames.messages import MessageFramer
from midstream._tokenizers.detokenizer import Speech
from midstream._values.api_names import ApiNames, places
from midstream._values.errors import (
    BadRequest,
    NotFound,
    ServerFailed,
    UsageError,
    WireError,
)
from midstream._values.interruptions import ResumeUnsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from midstream._dialects.base import (
        Call,
        Flow,
        Generation,
        Reader,
        Received,
        Writer,
    )
    from midstream._frames import Framer
    from midstream._tokenizers.bundle import Bundle
    from midstream._tokenizers.chat_template import ChatTemplate
    from midstream._tokenizers.learned import Learned
    from midstream._values.endpoint import Endpoint
    from midstream._values.errors import ServerError
    from midstream._values.request import Request

_PORT = 50051
_OVERLAP = 8  # ids of a text that are made anew; see vllm.py
_NEUTRAL = {
    "n": 1,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
}
_CONSTRAINTS = CONSTRAINTS | {
    "choice",
    "grammar",
    "json_object",
    "regex",
    "structural_tag",
}
_PLACES = {  # protobuf's JSON takes both
    **places(COMPLETION_NAMES),
    "maxTokens": "max_tokens",
    "topP": "top_p",
}
_LEARNED = "vllm-grpc"
_NO_SAMPLING = {
    "add_generation_prompt",
    "add_special_tokens",
    "chat_template_kwargs",
    "data_parallel_rank",
}
"""What of ``extra`` is no sampling parameter."""


class _Prompt(NamedTuple):
    """What goes before the answer.

    ``ids`` is None where nothing here can make them.
    """

    text: str
    whole: bool
    ids: list[int] | None


class _Kept(NamedTuple):
    """Ids of the answer, and the text they spell: a begin of what came."""

    ids: list[int]
    text: str


@dataclass(frozen=True, kw_only=True)
class VllmGrpc(Dialect):
    """``vllm.grpc.engine.VllmEngine/Generate``."""

    name: str = "vllm-grpc"
    default_url: str | None = f"grpc://localhost:{_PORT}"
    key_variables: tuple[str, ...] = ("VLLM_API_KEY",)
    strategies: tuple[str, ...] = ("tokens", "text")
    transport: ClassVar = "grpc"
    framer: ClassVar[type[Framer]] = MessageFramer
    content_type: ClassVar[str] = "application/grpc"

    def begin(self, generation: Generation) -> Flow[Call]:
        """One stream, after the tokenizer."""
        learned = yield from _learned(generation)
        prompt = yield from _prompt(generation, learned)
        return _call(generation, learned, prompt)

    def continuation(
        self, generation: Generation, strategy: str, received: Received
    ) -> Flow[Continuation]:
        """The prompt and what came, as ids or as text."""
        learned = yield from _learned(generation)
        prompt = yield from _prompt(generation, learned)
        if strategy == "text":
            prompt = _behind(learned, prompt, received.text)
            call = _call(generation, learned, prompt, received)
            return Continuation(call=call, sent=received.text)
        ids = list(received.prompt_ids) or prompt.ids
        if ids is None:
            raise ResumeUnsupported("the prompt's ids are not known")
        came = _ids(learned, received)
        kept = _kept(_speech(learned, _sampling(generation)), came, received)
        again = len(came) - len(kept.ids)
        prompt = prompt._replace(ids=ids)
        return Continuation(
            call=_call(generation, learned, prompt, received, kept, again=again),
            sent=kept.text,
            expect=received.text[len(kept.text) :],
            again=again,
        )

    def api_names(self, endpoint: Endpoint) -> ApiNames:
        """Sampling parameters are all that ``extra`` may have."""
        del endpoint
        return ApiNames(_PLACES, frozenset({"stream", "text", "tokenized"}))

    def reader(self, generation: Generation | None = None) -> Reader:
        """Reads the responses."""
        if generation is None:
            return ChunkReader()
        return ChunkReader(generation.memory.pop(_asked_key(generation), None))

    def writer(self) -> Writer:
        """Writes them."""
        return ChunkWriter()

    def passes(self, error: ServerError) -> bool:
        """A dead engine is started again by whoever runs the server."""
        return isinstance(error, ServerFailed) and "EngineCore" in error.message

    def refuses(self, strategy: str, error: ServerError) -> bool:
        """Ids that the model does not have: this tokenizer is another model's."""
        unknown = isinstance(error, BadRequest) and "vocabulary" in error.message
        return strategy == "tokens" and unknown

    def no_prefix(self, request: Request) -> str | None:
        """The service has names of its own for what holds a model to a grammar."""
        names = sorted(_CONSTRAINTS & request.extra.keys())
        if names:
            return f"a grammar restarts at the prefix ({', '.join(names)})"
        return None


def _learned(generation: Generation) -> Flow[Learned]:
    """The tokenizer; made or asked for once per endpoint."""
    from midstream._tokenizers.given import learn  # noqa: PLC0415 - zip files and all

    memory, given = generation.memory, generation.endpoint.tokenizer
    if _LEARNED not in memory:
        if given is not None:
            memory[_LEARNED] = learn(given)
        else:
            memory[_LEARNED] = (yield from _files(generation)).learned()
    learned: Learned = memory[_LEARNED]
    return learned


def _template(generation: Generation, learned: Learned) -> Flow[ChatTemplate]:
    """The model's chat template; the server's, where the tokenizer came without."""
    if learned.template is None and generation.endpoint.tokenizer is not None:
        files = yield from _files(generation)
        ends = learned.ends | files.ends
        learned = replace(learned, template=files.template, ends=ends)
        generation.memory[_LEARNED] = learned
    if learned.template is None:
        raise UsageError(
            f"{generation.endpoint.dialect} takes messages only with a chat template, "
            "which this model has not: give Endpoint(template=…), or a str as prompt"
        )
    return learned.template


def _files(generation: Generation) -> Flow[Bundle]:
    """The tokenizer's files, as the server hands them out."""
    from midstream._tokenizers.bundle import unzip  # noqa: PLC0415 - as above

    try:
        reply = yield rpc(generation, TOKENIZER, b"", port=_PORT)
    except (BadRequest, NotFound) as error:
        raise UsageError(
            f"{generation.endpoint} hands out no tokenizer: give Endpoint(tokenizer=…)"
        ) from error
    chunks = [parse(common().GetTokenizerChunk, one) for one in reply.messages]
    data = b"".join(chunk.data for chunk in chunks)
    if chunks[-1].sha256 != sha256(data).hexdigest():
        raise WireError(f"a tokenizer of {len(data)} bytes that is not whole")
    return unzip(data)


def _prompt(generation: Generation, learned: Learned) -> Flow[_Prompt]:
    """The prompt, as text and as ids."""
    request, more = generation.request, generation.request.extra
    if request.tools is not None:
        raise UsageError(
            "vllm-grpc has no parser for tool calls; to have them as text, give tools "
            'by extra={"chat_template_kwargs": {"tools": […]}}'
        )
    whole = isinstance(request.prompt, str) and bool(
        more.get("add_special_tokens", True)
    )
    if isinstance(request.prompt, str) or generation.endpoint.template is not None:
        text = raw_prompt(generation)
    else:
        template = yield from _template(generation, learned)
        ready = bool(more.get("add_generation_prompt", True))
        variables = dict(more.get("chat_template_kwargs") or {})
        messages = [message.body() for message in request.messages]
        text = template.render(
            messages, **{"add_generation_prompt": ready, **variables}
        )
    return _encoded(learned, _Prompt(text, whole, None))


def _encoded(learned: Learned, prompt: _Prompt) -> _Prompt:
    """With ids, unless the server must make them."""
    try:
        ids = learned.tokenizer.encode(prompt.text, whole=prompt.whole)
    except UsageError:
        if not prompt.whole:  # the server would put a second begin before it
            raise
        return prompt
    return prompt._replace(ids=ids)


def _ids(learned: Learned, received: Received) -> list[int]:
    """The ids of what came: the server's, else the tokenizer's."""
    ids = list(received.token_ids)
    if _known(received):
        return ids
    if received.reasoning:
        raise ResumeUnsupported("the ids of the reasoning are not known")
    try:
        return learned.tokenizer.encode(received.text, whole=False)
    except UsageError as error:
        raise ResumeUnsupported(str(error)) from error


def _known(received: Received) -> bool:
    ids = received.token_ids
    return len(ids) == received.tokens and -1 not in ids


def _kept(speech: Speech, ids: Sequence[int], received: Received) -> _Kept:
    """The most of ``ids`` that can be trusted.

    A tokenizer cuts the end of a text as it would not have been generated: its last
    ids are made anew. Ids of the server spell what came, or a begin of it.
    """
    size = len(ids) - (0 if _known(received) else _OVERLAP)
    least = max(size - _OVERLAP, 0)
    while size > least:
        text = speech.spell(ids[:size]).decode("utf-8", "replace")
        if received.text.startswith(text):
            return _Kept(list(ids[:size]), text)
        size -= 1
    if least:
        raise ResumeUnsupported("the ids that came do not spell the text that came")
    return _Kept([], "")


def _behind(learned: Learned, prompt: _Prompt, text: str) -> _Prompt:
    """The prompt with the received text at its end, encoded as one."""
    longer = prompt._replace(text=prompt.text + text)
    return longer if prompt.ids is None else _encoded(learned, longer)


def _call(
    generation: Generation,
    learned: Learned,
    prompt: _Prompt,
    received: Received | None = None,
    kept: _Kept | None = None,
    *,
    again: int = 0,
) -> Call:
    """The call that opens a stream; what its reader must know is left in the memory."""
    params = _sampling(generation, received, again=again)
    request = engine().GenerateRequest(
        request_id=generation.handle, sampling_params=params, stream=True
    )
    rank = generation.request.extra.get("data_parallel_rank")
    try:
        if rank is not None:
            request.data_parallel_rank = rank
        if prompt.ids is None:
            request.text = prompt.text
        else:
            answer = kept.ids if kept else ()
            request.tokenized.input_ids.extend([*prompt.ids, *answer])
    except (TypeError, ValueError) as error:
        raise UsageError(f"vllm-grpc cannot say that: {error}") from error
    generation.memory[_asked_key(generation)] = Asked(
        id=generation.handle,
        speech=_speech(learned, params),
        model=generation.endpoint.model,
        prompt_ids=() if prompt.ids is None else tuple(prompt.ids),
        answers=params.n,
    )
    content = request.SerializeToString(deterministic=True)
    return rpc(generation, GENERATE, bytes(content), port=_PORT)


def _asked_key(generation: Generation) -> str:
    return f"{_LEARNED} {generation.handle}"


def _sampling(
    generation: Generation, received: Received | None = None, *, again: int = 0
) -> Any:
    """The SamplingParams message.

    Raises:
        UsageError: ``extra`` has what is no sampling parameter, or a value is none.
    """
    left = received.left if received is not None else None
    asked = parameters(
        generation.request,
        COMPLETION_NAMES,
        left=None if left is None else left + again,
    )
    more = generation.request.extra
    more = {name: more[name] for name in more.keys() - _NO_SAMPLING}
    document = least_tokens(merge({**_NEUTRAL, **asked}, more), received)
    convert = extra("google.protobuf.json_format")
    try:
        return convert.ParseDict(document, engine().SamplingParams())
    except convert.ParseError as error:
        raise UsageError(f"vllm-grpc cannot say that: {error}") from error


def _speech(learned: Learned, params: Any) -> Speech:
    """How an answer to such a request is spoken."""
    keep = params.include_stop_str_in_output
    silent = learned.tokenizer.special if params.skip_special_tokens else frozenset()
    if not keep:
        silent |= frozenset(params.stop_token_ids)
        silent |= frozenset() if params.ignore_eos else learned.ends
    return Speech(
        tokenizer=learned.tokenizer,
        silent=silent,
        stop=tuple(params.stop),
        keep_stop=keep,
        min_tokens=params.min_tokens,
    )


VLLM_GRPC = VllmGrpc()
