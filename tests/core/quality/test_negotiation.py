from __future__ import annotations

import pytest

from accord.core.quality.costs import ConstantCost, Cost, LinearCost
from accord.core.quality.expectations import Expectation, Lifecycle, PropertyRequirement
from accord.core.quality.matching import MatchState, UnmetReason
from accord.core.quality.measurements import Measurement
from accord.core.quality.messages import (
    AdaptationDecision,
    Advice,
    ApplyMechanism,
    MechanismStep,
    Notice,
    StateChanged,
    UsageChanged,
    WithdrawMechanism,
)
from accord.core.quality.negotiation import Negotiation, NegotiationOptions
from accord.core.quality.profiles import Capability, Coupling, Profile
from accord.core.quality.properties import Better, Property, QualityError
from accord.core.quality.strategies import Delivered, Pareto

S = 1_000_000
PATIENCE = 5 * S


class Node:
    """A negotiation whose clock is set by the test, and which is checked after every step."""

    def __init__(self, **options: object) -> None:
        self.quality = Negotiation("n", options=NegotiationOptions(**options))  # type: ignore[arg-type]
        self.now_us = 0

    def publish(
        self, publisher: str, *capabilities: Capability, couplings: tuple[Coupling, ...] = ()
    ) -> list[Notice]:
        """Register a profile, or update it."""
        profile = Profile(
            publisher=publisher, channel="c", capabilities=capabilities, couplings=couplings
        )
        if "c" in self.quality.profiles.channels_of(publisher):
            return self.check(self.quality.update_profile(profile, now_us=self.now_us))
        return self.check(self.quality.register_profile(profile, now_us=self.now_us))

    def expect(
        self,
        id_: str,
        *requirements: PropertyRequirement,
        utility: float = 1.0,
        publishers: int = 1,
    ) -> list[Notice]:
        """The subscription is what comes before the dot."""
        expectation = Expectation(
            id=id_,
            subscription=id_.partition(".")[0],
            channel="c",
            requirements=requirements,
            utility=utility,
            publishers=publishers,
        )
        if id_ in self.quality.expectations:
            return self.check(self.quality.update(expectation, now_us=self.now_us))
        return self.check(self.quality.register(expectation, now_us=self.now_us))

    def revoke(self, id_: str) -> list[Notice]:
        return self.check(self.quality.revoke(id_, now_us=self.now_us))

    def measure(self, name: str, value: float, best: float | None = None) -> list[Notice]:
        measurement = Measurement(channel="c", property=name, value=value, best=best)
        return self.check(self.quality.measure(measurement, now_us=self.now_us))

    def wait(self, us: int) -> list[Notice]:
        notices: list[Notice] = []
        until_us = self.now_us + us
        while self.quality.next_due_us() <= until_us:
            self.now_us = max(self.now_us, self.quality.next_due_us())
            notices += self.check(self.quality.advance(now_us=self.now_us))
        self.now_us = until_us
        return notices

    def check(self, notices: list[Notice]) -> list[Notice]:
        self.quality.check_invariants()
        return notices

    def state(self, id_: str) -> MatchState | None:
        return self.quality.report(id_).state


def rate(low: float, high: float, now: float, cost: Cost = ConstantCost()) -> Capability:  # noqa: B008
    return Capability("rate", low, high, now, cost)


def confidence(low: float, high: float, now: float) -> Capability:
    return Capability("confidence", low, high, now)


def told(
    id_: str,
    state: MatchState,
    decision: AdaptationDecision = AdaptationDecision.NONE,
    **now: float | str | None,
) -> StateChanged:
    reasons = tuple(UnmetReason(id_, name, value) for name, value in sorted(now.items()))
    return StateChanged(id_.partition(".")[0], id_, state, decision, reasons)


def test_the_papers_sensor_is_advised_and_does_as_advised() -> None:
    """Temperatures of 75 to 95 % confidence at 5 to 10 a minute; it sends 2, and could send 60."""
    node = Node()
    assert node.publish("P", rate(1, 60, 2), confidence(50, 80, 80)) == []
    wanted = (PropertyRequirement("rate", 5.0, 10.0), PropertyRequirement("confidence", 75.0, 95.0))
    assert node.expect("M", *wanted) == [
        Advice("P", "c", "rate", 5.0),
        told("M", MatchState.SATISFIABLE, AdaptationDecision.ADAPTING, rate=2.0),
    ]
    assert node.publish("P", rate(1, 60, 5), confidence(50, 80, 80)) == [
        told("M", MatchState.SATISFIED)
    ]
    assert node.wait(2 * S) == [UsageChanged("P", "c", 1, 1.0)]
    assert node.wait(60 * S) == []


