from __future__ import annotations

from tests.channel_nets import event

from accord.core.channels.ordering.messages import PositionGrant, PositionRange
from accord.core.channels.ordering.source_queue import SourceQueue
from accord.core.channels.streams.stream_sender import MAX_BYTES
from accord.core.model.units import NEVER_US

EPOCH = (2, "q", 1)


def test_events_wait_for_their_places() -> None:
    desk = SourceQueue(1, 0)
    for text in "xyz":
        desk.put(event(text), 5)
    ask = desk.next_request(9, 5)
    assert ask is not None
    assert (ask.request, ask.count) == (1, 3)
    assert desk.next_request(0, 900_000) == ask
    desk.put(event("later"), 900_000)
    granted = desk.on_grant(PositionGrant(1, PositionRange(EPOCH, 4, 6, "a", 1)), 900_000)
    assert [each.payload for each, _ in granted] == [b"x", b"y", b"z"]
    assert desk.request_us == 900_000
    again = desk.next_request(9, 900_000)
    assert again is not None
    assert again.request == 2
    assert desk.latest == EPOCH
    desk.check_invariants()


def test_an_answer_counts_once() -> None:
    desk = SourceQueue(1, 0)
    desk.put(event("x"), 0)
    desk.next_request(9, 0)
    grant = PositionGrant(1, PositionRange(EPOCH, 1, 1, "a", 1))
    assert len(desk.on_grant(grant, 0)) == 1
    desk.put(event("y"), 0)
    assert desk.on_grant(grant, 0) == []
    desk.next_request(9, 0)
    assert desk.on_grant(grant, 0) == []
    desk.check_invariants()


def test_places_of_an_epoch_that_is_over_are_not_taken() -> None:
    desk = SourceQueue(1, 0)
    desk.put(event("x"), 0)
    desk.next_request(9, 0)
    desk.on_epoch((3, "r", 1), 0)
    assert desk.on_grant(PositionGrant(1, PositionRange(EPOCH, 1, 1, "a", 1)), 7) == []
    assert desk.request_us == 7
    again = desk.next_request(9, 7)
    assert again is not None
    assert again.request == 2
    assert again.latest == (3, "r", 1)
    assert len(desk.on_grant(PositionGrant(2, PositionRange((4, "q", 1), 1, 1, "a", 1)), 8)) == 1
    assert desk.request_us == NEVER_US


def test_publishers_are_held_back_by_the_size_of_what_waits() -> None:
    desk = SourceQueue(1, 0)
    large = event("x" * (MAX_BYTES // 4))
    for _ in range(4):
        assert desk.has_room()
        assert desk.put(large, 0)
    assert not desk.has_room()
    taken = 4
    while desk.put(large, 0):  # from those that could not be held back in time
        taken += 1
    assert taken == 8 * 4
    desk.check_invariants()
    desk.next_request(31, 0)
    assert len(desk.on_grant(PositionGrant(1, PositionRange(EPOCH, 1, 31, "a", 1)), 0)) == 31
    assert desk.has_room()
    desk.check_invariants()


def test_no_more_places_are_asked_for_than_there_is_room_to_send() -> None:
    desk = SourceQueue(1, 0)
    for text in "xyz":
        desk.put(event(text), 0)
    assert desk.next_request(0, 0) is None
    assert desk.request_us == NEVER_US
    desk.check_invariants()
    desk.resume(5)
    assert desk.request_us == 5
    ask = desk.next_request(2, 5)
    assert ask is not None
    assert ask.count == 2


def test_which_places_may_be_on_their_way() -> None:
    desk = SourceQueue(1, 0)
    held = PositionRange(EPOCH, 4, 9, "a", 1)
    assert desk.next_index(held) is None  # nothing was asked for
    desk.put(event("x"), 0)
    desk.next_request(1, 0)
    assert desk.next_index(held) == 4
    desk.on_grant(PositionGrant(1, PositionRange(EPOCH, 6, 6, "a", 1)), 0)
    desk.put(event("y"), 0)
    desk.next_request(1, 0)
    assert desk.next_index(held) == 7
    assert desk.next_index(PositionRange(EPOCH, 4, 6, "a", 1)) is None
    desk.on_epoch((3, "r", 1), 0)
    assert desk.next_index(held) is None


def test_one_that_was_forgotten_is_not_answered_as_before() -> None:
    before, after = SourceQueue(1, 0), SourceQueue(1, 9_000_000)
    for desk in (before, after):
        desk.put(event("x"), 9_000_000)
    first, second = before.next_request(1, 0), after.next_request(1, 9_000_000)
    assert first is not None
    assert second is not None
    assert second.request > first.request
