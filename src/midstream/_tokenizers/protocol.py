"""What is needed of a tokenizer, whoever made it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from midstream._values.errors import UsageError


class Tokenizer(Protocol):
    """One vocabulary.

    Attributes:
        special: Ids of control tokens, which have no text of their own.
    """

    special: frozenset[int]

    def token_bytes(self, id_: int) -> bytes:
        """The bytes of one token, as they stand inside a text.

        A control token's are its name. Ids that the vocabulary does not have, as those
        that only pad the model's matrices, have none.
        """
        ...

    def encode(self, text: str, *, whole: bool) -> list[int]:
        """The ids of a text; names of control tokens in it become these.

        Args:
            text: It.
            whole: Whether the tokens that begin and end a sequence are added.

        Raises:
            UsageError: This tokenizer cannot, for want of a package.
        """
        ...


def needs(package: str, why: str) -> Any:
    """Import a package of the extra ``tokenizers``.

    Args:
        package: Its name.
        why: What for.

    Raises:
        UsageError: It is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise UsageError(
            f"{why} needs {package.partition('.')[0]}: "
            "pip install 'midstream[tokenizers]'"
        ) from error
