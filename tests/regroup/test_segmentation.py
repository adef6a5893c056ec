"""Edges of clusters, held against ``\\X`` on the whole text."""

import itertools

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from midstream._regroup.segmentation import (
    CLUSTER_LIMIT,
    clusters,
    edge_from,
    edge_until,
    is_edge,
    tail,
)

TEXTS = st.text(
    st.sampled_from(
        "ab \r\n\x7fé東か\u3099กำ각\u1100\u1161\u11a8क\u094dष"
        "\u200d👩👧🏽🇯🇵\ufe0f\u0301\u0600\u0d4e\u200b"
    ),
    max_size=20,
)


def _edges(text):
    return [0, *itertools.accumulate(map(len, regex.findall(r"\X", text)))]


@given(TEXTS)
def test_edges_are_those_of_the_whole_text(text):
    edges = _edges(text)
    for at in range(1, len(text)):
        assert is_edge(text, at) == (at in edges)
        assert edge_until(text, at) == max(edge for edge in edges if edge <= at)
        assert edge_from(text, at) == min(edge for edge in edges if edge >= at)


@given(TEXTS)
def test_clusters_are_those_of_regex(text):
    assert clusters(text) == regex.findall(r"\X", text)


@given(TEXTS, TEXTS)
def test_nothing_that_follows_moves_an_edge_before_the_tail(text, more):
    cut = tail(text)
    assert cut in _edges(text)
    assert cut in _edges(text + more)
    assert len(regex.findall(r"\X", text[cut:])) <= 1


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("", 0),
        ("a", 0),
        ("ab", 1),
        ("a\n", 2),
        ("a\r", 1),
        ("a\r\n", 3),
        ("\r", 0),
        ("a\x7f", 2),
        ("a\u200b", 2),
        ("éa", 1),
        ("\u0600a", 0),
        ("東京", 1),
        ("👩\u200d👩", 0),
        ("a🇯🇵🇺", 3),
    ],
)
def test_tail(text, start):
    assert tail(text) == start


def test_edges_at_the_ends():
    assert edge_until("ab", 0) == 0
    assert edge_from("ab", 2) == 2
    assert edge_from("ab", 9) == 2


@pytest.mark.parametrize("unit", ["\u0301", "👩\u200d", "\u1100", "\u0600"])
def test_an_endless_cluster_is_cut_at_the_limit(unit):
    text = unit * (3 * CLUSTER_LIMIT // len(unit))
    assert [len(part) for part in clusters(text)] == [CLUSTER_LIMIT] * 3
    assert tail(text[:-1]) == 2 * CLUSTER_LIMIT


def test_a_run_of_flags_is_cut_in_pairs():
    assert clusters("🇯" * 601) == ["🇯🇯"] * 300 + ["🇯"]
