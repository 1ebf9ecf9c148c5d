"""The relations of the paper's figure 2, and the algorithms of figure 3."""

from __future__ import annotations

import pytest

from accord.core.quality.expectations import Expectation, PropertyRequirement
from accord.core.quality.matching import MatchState, UnmetReason, covers, match, satisfies
from accord.core.quality.profiles import Capability, Profile
from accord.core.quality.properties import PropertyRegistry

REGISTRY = PropertyRegistry()
RATE = REGISTRY.get("rate")
FRESH = REGISTRY.get("freshness")
SATISFIED, SATISFIABLE, UNSATISFIED = (
    MatchState.SATISFIED,
    MatchState.SATISFIABLE,
    MatchState.UNSATISFIED,
)


def expectation(*requirements: PropertyRequirement, publishers: int = 1) -> Expectation:
    return Expectation(
        id="X", subscription="s", channel="c", requirements=requirements, publishers=publishers
    )


def profile(publisher: str, **ranges: tuple[float, float, float]) -> Profile:
    """By property: lower, current, upper."""
    capabilities = tuple(Capability(n, low, high, now) for n, (low, now, high) in ranges.items())
    return Profile(publisher=publisher, channel="c", capabilities=capabilities)


@pytest.mark.parametrize(
    ("low", "now", "high", "state"),
    [
        (1, 5, 60, SATISFIED),
        (20, 30, 60, SATISFIED),  # improved: better than all that is wanted
        (1, 4, 5, SATISFIABLE),
        (1, 4, 60, SATISFIABLE),
        (1, 4, 4, UNSATISFIED),
    ],
)
def test_a_property_to_maximise(low: float, now: float, high: float, state: MatchState) -> None:
    found = match(
        expectation(PropertyRequirement("rate", 5.0, 10.0)),
        [profile("P", rate=(low, now, high))],
        REGISTRY,
    )
    assert found.state is state


@pytest.mark.parametrize(
    ("low", "now", "high", "state"),
    [
        (1, 10, 60, SATISFIED),
        (1, 2, 3, SATISFIED),
        (10, 11, 12, SATISFIABLE),
        (11, 11, 12, UNSATISFIED),
    ],
)
def test_a_property_to_minimise(low: float, now: float, high: float, state: MatchState) -> None:
    wanted = expectation(PropertyRequirement("freshness", 5.0, 10.0))
    assert match(wanted, [profile("P", freshness=(low, now, high))], REGISTRY).state is state


def test_satisfies_looks_at_one_end_only() -> None:
    both = PropertyRequirement("rate", 5.0, 10.0)
    assert satisfies(5.0, both, RATE)
    assert satisfies(99.0, both, RATE)
    assert not satisfies(4.9, both, RATE)
    age = PropertyRequirement("freshness", 5.0, 10.0)
    assert satisfies(0.0, age, FRESH)
    assert not satisfies(10.1, age, FRESH)
    assert satisfies(0.0, PropertyRequirement("rate"), RATE)


def test_covers_is_overlapping() -> None:
    wanted = PropertyRequirement("rate", 5.0, 10.0)
    for low, high, is_covered in ((1, 4, False), (1, 5, True), (6, 7, True), (10, 20, True)):
        assert covers(Capability("rate", low, high, low), wanted, RATE) is is_covered
    assert not covers(Capability("rate", 11.0, 20.0, 11.0), wanted, RATE)


def test_a_profile_is_as_good_as_its_worst_property() -> None:
    both = expectation(PropertyRequirement("rate", 5.0), PropertyRequirement("confidence", 75.0))
    good = profile("P1", rate=(1, 9, 9), confidence=(0, 80, 100))
    could = profile("P2", rate=(1, 9, 9), confidence=(0, 50, 100))
    never = profile("P3", rate=(1, 9, 9), confidence=(0, 50, 60))
    lacks = profile("P4", rate=(1, 9, 9))
    found = match(both, [never, good, could, lacks], REGISTRY)
    assert found.state is SATISFIED
    assert found.satisfied == (("P1", "c"),)
    assert found.satisfiable == (("P2", "c"),)
    assert found.reasons == ()
    found = match(both, [never, could, lacks], REGISTRY)
    assert found.state is SATISFIABLE
    assert found.reasons == (UnmetReason("X", "confidence", 50.0),)
    assert match(both, [never], REGISTRY).reasons == (UnmetReason("X", "confidence", 50.0),)
    assert match(both, [lacks], REGISTRY).reasons == (UnmetReason("X", "confidence", None),)
    assert match(both, [], REGISTRY).reasons == (
        UnmetReason("X", "rate", None),
        UnmetReason("X", "confidence", None),
    )


def test_the_best_state_counts_whatever_the_order() -> None:
    """The figure's loop, read literally, would take the last one."""
    wanted = expectation(PropertyRequirement("rate", 5.0))
    profiles = [profile("P1", rate=(1, 9, 9)), profile("P2", rate=(1, 2, 9))]
    for order in (profiles, profiles[::-1]):
        assert match(wanted, order, REGISTRY).state is SATISFIED


@pytest.mark.parametrize(
    ("publishers", "state"), [(1, SATISFIED), (2, SATISFIABLE), (3, UNSATISFIED)]
)
def test_several_publishers(publishers: int, state: MatchState) -> None:
    wanted = expectation(PropertyRequirement("rate", 5.0), publishers=publishers)
    profiles = [
        profile("P1", rate=(1, 9, 9)),
        profile("P2", rate=(1, 2, 9)),
        profile("P3", rate=(1, 2, 3)),
    ]
    assert match(wanted, profiles, REGISTRY).state is state
