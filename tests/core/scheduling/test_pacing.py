from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.scheduling.outbox import Outbox
from accord.core.scheduling.pacing import WINDOW_S, Gate, Pacer
from accord.core.scheduling.queue_entries import QueueEntry
from accord.core.scheduling.strategies import FIFO, LAXITY, STRICT, WEIGHTED_FAIR, Discipline

S = 1_000_000
CREDIT_US = 10_000

IMAGE = 911_000
LIMIT_BPS = 300_000


class Arrival(NamedTuple):
    at_us: int
    size: int
    importance: int


class Departure(NamedTuple):
    at_us: int
    size: int
    importance: int
    waited_us: int


def send_all(
    arrivals: list[Arrival], *limits_bps: int, strategy: int = STRICT, until_us: int = 1 << 60
) -> list[Departure]:
    """What leaves an outbox behind limits, and when; the link itself carries anything."""
    discipline = Discipline(strategy)
    outbox = Outbox(
        bytes_limit=1 << 40, tracked_limit=0, tracked_bytes_limit=0, discipline=discipline
    )
    gate = Gate([Pacer(limit_bps) for limit_bps in limits_bps])
    coming = sorted(arrivals, reverse=True)
    sent: list[Departure] = []
    now_us = 0
    while coming or not outbox.is_empty():
        while coming and coming[-1].at_us <= now_us:
            at_us, size, importance = coming.pop()
            outbox.put(QueueEntry(size, 1, importance, at_us))
        gate.advance(now_us)
        taken = outbox.take_admitted(gate.portion(), 0, gate)
        outbox.check_invariants()
        if taken:
            gate.sent(sum(each.size for each in taken), now_us)
            sent += [
                Departure(now_us, each.size, each.importance, now_us - each.queued_ms)
                for each in taken
            ]
            continue
        times_us = [each.at_us for each in coming[-1:]]
        if not outbox.is_empty():
            assert gate.wait_us > 0
            times_us.append(now_us + gate.wait_us)
        now_us = min(times_us)
        if now_us > until_us:
            break
    return sent


def most_in_window(sent: list[Departure]) -> int:
    """The most bytes of any 30 s."""
    most = held = first = 0
    for each in sent:
        held += each.size
        while sent[first].at_us <= each.at_us - WINDOW_S * S:
            held -= sent[first].size
            first += 1
        most = max(most, held)
    return most


def allowed(limit_bps: int) -> float:
    """In any 30 s: what the limit carries in 30.2 s."""
    return limit_bps * 30.2 / 8


def test_a_limit_is_met_exactly_over_time() -> None:
    pacer = Pacer(300_000)
    now_us, sent = 5 * S, 0
    while now_us < 15 * S:
        pacer.advance(now_us)
        assert pacer.wait_us(7, 1_000, 0) == 0
        pacer.begin(7, 1_000)
        pacer.sent(1_000, now_us)
        sent += 1_000
        now_us += pacer.wait_us(7, 1_000, 0)
        assert now_us == pacer.free_us
    assert abs(sent * 8 - 10 * 300_000) <= 1_000 * 8


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
    pacer.sent_reply(50, S)
    assert pacer.free_us == S - CREDIT_US + 50_000
    pacer.sent_reply(60_000, S)
    assert pacer.free_us == S + 100_000
    pacer.sent(10_000, S + 100_000)
    free_us = pacer.free_us
    assert free_us == 11 * S + 100_000
    pacer.sent_reply(2, 2 * S)
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
    pacer.sent_reply(1_000_000, 0)
    assert pacer.free_us == 100_000


