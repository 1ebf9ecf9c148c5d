from __future__ import annotations

from tests.channel_nets import event

from accord.core.channels.streams.messages import NOTHING, StreamHeader, StreamId
from accord.core.channels.streams.source_stream import WINDOW
from accord.core.channels.streams.stream_sender import IDLE_US, MAX_BYTES, StreamSender, fitting
from accord.core.overlay.signalling import TransitEvent

KEY = StreamId("a", 1, 1)
PATIENCE_US = 1_000


def a_sender(*members: str) -> StreamSender:
    sender = StreamSender("chat", KEY, 0)
    sender.set_members(members, 0)
    return sender


def send(sender: StreamSender, count: int, now_us: int = 0) -> list[int]:
    for number in range(count):
        sender.put(event(str(number)), StreamHeader(NOTHING), now_us)
    numbers = sender.take(now_us)
    sender.check_invariants()
    return numbers


def acknowledge(sender: StreamSender, now_us: int = 0, **through: int) -> list[TransitEvent]:
    sender.stream.merge_acks(through, through)
    missed = sender.advance(now_us)
    sender.check_invariants()
    return missed


def test_it_moves_on_with_the_slowest_member() -> None:
    sender = a_sender("b", "c")
    assert send(sender, 3) == [1, 2, 3]
    acknowledge(sender, b=3)
    assert sender.stream.window_base == 1
    acknowledge(sender, c=2)
    assert sender.stream.window_base == 3
    acknowledge(sender, c=3)
    assert sender.is_confirmed()


def test_a_member_that_does_not_advance_is_given_up_and_comes_back() -> None:
    sender = a_sender("b", "c")
    send(sender, 3)
    acknowledge(sender, 500, b=3, c=1)
    assert sender.slow_members(PATIENCE_US, {}, 500 + PATIENCE_US - 1) == []
    assert sender.slow_members(PATIENCE_US, {}, 500 + PATIENCE_US) == ["c"]
    missed = sender.drop("c", 2_000)
    assert [each.payload for each in missed] == [b"1", b"2"]
    assert sender.stream.window_base == 4
    assert sender.slow_members(PATIENCE_US, {}, 9_000) == []
    send(sender, 1, 9_000)
    assert [each.payload for each in acknowledge(sender, 9_000, b=4)] == [
        b"0"
    ]  # which it lacks too
    assert sender.is_confirmed()
    assert sender.has_unacked()
    acknowledge(sender, 9_100, c=4)  # it has heard where the stream is now
    assert not sender.has_unacked()
    send(sender, 1, 9_200)
    assert acknowledge(sender, 9_300, b=5) == []
    assert not sender.is_confirmed()


def test_who_goes_on_is_waited_for_although_the_stream_goes_on_too() -> None:
    sender = a_sender("b")
    send(sender, 3)
    sender.drop("b", 2_000)
    send(sender, 2, 3_000)
    sender.advance(3_000)
    assert sender.stream.window_base == 6
    acknowledge(sender, 3_100, b=4)  # what it said before it could know of the rest
    send(sender, 1, 3_200)
    acknowledge(sender, 3_300, b=5)
    assert not sender.is_confirmed()


def test_who_was_away_for_long_is_not_waited_for_again() -> None:
    sender = a_sender("b", "c")
    send(sender, 1, 5_000)
    assert sender.slow_members(PATIENCE_US, {"c": 5_001 - PATIENCE_US}, 5_000) == []
    assert sender.slow_members(PATIENCE_US, {"c": 5_000 - PATIENCE_US}, 5_000) == ["c"]


def test_who_has_everything_is_no_laggard() -> None:
    sender = a_sender("b")
    send(sender, 1)
    acknowledge(sender, b=1)
    assert sender.slow_members(PATIENCE_US, {}, 99_000) == []
    send(sender, 1, 99_000)
    assert sender.slow_members(PATIENCE_US, {}, 99_000 + PATIENCE_US - 1) == []


def test_who_leaves_is_not_waited_for_and_who_comes_is() -> None:
    sender = a_sender("b", "c")
    send(sender, 2)
    acknowledge(sender, b=2)
    sender.set_members(("b",), 0)
    assert sender.is_confirmed()
    sender.set_members(("b", "d"), 0)
    assert sender.is_confirmed()
    send(sender, 1)
    acknowledge(sender, b=3)
    assert not sender.is_confirmed()


def test_without_members_nothing_is_kept() -> None:
    sender = a_sender()
    send(sender, 3)
    sender.advance(0)
    assert sender.is_confirmed()
    assert not sender.is_idle(IDLE_US - 1)
    assert sender.is_idle(IDLE_US)


def fill(sender: StreamSender) -> None:
    """By publishers that go on although there is no room."""
    taken = 0
    while sender.put(event("more"), StreamHeader(NOTHING), 0):
        taken += 1
    assert taken > WINDOW
    sender.check_invariants()


def test_a_full_backlog_takes_no_more_and_gives_nobody_up() -> None:
    sender = a_sender("b", "c")
    send(sender, WINDOW)
    acknowledge(sender, b=WINDOW)
    send(sender, WINDOW)
    assert not sender.has_room()
    fill(sender)
    assert not any(each.is_dropped for each in sender.members.values())
    acknowledge(sender, c=WINDOW)
    sender.take(0)
    assert sender.put(event("more"), StreamHeader(NOTHING), 0)


def test_how_many_fit_by_number_and_by_size() -> None:
    sender = a_sender("b")
    small, large = event("x"), event("x" * (MAX_BYTES // 2))
    assert sender.fitting([small] * (WINDOW + 5)) == fitting([small] * (WINDOW + 5)) == WINDOW
    assert sender.fitting([large] * 9) == 2
    send(sender, WINDOW - 3)
    assert sender.fitting([small] * 9) == 3
    acknowledge(sender, b=WINDOW - 3)
    assert sender.fitting([small] * 9) == 9


def test_what_has_a_place_waits_for_its_own_node_too() -> None:
    sender = a_sender("b")
    stamp = (1, "q", 1, 7)
    sender.put(event("x"), StreamHeader(NOTHING, 0, stamp), 0)
    sender.take(0)
    acknowledge(sender, b=1)
    assert not sender.is_confirmed()
    del sender.stream.undelivered[stamp]
    sender.advance(0)
    assert sender.is_confirmed()
    sender.check_invariants()