def test_who_can_t_be_satisfied_learns_why_and_when_that_changes() -> None:
    node = Node()
    assert node.expect("M", PropertyRequirement("rate", 5.0)) == [
        told("M", MatchState.UNSATISFIED, rate=None)
    ]
    assert node.publish("P", rate(1, 4, 2)) == []
    assert node.quality.report("M").reasons == (UnmetReason("M", "rate", 2.0),)
    assert node.publish("P", rate(1, 9, 6)) == [told("M", MatchState.SATISFIED)]
    assert node.publish("P", rate(1, 4, 2)) == [told("M", MatchState.UNSATISFIED, rate=2.0)]
    notices = node.quality.on_publisher_gone("P", now_us=0)
    assert node.check(notices) == []
    assert node.quality.report("M").reasons == (UnmetReason("M", "rate", None),)


def test_the_life_of_an_expectation() -> None:
    node = Node()
    node.publish("P", rate(1, 60, 10))
    assert node.expect("M", PropertyRequirement("rate", 5.0)) == [told("M", MatchState.SATISFIED)]
    with pytest.raises(QualityError, match="can't resume what is active"):
        node.quality.resume("M", now_us=0)
    assert node.check(node.quality.suspend("M", now_us=0)) == []
    assert node.quality.report("M").lifecycle is Lifecycle.SUSPENDED
    assert node.quality.usage("P", "c") == (0, 0.0)
    assert node.expect("M", PropertyRequirement("rate", 20.0)) == [], (
        "an update while it is suspended"
    )
    resumed = node.check(node.quality.resume("M", now_us=0))
    assert resumed[-1] == told("M", MatchState.SATISFIABLE, AdaptationDecision.ADAPTING, rate=10.0)
    assert node.revoke("M") == []
    with pytest.raises(QualityError, match="not registered"):
        node.quality.report("M")
    node.expect("M.a", PropertyRequirement("rate", 5.0))
    node.expect("M.b", PropertyRequirement("rate", 6.0))
    assert node.check(node.quality.unsubscribe("M", now_us=0)) == []
    assert not node.quality.expectations
    assert not node.quality.supersets.groups


def test_a_publisher_that_does_not_follow_is_given_up_for_another() -> None:
    node = Node()
    node.publish("P", rate(1, 60, 2, ConstantCost(1.0)))
    node.publish("Q", rate(1, 50, 3, ConstantCost(2.0)))
    assert node.expect("M", PropertyRequirement("rate", 5.0))[0] == Advice("P", "c", "rate", 5.0)
    assert node.wait(PATIENCE - 1) == [UsageChanged("P", "c", 1, 1.0)]
    assert node.wait(1) == [Advice("Q", "c", "rate", 5.0)]
    assert node.state("M") is MatchState.SATISFIABLE
    failed = node.wait(PATIENCE)[-1]
    assert failed == told("M", MatchState.SATISFIABLE, AdaptationDecision.FAILED, rate=3.0)
    again = node.wait(40 * S)
    assert Advice("P", "c", "rate", 5.0) in again, "some time later it is tried again"


def test_of_alternatives_only_what_costs_no_more_is_tried_beside_a_satisfied_one() -> None:
    node = Node()
    line = LinearCost(0.0, 1.0)
    node.publish("P", rate(1, 60, 10, line), confidence(50, 80, 70))
    assert node.expect("M.high", PropertyRequirement("rate", 8.0), utility=2) == [
        told("M.high", MatchState.SATISFIED)
    ]
    dear = told("M.more", MatchState.SATISFIABLE, AdaptationDecision.TOO_COSTLY, rate=10.0)
    assert node.expect("M.more", PropertyRequirement("rate", 20.0), utility=3) == [dear]
    assert node.expect("M.sure", PropertyRequirement("confidence", 75.0)) == [
        Advice("P", "c", "confidence", 75.0),
        told("M.sure", MatchState.SATISFIABLE, AdaptationDecision.ADAPTING, confidence=70.0),
    ]
    node.revoke("M.sure")
    fallen = node.publish("P", rate(1, 60, 5, line), confidence(50, 80, 70)) + node.wait(0)
    assert Advice("P", "c", "rate", 20.0) in fallen, "nothing is satisfied any more"
    assert told("M.more", MatchState.SATISFIABLE, AdaptationDecision.ADAPTING, rate=5.0) in fallen


