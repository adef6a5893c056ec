"""A model's tokenizer files: a folder, or the zip that a server hands out.

Source: huggingface/transformers ``tokenization_utils_base.py`` (which file says what)
and smg-grpc-servicer ``tokenizer_bundle.py`` (which files are in the zip).
"""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from midstream._tokenizers.chat_template import ChatTemplate
from midstream._tokenizers.hugging_face import HuggingFace
from midstream._tokenizers.learned import Learned
from midstream._values.errors import UsageError, WireError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LIMIT = 256 << 20  # bytes of one file; the largest known vocabularies have 40 MB
_TOKENIZER = "tokenizer.json"


class Bundle:
    """The files.

    Args:
        read: Gives a file's content by its name, None where there is none.

    Attributes:
        template: The model's chat template, if it has one.
        ends: Ids that end an answer.
    """

    def __init__(self, read: Callable[[str], bytes | None]) -> None:
        self._tokenizer = read(_TOKENIZER)
        settings = _object(read("tokenizer_config.json"))
        names = _object(read("special_tokens_map.json")) | settings
        source = _template(read, settings)
        self.template = ChatTemplate(source, _names(names)) if source else None
        self.ends = frozenset(_ids(_object(read("config.json"))))
        self.ends |= frozenset(_ids(_object(read("generation_config.json"))))

    def learned(self) -> Learned:
        """All that the files tell.

        Raises:
            UsageError: ``tokenizer.json`` is not there or no such file.
        """
        if self._tokenizer is None:
            raise UsageError(f"there is no {_TOKENIZER} among the tokenizer's files")
        tokenizer = HuggingFace(self._tokenizer)
        return Learned(tokenizer=tokenizer, template=self.template, ends=self.ends)


def unzip(data: bytes) -> Bundle:
    """The files in a zip.

    Args:
        data: It.

    Raises:
        WireError: It is none.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = {info.filename: info for info in archive.infolist()}
            if any(info.file_size > _LIMIT for info in files.values()):
                raise WireError(f"a tokenizer file of more than {_LIMIT} bytes")
            return Bundle(lambda n: archive.read(files[n]) if n in files else None)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        raise WireError(f"the tokenizer's zip: {error}") from error


def folder(path: Path) -> Bundle:
    """The files in a folder.

    Args:
        path: Where.
    """
    return Bundle(
        lambda name: (path / name).read_bytes() if (path / name).is_file() else None
    )


def _object(content: bytes | None) -> dict[str, Any]:
    try:
        document = from_json(content or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _template(
    read: Callable[[str], bytes | None], settings: dict[str, Any]
) -> str | None:
    """The template: a file of its own, or one of the settings."""
    content = read("chat_template.jinja")
    if content is not None:
        return content.decode("utf-8", "replace")
    found = _object(read("chat_template.json")).get("chat_template")
    found = found or settings.get("chat_template")
    if isinstance(found, list):  # several, by name
        named = {one.get("name"): one.get("template") for one in found}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _names(settings: dict[str, Any]) -> dict[str, str]:
    """Control tokens by their role, each a string or an object that holds it."""
    roles = {role: name for role, name in settings.items() if role.endswith("_token")}
    texts = {
        role: name.get("content") if isinstance(name, dict) else name
        for role, name in roles.items()
    }
    return {role: text for role, text in texts.items() if isinstance(text, str)}


def _ids(settings: dict[str, Any]) -> list[int]:
    """``eos_token_id``: one or many."""
    given = settings.get("eos_token_id")
    many = given if isinstance(given, list) else [given]
    return [id_ for id_ in many if isinstance(id_, int)]
