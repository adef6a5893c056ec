"""Chat templates: the conversation as the model's own prompt.

Source: huggingface/transformers ``utils/chat_template_utils.py``: Jinja in an immutable
sandbox, as a template is a program that came with a model; the same filters, functions
and whitespace rules, without which templates give other prompts.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from midstream._tokenizers.protocol import needs
from midstream._values.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_GENERATION = re.compile(r"(\{%[-+]?\s*)(end)?generation(\s*[-+]?%\})")


class ChatTemplate:
    """A template in Jinja.

    Args:
        source: It.
        names: Names of control tokens, as ``{"bos_token": "<s>"}``.
    """

    def __init__(self, source: str, names: Mapping[str, str]) -> None:
        self._source = source
        self._names = names
        self._compiled: Any = None

    def render(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> str:
        """The prompt, ready for the model to answer.

        Args:
            messages: The conversation.
            more: Further variables of the template.

        Raises:
            UsageError: jinja2 is not installed, or the template refuses.
        """
        if self._compiled is None:
            self._compiled = _compiled(self._source)
        given = {"tools": None, "documents": None, "add_generation_prompt": True}
        try:
            prompt = self._compiled.render(
                **{**self._names, **given, **more, "messages": messages}
            )
        except Exception as error:  # a foreign program, which may raise anything
            raise UsageError(f"the chat template refuses: {error}") from error
        return str(prompt)


def _compiled(source: str) -> Any:
    sandbox = needs("jinja2.sandbox", "a chat template")
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _strftime_now
    try:
        return environment.from_string(_GENERATION.sub(_plain, source))
    except Exception as error:  # as above
        raise UsageError(f"the chat template is no Jinja: {error}") from error


def _plain(tag: re.Match[str]) -> str:
    """``{% generation %}`` only marks the assistant's words, for training."""
    return f"{tag[1]}{'endif' if tag[2] else 'if true'}{tag[3]}"


def _tojson(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - called by templates
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - as above
) -> str:
    """Jinja's own filter would escape what HTML needs escaped."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> NoReturn:
    raise ValueError(message)


def _strftime_now(format: str) -> str:  # noqa: A002 - as transformers calls it
    """Today, which some templates tell the model."""
    from datetime import datetime  # noqa: PLC0415 - only where a template asks

    return datetime.now().strftime(format)  # noqa: DTZ005 - the local date, as theirs
