"""Where a continuation joins what had come: nothing lost, nothing twice."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from midstream._dialects.base import Call, Continuation
from midstream._resume.seam import Seam
from midstream._values.interruptions import ResumeDiverged

CALL = Call(url="http://host/")


def seam(text, *, stop=(), **how):
    how.setdefault("sent", text)
    return Seam(Continuation(call=CALL, **how), text, stop)


def joined(machine, pieces):
    """What the seam lets through; nothing more once a stop string was found."""
    out = ""
    for piece in pieces:
        out += machine.feed(piece)
        if machine.stopped:
            return out
    return out + machine.flush()


def cut(text, marks):
    edges = [0, *sorted(mark % (len(text) + 1) for mark in marks), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def every_way(make, continuation):
    """The one result that all ways to cut the continuation give."""
    results = {
        joined(make(), pieces)
        for pieces in [
            [continuation],
            list(continuation),
            *(
                [continuation[:at], continuation[at:]]
                for at in range(len(continuation))
            ),
        ]
    }
    [result] = results
    return result


splits = st.lists(st.integers(0, 100), max_size=6)
# Few letters, so that prefixes, echoes and repetitions meet by chance.
small = st.text("ha \n", max_size=12)

# -- no rule ---------------------------------------------------------------------------


@given(text=small, rest=small, marks=splits)
def test_without_a_declared_rule_it_is_plain_concatenation(text, rest, marks):
    machine = seam(text)
    assert not machine.open
    assert joined(machine, cut(rest, marks)) == rest


def test_a_true_repetition_is_kept_where_no_echo_is_declared():
    assert every_way(lambda: seam("ha ha "), "ha!") == "ha!"
    assert every_way(lambda: seam("ha ha "), "ha ha ha!") == "ha ha ha!"


# -- a declared echo -------------------------------------------------------------------


def test_an_echo_of_the_whole_prefix_is_dropped():
    make = lambda: seam("ha ha ", echo="whole")  # noqa: E731 - a maker
    assert every_way(make, "ha ha ha!") == "ha!"
    assert every_way(make, "ha ha ") == ""


@pytest.mark.parametrize("rest", ["ha!", "x", "", "ha ha", "ha hx"])
def test_a_declared_echo_that_does_not_come_costs_nothing(rest):
    assert every_way(lambda: seam("ha ha ", echo="whole"), rest) == rest


def test_the_echo_is_of_what_was_sent_not_of_what_was_shown():
    make = lambda: seam("one \n", sent="one", echo="whole")  # noqa: E731 - a maker
    assert every_way(make, "one \ntwo") == "two"
    assert every_way(make, "onetwo") == "two"


def test_an_echo_of_the_tail_is_dropped():
    make = lambda: seam("ha ha ", echo="tail")  # noqa: E731 - a maker
    assert every_way(make, "ha ok") == "ok"
    assert every_way(make, "ha ha ok") == "ok"
    assert every_way(make, "ok") == "ok"
    assert every_way(make, "ha ") == ""
    assert every_way(make, "hx") == "hx"


def test_the_longest_tail_counts():
    make = lambda: seam("ab ab", echo="tail")  # noqa: E731 - a maker
    assert every_way(make, "ab ab ab") == " ab"
    assert every_way(make, "abc") == "c"


def test_only_the_end_of_a_long_prefix_is_compared():
    text = " ".join(map(str, range(1000)))
    assert joined(seam(text, echo="tail"), list(text[-400:] + "x")) == "x"
    longer = text[-500:] + "x"
    assert joined(seam(text, echo="tail"), list(longer)) == longer


@given(text=small, rest=small, marks=splits)
@example(text="ha ha ", rest="ha!", marks=list(range(12)))
def test_a_whole_echo_is_dropped_however_it_is_cut(text, rest, marks):
    machine = seam(text, echo="whole")
    assert joined(machine, cut(text + rest, marks)) == rest


@given(text=small.filter(bool), size=st.integers(1, 12), marks=splits)
def test_a_tail_echo_before_other_text_is_dropped_however_it_is_cut(text, size, marks):
    tail = text[-size:]
    assert joined(seam(text, echo="tail"), cut(tail + "|", marks)) == "|"


@given(text=small, rest=small, marks=splits, echo=st.sampled_from(["whole", "tail"]))
def test_an_echo_stage_never_holds_more_than_the_prefix(text, rest, marks, echo):
    machine = seam(text, echo=echo)
    came = 0
    passed = 0
    for piece in cut(rest, marks):
        came += len(piece)
        passed += len(machine.feed(piece))
        assert came - passed <= len(text)


def test_nothing_is_expected_of_an_empty_prefix():
    for echo in "whole", "tail":
        assert not seam("", echo=echo).open


# -- text that must come again ---------------------------------------------------------


@given(text=small, rest=small, marks=splits)
def test_expected_text_is_checked_and_dropped(text, rest, marks):
    machine = seam(text, sent="", expect=text)
    assert joined(machine, cut(text + rest, marks)) == rest
    assert not machine.open


@given(text=small.filter(bool), at=st.integers(0, 11), marks=splits)
def test_other_text_diverges_at_its_first_character(text, at, marks):
    at %= len(text)
    other = text[:at] + "x" + text[at + 1 :]
    with pytest.raises(ResumeDiverged):
        joined(seam(text, sent="", expect=text), cut(other, marks))


def test_a_divergence_says_what_differs():
    machine = seam("abc def", sent="", expect="abc def")
    assert machine.feed("abc ") == ""
    with pytest.raises(ResumeDiverged, match=r"'xyz'.*'def'.*4 characters into"):
        machine.feed("xyz")


def test_a_repeated_part_that_ends_early_diverges():
    machine = seam("abcdef", sent="", expect="abcdef")
    assert machine.feed("abc") == ""
    with pytest.raises(ResumeDiverged, match="3 characters before"):
        machine.flush()


def test_only_the_declared_end_may_be_expected():
    machine = seam("one two", sent="one ", expect="two")
    assert machine.repeating
    assert joined(machine, ["tw", "o th", "ree"]) == " three"


def test_what_repeats_is_told_apart_from_what_is_new():
    machine = seam("ab", sent="", expect="ab")
    assert machine.repeating
    assert machine.feed("ab") == ""
    assert not machine.repeating
    assert seam("ab", echo="whole").repeating
    assert not seam("ab ", sent="ab").repeating
    assert not seam("ab").repeating


# -- white space held off the prefix ---------------------------------------------------


@pytest.mark.parametrize("rest", ["\n\nLine two", "Line two", "\nLine two"])
def test_white_space_that_was_held_off_is_neither_lost_nor_doubled(rest):
    shown = "Line one.\n\n"
    make = lambda: seam(shown, sent="Line one.")  # noqa: E731 - a maker
    assert shown + every_way(make, rest) == "Line one.\n\nLine two"


@pytest.mark.parametrize(("rest", "new"), [("\n\nSo", "So"), ("So", "So")])
def test_white_space_that_was_all_of_the_prefix_is_matched_as_well(rest, new):
    assert joined(seam("\n\n", sent=""), list(rest)) == new


def test_what_follows_expected_text_may_repeat_it():
    machine = seam("a dog", sent="a", expect=" dog")
    assert joined(machine, [" dog", " dog"]) == " dog"


@pytest.mark.parametrize(
    ("shown", "rest", "new"),
    [
        ("one, two, ", "\n four", "\n four"),  # another white space is text
        ("a \n", " \n \nb", " \nb"),  # only what was held off is matched
        ("a ", " ", ""),
        ("a \t", " b", "b"),
        ("a ", "", ""),
    ],
)
def test_other_white_space_is_kept(shown, rest, new):
    assert every_way(lambda: seam(shown, sent=shown.rstrip()), rest) == new


@given(text=small, rest=small.filter(lambda t: not t[:1].isspace()), marks=splits)
def test_held_off_white_space_comes_once_however_it_is_cut(text, rest, marks):
    sent = text.rstrip()
    again = text[len(sent) :]
    rest += "|"
    machine = seam(text, sent=sent)
    assert joined(machine, cut(again + rest, marks)) == rest


# -- stop strings over the seam --------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rest", "stop", "new", "stopped"),
    [
        ("so E", "ND more", ["END"], "", True),
        ("so EN", "D", ["END"], "", True),
        ("so E", "NX", ["END"], "NX", False),
        ("so E", "N", ["END"], "N", False),
        ("so", "END", ["END"], "END", False),  # wholly new: the server stops itself
        ("so EEN", "D", ["END", "EENX"], "", True),
        ("aaa", "ab", ["aaab"], "", True),
        ("x\n", "\ny", ["\n\n"], "", True),
        ("x END", "more", ["END"], "more", False),
        ("x日", "本y", ["日本"], "", True),
    ],
)
def test_a_stop_string_over_the_seam_still_stops(text, rest, stop, new, stopped):
    assert every_way(lambda: seam(text, stop=stop), rest) == new
    machine = seam(text, stop=stop)
    joined(machine, list(rest))
    assert machine.stopped is stopped


@given(
    text=st.text("ab", max_size=8),
    rest=st.text("ab", max_size=8),
    stop=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    marks=splits,
)
def test_it_stops_exactly_where_a_stop_string_crosses_the_seam(text, rest, stop, marks):
    crosses = any(
        rest.startswith(word[size:])
        for word in stop
        for size in range(1, len(word))
        if text.endswith(word[:size])
    )
    machine = seam(text, stop=stop)
    new = joined(machine, cut(rest, marks))
    assert machine.stopped is crosses
    assert new == ("" if crosses else rest)


def test_without_stop_strings_nothing_waits():
    assert not seam("text").open
    assert not seam("text").stopped


# -- all together ----------------------------------------------------------------------


def test_the_rules_apply_one_after_the_other():
    make = lambda: seam("so E ", sent="so E", echo="whole", stop=["E ND"])  # noqa: E731
    assert every_way(make, "so E ND") == ""
    assert every_way(make, "so E NX") == "NX"
    assert every_way(make, " NX") == "NX"
    assert every_way(make, "NX") == "NX"


@given(
    text=small,
    rest=small,
    marks=splits,
    echo=st.sampled_from(["none", "whole", "tail"]),
    strip=st.booleans(),
    stop=st.lists(st.text("ha ", min_size=1, max_size=3), max_size=2),
)
def test_any_split_of_a_continuation_gives_the_same(
    text, rest, marks, echo, strip, stop
):
    sent = text.rstrip() if strip else text

    def run(pieces):
        machine = seam(text, sent=sent, echo=echo, stop=stop)
        return joined(machine, pieces), machine.stopped

    assert run(cut(rest, marks)) == run([rest]) == run(list(rest))


def test_a_rule_that_lets_go_at_the_end_feeds_those_behind_it():
    machine = seam("so E", echo="whole", stop=["Eso"])
    assert machine.feed("so") == ""
    assert machine.flush() == ""
    assert machine.stopped


def test_a_model_that_begins_with_the_last_letter_repeats_nothing():
    continuation = Continuation(call=Call(url=""), sent="bo", echo="tail", least=3)
    seam = Seam(continuation, "bo", ())
    assert seam.feed("ok then") == "ok then"