def test_with_freeing_only_the_best_satisfied_alternative_uses_anything() -> None:
    node = Node(strategy="freeing")
    node.publish("P", rate(1, 60, 10), confidence(50, 80, 70))
    node.expect("M.low", PropertyRequirement("rate", 5.0), utility=1)
    assert node.quality.report("M.low").depends_on
    node.expect("M.high", PropertyRequirement("confidence", 60.0), utility=2)
    assert not node.quality.report("M.low").depends_on
    assert node.quality.usage("P", "c") == (1, 2.0)
    more = node.expect("M.more", PropertyRequirement("rate", 20.0), utility=0.5)
    assert more == [told("M.more", MatchState.SATISFIABLE, AdaptationDecision.OUTRANKED, rate=10.0)]
    node.revoke("M.high")
    assert node.quality.report("M.low").depends_on
    assert node.quality.usage("P", "c") == (1, 1.0)
    node.check(node.quality.set_strategy(Pareto(), now_us=0))
    node.expect("M.less", PropertyRequirement("rate", 3.0), utility=0.1)
    assert node.quality.usage("P", "c")[0] == 3, "each one counts"


def test_what_is_lacking_while_something_else_is_tried_is_asked_for_too() -> None:
    node = Node()
    node.publish("P", rate(1, 60, 2), confidence(0, 100, 80))
    wanted = (PropertyRequirement("rate", 5.0), PropertyRequirement("confidence", 75.0))
    assert node.expect("M", *wanted)[0] == Advice("P", "c", "rate", 5.0)
    fallen = node.publish("P", rate(1, 60, 2), confidence(0, 100, 50))
    assert fallen == [Advice("P", "c", "confidence", 75.0)]
    node.publish("P", rate(1, 60, 5), confidence(0, 100, 75))
    assert node.state("M") is MatchState.SATISFIED


def test_what_would_break_more_than_it_brings_is_declined() -> None:
    """Reading the sensor more often makes it less certain."""
    node = Node()
    couplings = (Coupling("rate", "confidence", -1.0),)
    node.publish("P", rate(1, 60, 10), confidence(0, 100, 80), couplings=couplings)
    node.expect("sure", PropertyRequirement("confidence", 75.0), utility=2)
    conflict = told("often", MatchState.SATISFIABLE, AdaptationDecision.CONFLICT, rate=10.0)
    assert node.expect("often", PropertyRequirement("rate", 20.0), utility=2) == [conflict]
    assert node.expect("some", PropertyRequirement("rate", 15.0), utility=1)[0] == Advice(
        "P", "c", "rate", 15.0
    )
    node.revoke("some")
    more = node.expect("often", PropertyRequirement("rate", 20.0), utility=3)
    assert more[0] == Advice("P", "c", "rate", 20.0), "it is worth more than what it breaks"


def test_nothing_breaks_where_somebody_else_satisfies() -> None:
    node = Node()
    couplings = (Coupling("rate", "confidence", -1.0),)
    node.publish("P", rate(1, 60, 10), confidence(0, 100, 80), couplings=couplings)
    node.expect("sure", PropertyRequirement("confidence", 75.0), utility=9)
    node.publish("Q", confidence(0, 76, 76))
    assert node.expect("often", PropertyRequirement("rate", 20.0))[0] == Advice(
        "P", "c", "rate", 20.0
    )
    node.publish("P", rate(1, 60, 20), confidence(0, 100, 70), couplings=couplings)
    assert node.state("sure") is node.state("often") is MatchState.SATISFIED


def test_an_expectation_is_not_satisfied_by_breaking_itself() -> None:
    node = Node()
    couplings = (Coupling("rate", "confidence", -1.0),)
    node.publish("P", rate(1, 60, 10), confidence(0, 100, 80), couplings=couplings)
    both = (PropertyRequirement("rate", 20.0), PropertyRequirement("confidence", 75.0))
    assert node.expect("M", *both)[-1] == told(
        "M", MatchState.SATISFIABLE, AdaptationDecision.CONFLICT, rate=10.0
    )


def test_several_publishers_each_have_to_satisfy() -> None:
    node = Node()
    node.publish("P", rate(1, 60, 10))
    assert node.expect("M", PropertyRequirement("rate", 5.0), publishers=2) == [
        told("M", MatchState.UNSATISFIED)
    ]
    node.publish("Q", rate(1, 60, 2))
    node.publish("R", rate(1, 60, 3, ConstantCost(5.0)))
    assert node.state("M") is MatchState.SATISFIABLE
    assert len(node.quality.report("M").depends_on) == 2
    assert node.publish("Q", rate(1, 60, 5)) == [told("M", MatchState.SATISFIED)]
    assert [node.quality.usage(who, "c")[0] for who in "PQR"] == [1, 1, 0]
    notices = node.check(node.quality.revoke_profile("P", "c", now_us=0))
    assert notices[0] == Advice("R", "c", "rate", 5.0)


