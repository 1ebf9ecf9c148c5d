from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.scheduling.lanes import Bin, Lane
from accord.core.scheduling.queue_entries import QueueEntry, due_ms


def parcels(count: int) -> list[QueueEntry]:
    return [QueueEntry(1, 1, 3, queued_ms=number, number=number) for number in range(count)]


def lane_of(items: list[QueueEntry]) -> Lane:
    lane = Lane()
    lane.items += items
    return lane


def test_what_was_taken_is_let_go_of() -> None:
    lane = lane_of(parcels(1_000))
    for _ in range(600):
        lane.pop_first()
    assert len(lane.items) < 600
    lane.move(1_000, 1_000, [])
    assert (lane.items, lane.head) == ([], 0)


def test_what_is_void_is_let_go_of() -> None:
    items = parcels(1_000)
    lane = lane_of(items)
    for each in items[1:-1]:
        lane.remove(each)
        lane.check_invariants(by_due=False)
    assert lane.waiting() == [items[0], items[-1]]
    assert len(lane.items) < 200
    lane.remove(items[-1])
    assert lane.waiting() == [items[0]]
    lane.remove(items[0])
    assert lane.is_empty()
    assert not lane.void


@given(expiries=st.lists(st.integers(0, 6)), gone=st.lists(st.integers(0, 60)))
def test_inserting_is_sorting(expiries: list[int], gone: list[int]) -> None:
    lane = Lane()
    items = [
        QueueEntry(1, 1, 3, number, expires_ms, number)
        for number, expires_ms in enumerate(expiries)
    ]
    left = list(items)
    for number, each in enumerate(items):
        lane.insert(each)
        if number in gone:
            lane.remove(each)
            left.remove(each)
        lane.check_invariants(by_due=True)
    assert lane.waiting() == sorted(left, key=due_ms)
    lane.sort(by_due=False)
    assert lane.waiting() == left
    lane.sort(by_due=True)
    assert lane.waiting() == sorted(left, key=due_ms)


@given(data=st.data(), expiries=st.lists(st.integers(0, 6), min_size=1))
def test_a_new_due_time_is_a_new_place(data: st.DataObject, expiries: list[int]) -> None:
    lane = Lane()
    items = [QueueEntry(1, 1, 3, 0, expires_ms) for expires_ms in expiries]
    for each in items:
        lane.insert(each)
    for void in data.draw(st.lists(st.sampled_from(items), unique=True, max_size=3)):
        lane.remove(void)
        items.remove(void)
    if items:
        moved = data.draw(st.sampled_from(items))
        was_due_ms = due_ms(moved)
        moved.expires_ms = data.draw(st.integers(0, 6))
        lane.relocate(moved, was_due_ms)
    lane.check_invariants(by_due=True)
    assert set(lane.waiting()) == set(items)


def test_a_closed_window_leaves_one_lane_open() -> None:
    each = Bin(7)
    assert each.open_lane(1, by_due=False) is None
    each.tracked.items.append(QueueEntry(1, 1, 3, 5, 90))
    assert each.open_lane(0, by_due=False) is None
    assert each.open_lane(1, by_due=False) is each.tracked
    each.untracked.items.append(QueueEntry(1, 1, 3, 6, 80))
    assert each.open_lane(0, by_due=False) is each.untracked
    assert each.open_lane(1, by_due=False) is each.tracked, "the older"
    assert each.open_lane(1, by_due=True) is each.untracked, "the sooner due"
