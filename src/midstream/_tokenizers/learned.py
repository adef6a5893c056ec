"""What is known of a model's words: its tokenizer, template and ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from midstream._tokenizers.chat_template import ChatTemplate
    from midstream._tokenizers.protocol import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What is known of a model's words.

    Attributes:
        tokenizer: Its tokenizer.
        template: Its chat template, where known.
        ends: Ids that end an answer, where known.
    """

    tokenizer: Tokenizer
    template: ChatTemplate | None = None
    ends: frozenset[int] = field(default=frozenset())