def test_what_nobody_needs_any_more_is_given_back() -> None:
    node = Node(strategy="freeing")
    node.publish("P", rate(1, 60, 2))
    node.expect("M", PropertyRequirement("rate", 5.0))
    node.expect("N", PropertyRequirement("rate", 20.0))
    node.publish("P", rate(1, 60, 20))
    node.expect("O", PropertyRequirement("rate", 8.0))
    released = Advice("P", "c", "rate", 8.0, is_release=True)
    assert node.revoke("N") == [released], "less, but no less than the others need"
    node.publish("P", rate(1, 60, 8))
    assert node.state("O") is MatchState.SATISFIED
    node.revoke("O")
    assert node.revoke("M") == [Advice("P", "c", "rate", 2.0, is_release=True)]


def test_who_relies_on_what_is_being_given_back_keeps_it() -> None:
    node = Node(strategy="freeing")
    node.publish("P", rate(1, 60, 2))
    node.expect("M", PropertyRequirement("rate", 20.0))
    node.publish("P", rate(1, 60, 20))
    assert node.revoke("M") == [Advice("P", "c", "rate", 2.0, is_release=True)]
    assert node.expect("N", PropertyRequirement("rate", 8.0)) == [
        told("N", MatchState.SATISFIED),
        Advice("P", "c", "rate", 8.0, is_release=True),
    ]
    assert node.publish("P", rate(1, 60, 8)) == []
    assert node.revoke("N") == [Advice("P", "c", "rate", 2.0, is_release=True)], "as it was"
    assert len(node.quality.coordinator) == 0


def test_without_freeing_publishers_are_left_as_they_are() -> None:
    node = Node(strategy="pareto")
    node.publish("P", rate(1, 60, 2))
    node.expect("M", PropertyRequirement("rate", 5.0))
    node.publish("P", rate(1, 60, 5))
    assert node.revoke("M") == []
    assert len(node.quality.coordinator) == 0


def test_the_cost_minimising_strategy_takes_the_cheapest_and_declines_what_is_not_worth_it() -> (
    None
):
    node = Node(strategy="cheapest")
    node.publish("P", rate(1, 60, 2, LinearCost(0, 3.0)))
    node.publish("Q", rate(1, 60, 1, LinearCost(0, 1.0)))
    node.publish("Q2", rate(1, 61, 1, LinearCost(100, 1.0)))
    assert node.expect("M", PropertyRequirement("rate", 5.0), utility=9)[0] == Advice(
        "Q2", "c", "rate", 5.0
    ), "of P and Q2 (Q is surpassed by both) the one for which it is less more"
    declined = node.expect("N", PropertyRequirement("rate", 50.0), utility=9)
    assert declined == [told("N", MatchState.SATISFIABLE, AdaptationDecision.TOO_COSTLY, rate=2.0)]


def test_what_the_node_measures_is_improved_by_what_the_node_does() -> None:
    node = Node()
    node.publish("P", rate(1, 60, 2))
    node.expect("M", PropertyRequirement("latency", None, 50.0))
    assert node.state("M") is MatchState.UNSATISFIED
    tried = node.measure("latency", 80.0, best=20.0)
    assert tried == [
        ApplyMechanism(1, MechanismStep.RAISE_IMPORTANCE, "P", "c", "latency", 50.0),
        told("M", MatchState.SATISFIABLE, AdaptationDecision.ADAPTING, latency=80.0),
    ]
    assert node.measure("latency", 83.0, best=20.0) == [], "jitter"
    node.wait(PATIENCE - 2)
    after = node.wait(2)
    assert after == [
        WithdrawMechanism(1),
        ApplyMechanism(2, MechanismStep.SHAPE, "P", "c", "latency", 50.0),
    ]
    assert node.measure("latency", 45.0, best=20.0) == [told("M", MatchState.SATISFIED)]
    assert node.revoke("M") == [WithdrawMechanism(2)]


def test_a_sequence_of_steps_is_one_mechanism() -> None:
    node = Node()
    for name in ("hurry", "shape", "hurry-over-two-paths"):
        if name != "hurry-over-two-paths":
            node.quality.repository.remove(name)
    node.publish("P", rate(1, 60, 2))
    node.measure("latency", 80.0, best=20.0)
    assert node.expect("M", PropertyRequirement("latency", None, 50.0))[:2] == [
        ApplyMechanism(1, MechanismStep.RAISE_IMPORTANCE, "P", "c", "latency", 50.0),
        ApplyMechanism(1, MechanismStep.ADD_PATH, "P", "c", "latency", 50.0),
    ]


