from __future__ import annotations

from tests.channel_nets import event

from accord.core.channels.ordering.desk import Desk
from accord.core.channels.ordering.stamps import Grant, Held
from accord.core.channels.streams.stream import NEVER

EPOCH = (2, "q", 1)


def test_events_wait_for_their_places() -> None:
    desk = Desk(1, 0)
    for text in "xyz":
        desk.put(event(text), 5)
    ask = desk.ask(5)
    assert (ask.request, ask.count) == (1, 3)
    assert desk.ask(900_000) == ask
    desk.put(event("later"), 900_000)
    granted = desk.granted(Grant(1, Held(EPOCH, 4, 6, "a", 1)), 900_000)
    assert [each.payload for each, _ in granted] == [b"x", b"y", b"z"]
    assert desk.asks_us == 900_000
    assert desk.ask(900_000).request == 2
    assert desk.latest == EPOCH
    desk.check_invariants()


def test_an_answer_counts_once() -> None:
    desk = Desk(1, 0)
    desk.put(event("x"), 0)
    desk.ask(0)
    grant = Grant(1, Held(EPOCH, 1, 1, "a", 1))
    assert len(desk.granted(grant, 0)) == 1
    desk.put(event("y"), 0)
    assert desk.granted(grant, 0) == []
    desk.ask(0)
    assert desk.granted(grant, 0) == []
    desk.check_invariants()


def test_places_of_an_epoch_that_is_over_are_not_taken() -> None:
    desk = Desk(1, 0)
    desk.put(event("x"), 0)
    desk.ask(0)
    desk.heard_of((3, "r", 1), 0)
    assert desk.granted(Grant(1, Held(EPOCH, 1, 1, "a", 1)), 7) == []
    assert desk.asks_us == 7
    again = desk.ask(7)
    assert again.request == 2
    assert again.latest == (3, "r", 1)
    assert list(desk.held) == []
    assert len(desk.granted(Grant(2, Held((4, "q", 1), 1, 1, "a", 1)), 8)) == 1
    assert desk.asks_us == NEVER
