r"""Unicode patterns: the only module that imports ``regex``, so it is loaded late.

``import midstream`` and plain ASCII text never come here (see ``segmentation.rules``).
The property tables (grapheme cluster break, word break, Indic conjunct break) are
those of the installed ``regex``, so that text is cut as ``\X`` and ``\b`` cut it.
"""

import regex

CLUSTER = regex.compile(r"\X")
"""One extended grapheme cluster."""

FIRM = regex.compile(
    r"(?V1)(?<!\p{GCB=Prepend})"
    r"[\p{GCB=Other}--\p{Extended_Pictographic}--\p{InCB=Consonant}]"
)
"""A character that begins a cluster whatever came before it.

UAX #29 joins such a character to what precedes it by no rule but GB9b (prepend).
"""

LAST_FIRM = regex.compile(
    r"(?rV1)(?<!\p{GCB=Prepend})"
    r"[\p{GCB=Other}--\p{Extended_Pictographic}--\p{InCB=Consonant}]"
)
"""The same, searched from the end of the text."""

FINISHED = regex.compile(r"[\p{GCB=Control}\n]")
"""A character nothing can be joined to (GB4); a lone CR still awaits its LF."""

UNFINISHED = regex.compile(
    r"(?V1)(?:(?<!\p{RI})\p{RI}|[\p{GCB=ZWJ}\p{GCB=L}\p{GCB=Prepend}\p{InCB=Linker}])\Z"
)
"""The end of a cluster that a reader sees is not whole.

Half a flag, a joiner or a virama (GB9c) with nothing to join, a Korean consonant
without its vowel, a prepended sign without its number. Others may grow, too (e, é), but
are whole as they stand.
"""

GROWS = regex.compile(r"[\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}]")
"""A character that never begins a cluster after a printable one (GB9, GB9a)."""

_MARK = r"[[\p{P}\p{S}\p{M}\p{Cf}\p{Cc}]--[\p{Pc}\p{So}\p{White_Space}]]"

# Not U+2018 and its like, which may yet turn out to stand inside a word (WB6, WB12).
_OPENING = r"[[\p{Ps}\p{Pi}]--[\p{WB=MidNumLet}\p{WB=MidLetter}\p{WB=MidNum}]]"

WORD = regex.compile(
    rf"""(?wxV1)
    {_MARK}*+                          # opening marks, signs, dashes
    (?: [^{_MARK}\p{{White_Space}}]    # the core: one word of UAX #29
        (?s:.)*? \b )?+
    [[{_MARK}\p{{GCB=SpacingMark}}]--{_OPENING}]*+    # closing marks
    \p{{White_Space}}*+
    """
)
"""One piece of `Words`: a word with the marks and the white space around it.

Pc (the low line) is part of words; So (emoji, other symbols) are words themselves.
"""