def test_no_publisher_can_declare_what_nodes_measure() -> None:
    node = Node()
    with pytest.raises(QualityError, match="latency: is measured by nodes"):
        node.publish("P", Capability("latency", 1.0, 5.0, 2.0))
    node.publish("P", rate(1, 60, 2))
    with pytest.raises(QualityError, match="rate: is declared by publishers"):
        node.measure("rate", 5.0)


def test_properties_are_defined_while_running() -> None:
    node = Node()
    with pytest.raises(QualityError, match="'colour': no such property"):
        node.expect("M", PropertyRequirement("colour", "grey"))
    colour = Property(name="colour", better=Better.HIGHER, levels=("none", "grey", "full"))
    node.quality.define(colour, now_us=0)
    node.publish("P", Capability("colour", "none", "full", "none"))
    assert node.expect("M", PropertyRequirement("colour", "grey"))[0] == Advice(
        "P", "c", "colour", "grey"
    )
    other = Property(name="colour", better=Better.LOWER, levels=("none", "grey", "full"))
    with pytest.raises(QualityError, match="'colour': is in use"):
        node.quality.define(other, now_us=0)
    node.quality.define(colour, now_us=0)


def test_wildcards_take_publishers_on_all_their_channels() -> None:
    quality = Negotiation("n")
    expectation = Expectation(
        id="M", subscription="s", channel="site/+", requirements=(PropertyRequirement("rate", 5.0),)
    )
    quality.register(expectation, now_us=0)
    profile = Profile(publisher="P", channel="site/a", capabilities=(rate(1, 60, 9),))
    assert quality.register_profile(profile, now_us=0) == [
        StateChanged("s", "M", MatchState.SATISFIED)
    ]
    quality.check_invariants()


def test_a_change_that_concerns_many_is_worked_off_bit_by_bit() -> None:
    node = Node(visits=4)
    for number in range(20):
        node.expect(f"M{number}", PropertyRequirement("rate", 5.0))
    first = node.publish("P", rate(1, 60, 9))
    assert len(first) == 4
    assert node.quality.next_due_us() == 0
    assert len(node.check(node.quality.advance(now_us=0))) == 4
    rest = node.wait(0)
    assert len(rest) == 12
    assert node.quality.next_due_us() > 0


def advised(strategy: str, delivered: dict[str, Delivered], cost_of_q: float = 1.0) -> list[str]:
    """Which of two publishers is advised to send more."""
    node = Node(strategy=strategy)
    node.quality.engine.delivered_of = lambda profile: delivered.get(profile.publisher, Delivered())
    node.publish("P", rate(1, 60, 2, ConstantCost(1.0)))
    node.publish("Q", rate(1, 60, 2, ConstantCost(cost_of_q)))
    notices = node.expect("M", PropertyRequirement("rate", 5.0), utility=4.0)
    return [each.publisher for each in notices if isinstance(each, Advice)]


@pytest.mark.parametrize("strategy", ["pareto", "freeing", "cheapest"])
def test_a_publisher_whose_events_arrive_in_time_is_preferred(strategy: str) -> None:
    assert advised(strategy, {}) == ["P"]
    assert advised(strategy, {"P": Delivered(in_time=0.5)}) == ["Q"]
    assert advised(strategy, {"P": Delivered(0.5), "Q": Delivered(0.4)}) == ["P"]
    # Of two that deliver as well, the one in use.
    assert advised(strategy, {"Q": Delivered(1.0, rate_hz=3.0)}) == ["Q"]


def test_what_does_not_arrive_is_not_worth_its_cost() -> None:
    assert advised("pareto", {"P": Delivered(0.8)}, cost_of_q=1.5) == ["P"]
    assert advised("pareto", {"P": Delivered(0.5)}, cost_of_q=1.5) == ["Q"]
    nothing_arrives = {"P": Delivered(0.1), "Q": Delivered(0.1)}
    assert advised("pareto", nothing_arrives) == ["P"]
    assert advised("cheapest", nothing_arrives) == []


def test_of_publishers_that_satisfy_the_one_in_time_is_used() -> None:
    node = Node()
    node.quality.engine.delivered_of = lambda profile: Delivered(
        {"P": 0.5}.get(profile.publisher, 1.0)
    )
    for publisher in "PQ":
        node.publish(publisher, rate(1, 60, 10))
    node.expect("M", PropertyRequirement("rate", 5.0))
    assert node.wait(2 * S) == [UsageChanged("Q", "c", 1, 1.0)]
