from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.queries.histogram import MAX_BUCKETS, time_buckets

TIMES = st.integers(0, 4_000_000_000_000)


@given(TIMES, st.integers(1, 10**12), st.integers(1, MAX_BUCKETS))
def test_each_moment_is_in_one_bucket(since_ms: int, span_ms: int, most: int) -> None:
    until_ms = since_ms + span_ms
    buckets = time_buckets(since_ms, until_ms, most)
    assert 1 <= buckets.count <= most
    assert buckets.place_of(since_ms) == 0
    assert buckets.place_of(until_ms - 1) == buckets.count - 1
    assert buckets.first_ms <= since_ms
    assert buckets.first_ms % buckets.width_ms == 0


def test_widths_are_round() -> None:
    hour = 3_600_000
    start = 1_763_000_000_000 // hour * hour
    for span_ms, width_ms in (
        (60_000, 500),
        (hour, 30_000),
        (24 * hour, 15 * 60_000),
        (7 * 24 * hour, 2 * hour),
        (120, 1),
    ):
        buckets = time_buckets(start, start + span_ms, 120)
        assert buckets.width_ms == width_ms
        assert buckets.count == span_ms // width_ms


def test_nothing_has_no_bucket() -> None:
    assert time_buckets(5, 5, 10).count == 0