@pytest.mark.parametrize("strategy", [STRICT, WEIGHTED_FAIR, LAXITY])
def test_an_alarm_does_not_wait_for_what_an_image_used(strategy: int) -> None:
    alarms = [Arrival(S + second * S // 2, 41, 6) for second in range(200)]
    images = [Arrival(second * 20 * S, IMAGE, 3) for second in range(6)]
    sent = send_all(alarms + images, LIMIT_BPS, strategy=strategy)
    assert sent[0] == Departure(0, IMAGE, 3, 0), "nothing was sent before: it goes at once"
    assert max(each.waited_us for each in sent if each.importance == 6) <= S // 4
    assert most_in_window(sent) <= LIMIT_BPS * 30 / 8
    images_us = [each.at_us for each in sent if each.importance == 3]
    assert len(images_us) == 6
    assert all(30 * S <= b - a <= 32 * S for a, b in pairwise(images_us))


def test_first_come_nobody_passes() -> None:
    arrivals = [Arrival(0, IMAGE, 3), Arrival(S, IMAGE, 3), Arrival(2 * S, 41, 6)]
    sent = send_all(arrivals, LIMIT_BPS, strategy=FIFO)
    assert [each.importance for each in sent] == [3, 3, 6]
    assert most_in_window(sent) <= LIMIT_BPS * 30 / 8


def test_among_equals_what_is_light_passes_what_is_heavy() -> None:
    pacer = Pacer(LIMIT_BPS)
    pacer.advance(S)
    pacer.begin(6, IMAGE)
    pacer.sent(IMAGE, S)
    pacer.advance(2 * S)
    assert pacer.wait_us(6, 100, 0) > 20 * S
    assert pacer.wait_us(7, 100, 0) == 0


def test_what_is_borrowed_is_paced_and_leaves_room_for_what_is_higher() -> None:
    arrivals = [Arrival(0, IMAGE, 3)] + [Arrival(S, 1_000, 6) for _ in range(500)]
    sent = send_all(arrivals, LIMIT_BPS)
    borrowed = [each for each in sent if each.importance == 6 and each.at_us < 20 * S]
    assert 150_000 < sum(each.size for each in borrowed) < LIMIT_BPS * 30 / 8 - IMAGE
    assert borrowed[-1].at_us >= 6 * S
    assert most_in_window(sent) <= allowed(LIMIT_BPS)
    higher = send_all([*arrivals, Arrival(10 * S, 41, 7)], LIMIT_BPS)
    assert [each.waited_us for each in higher if each.importance == 7] == [0], "room is left"


def test_an_event_larger_than_the_window_goes_alone_and_is_made_up_for() -> None:
    huge = 4_000_000
    arrivals = [Arrival(0, 100_000, 3), Arrival(S, huge, 3), Arrival(2 * S, 1_000, 3)]
    arrivals += [Arrival(3 * S + tenth * S, 41, 6) for tenth in range(150)]
    sent = send_all(arrivals, LIMIT_BPS)
    assert max(each.waited_us for each in sent if each.importance == 6) <= S // 4
    at_us, after_us = (each.at_us for each in sent if each.size in (huge, 1_000))
    assert at_us <= 32 * S
    assert after_us - at_us >= huge * 8 * S // LIMIT_BPS
    assert most_in_window(sent) <= huge + LIMIT_BPS * 30 / 8 / 8


def test_weighted_fair_a_large_event_has_its_turn_though_others_never_end() -> None:
    flow = [Arrival(number * S // 40, 1_000, 5) for number in range(6_400)]  # 320 kbit/s
    alarms = [Arrival(number * S // 5, 41, 6) for number in range(700)]
    arrivals = [*flow, *alarms, Arrival(S, IMAGE, 3)]
    sent = send_all(arrivals, LIMIT_BPS, strategy=WEIGHTED_FAIR, until_us=160 * S)
    image = next(each for each in sent if each.size == IMAGE)
    # Four times as much of the other goes first, by weight; then it has its room after 30 s.
    assert 97 * S <= image.at_us <= 140 * S
    assert max(each.waited_us for each in sent if each.importance == 6) <= S // 4
    assert most_in_window(sent) <= allowed(LIMIT_BPS)
    strict = send_all([*flow, Arrival(S, IMAGE, 3)], LIMIT_BPS, until_us=160 * S)
    assert not any(each.size == IMAGE for each in strict)


def test_a_large_event_that_has_its_turn_does_not_use_up_what_may_pass_another() -> None:
    pacer = Pacer(LIMIT_BPS)
    pacer.advance(0)
    pacer.reserve_room(3, 300_000)
    pacer.begin(7, 800_000)
    pacer.sent(800_000, 0)
    assert pacer.lets_pass(13, 41)


def test_many_events_of_a_tenth_of_a_second_and_more_leave_little_of_a_limit_unused() -> None:
    sent = send_all([Arrival(0, 12_000, 3) for _ in range(1_000)], LIMIT_BPS, until_us=300 * S)
    used = sum(each.size for each in sent) * 8 / (300 * LIMIT_BPS)
    assert 0.95 <= used <= 1.0
    assert most_in_window(sent) <= LIMIT_BPS * 30 / 8


ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 20 * S),
        st.one_of(st.integers(1, 2_000), st.integers(1, 100_000), st.integers(1, 900_000)),
        st.integers(0, 7),
    ),
    max_size=60,
)


def spread(steps: list[tuple[int, int, int]], largest: int) -> list[Arrival]:
    at_us, found = 0, []
    for pause_us, size, importance in steps:
        at_us += pause_us if pause_us % 3 else 0
        found.append(Arrival(at_us, min(size, largest), importance))
    return found


@given(
    limit_bps=st.integers(8_000, 2_000_000),
    steps=ARRIVALS,
    strategy=st.sampled_from([STRICT, WEIGHTED_FAIR, LAXITY, FIFO]),
)
def test_a_limit_holds_over_any_30_s(
    limit_bps: int, steps: list[tuple[int, int, int]], strategy: int
) -> None:
    window = limit_bps * 30 // 8
    arrivals = spread(steps, window * 7 // 8)
    sent = send_all(arrivals, limit_bps, strategy=strategy)
    assert len(sent) == len(arrivals)
    assert most_in_window(sent) <= allowed(limit_bps)


@given(
    steps=ARRIVALS,
    limits_bps=st.lists(st.integers(100_000, 2_000_000), min_size=1, max_size=2),
    strategy=st.sampled_from([STRICT, WEIGHTED_FAIR, LAXITY]),
)
def test_higher_importance_waits_a_moment_whatever_lower_importance_used(
    steps: list[tuple[int, int, int]], limits_bps: list[int], strategy: int
) -> None:
    usual = [each._replace(importance=each.importance // 2) for each in spread(steps, 900_000)]
    end_us = max([each.at_us for each in usual], default=0) + 40 * S
    alarms = [Arrival(at_us, 41, 6) for at_us in range(0, end_us, end_us // 40)]
    sent = send_all(usual + alarms, *limits_bps, strategy=strategy)
    assert len(sent) == len(usual) + len(alarms)
    assert max(each.waited_us for each in sent if each.importance == 6) <= S // 4


@given(begun_us=st.integers(0, 1_000_000))
def test_what_fills_a_window_is_apart_also_where_it_arrives_some_milliseconds_later(
    begun_us: int,
) -> None:
    pacer, now_us, size = Pacer(300_000), begun_us, 911_000
    pacer.advance(now_us)
    assert pacer.wait_us(6, size, 0) == 0
    pacer.begin(6, size)
    pacer.sent(size, now_us)
    while wait_us := pacer.wait_us(6, size, 0):
        now_us += wait_us
        pacer.advance(now_us)
    assert WINDOW_S * 1_000_000 + 100_000 < now_us - begun_us < (WINDOW_S + 1) * 1_000_000
