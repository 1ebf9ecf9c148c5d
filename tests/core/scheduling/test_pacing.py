from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.scheduling.pacing import Pacer

S = 1_000_000
CREDIT_US = 10_000


def test_a_limit_is_met_exactly_over_time() -> None:
    pacer = Pacer(300_000)
    now_us, sent = 5 * S, 0
    while now_us < 15 * S:
        assert pacer.room(now_us) > 0
        pacer.sent(10_000, now_us)
        sent += 10_000
        assert pacer.room(pacer.free_us - 1) == 0
        now_us = pacer.free_us
    assert abs(sent * 8 - 10 * 300_000) <= 10_000 * 8


def test_idling_earns_a_few_milliseconds_only() -> None:
    pacer = Pacer(8_000_000)
    pacer.sent(1_000, 0)
    pacer.sent(1_000, 60 * S)
    assert pacer.free_us == 60 * S - CREDIT_US + 1_000


def test_a_late_timer_costs_nothing() -> None:
    pacer = Pacer(8_000_000)
    pacer.sent(50_000, 0)
    due_us = pacer.free_us
    pacer.sent(50_000, due_us + 3_000)
    assert pacer.free_us == due_us + 50_000


def test_answers_that_go_at_once_are_made_up_for() -> None:
    pacer = Pacer(8_000)
    pacer.sent(1_000, S)
    free_us = pacer.free_us
    pacer.sent(100, S)
    assert pacer.free_us == free_us + 100_000


def test_answers_hold_up_events_for_a_moment_only_and_excuse_none() -> None:
    pacer = Pacer(8_000)
    pacer.answered(50, S)
    assert pacer.free_us == S - CREDIT_US + 50_000
    pacer.answered(60_000, S)
    assert pacer.free_us == S + 100_000
    pacer.sent(10_000, S + 100_000)
    free_us = pacer.free_us
    assert free_us == 11 * S + 100_000
    pacer.answered(2, 2 * S)
    assert pacer.free_us == free_us


def test_small_events_share_a_segment_where_nobody_waits_long_for_that() -> None:
    assert Pacer(300_000).portion == 1_460
    assert Pacer(8_000).portion == 50
    assert Pacer(1).portion == 1
    assert Pacer(800_000_000).portion == 1_000_000


def test_a_new_limit_holds_at_once() -> None:
    pacer = Pacer(8_000)
    pacer.sent(60_000, S)
    assert pacer.free_us > 60 * S
    pacer.set_limit(800_000, 11 * S)
    assert pacer.free_us == 11 * S + (50 * S - CREDIT_US) // 100
    free_us = pacer.free_us
    pacer.sent(1_000, free_us)
    assert pacer.free_us == free_us + S // 100


@given(
    limit_bps=st.integers(1_000, 100_000_000),
    steps=st.lists(st.tuples(st.integers(0, 3 * S), st.integers(500, 70_000)), max_size=40),
)
def test_no_window_gets_more_than_the_limit_a_portion_and_one_event(
    limit_bps: int, steps: list[tuple[int, int]]
) -> None:
    pacer = Pacer(limit_bps)
    now_us = 0
    sent: list[tuple[int, int]] = []
    for pause_us, size in steps:
        now_us = max(now_us + pause_us, pacer.free_us if pause_us % 2 else 0)
        room = pacer.room(now_us)
        while room > 0:
            sent.append((now_us, size))
            pacer.sent(size, now_us)
            room -= size
    # What was sent beyond the limit since the best moment to begin counting at.
    largest = max((size for _, size in sent), default=0)
    allowed = limit_bps * CREDIT_US / 8_000_000 + pacer.portion + largest
    beyond, before_us = 0.0, 0
    for at_us, size in sent:
        beyond = max(beyond - limit_bps * (at_us - before_us) / 8_000_000, 0) + size
        before_us = at_us
        assert beyond <= allowed + 1


@given(
    limit_bps=st.integers(10_000, 100_000_000),
    sizes=st.lists(st.integers(1, 70_000), min_size=1, max_size=50),
)
def test_as_long_as_there_is_something_to_send_nothing_is_wasted(
    limit_bps: int, sizes: list[int]
) -> None:
    pacer = Pacer(limit_bps)
    pacer.sent(1, S)
    start_us = pacer.free_us
    for size in sizes:
        pacer.sent(size, pacer.free_us)
    assert abs((pacer.free_us - start_us) - sum(sizes) * 8 * S / limit_bps) <= 1


def test_answers_take_from_events_for_a_moment_only() -> None:
    pacer = Pacer(8_000)
    pacer.answered(1_000_000, 0)
    assert pacer.free_us == 100_000
