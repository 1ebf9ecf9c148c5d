from __future__ import annotations

import pytest

from accord.core.model.units import NEVER_US
from accord.core.quality.mechanisms import (
    Direction,
    Mechanism,
    MechanismRepository,
    better_direction,
)
from accord.core.quality.messages import (
    Advice,
    ApplyMechanism,
    MechanismStep,
    Notice,
    WithdrawMechanism,
)
from accord.core.quality.profiles import Capability, ScoredCapability
from accord.core.quality.properties import PropertyRegistry
from accord.core.quality.reactions import ProfileRef, ReactionCoordinator
from accord.core.quality.strategies import PropertyMove

REGISTRY = PropertyRegistry()
SUBJECT = ProfileRef("n#1", "P", "c")
RATE = "n#1", "rate"
PATIENCE = 100


class Driven:
    """One property of one profile."""

    def __init__(self, name: str = "rate", now: float = 2.0) -> None:
        self.repository = MechanismRepository(REGISTRY)
        self.coordinator = ReactionCoordinator(self.repository, PATIENCE)
        self.name = name
        self.place = "n#1", name
        self.now = now

    @property
    def offer(self) -> ScoredCapability:
        low, high = (0.0, 100.0)
        return ScoredCapability(REGISTRY.get(self.name), Capability(self.name, low, high, self.now))

    def start(self, level: float, now_us: int = 0) -> list[Notice]:
        property_ = REGISTRY.get(self.name)
        ways = tuple(self.repository.of(property_, better_direction(property_)))
        move = PropertyMove(self.name, level, level, ways)
        return self.checked(self.coordinator.start(SUBJECT, move, self.offer, now_us))

    def needed(self, level: float | None, *, frees: bool = True) -> list[Notice]:
        return self.checked(self.coordinator.adjust(self.place, level, self.offer, frees))

    def observed(self, now: float) -> list[Notice]:
        self.now = now
        return self.checked(self.coordinator.observed("n#1", {self.name: self.offer}))

    def give_up(self, now_us: int) -> tuple[list[Notice], bool]:
        (place,) = self.coordinator.overdue(now_us)
        notices, is_tried = self.coordinator.abandon(place, self.offer, now_us)
        return self.checked(notices), is_tried

    def checked(self, notices: list[Notice]) -> list[Notice]:
        self.coordinator.check_invariants()
        return notices


def advice(target: float, *, is_release: bool = False) -> Advice:
    return Advice("P", "c", "rate", target, is_release)


def test_who_does_less_of_its_own_accord_is_not_told_to_do_more() -> None:
    driven = Driven(now=5.0)
    driven.start(8.0)
    driven.observed(8.0)
    driven.observed(1.0)
    assert driven.needed(None) == [advice(1.0, is_release=True)]
    assert len(driven.coordinator) == 0


def test_it_is_tried_until_it_helps_and_held_until_nobody_needs_it() -> None:
    driven = Driven()
    assert driven.start(5.0) == [advice(5.0)]
    assert driven.coordinator.next_due_us() == PATIENCE
    assert driven.start(4.0, now_us=10) == [], "more was asked for already"
    assert driven.observed(4.0) == []
    assert driven.coordinator.overdue(PATIENCE) == [RATE]
    assert driven.observed(5.0) == []
    assert driven.coordinator.next_due_us() == NEVER_US
    assert driven.start(9.0, now_us=50) == [advice(9.0)]
    assert driven.observed(9.0) == []
    assert driven.needed(4.0) == [advice(4.0, is_release=True)]
    assert driven.needed(None) == [advice(2.0, is_release=True)], "where it was before"
    assert len(driven.coordinator) == 0


def test_who_has_not_done_less_yet_is_advised_to_stay_where_it_is_needed_again() -> None:
    driven = Driven()
    driven.start(9.0)
    driven.observed(9.0)
    assert driven.needed(4.0) == [advice(4.0, is_release=True)]
    assert driven.needed(6.0) == [advice(6.0, is_release=True)]
    assert driven.needed(5.0) == [advice(5.0, is_release=True)]
    assert driven.needed(None) == [advice(2.0, is_release=True)]
    assert len(driven.coordinator) == 0
    assert driven.needed(9.0) == [advice(9.0, is_release=True)], "it is there still"
    assert driven.needed(None) == [advice(2.0, is_release=True)], "where it was before all that"
    assert driven.start(20.0) == [advice(20.0)]
    assert driven.needed(None) == [advice(2.0, is_release=True)]


def test_who_has_done_less_is_not_advised_where_more_comes_of_its_own_accord() -> None:
    driven = Driven()
    driven.start(9.0)
    driven.observed(9.0)
    driven.needed(4.0)
    driven.observed(4.0)
    driven.observed(9.0)
    assert driven.needed(6.0) == []
    driven.needed(None)
    driven.observed(2.0)
    driven.observed(9.0)
    assert driven.needed(6.0) == []
    assert len(driven.coordinator) == 0


