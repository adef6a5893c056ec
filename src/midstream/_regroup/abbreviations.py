"""Which abbreviations `Sentences` knows, of all languages at once.

The language of a stream is not known, so the lists of CLDR (``suppressions``) are
joined. They were made for one language each: ``Do.`` is Thursday in German, ``out.``
October in Portuguese. A word that ends sentences in one of the languages is therefore
taken out again, as text that is never cut is worse than a cut too many; so are the
names of people and the words of those who write about code (``int``, ``dir``, ``GB``).

Capitals are not told apart, since any abbreviation may begin a sentence. Entries with
full stops inside that are single letters (``e.g.``) need no list and are found by rule.
"""

from midstream._regroup.suppressions import CLDR

_ORDINARY = """
    aa ab abs act ad ago all alt am ant apart app append apt arch art as ass aux bed
    beil ben best bien bull by c/c ca cam cap caps card cat chin co col com config cont
    da dat dc def des desc dest dez di dict diff dim dir div do doc dom em end est etc
    ex fabric fil fl fn ful fund gb gem go gram graph hat hz i.t id ill in ind int is
    it jam jeu job joe juil jun kb kit kl korn led lev lib lin link lit liv long mai
    mar mart mat max may mb mer mi min mind mo mod ms obj od ok on op or org out pal
    pc pin port pp pro prod quart ram rag ref reg rep res rod rol sa sal sam sem set
    so sol sta sto tab temp test to trans up var ven ver vie voit
"""

_COMMON = """
    adm al apr assoc ave bldg brig cf cmdr col dept dr ed eds eq figs ft gov jul jun lt
    est gen hon maj messrs ms mt nos op ph.d pl pp pres pt rep sec sen st viz vols
    bspw bzw ca dgl engl etw frz ggf griech lat lfd ugs
    ee ee_uu núm pág págs tél p_ej p_ex
    bijv blz dhr drs mevr mw jl godz np św tzn tzw např tzv evt
"""  # titles and such, then German, Romance, and neighbours that CLDR has no list for


def _known() -> frozenset[str]:
    words = {
        entry.removesuffix(".").replace("._", "_").lower()
        for entries in CLDR.values()
        for entry in entries.split()
    }
    words |= {"_".join(word.split("_")[-2:]) for word in words}
    letters = {word for word in words if len(word) == 1}
    return frozenset((words - letters - set(_ORDINARY.split())) | set(_COMMON.split()))


ABBREVIATIONS = _known()
"""In small letters, without the last stop; ``p_ej`` is ``p. ej.``, in two words."""
