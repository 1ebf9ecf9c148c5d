from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.scheduling.shaping_decision import (
    MIN_BYTES,
    ShapingTarget,
    bytes_in_time,
    choose_shape,
    step_below,
)

SIZES = st.integers(0, 20_000_000)
RATES = st.integers(0, 10**9)


def test_what_fits_its_preference_and_its_link_is_sent_as_it_is() -> None:
    assert choose_shape("scaling", 60_000, 0, 60_000, 5_000, 800_000, 0) is None
    assert choose_shape("scaling", 0, 0, 60_000, 5_000, 800_000, 0) is None


def test_without_shaping_no_target_counts() -> None:
    for shaping in ("", "none"):
        assert choose_shape(shaping, 10, 10, 60_000, 5_000, 1_000, 0) is None


def test_preferences_name_targets() -> None:
    assert choose_shape("scaling", 20_000, 0, 60_000, 0, 0, 0) == ShapingTarget("scaling", 20_000)
    assert choose_shape("scaling", 0, 90_000, 60_000, 0, 0, 0) == ShapingTarget(
        "scaling", 0, 90_000
    )


def test_a_known_number_of_pixels_that_fits_asks_for_nothing() -> None:
    assert choose_shape("scaling", 0, 90_000, 60_000, 0, 0, 0, 90_000) is None
    assert choose_shape("scaling", 0, 90_000, 60_000, 0, 0, 0, 90_001) is not None


def test_a_slow_link_decides_where_preferences_name_no_target() -> None:
    # 5 s at 64 kbit/s are 40,000 bytes, 80 % of that are counted on.
    assert choose_shape("scaling", 0, 0, 60_000, 5_000, 64_000, 0) == ShapingTarget(
        "scaling", 23_170
    )


def test_what_is_queued_ahead_takes_its_time_too() -> None:
    assert choose_shape("scaling", 0, 0, 60_000, 5_000, 64_000, 20_000) == ShapingTarget(
        "scaling", 11_585
    )


def test_the_link_can_ask_for_less_than_the_preference_but_not_for_more() -> None:
    slow = choose_shape("scaling", 30_000, 0, 60_000, 5_000, 50_000, 0)
    assert slow == ShapingTarget("scaling", 23_170)
    fast = choose_shape("scaling", 30_000, 0, 60_000, 5_000, 100_000, 0)
    assert fast == ShapingTarget("scaling", 30_000)


def test_without_deadline_or_known_rate_the_link_asks_for_nothing() -> None:
    assert choose_shape("scaling", 0, 0, 60_000, 0, 1_000, 0) is None
    assert choose_shape("scaling", 0, 0, 60_000, 5_000, 0, 0) is None


def test_nothing_is_shaped_to_a_size_of_no_use() -> None:
    # What does not fit in time is made as small as is of use: what waits ahead may be gone by then.
    shape = choose_shape("scaling", 0, 0, 80_000, 1_000, 8_000, 10_000)
    assert shape is not None
    assert 8_000 <= shape.max_bytes <= 10_000
    small = choose_shape("scaling", 0, 0, 20_000, 1_000, 8_000, 10_000)
    assert small is not None
    assert small.max_bytes == MIN_BYTES
    assert choose_shape("scaling", 0, 0, MIN_BYTES, 1_000, 8_000, 10_000) is None


def test_an_argument_is_a_wish_by_itself() -> None:
    wanted = choose_shape("trimming: platform, id", 0, 0, 100, 0, 0, 0)
    assert wanted == ShapingTarget("trimming", argument="platform, id")


def test_shapes_are_keys() -> None:
    seen = {ShapingTarget("scaling", 8_192): b"small"}
    assert seen[ShapingTarget("scaling", 8_192)] == b"small"
    for other in (
        ShapingTarget("scaling", 8_193),
        ShapingTarget("scaling", 8_192, 1),
        ShapingTarget("trimming", 8_192),
        ShapingTarget("scaling", 8_192, argument="x"),
    ):
        assert other not in seen


def test_a_shape_tells_what_it_is() -> None:
    assert ShapingTarget("scaling", 8_192, 10_000).text() == "scaling to 8192 bytes, 10000 pixels"
    assert ShapingTarget("trimming", argument="id").text() == "trimming to id"
    assert ShapingTarget("scaling").text() == "scaling"
    assert (
        repr(ShapingTarget("scaling", 1))
        == "Shape('scaling', max_bytes=1, max_pixels=0, argument='')"
    )


@given(SIZES, st.integers(1, 3_600_000), RATES, SIZES)
def test_what_a_link_asks_for_leaves_in_time(
    payload_bytes: int, deadline_ms: int, rate_bps: int, ahead_bytes: int
) -> None:
    shape = choose_shape("scaling", 0, 0, payload_bytes, deadline_ms, rate_bps, ahead_bytes)
    if shape is None:
        carried = bytes_in_time(deadline_ms, rate_bps, ahead_bytes)
        assert payload_bytes <= carried or carried < MIN_BYTES
    else:
        assert MIN_BYTES <= shape.max_bytes < payload_bytes
        is_in_time = (shape.max_bytes + ahead_bytes) * 8_000 <= rate_bps * deadline_ms
        assert is_in_time or shape.max_bytes <= max(payload_bytes // 8, MIN_BYTES)


@given(st.integers(MIN_BYTES, 256 * 1024 * 1024))
def test_steps_are_few_and_lose_little(size: int) -> None:
    step = step_below(size)
    assert size / 1.42 < step <= size
    assert step_below(step) == step


def test_there_are_few_steps() -> None:
    assert len({step_below(size) for size in range(MIN_BYTES, 16_000_000, 1_000)}) < 30
