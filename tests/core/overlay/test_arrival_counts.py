from __future__ import annotations

from accord.core.overlay.arrival_counts import (
    IDLE_US,
    MAX_DEFINITIONS,
    MAX_ENTRIES,
    MAX_NAME_LENGTH,
    ArrivalCounts,
    ArrivalRecord,
)


def come(arrivals: ArrivalCounts, channel: str, *, is_late: bool = False, now_us: int = 0) -> None:
    arrivals.count("a", channel, channel, is_late=is_late, now_us=now_us)
    arrivals.check_invariants()


def test_only_what_is_new_is_told() -> None:
    arrivals = ArrivalCounts()
    assert arrivals.changed_records(0) == []
    come(arrivals, "uav")
    come(arrivals, "uav", is_late=True)
    come(arrivals, "chat")
    assert arrivals.has_changes
    uav, chat = ArrivalRecord("a", "uav", 2, 1), ArrivalRecord("a", "chat", 1, 0)
    assert arrivals.changed_records(0) == [("0", uav), ("1", chat)]
    assert arrivals.changed_records(0) == []
    come(arrivals, "chat")
    assert arrivals.changed_records(0) == [("1", ArrivalRecord("a", "chat", 2, 0))]


def test_what_is_idle_makes_room() -> None:
    arrivals = ArrivalCounts()
    come(arrivals, "uav", now_us=1)
    come(arrivals, "chat", now_us=2)
    arrivals.changed_records(2)
    assert arrivals.changed_records(IDLE_US + 1) == [("0", None)]
    arrivals.check_invariants()
    come(arrivals, "log", now_us=IDLE_US + 1)
    assert arrivals.changed_records(IDLE_US + 1) == [("0", ArrivalRecord("a", "log", 1, 0))]


def test_what_there_is_no_room_for_counts_together() -> None:
    arrivals = ArrivalCounts()
    for number in range(MAX_ENTRIES + 10):
        come(arrivals, f"uav/{number}")
    come(arrivals, "x" * (MAX_NAME_LENGTH + 1), is_late=True)
    come(arrivals, "uav/0")
    told = [value for _, value in arrivals.changed_records(0) if value is not None]
    assert len(told) == MAX_ENTRIES + 1
    assert told[0] == ArrivalRecord("a", "uav/0", 2, 0)
    assert told[-1] == ArrivalRecord("", "", 11, 1)


def test_definitions_are_counted_for_good() -> None:
    arrivals = ArrivalCounts()
    for number in range(MAX_DEFINITIONS + 5):
        come(arrivals, f"uav/{number}", is_late=number % 2 == 0)
    arrivals.changed_records(IDLE_US)
    assert arrivals.by_channel == {}
    counts = [each.delivered for each in arrivals.by_definition.values()]
    assert counts == [1] * MAX_DEFINITIONS + [5]
    assert arrivals.by_definition[""].late == 3
