from __future__ import annotations

from accord.core.channels.ordering.sequencer import Sequencer
from accord.core.channels.ordering.stamps import (
    MOST_PLACES,
    NO_EPOCH,
    Ask,
    Between,
    Collected,
    Held,
    stamp_of,
)

OLD = (3, "r", 1)


def ready(*nodes: str) -> Sequencer:
    sequencer = Sequencer("q", 7, 0)
    sequencer.begin(NO_EPOCH, list(nodes))
    for node in nodes:
        assert sequencer.collected(node, Collected(sequencer.epoch, NO_EPOCH, ()))
    assert sequencer.is_ready
    return sequencer


def test_places_follow_each_other() -> None:
    sequencer = ready()
    assert sequencer.grant("a", Ask(1, 1, 3, NO_EPOCH), 0).held == Held((1, "q", 7), 1, 3, "a", 1)
    assert sequencer.grant("b", Ask(1, 1, 1, NO_EPOCH), 0).held.first == 4
    assert sequencer.grant("a", Ask(1, 2, 1_000, NO_EPOCH), 0).held.last == 4 + MOST_PLACES
    sequencer.check_invariants()


def test_the_same_wish_gets_the_same_places() -> None:
    sequencer = ready()
    first = sequencer.grant("a", Ask(1, 1, 2, NO_EPOCH), 0)
    assert sequencer.grant("a", Ask(1, 1, 2, NO_EPOCH), 0) is first
    assert sequencer.grant("a", Ask(2, 1, 2, NO_EPOCH), 0).held.first == 3  # it was started again


def test_an_epoch_begins_after_all_earlier_ones_and_when_all_have_answered() -> None:
    sequencer = Sequencer("q", 7, 0)
    sequencer.begin(OLD, ["a", "b", "c"])
    assert sequencer.epoch == (4, "q", 7)
    held = Held(OLD, 5, 6, "a", 1)
    assert sequencer.collected("a", Collected(sequencer.epoch, OLD, (held,)))
    assert sequencer.collected("b", Collected((2, "q", 7), OLD, ()))  # to another question
    assert list(sequencer.waiting) == ["b", "c"]
    assert sequencer.collected("b", Collected(sequencer.epoch, OLD, ()))
    assert list(sequencer.waiting) == ["c"]
    sequencer.wait_for_all_but(lambda node: node == "c")
    assert sequencer.is_ready
    between = Between(stamp_of(OLD, 4), stamp_of(sequencer.epoch, 1))
    assert sequencer.holders(between).held == (held,)


def test_others_may_be_further_on() -> None:
    sequencer = Sequencer("q", 7, 0)
    sequencer.begin(NO_EPOCH, ["a"])
    assert not sequencer.collected("a", Collected(sequencer.epoch, OLD, ()))
    sequencer.begin(OLD, ["a"])
    assert sequencer.epoch > OLD


def test_who_has_which_places() -> None:
    sequencer = ready()
    held = [sequencer.grant(name, Ask(1, 1, 2, NO_EPOCH), 0).held for name in "abc"]
    epoch = sequencer.epoch
    asked = Between(stamp_of(epoch, 2), stamp_of(epoch, 5))
    assert sequencer.holders(asked).held == (held[1],)
    assert sequencer.holders(Between(None, stamp_of(epoch, 5))).held == tuple(held[:2])
    sequencer.begin(epoch, [])  # it takes over from itself
    asked = Between(stamp_of(epoch, 3), stamp_of(sequencer.epoch, 1))
    assert sequencer.holders(asked).held == tuple(held[1:])


def test_who_asks_too_early_gets_its_places_later() -> None:
    sequencer = Sequencer("q", 7, 0)
    sequencer.begin(NO_EPOCH, ["a"])
    ask = Ask(1, 1, 2, NO_EPOCH)
    sequencer.wish("b", ask)
    assert sequencer.take_wishes() == []
    sequencer.collected("a", Collected(sequencer.epoch, NO_EPOCH, ()))
    assert sequencer.take_wishes() == [("b", ask)]
    assert sequencer.take_wishes() == []
    sequencer.check_invariants()
