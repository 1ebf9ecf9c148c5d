from __future__ import annotations

from random import Random

import pytest

from accord.core.tiers.sliding_windows import WINDOW, InboundWindow, OutboundWindow


def taken(inflow: InboundWindow[str]) -> list[str]:
    found = []
    while inflow.first() is not None:
        found.append(inflow.take())
    return found


def test_what_overtakes_waits_for_its_turn() -> None:
    inflow: InboundWindow[str] = InboundWindow()
    assert inflow.put(2, "b")
    assert taken(inflow) == []
    assert inflow.put(1, "a")
    assert taken(inflow) == ["a", "b"]
    assert not inflow.put(2, "b")
    assert inflow.through == 2


def test_what_is_missing_is_asked_for_after_a_while_and_again() -> None:
    inflow: InboundWindow[str] = InboundWindow()
    inflow.put(3, "c")
    inflow.on_last_sent(6)
    assert inflow.missing(100, now_us=1_000) == ()
    assert inflow.ask_us(100) == 1_100
    assert inflow.missing(100, now_us=1_100) == ((1, 2), (4, 6))
    assert inflow.missing(100, now_us=1_150) == ()
    assert inflow.missing(100, now_us=1_200) == ((1, 2), (4, 6))


def test_what_is_too_far_ahead_is_not_kept() -> None:
    inflow: InboundWindow[str] = InboundWindow()
    assert not inflow.put(WINDOW + 1, "far")
    inflow.on_last_sent(1 << 60)
    assert inflow.top == WINDOW
    inflow.check_invariants()


def test_what_will_never_come_is_skipped() -> None:
    inflow: InboundWindow[str] = InboundWindow()
    inflow.put(2, "b")
    inflow.put(4, "d")
    inflow.skip_to(3)
    assert taken(inflow) == ["d"]
    inflow.check_invariants()


def test_what_is_kept_goes_to_the_next_one_again() -> None:
    outflow: OutboundWindow[str] = OutboundWindow()
    for item in "abcd":
        outflow.put(item, 10)
    assert outflow.take(1_000, 0) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert outflow.take(1_000, 0) == []
    assert outflow.confirm(1)
    assert not outflow.confirm(1)
    outflow.begin_anew(2)  # who has all up to b
    assert outflow.take(1_000, 2) == [(3, "c"), (4, "d")]
    outflow.asked(((2, 3),))
    assert outflow.take(1_000, 2) == [(2, "b"), (3, "c")]
    assert outflow.confirm(9)
    assert (len(outflow), outflow.bytes) == (0, 0)


def test_no_more_than_a_window_is_on_its_way() -> None:
    outflow: OutboundWindow[int] = OutboundWindow()
    for number in range(WINDOW + 5):
        outflow.put(number, 1)
    assert len(outflow.take(1 << 30, 0)) == WINDOW
    assert not outflow.has_more(0)
    assert [number for number, _ in outflow.take(1 << 30, 3)] == [
        WINDOW + 1,
        WINDOW + 2,
        WINDOW + 3,
    ]


@pytest.mark.parametrize("seed", range(8))
def test_everything_arrives_in_order_over_a_link_that_loses_half(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    outflow: OutboundWindow[int] = OutboundWindow()
    inflow: InboundWindow[int] = InboundWindow()
    flying: list[tuple[int, int]] = []
    got: list[int] = []
    now_us = 0
    while len(got) < 200:
        now_us += 10
        if outflow.top < 200:
            outflow.put(outflow.top, 10)
        flying += [each for each in outflow.take(50, inflow.through) if random.random() < 0.5]
        random.shuffle(flying)
        while flying and random.random() < 0.7:
            inflow.put(*flying.pop())
        while inflow.first() is not None:
            got.append(inflow.take())
        if random.random() < 0.5:
            inflow.on_last_sent(outflow.sent)
            outflow.asked(inflow.missing(30, now_us))
            outflow.confirm(inflow.through)
        inflow.check_invariants()
        outflow.check_invariants()
        assert now_us < 1_000_000
    assert got == list(range(200))
