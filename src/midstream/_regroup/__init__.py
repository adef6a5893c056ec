"""Re-aggregators: text in the pieces an application wants, from any that come.

All are sans-I/O and keep three laws: the pieces joined are exactly the text, none is
empty, and none ends inside a grapheme cluster. What is held back is bounded in time
by ``max_wait`` or ``max_lag`` where there is one, and in size always. When that time is
over, only a cluster that is visibly unfinished stays; one that looked whole and grows
after all goes on in the next piece. ``fresh()`` gives one with the same settings and no
text, so that one instance serves any number of streams.
"""

from midstream._regroup.frames import Frames
from midstream._regroup.graphemes import Graphemes
from midstream._regroup.lines import Lines
from midstream._regroup.markdown import Markdown
from midstream._regroup.protocol import Regrouper
from midstream._regroup.sentences import Sentences
from midstream._regroup.tokens import Tokens
from midstream._regroup.words import Words

__all__ = [
    "Frames",
    "Graphemes",
    "Lines",
    "Markdown",
    "Regrouper",
    "Sentences",
    "Tokens",
    "Words",
]
