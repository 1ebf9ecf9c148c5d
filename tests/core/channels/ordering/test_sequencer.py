from __future__ import annotations

import msgspec

from accord.core.channels.ordering.messages import (
    MAX_GRANT,
    MAX_SHOWN,
    NO_EPOCH,
    EpochPromise,
    HolderQuery,
    PositionRange,
    PositionRequest,
    position_at,
)
from accord.core.channels.ordering.sequencer import Sequencer

OLD = (3, "r", 1)


def ready(*nodes: str) -> Sequencer:
    sequencer = Sequencer("q", 7, 0)
    sequencer.start_epoch(NO_EPOCH, list(nodes))
    for node in nodes:
        assert sequencer.on_promise(node, EpochPromise(sequencer.epoch, NO_EPOCH, ()))
    assert sequencer.is_ready
    return sequencer


def test_places_follow_each_other() -> None:
    sequencer = ready()
    assert sequencer.grant("a", PositionRequest(1, 1, 3, NO_EPOCH), 0).held == PositionRange(
        (1, "q", 7), 1, 3, "a", 1
    )
    assert sequencer.grant("b", PositionRequest(1, 1, 1, NO_EPOCH), 0).held.first == 4
    assert (
        sequencer.grant("a", PositionRequest(1, 2, 1_000, NO_EPOCH), 0).held.last == 4 + MAX_GRANT
    )
    sequencer.check_invariants()


def test_the_same_wish_gets_the_same_places() -> None:
    sequencer = ready()
    first = sequencer.grant("a", PositionRequest(1, 1, 2, NO_EPOCH), 0)
    assert sequencer.grant("a", PositionRequest(1, 1, 2, NO_EPOCH), 0) is first
    assert (
        sequencer.grant("a", PositionRequest(2, 1, 2, NO_EPOCH), 0).held.first == 3
    )  # it was started again


def test_an_epoch_begins_after_all_earlier_ones_and_when_all_have_answered() -> None:
    sequencer = Sequencer("q", 7, 0)
    sequencer.start_epoch(OLD, ["a", "b", "c"])
    assert sequencer.epoch == (4, "q", 7)
    held = PositionRange(OLD, 5, 6, "a", 1)
    assert sequencer.on_promise("a", EpochPromise(sequencer.epoch, OLD, (held,)))
    assert sequencer.on_promise("b", EpochPromise((2, "q", 7), OLD, ()))  # to another question
    assert list(sequencer.waiting) == ["b", "c"]
    assert sequencer.on_promise("b", EpochPromise(sequencer.epoch, OLD, ()))
    assert list(sequencer.waiting) == ["c"]
    sequencer.exclude(lambda node: node == "c")
    assert sequencer.suspected == ("c",)
    for name in "ab":  # they are asked whether they think so, too
        assert not sequencer.is_ready
        assert name in sequencer.awaited()
        answer = EpochPromise(sequencer.epoch, OLD, (held,), sequencer.suspected)
        assert sequencer.on_promise(name, answer)
        sequencer.check_invariants()
    assert sequencer.is_ready
    between = HolderQuery(position_at(OLD, 4), position_at(sequencer.epoch, 1))
    assert sequencer.holders(between).held == (held,)


def test_nobody_is_left_out_whom_another_is_in_touch_with() -> None:
    sequencer = Sequencer("q", 7, 0)
    sequencer.start_epoch(OLD, ["a", "b", "c"])
    sequencer.exclude(lambda node: node == "c")
    assert sequencer.awaited() == ["a", "b"]
    answer = EpochPromise(sequencer.epoch, OLD, (), suspected=("c",))
    assert sequencer.on_promise("a", answer)
    assert sequencer.on_promise("b", msgspec.structs.replace(answer, in_contact=("c",)))
    assert sequencer.awaited() == ["c"]
    assert not sequencer.is_ready
    sequencer.check_invariants()
    assert sequencer.on_promise("c", EpochPromise(sequencer.epoch, OLD, ()))
    assert sequencer.is_ready


def test_who_was_left_out_is_told_when_it_is_back() -> None:
    sequencer = Sequencer("q", 7, 0)
    sequencer.start_epoch(OLD, ["a", "b", "c"])
    sequencer.exclude(lambda node: node in "bc")
    sequencer.on_reachable("b")  # in time
    assert sequencer.awaited() == ["a", "b"]
    for name in "ab":
        assert sequencer.on_promise(name, EpochPromise(sequencer.epoch, OLD, (), suspected=("c",)))
    assert sequencer.is_ready
    assert sequencer.awaited() == []
    sequencer.on_reachable("abc")
    assert sequencer.awaited() == ["c"]
    sequencer.exclude(lambda node: node == "c")  # it is gone again
    assert sequencer.awaited() == []
    sequencer.on_reachable("c")
    assert sequencer.is_ready
    held = PositionRange(OLD, 5, 6, "c", 1)
    epoch = sequencer.epoch
    high = position_at(epoch, 5)
    assert sequencer.holders(HolderQuery(position_at(OLD, 4), high)).excluded == ("c",)
    assert sequencer.holders(HolderQuery(position_at(epoch, 2), high)).excluded == ()
    assert sequencer.on_promise("c", EpochPromise(sequencer.epoch, OLD, (held,)))
    assert not sequencer.is_preparing
    assert sequencer.suspected == ()
    sequencer.check_invariants()
    assert sequencer.holders(HolderQuery(None, position_at(sequencer.epoch, 1))).held == (held,)


