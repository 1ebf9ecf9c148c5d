"""States from the skyline, beside figure 3 over all profiles."""

from __future__ import annotations

from random import Random

import pytest

from accord.core.quality.expectations import (
    Expectation,
    PropertyRequirement,
    ScoredExpectation,
    score_expectation,
)
from accord.core.quality.match_groups import MatchGroup
from accord.core.quality.matching import Match, MatchState, match
from accord.core.quality.profiles import Capability, Profile, score_capabilities
from accord.core.quality.properties import PropertyRegistry

REGISTRY = PropertyRegistry()
NAMES = ("freshness", "rate", "trust")
TRUST = ("none", "low", "medium", "high")


def random_profile(random: Random, publisher: str) -> Profile:
    capabilities = []
    for name in NAMES:
        low, now, high = sorted(random.randrange(4) for _ in range(3))
        if random.random() < 0.1:
            continue
        if name == "trust":
            capabilities.append(Capability(name, TRUST[low], TRUST[high], TRUST[now]))
        else:
            capabilities.append(Capability(name, float(low), float(high), float(now)))
    capabilities = capabilities or [Capability("rate", 0.0, 0.0, 0.0)]
    return Profile(publisher=publisher, channel="c", capabilities=tuple(capabilities))


def random_expectation(random: Random, id_: str, names: tuple[str, ...]) -> Expectation:
    requirements = []
    for name in names:
        low, high = sorted(random.randrange(4) for _ in range(2))
        ends = (TRUST[low], TRUST[high]) if name == "trust" else (float(low), float(high))
        requirements.append(PropertyRequirement(name, *ends))
    return Expectation(
        id=id_,
        subscription=id_,
        channel="c",
        requirements=tuple(requirements),
        publishers=random.choice((1, 1, 2, 3)),
    )


class Checked:
    def __init__(self, names: tuple[str, ...], depth: int) -> None:
        self.group = MatchGroup(("c", names), depth)
        self.profiles: dict[str, Profile] = {}
        self.expectations: dict[str, tuple[Expectation, ScoredExpectation]] = {}
        self.states: dict[str, MatchState] = {}

    def match(self, expectation: Expectation, without: str = "") -> Match:
        profiles = [each for each in self.profiles.values() if each.publisher != without]
        return match(expectation, profiles, REGISTRY)

    def set(self, profile: Profile) -> None:
        self.profiles[profile.publisher] = profile
        self.group.set_copy(
            profile.publisher, (), score_capabilities(profile.capabilities, REGISTRY)
        )

    def remove(self, publisher: str) -> None:
        del self.profiles[publisher]
        self.group.remove_copy(publisher, ())

    def expect(self, expectation: Expectation) -> None:
        wanted = score_expectation(expectation, REGISTRY)
        self.hear()
        self.group.add(expectation.id, wanted.least, expectation.publishers)
        self.expectations[expectation.id] = expectation, wanted
        self.states[expectation.id] = self.group.state(expectation.id)

    def forget(self, id_: str) -> None:
        del self.expectations[id_], self.states[id_]
        self.group.remove(id_)

    def hear(self) -> None:
        for id_ in self.group.update_states():
            assert self.states[id_] != self.group.state(id_), "only changes are told"
            self.states[id_] = self.group.state(id_)

    def check(self) -> None:
        self.hear()
        self.group.check_invariants()
        for id_, (expectation, wanted) in self.expectations.items():
            truth = self.match(expectation)
            assert self.states[id_] is truth.state
            self.group.check_counts(id_, wanted.least)
            satisfying, covering = self.group.candidates(wanted.least)
            assert {source for source, _ in satisfying} <= {who for who, _ in truth.satisfied}
            assert {source for source, _ in covering} <= {who for who, _ in truth.satisfiable}
            if truth.satisfied:
                assert satisfying


@pytest.mark.parametrize("seed", range(6))
def test_the_skyline_gives_the_state_that_all_profiles_give(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    names = NAMES[: 1 + seed % 3]
    checked = Checked(names, depth=3)
    for _ in range(150):
        name = f"P{random.randrange(12)}"
        chance = random.random()
        if name in checked.profiles and chance < 0.2:
            checked.remove(name)
        elif chance < 0.7:
            checked.set(random_profile(random, name))
        else:
            id_ = f"X{random.randrange(15)}"
            if id_ in checked.expectations:
                checked.forget(id_)
            else:
                checked.expect(random_expectation(random, id_, names))
        if random.random() < 0.5:
            checked.check()


@pytest.mark.parametrize("seed", range(4))
def test_who_else_would_satisfy(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    checked = Checked(NAMES[:2], depth=1 + seed % 3)
    for step in range(120):
        checked.set(random_profile(random, f"P{random.randrange(20)}"))
        expectation = random_expectation(random, f"X{step}", NAMES[:2])
        wanted = score_expectation(expectation, REGISTRY)
        most = min(expectation.publishers, checked.group.skyline.depth)
        for publisher in checked.profiles:
            others = checked.match(expectation, publisher).satisfied
            found = checked.group.others_satisfying(wanted.least, publisher, most)
            assert found == min(len(others), most)


def test_a_deeper_skyline_holds_what_more_publishers_need() -> None:
    checked = Checked(("rate",), depth=1)
    for publisher, rate in (("P1", 9.0), ("P2", 8.0), ("P3", 7.0)):
        capability = Capability("rate", 0.0, 10.0, rate)
        checked.set(Profile(publisher=publisher, channel="c", capabilities=(capability,)))
    checked.check()
    assert checked.group.forwarded() == [("P1", ())]
    checked.group.deepen(2)
    assert sorted(checked.group.forwarded()) == [("P1", ()), ("P2", ())]
    both = Expectation(
        id="X",
        subscription="s",
        channel="c",
        requirements=(PropertyRequirement("rate", 8.0),),
        publishers=2,
    )
    checked.expect(both)
    assert checked.states["X"] is MatchState.SATISFIED
    checked.check()


def test_of_copies_over_several_paths_the_best_counts_once() -> None:
    group = MatchGroup(("c", ("latency", "rate")), depth=2)

    def offers(latency: float) -> tuple[Capability, ...]:
        rate = Capability("rate", 0.0, 10.0, 5.0)
        return (Capability("latency", latency, latency, latency), rate)

    least = (-50.0, 5.0)
    group.add("X", least, 2)
    group.set_copy("B#1", ("C", "B"), score_capabilities(offers(30.0), REGISTRY))
    group.set_copy("B#1", ("B",), score_capabilities(offers(20.0), REGISTRY))
    assert group.update_states() == []
    assert group.state("X") is MatchState.UNSATISFIED, "one publisher, not two"
    assert group.forwarded() == [("B#1", ("B",))]
    group.set_copy("D#1", ("D",), score_capabilities(offers(40.0), REGISTRY))
    assert group.update_states() == ["X"]
    assert group.state("X") is MatchState.SATISFIED
    group.set_copy("B#1", ("B",), score_capabilities(offers(30.0), REGISTRY))
    group.update_states()
    assert ("B#1", ("B",)) in group.forwarded(), "as good over a shorter path"
    group.remove_copy("B#1", ("B",))
    group.update_states()
    assert ("B#1", ("C", "B")) in group.forwarded()
    group.check_invariants()
