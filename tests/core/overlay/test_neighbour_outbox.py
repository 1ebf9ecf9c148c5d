from __future__ import annotations

import msgspec

from accord.core.overlay.neighbour_outbox import NeighbourOutbox
from accord.core.overlay.signalling import TransitEvent

MS = 1_000
S = 1_000_000
EVENT = TransitEvent("seattle", 1, 1, (7,), "uav/imagery", b"pixels")


def waited(transit: NeighbourOutbox, times: int, wait_us: int, now_us: int) -> int:
    for _ in range(times):
        transit.put(EVENT, 0, now_us)
        now_us += wait_us
        assert len(transit.take(1_000, now_us)) == 1
    return now_us


def test_how_long_events_wait_is_learnt() -> None:
    transit = NeighbourOutbox(1 << 20)
    assert transit.queueing_delay_us(0) == 0
    now_us = waited(transit, 100, 2 * MS, 0)
    assert 1_500 < transit.queueing_delay_us(now_us) <= 2 * MS


def test_what_was_slow_once_is_tried_again() -> None:
    """Else a link that looks slow would never be used again, and never look otherwise."""
    transit = NeighbourOutbox(1 << 20)
    now_us = waited(transit, 5, S, 0)
    usual_us = transit.queueing_delay_us(now_us)
    assert usual_us > 100 * MS
    assert transit.queueing_delay_us(now_us + S) == usual_us // 2
    assert transit.queueing_delay_us(now_us + 20 * S) == 0


def test_waiting_for_a_link_that_is_not_there_tells_nothing_of_it() -> None:
    transit = NeighbourOutbox(1 << 20)
    now_us = waited(transit, 5, S, 0)
    transit.reset_delay()
    assert transit.queueing_delay_us(now_us) == 0


def passed(number: int) -> TransitEvent:
    return TransitEvent("a", 1, number, (), "chat", bytes(1_000), template="reliable")


def waiting(transit: NeighbourOutbox) -> list[int]:
    return [number for number in range(10) if transit.is_waiting(("reliable", "chat", "a", number))]


def test_a_template_can_know_what_waits() -> None:
    transit = NeighbourOutbox(1 << 20)
    for number in (1, 2, 3):
        transit.put(passed(number), 0, 0, is_droppable=number == 3)
    assert waiting(transit) == [1, 2, 3]
    assert [each.number for each in transit.take(100, 0)] == [1]
    assert waiting(transit) == [2, 3]
    assert transit.take_droppable(100, 500, 0) == []
    assert waiting(transit) == [2, 3], "it is too large for a datagram, and waits all the same"
    transit.take(10_000, 0)
    assert waiting(transit) == []
    transit.check_invariants()


def test_what_was_dropped_does_not_wait() -> None:
    transit = NeighbourOutbox(2_500)
    for number in range(1, 9):
        transit.put(passed(number), 0, 0)
    dropped = [each.number for each, _ in transit.dropped]
    assert dropped
    assert waiting(transit) == [number for number in range(1, 9) if number not in dropped]
    transit.clear()
    assert waiting(transit) == []
    transit.put(msgspec.structs.replace(passed(9), deadline_us=1), 0, 0)
    assert waiting(transit) == [9]
    assert transit.take(100, 5) == []
    assert waiting(transit) == []
    transit.check_invariants()
