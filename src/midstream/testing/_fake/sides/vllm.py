"""vLLM over gRPC: ids in, ids out, and a tokenizer that is handed out in a zip.

Each token's id goes out at once, in mid-character and inside a stop string, too. Errors
are statuses of the RPC. The tokenizer is a byte-level one without merges: text becomes
an id a byte, and the ids of the toy model's pieces are read as these.
"""

from __future__ import annotations

import io
import zipfile
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

from midstream._dialects.documents import dumps
from midstream._dialects.vllm_chunks import ChunkWriter
from midstream._dialects.vllm_messages import GENERATE, TOKENIZER, common, engine
from midstream._tokenizers import byte_level
from midstream._values.events import Failure, Finish
from midstream.testing._fake import asked as ask
from midstream.testing._fake.faults import Status
from midstream.testing._fake.model import BOS, EOS
from midstream.testing._fake.script import Pen
from midstream.testing._fake.sides.grpc import Call, GrpcSide
from midstream.testing._fake.voice import Manner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from midstream._values.events import Event, Signal
    from midstream.testing._fake.model import ToyModel
    from midstream.testing._fake.sides.base import World
    from midstream.testing._fake.sides.grpc import Other
    from midstream.testing._fake.voice import Why

_CHUNK = 64 * 1024  # bytes of a message, as smg-grpc-servicer cuts its zip
_NAMES = {BOS: "<|begin|>", EOS: "<|end|>"}
_TEMPLATE = """\
{% for message in messages %}
<|{{ message.role }}|>
{{ message.content }}
{% endfor %}
{% if add_generation_prompt %}
<|assistant|>
{% endif %}
"""
_WORDS: dict[Why, str] = {
    "eos": "stop",
    "word": "stop",
    "length": "length",
    "tools": "stop",
}


class VllmSide(GrpcSide):
    """``Generate`` and ``GetTokenizer``."""

    name: ClassVar[str] = "vllm-grpc"
    method: ClassVar[str] = GENERATE

    @property
    def manner(self) -> Manner:
        """An id a token, whatever becomes of its text."""
        return Manner(
            whole=False,
            ids=True,
            held=True,
            finish=lambda why: Finish(_WORDS[why], _WORDS[why]),
        )

    @property
    def others(self) -> Mapping[str, Other]:
        """The tokenizer."""
        return {TOKENIZER: _handed_out}

    def understand(self, content: bytes, world: World) -> Call:
        """A prompt of ids, or a text."""
        request = engine().GenerateRequest.FromString(content)
        params = request.sampling_params
        tokenized = request.WhichOneof("input") == "tokenized"
        ids = list(request.tokenized.input_ids)
        prompt = _spelled(ids, world) if tokenized else request.text.encode()
        if not prompt:
            raise ask.Refusal(400, "The decoder prompt cannot be empty")
        count = len(ids) if tokenized else len(world.model.tokenize(prompt))
        writer = _StatusWriter(count)
        return Call(
            asked=ask.Asked(
                opening=prompt,
                raw=True,
                how="tokens" if tokenized else "text",
                max_tokens=params.max_tokens if params.HasField("max_tokens") else None,
                stop=ask.stops(list(params.stop)),
                n=params.n or 1,
                prompt_tokens=count,
            ),
            pen=Pen(writer=writer),
            body=_document(request),
            fails=writer.status,
        )


class _StatusWriter(ChunkWriter):
    """Writes an error as the record after which the RPC ends with a status."""

    _MARK = b"\xff error"  # no message begins with this byte

    def __init__(self, prompt_tokens: int) -> None:
        super().__init__(prompt_tokens)
        self._failed: Status | None = None

    def write(self, event: Event | Signal) -> list[bytes]:
        """As vLLM does, but for errors."""
        if not isinstance(event, Failure):
            return super().write(event)
        self._failed = Status(event.error.status or 500, event.error.message)
        return [self._MARK]

    def status(self, record: bytes) -> Status | None:
        """The status that a record stands for."""
        return self._failed if record == self._MARK else None


def _spelled(ids: list[int], world: World) -> bytes:
    try:
        return world.model.detokenize(ids)
    except KeyError as error:
        unknown = f"Token id {error.args[0]} is out of vocabulary"
        raise ask.Refusal(400, unknown) from None


def _document(request: Any) -> dict[str, object]:
    params = request.sampling_params
    return {
        "request_id": request.request_id,
        "text": request.text,
        "input_ids": list(request.tokenized.input_ids),
        "stream": request.stream,
        "sampling_params": {field.name: value for field, value in params.ListFields()},
    }


def _handed_out(content: bytes, world: World) -> list[bytes]:
    """The zip in chunks, its digest with the last."""
    del content
    data = tokenizer_zip(world.model)
    digest = sha256(data).hexdigest()
    chunks = []
    for at in range(0, len(data), _CHUNK):
        chunk = common().GetTokenizerChunk(data=data[at : at + _CHUNK])
        if at + _CHUNK >= len(data):
            chunk.sha256 = digest
        chunks.append(chunk.SerializeToString(deterministic=True))
    return chunks


def tokenizer_zip(model: ToyModel) -> bytes:
    """The files of the toy model's tokenizer.

    Args:
        model: Whose pieces are its vocabulary.
    """
    files = {
        "tokenizer.json": _tokenizer(model),
        "tokenizer_config.json": {"bos_token": _NAMES[BOS], "eos_token": _NAMES[EOS]},
        "generation_config.json": {"bos_token_id": BOS, "eos_token_id": EOS},
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, document in files.items():
            archive.writestr(name, dumps(document))
        archive.writestr("chat_template.jinja", _TEMPLATE)
    return buffer.getvalue()


def _tokenizer(model: ToyModel) -> dict[str, Any]:
    vocabulary = {
        byte_level.encode(piece): id_ for piece, id_ in model.vocabulary().items()
    }
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    added = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": n, **added} for i, n in _NAMES.items()],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": [],
        },
    }