def test_what_was_released_goes_with_the_profile() -> None:
    driven = Driven()
    driven.start(9.0)
    driven.observed(9.0)
    driven.needed(None)
    assert driven.coordinator.remove("n#1", ["rate"]) == []
    assert driven.needed(9.0) == []


def test_without_freeing_nobody_is_advised_to_do_less() -> None:
    driven = Driven()
    driven.start(5.0)
    driven.observed(5.0)
    assert driven.needed(4.0, frees=False) == []
    assert driven.needed(None, frees=False) == []
    assert len(driven.coordinator) == 0


def test_what_is_tried_next_after_what_did_not_help() -> None:
    driven = Driven("latency", 80.0)
    assert driven.start(-50.0) == [
        ApplyMechanism(1, MechanismStep.RAISE_IMPORTANCE, "P", "c", "latency", 50.0)
    ]
    assert driven.give_up(PATIENCE) == (
        [WithdrawMechanism(1), ApplyMechanism(2, MechanismStep.SHAPE, "P", "c", "latency", 50.0)],
        True,
    )
    assert driven.give_up(2 * PATIENCE) == (
        [
            WithdrawMechanism(2),
            ApplyMechanism(3, MechanismStep.RAISE_IMPORTANCE, "P", "c", "latency", 50.0),
            ApplyMechanism(3, MechanismStep.ADD_PATH, "P", "c", "latency", 50.0),
        ],
        True,
    )
    assert driven.give_up(3 * PATIENCE) == ([WithdrawMechanism(3)], False)
    assert len(driven.coordinator) == 0


def test_what_helped_a_bit_is_given_back_some_time() -> None:
    driven = Driven()
    driven.start(50.0)
    driven.observed(20.0)
    assert driven.give_up(PATIENCE) == ([], False)
    assert driven.needed(None) == [advice(2.0, is_release=True)]


def test_what_the_node_does_is_withdrawn_whatever_the_strategy() -> None:
    driven = Driven("latency", 80.0)
    driven.start(-50.0)
    driven.observed(40.0)
    assert driven.needed(-60.0, frees=False) == [], "it is needed still"
    assert driven.needed(None, frees=False) == [WithdrawMechanism(1)]


def test_where_that_is_cheaper_the_node_keeps_back_what_is_too_much() -> None:
    driven = Driven()
    cheap = Mechanism(
        name="filter",
        property="rate",
        direction=Direction.DOWN,
        steps=(MechanismStep.FILTER_RATE,),
        cost=0.1,
    )
    driven.repository.define(cheap)
    driven.start(50.0)
    driven.observed(50.0)
    assert driven.needed(20.0) == [
        ApplyMechanism(1, MechanismStep.FILTER_RATE, "P", "c", "rate", 20.0)
    ]
    assert driven.needed(10.0) == [
        ApplyMechanism(1, MechanismStep.FILTER_RATE, "P", "c", "rate", 10.0)
    ]
    assert driven.needed(30.0) == [WithdrawMechanism(1)], "it is there still"
    assert driven.needed(None) == [
        ApplyMechanism(2, MechanismStep.FILTER_RATE, "P", "c", "rate", 2.0)
    ]
    assert len(driven.coordinator) == 1
    assert driven.observed(2.0) == [WithdrawMechanism(2)], "there is nothing to keep back any more"
    assert len(driven.coordinator) == 0


def test_more_is_tried_by_the_same_means() -> None:
    driven = Driven("latency", 80.0)
    driven.start(-50.0)
    driven.observed(50.0)
    assert driven.start(-30.0, now_us=5) == [
        ApplyMechanism(1, MechanismStep.RAISE_IMPORTANCE, "P", "c", "latency", 30.0)
    ]


@pytest.mark.parametrize("is_held", [True, False])
def test_with_the_profile_all_goes(is_held: bool) -> None:
    driven = Driven("latency", 80.0)
    driven.start(-50.0)
    if is_held:
        driven.observed(40.0)
    assert driven.checked(driven.coordinator.remove("n#1", ["latency", "rate"])) == [
        WithdrawMechanism(1)
    ]
    assert len(driven.coordinator) == 0
    assert driven.coordinator.next_due_us() == NEVER_US


def test_a_publisher_that_falls_back_is_advised_again() -> None:
    driven = Driven()
    driven.start(5.0)
    driven.observed(5.0)
    driven.observed(1.0)
    assert driven.start(5.0, now_us=10) == [advice(5.0)]
    driven.observed(5.0)
    assert driven.needed(None) == [advice(1.0, is_release=True)]
