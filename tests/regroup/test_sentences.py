"""Where sentences end."""

import pytest

from midstream._regroup import Sentences
from midstream._regroup.sentences import LIMIT
from midstream._regroup.suppressions import CLDR


def _sentences(text):
    by = Sentences()
    return by.feed(text, 0.0) + by.flush()


@pytest.mark.parametrize(
    "pieces",
    [
        ["Hello there. ", "How are you? ", "Fine!\n", "Good."],
        ["Pi is 3.14 or so. ", "See example.com for more. ", "Mr. Smith agrees."],
        [
            "Use tools, e.g. Ruff. ",
            "The U.S. Army, J. S. Bach etc. ",
            "Then I. ",
            "Yes",
        ],
        ["1. First item. ", "Then 2. ", "No"],
        ["Intro.\n", "1. One\n2. Two\n\n", "- 3. Three"],
        ["See No. 5 now. ", "No. ", "Never."],
        ["Well... maybe so… but no. ", "Wait... ", "What?! ", "Oh"],
        ['"Stop!" he said. ', '"Go." ', "(Really?) ", "**Bold.** ", "End"],
        ["東京は晴れです。", "本当！？", "「はい。」", "次…", "です"],
        ["３．１４です．", "終わり"],
        ["本当?", "はい!", "そう...です。 ", "終わり"],
        ["नमस्ते।", "कैसे हैं? ", "مرحبا؟ ", "نعم"],
        ["Title\n\n", "Body\nstill body\r\n\r\n", "More\n \n", "End"],
        ["\n\n", "Lead by Mr.\n\n", "next"],
        [". ", "A"],
        ["a ...b"],
        ["Good. \u0301A"],
        [
            "Der 3. Oktober ist ein Feiertag. ",
            "Im 19. Jahrhundert, z. B. Im Mai. ",
            "So",
        ],
        ["Berlin, 3. Oktober 1990. ", "Am 3. 10. 1990. ", "Am 4.5. ", "Das war es"],
        ["Sie war die 2. Siegerin. ", "Es waren 3. ", "Mailand lag vorn. ", "Ende"],
        ["I am 30. ", "He is 31. ", "Chapter 12. ", "Marching on 9. ", "No"],
        ["D. h. Das gilt, d. h. Immer, u. a. Ihm und i. d. R. Ihr. ", "Ja"],
        ["Das sind ca. 5 Mio. Euro bzw. Dollar, vgl. Abb. 3 und Nr. 7. ", "Gut"],
        ["Um 44 v. Chr. Starb er. ", "Die z. Zt. Besten. ", "Der z. ", "Zug"],
        [
            "Solve for x. ",
            "Then use plan b. ",
            "Come in. ",
            "That is all. ",
            "So. ",
            "Go",
        ],
        [
            "It took 5 years ago. ",
            "Return an int. ",
            "It has 8 GB. ",
            "See the doc. ",
            "X",
        ],
        [
            "El Sr. López y la Sra. Ruiz, p. ej. Juan, son de EE. UU. Son felices. ",
            "Sí",
        ],
        ["Voir fig. A, éd. Gallimard, av. J.-C. Rome. ", "Il est là. ", "Oui"],
        ["Il dott. Rossi e l'avv. Bianchi, pag. XII. ", "Il mare. ", "Sì"],
        ["O prof. Silva e a Dra. Lima, séc. XX, p. ex. Isto. ", "O mar. ", "Sim"],
        ["Это было в 5 тыс. Рублей и до н. э. Рим. ", "Да"],
    ],
)
def test_sentences(pieces):
    assert _sentences("".join(pieces)) == pieces
    by = Sentences()
    one_by_one = [piece for char in "".join(pieces) for piece in by.feed(char, 0.0)]
    assert one_by_one + by.flush() == pieces


def test_a_sentence_goes_when_the_next_one_begins():
    by = Sentences()
    assert by.feed("はい。", 0.0) == []
    assert by.feed("」", 0.0) == []
    assert by.feed("次", 0.0) == ["はい。」"]
    assert by.flush() == ["次"]
    assert by.deadline is None


def test_max_wait_bounds_the_delay():
    by = Sentences(max_wait=1.0)
    assert by.feed("One. Two", 5.0) == ["One. "]
    assert by.deadline == 6.0
    assert by.feed("", 6.0) == ["Two"]
    assert by.deadline is None
    assert by.feed(". Three", 6.5) == [". "]


def test_a_long_sentence_is_cut_between_lines_or_words():
    assert _sentences("x" * 3000 + "\n" + "y " * 1000)[0] == "x" * 3000 + "\n"
    assert _sentences("x" * 3000 + " " + "y" * 3000)[0] == "x" * 3000 + " "
    assert _sentences("x" * 3000 + " \u0301" + "y" * 3000)[0] == (
        "x" * 3000 + " \u0301" + "y" * 1094
    )
    assert [len(piece) for piece in _sentences("東" * 10_000)] == [LIMIT, LIMIT, 1808]


@pytest.mark.parametrize("unit", [".", " ", '"', "。", "\n"])
def test_a_run_is_not_searched_again_and_again(unit, monkeypatch):
    searched = []
    monkeypatch.setattr(
        "midstream._regroup.sentences._stop",
        lambda text, scan: searched.append(len(text) - scan),
    )
    by = Sentences()
    for _ in range(4000):
        by.feed(unit, 0.0)
    assert sum(searched) <= 1


def test_what_the_next_word_decides_waits_for_it_alone():
    by = Sentences()
    assert by.feed("Es waren 3. Ma", 0.0) == []
    assert by.feed("i", 0.0) == []
    assert by.feed("l", 0.0) == ["Es waren 3. "]
    assert by.flush() == ["Mail"]
    assert by.feed("Es waren 3. Mai", 0.0) == []
    assert by.flush() == ["Es waren 3. ", "Mai"]
    assert by.feed("Es waren 3. Mai ", 0.0) == []
    assert by.flush() == ["Es waren 3. Mai "]


def test_the_abbreviations_are_those_of_cldr_but_ordinary_words():
    for entry in ["vgl.", "Sgt.", "Sres.", "févr.", "dott.", "profa.", "кв."]:
        assert len(_sentences(f"One {entry} Two")) == 1
    for entry in ["Do.", "out.", "all.", "In.", "Joe.", "Test.", "Sol."]:
        assert any(entry in listed.split() for listed in CLDR.values())
        assert len(_sentences(f"One {entry} Two")) == 2
