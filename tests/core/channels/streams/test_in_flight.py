from __future__ import annotations

from accord.core.channels.streams.stream_tables import InFlightBudget


def test_a_channel_says_what_it_has() -> None:
    load = InFlightBudget(1_000, 10_000)
    load.set_usage("a", 400, 100)
    load.set_usage("b", 10, 5)
    assert load.total == (410, 105)
    assert load.has_room("a")
    load.set_usage("a", 600, 100)
    assert not load.has_room("a"), "it has more than is left"
    assert load.has_room("b")
    load.set_usage("a", 0, 0)
    assert load.of("a") == (0, 0)
    assert load.of("b") == (10, 5)
    assert load.total == (10, 5)


def test_some_more_is_taken_than_there_is_room_for() -> None:
    load = InFlightBudget(1_000, 10_000)
    load.set_usage("a", 1_999, 19_999)
    assert load.has_room("b"), "who has nothing may have one"
    assert not load.is_overfull()
    load.set_usage("b", 1, 0)
    assert load.is_overfull()
    assert not load.has_room("b")
    assert not load.has_room("c")
    load.set_usage("b", 0, 0)
    load.set_usage("a", 1, 20_000)
    assert load.is_overfull()