def test_who_was_not_known_yet_is_told_too() -> None:
    sequencer = ready("a")
    sequencer.join("ab")
    assert sequencer.is_ready
    assert sequencer.awaited() == ["b"]
    sequencer.start_epoch(OLD, ["a"])
    sequencer.join("ab")
    assert sequencer.awaited() == ["a", "b"]
    sequencer.check_invariants()


def test_others_may_be_further_on() -> None:
    sequencer = Sequencer("q", 7, 0)
    sequencer.start_epoch(NO_EPOCH, ["a"])
    assert not sequencer.on_promise("a", EpochPromise(sequencer.epoch, OLD, ()))
    sequencer.start_epoch(OLD, ["a"])
    assert sequencer.epoch > OLD


def test_who_has_which_places() -> None:
    sequencer = ready()
    held = [sequencer.grant(name, PositionRequest(1, 1, 2, NO_EPOCH), 0).held for name in "abc"]
    epoch = sequencer.epoch
    asked = HolderQuery(position_at(epoch, 2), position_at(epoch, 5))
    assert sequencer.holders(asked).held == (held[1],)
    assert sequencer.holders(HolderQuery(None, position_at(epoch, 5))).held == tuple(held[:2])
    sequencer.start_epoch(epoch, [])  # it takes over from itself
    asked = HolderQuery(position_at(epoch, 3), position_at(sequencer.epoch, 1))
    assert sequencer.holders(asked).held == tuple(held[1:])


def test_who_asks_too_early_gets_its_places_later() -> None:
    sequencer = Sequencer("q", 7, 0)
    sequencer.start_epoch(NO_EPOCH, ["a"])
    ask = PositionRequest(1, 1, 2, NO_EPOCH)
    sequencer.hold_request("b", ask)
    assert sequencer.take_requests() == []
    sequencer.on_promise("a", EpochPromise(sequencer.epoch, NO_EPOCH, ()))
    assert sequencer.take_requests() == [("b", ask)]
    assert sequencer.take_requests() == []
    sequencer.check_invariants()


def test_places_that_were_given_long_ago_are_not_forgotten() -> None:
    sequencer = ready()
    early = [
        sequencer.grant("a", PositionRequest(1, number, 1, NO_EPOCH), 0).held for number in (1, 2)
    ]
    for number in range(1, 3_000):
        sequencer.grant("b", PositionRequest(1, number, 1, NO_EPOCH), 0)
        sequencer.grant("c", PositionRequest(1, number, 1, NO_EPOCH), 0)
    sequencer.check_invariants()
    epoch = sequencer.epoch
    held = sequencer.holders(HolderQuery(None, position_at(epoch, 50))).held
    assert [(each.source, each.first) for each in held] == [("a", 1), ("b", 3), ("c", 4)]
    assert held[0].last == early[1].last
    assert all(each.last >= 49 for each in held[1:])
    late = sequencer.holders(HolderQuery(position_at(epoch, 5_996), position_at(epoch, 5_999)))
    assert [each.source for each in late.held] == ["b", "c"]
    assert late.is_complete


def test_places_from_before_a_source_was_started_again_are() -> None:
    sequencer = ready()
    sequencer.grant("a", PositionRequest(1, 1, 1, NO_EPOCH), 0)
    for number in range(1, 3_000):
        sequencer.grant("a", PositionRequest(2, number, 1, NO_EPOCH), 0)
    sequencer.check_invariants()
    held = sequencer.holders(HolderQuery(None, position_at(sequencer.epoch, 9))).held
    assert [(each.first, each.incarnation) for each in held] == [(2, 2)]


def test_many_sources_are_told_of_in_parts() -> None:
    sequencer = ready()
    names = [f"s{number:03}" for number in range(2 * MAX_SHOWN + 3)]
    for request in (1, 2):
        for name in reversed(names):
            sequencer.grant(name, PositionRequest(1, request, 1, NO_EPOCH), 0)
    found: list[str] = []
    for part in range(3):
        after = found[-1] if found else ""
        ask = HolderQuery(None, position_at(sequencer.epoch, 1_000), NO_EPOCH, after)
        holders = sequencer.holders(ask)
        found += [each.source for each in holders.held]
        assert holders.is_complete == (part == 2)
    assert found == names


def test_who_takes_over_knows_what_each_node_says_that_it_still_has() -> None:
    sequencer = ready()
    for name in "ab":
        sequencer.grant(name, PositionRequest(1, 1, 1, NO_EPOCH), 0)
    first = sequencer.epoch
    sequencer.start_epoch(first, ["a", "b"])
    sequencer.on_promise("a", EpochPromise(sequencer.epoch, first, ()))
    of_others = PositionRange(first, 9, 9, "c", 1)
    sequencer.on_promise(
        "b", EpochPromise(sequencer.epoch, first, (PositionRange(first, 2, 2, "b", 1), of_others))
    )
    sequencer.check_invariants()
    held = sequencer.holders(HolderQuery(None, position_at(sequencer.epoch, 1))).held
    assert held == (PositionRange(first, 2, 2, "b", 1),)


def test_who_is_named_twice_is_found_once() -> None:
    sequencer = Sequencer("q", 7, 0)
    sequencer.start_epoch(NO_EPOCH, ["a", "b"])
    sequencer.exclude(lambda node: node == "b")
    collected = EpochPromise(sequencer.epoch, NO_EPOCH, (), ("b",), ("b", "b"))
    assert sequencer.on_promise("a", collected)
    assert "b" in sequencer.waiting
    assert not sequencer.excluded
