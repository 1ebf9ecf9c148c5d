from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.tiers.priority_lanes import PriorityLanes


def taken(lanes: PriorityLanes) -> list[int]:
    found = []
    while len(lanes):
        lanes.check_invariants()
        found.append(lanes.take())
    lanes.check_invariants()
    return found


def put(
    lanes: PriorityLanes, place: int, channel: str, importance: int, *, is_in_order: bool
) -> None:
    lanes.put(place, channel, importance, is_in_order=is_in_order, is_droppable=True)


def test_the_more_important_goes_first() -> None:
    lanes = PriorityLanes()
    for place, importance in enumerate((0, 3, 7, 3)):
        put(lanes, place, "c", importance, is_in_order=False)
    assert taken(lanes) == [2, 1, 3, 0]


def test_what_is_in_order_stays_so_and_follows_its_most_important() -> None:
    lanes = PriorityLanes()
    put(lanes, 1, "other", 3, is_in_order=True)
    for place, importance in ((2, 0), (3, 7), (4, 0)):
        put(lanes, place, "chat", importance, is_in_order=True)
    assert taken(lanes) == [2, 3, 1, 4]


def test_channels_of_one_lane_take_turns() -> None:
    lanes = PriorityLanes()
    for place in range(4):
        put(lanes, place, "much", 3, is_in_order=True)
    put(lanes, 4, "little", 3, is_in_order=True)
    assert taken(lanes) == [0, 4, 1, 2, 3]


def test_the_oldest_of_the_least_important_is_shed() -> None:
    lanes = PriorityLanes()
    lanes.put(1, "kept", 0, is_in_order=True, is_droppable=False)
    for place, importance in ((2, 5), (3, 1), (4, 1)):
        put(lanes, place, "c", importance, is_in_order=False)
    assert lanes.least() == 3
    assert lanes.least(below=1) is None
    lanes.remove(3)
    lanes.remove(4)
    assert lanes.least() == 2
    lanes.remove(2)
    assert lanes.least() is None
    assert (lanes.oldest("kept"), lanes.oldest("c")) == (1, None)


def test_whatever_importance_others_say_it_has_a_lane() -> None:
    lanes = PriorityLanes()
    put(lanes, 1, "c", -5, is_in_order=False)
    put(lanes, 2, "c", 99, is_in_order=False)
    assert taken(lanes) == [2, 1]


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 7), st.booleans(), st.booleans()),
        max_size=40,
    ),
    st.lists(st.integers(0, 39), max_size=10),
)
def test_everything_comes_once_and_lines_in_their_order(
    events: list[tuple[str, int, bool, bool]], removed: list[int]
) -> None:
    lanes = PriorityLanes()
    for place, (channel, importance, is_in_order, is_loose) in enumerate(events):
        lanes.put(place, channel, importance, is_in_order=is_in_order, is_droppable=is_loose)
    for place in removed:
        lanes.remove(place)
    found = taken(lanes)
    assert sorted(found) == [each for each in range(len(events)) if each not in removed]
    for channel in "ab":
        line = [each for each in found if events[each][0] == channel and events[each][2]]
        assert line == sorted(line)
