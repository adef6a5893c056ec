"""What a stream measures of itself."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream._metrics import Latency, Metrics

seconds = st.floats(1e-5, 1e4)


def test_nothing_measured_is_none():
    empty = Latency()
    assert (empty.count, empty.total, empty.max, empty.mean) == (0, 0.0, None, None)
    assert (empty.p50, empty.p95, empty.p99) == (None, None, None)
    assert repr(empty) == "<Latency empty>"


@given(st.lists(seconds, min_size=1, max_size=50), st.floats(0, 1))
def test_quantiles_are_within_two_per_cent(values, share):
    latency = Latency()
    for value in values:
        latency.add(value)
    rank = max(math.ceil(share * len(values)), 1)
    exact = sorted(values)[rank - 1]
    near = {sorted(values)[min(rank, len(values) - 1)], exact}  # at a rounded border
    assert any(
        found == pytest.approx(latency.quantile(share), rel=0.021) for found in near
    )
    assert latency.max == max(values)
    assert latency.quantile(1) <= latency.max
    assert latency.mean == pytest.approx(sum(values) / len(values))


@given(st.lists(st.tuples(seconds, st.integers(1, 5)), min_size=1, max_size=10))
def test_times_counts_like_so_many_calls(pairs):
    once, many = Latency(), Latency()
    for value, times in pairs:
        once.add(value, times)
        for _ in range(times):
            many.add(value)
    assert once.count == many.count
    assert once.total == pytest.approx(many.total)
    assert (once.p50, once.p95, once.p99) == (many.p50, many.p95, many.p99)


def test_no_time_at_all_is_an_interval_too():
    latency = Latency()
    latency.add(0.0)
    assert (latency.p50, latency.max) == (0.0, 0.0)


def test_the_repr_is_in_milliseconds():
    latency = Latency()
    latency.add(0.1)
    assert repr(latency).endswith("max=100.0 ms>")
    assert repr(latency).startswith("<Latency p50=")


def test_memory_does_not_grow_with_the_answer():
    latency = Latency()
    for at in range(20_000):
        latency.add(0.01 + (at % 7) / 1000)
    assert len(latency._buckets) <= 7


def test_a_stream_without_drops():
    metrics = Metrics()
    metrics.connect(10.0)
    assert metrics.ttft is None
    metrics.read(12.0, 1, 4, 1)
    metrics.read(12.5, 2, 8, 5)
    metrics.read(13.0, 0, 0, 0)
    assert (metrics.ttft, metrics.duration) == (2.0, 3.0)
    assert (metrics.chunks, metrics.characters, metrics.connects) == (3, 12, 1)
    assert (metrics.icl.count, metrics.icl.max) == (1, 0.5)
    assert (metrics.itl.count, metrics.itl.max) == (5, pytest.approx(0.1))
    assert metrics.tokens_per_second is None
    metrics.tokens = 6
    assert metrics.tokens_per_second == 5.0


def test_a_drop_is_a_gap_and_no_latency():
    metrics = Metrics()
    metrics.connect(0.0)
    metrics.read(1.0, 1, 1, 1)
    metrics.drop()
    metrics.connect(5.0)
    metrics.resumed(7.0)
    metrics.read(9.0, 1, 1, 1)
    assert metrics.icl.count == 0
    assert (metrics.gap, metrics.resumes, metrics.connects) == (7.0, 1, 2)
    assert metrics.ttft == 1.0


def test_text_without_tokens_counts_for_chunks_only():
    metrics = Metrics()
    metrics.connect(0.0)
    metrics.read(1.0, 1, 1, 0)
    metrics.read(2.0, 1, 1, 0)
    assert (metrics.icl.count, metrics.itl.count) == (1, 0)


def test_speed_needs_a_second_moment():
    metrics = Metrics()
    metrics.read(5.0, 0, 0, 0)
    assert metrics.duration == 0.0
    metrics.read(5.0, 1, 1, 1)
    assert metrics.ttft == 0.0
    metrics.tokens = 1
    assert metrics.tokens_per_second is None
    metrics.connect(5.0)
    metrics.read(6.0, 0, 0, 0)
    assert metrics.tokens_per_second == 0.0
    assert repr(metrics).startswith("<Metrics ttft=0.0 ms duration=1.000 s tokens=1 ")
    assert repr(Metrics()).startswith("<Metrics duration=0.000 s tokens=None ")


def test_a_count_beyond_all_numbers_is_measured_too():
    metrics = Metrics()
    metrics.connect(0.0)
    metrics.read(1.0, 1, 1, 10**400)
    metrics.read(2.0, 1, 1, 10**400)
    metrics.tokens = 10**400
    assert metrics.tokens_per_second == pytest.approx(2**53)
    assert metrics.itl.count == 2**53
    assert metrics.itl.p50 == pytest.approx(0, abs=1e-5)
