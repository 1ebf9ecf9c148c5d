"""Negotiation between nodes: the paper's figure 4, advice over hops, and random runs."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count
from random import Random

import pytest

from accord.core.quality.costs import ConstantCost, LinearCost
from accord.core.quality.expectations import Expectation, Lifecycle, PropertyRequirement
from accord.core.quality.matching import MatchState, UnmetReason, match
from accord.core.quality.measurements import Measurement
from accord.core.quality.messages import (
    AdaptationDecision,
    Advice,
    Notice,
    QualityMessage,
    SendToNeighbour,
    StateChanged,
)
from accord.core.quality.negotiation import Negotiation, NegotiationOptions
from accord.core.quality.profiles import Capability, Coupling, Profile
from accord.core.quality.properties import SHIPPED, Better, Property, PropertyRegistry

MS = 1_000
S = 1_000_000
LOWER = tuple(Property(name=name, better=Better.LOWER) for name in ("pa", "pb"))


class Direct:
    """Nodes that are told at once what others say, in the order in which they say it."""

    def __init__(self, *names: str, options: NegotiationOptions | None = None) -> None:
        registry = PropertyRegistry((*SHIPPED, *LOWER))
        self.nodes = {name: Negotiation(name, registry=registry, options=options) for name in names}
        self.now_us = 0
        self.told: dict[str, list[Notice]] = {name: [] for name in names}

    def join(self, one: str, other: str, latency_ms: float = 0.0) -> None:
        for here, there in ((one, other), (other, one)):
            up = self.nodes[here].link_up(there, {"latency": latency_ms}, now_us=self.now_us)
            self.take(here, up)

    def take(self, name: str, notices: list[Notice]) -> list[Notice]:
        """Let everything happen that follows; returns what `name` tells its clients."""
        before = len(self.told[name])
        queue = deque([(name, notices)])
        while True:
            while queue:
                here, said = queue.popleft()
                for notice in said:
                    if isinstance(notice, SendToNeighbour):
                        node = self.nodes[notice.neighbour]
                        heard = node.receive(here, notice.message, now_us=self.now_us)
                        queue.append((notice.neighbour, heard))
                    else:
                        self.told[here].append(notice)
            soon = [n for n, node in self.nodes.items() if node.next_due_us() <= self.now_us]
            if not soon:
                due_us = min(node.next_due_us() for node in self.nodes.values())
                if due_us > self.now_us + 10 * MS:
                    break
                self.now_us = due_us
                continue
            queue.append((soon[0], self.nodes[soon[0]].advance(now_us=self.now_us)))
        for node in self.nodes.values():
            node.check_invariants()
        return self.told[name][before:]


def profile(publisher: str, **ranges: tuple[float, float, float]) -> Profile:
    """By property: lower, current, upper."""
    capabilities = tuple(
        Capability(name, low, high, now, LinearCost(100.0, -1.0))
        for name, (low, now, high) in ranges.items()
    )
    return Profile(publisher=publisher, channel="e", capabilities=capabilities)


def within(id_: str, subscription: str, **most: float) -> Expectation:
    requirements = tuple(PropertyRequirement(name, 0.0, value) for name, value in most.items())
    return Expectation(id=id_, subscription=subscription, channel="e", requirements=requirements)


def figure_4() -> Direct:
    """Publishers P1 to P3 at B, P4 and P5 at C; both properties are to be minimised."""
    nodes = Direct("B", "C")
    nodes.join("B", "C")
    for each in (
        profile("P1", pa=(2, 4, 6), pb=(6, 8, 10)),
        profile("P2", pa=(6, 8, 10), pb=(2, 4, 6)),
        profile("P3", pa=(8, 9, 10), pb=(8, 9, 10)),
    ):
        nodes.take("B", nodes.nodes["B"].register_profile(each, now_us=0))
    for each in (
        profile("P4", pa=(9, 10, 11), pb=(8, 9, 11)),
        profile("P5", pa=(8, 9, 12), pb=(10, 11, 12)),
    ):
        nodes.take("C", nodes.nodes["C"].register_profile(each, now_us=0))
    return nodes


def test_figure_4() -> None:
    nodes = figure_4()
    b, c = nodes.nodes["B"], nodes.nodes["C"]
    scope = "e", ("pa", "pb")
    told: dict[str, StateChanged] = {}
    for expectation in (
        within("X3", "S1", pa=5, pb=9),
        within("X1", "S1", pa=3, pb=7),
        within("X2", "S2", pa=9, pb=5),
        within("X5", "S3", pa=7, pb=3),
        within("X4", "S4", pa=1, pb=1),
    ):
        for notice in nodes.take("C", c.register(expectation, now_us=nodes.now_us)):
            if isinstance(notice, StateChanged):
                told[notice.expectation] = notice
    assert {id_ for id_, each in told.items() if each.state is MatchState.SATISFIED} == {"X3", "X2"}
    assert {id_ for id_, each in told.items() if each.state is MatchState.SATISFIABLE} == {
        "X1",
        "X5",
    }
    assert {id_ for id_, each in told.items() if each.state is MatchState.UNSATISFIED} == {"X4"}
    assert b.skyline(scope) == [("B#1", ()), ("B#2", ())], "P1 and P2"
    assert c.skyline(scope) == [("B#1", ("B",)), ("B#2", ("B",))], "masked, and nothing else"
    assert [each.now for each in told["X4"].reasons] in ([4.0, 8.0], [8.0, 4.0]), "P1's or P2's"
    assert told["X1"].decision is AdaptationDecision.TOO_COSTLY, (
        "X3 is satisfied already, and for less"
    )
    assert told["X5"].decision is AdaptationDecision.ADAPTING
    assert Advice("P2", "e", "pa", 7.0) in nodes.told["B"]
    assert Advice("P2", "e", "pb", 3.0) in nodes.told["B"]


def test_figure_4_with_costs_that_fall() -> None:
    """X1 is approved where satisfying it costs no more than what X3 has now."""
    nodes = figure_4()
    cheap = Profile(
        publisher="P1",
        channel="e",
        capabilities=(
            Capability("pa", 2.0, 6.0, 4.0, LinearCost(0.0, 1.0)),
            Capability("pb", 6.0, 10.0, 8.0, ConstantCost(1.0)),
        ),
    )
    nodes.take("B", nodes.nodes["B"].update_profile(cheap, now_us=0))
    c = nodes.nodes["C"]
    nodes.take("C", c.register(within("X3", "S1", pa=5, pb=9), now_us=0))
    nodes.take("C", c.register(within("X1", "S1", pa=3, pb=7), now_us=0))
    # Of all values that are good enough the cheapest one is advised.
    assert [each for each in nodes.told["B"] if isinstance(each, Advice)] == [
        Advice("P1", "e", "pa", 2.0),
        Advice("P1", "e", "pb", 7.0),
    ]


def sensor(now: float, most: float = 60.0, couplings: tuple[Coupling, ...] = ()) -> Profile:
    capabilities = (
        Capability("rate", 1.0, most, now),
        Capability("confidence", 0.0, 100.0, 80.0),
    )
    return Profile(publisher="P", channel="e", capabilities=capabilities, couplings=couplings)


def often(id_: str, rate: float, utility: float = 1.0) -> Expectation:
    return Expectation(
        id=id_,
        subscription=id_,
        channel="e",
        requirements=(PropertyRequirement("rate", rate),),
        utility=utility,
    )


def test_advice_reaches_a_publisher_over_several_hops_and_is_taken_back() -> None:
    nodes = Direct("A", "B", "C", options=NegotiationOptions(strategy="freeing"))
    nodes.join("A", "B")
    nodes.join("B", "C")
    a, c = nodes.nodes["A"], nodes.nodes["C"]
    nodes.take("A", a.register_profile(sensor(2.0), now_us=0))
    assert nodes.take("C", c.register(often("X", 5.0), now_us=nodes.now_us)) == [
        StateChanged("X", "X", MatchState.UNSATISFIED, reasons=(UnmetReason("X", "rate", None),)),
        StateChanged(
            "X",
            "X",
            MatchState.SATISFIABLE,
            AdaptationDecision.ADAPTING,
            (UnmetReason("X", "rate", 2.0),),
        ),
    ]
    assert nodes.told["A"][-1] == Advice("P", "e", "rate", 5.0)
    nodes.take("A", a.update_profile(sensor(5.0), now_us=nodes.now_us))
    assert nodes.told["C"][-1] == StateChanged("X", "X", MatchState.SATISFIED)
    b = nodes.nodes["B"]
    nodes.take("B", b.register(often("Y", 4.0), now_us=nodes.now_us))
    assert a.usage("P", "e") == (1, 2.0), "B relies on it for itself and for C"
    nodes.take("C", c.revoke("X", now_us=nodes.now_us))
    assert nodes.told["A"][-1] == Advice("P", "e", "rate", 4.0, is_release=True)
    nodes.take("B", b.revoke("Y", now_us=nodes.now_us))
    assert nodes.told["A"][-1] == Advice("P", "e", "rate", 2.0, is_release=True)
    assert a.usage("P", "e") == (0, 0.0)
    for node in nodes.nodes.values():
        assert not node.supersets.sender.entries()


def test_what_matters_more_where_the_publisher_is_counts_for_those_far_away() -> None:
    nodes = Direct("A", "B", "C")
    nodes.join("A", "B")
    nodes.join("B", "C")
    a, c = nodes.nodes["A"], nodes.nodes["C"]
    couplings = (Coupling("rate", "confidence", -1.0),)
    nodes.take("A", a.register_profile(sensor(2.0, couplings=couplings), now_us=0))
    sure = Expectation(
        id="Sure",
        subscription="Sure",
        channel="e",
        requirements=(PropertyRequirement("confidence", 75.0),),
        utility=5.0,
    )
    nodes.take("A", a.register(sure, now_us=nodes.now_us))
    nodes.take("C", c.register(often("X", 20.0), now_us=nodes.now_us))
    last = nodes.told["C"][-1]
    assert isinstance(last, StateChanged)
    assert (last.state, last.decision) == (MatchState.SATISFIABLE, AdaptationDecision.FAILED)
    assert not [each for each in nodes.told["A"] if isinstance(each, Advice)]
    nodes.take("C", c.register(often("Y", 20.0, utility=6.0), now_us=nodes.now_us))
    assert nodes.told["A"][-1] == Advice("P", "e", "rate", 20.0)


def test_latency_is_measured_where_the_publisher_is_and_added_up() -> None:
    nodes = Direct("A", "B", "C")
    nodes.join("A", "B", 10.0)
    nodes.join("B", "C", 20.0)
    a, c = nodes.nodes["A"], nodes.nodes["C"]
    nodes.take("A", a.register_profile(sensor(2.0), now_us=0))
    slow = Measurement(channel="e", property="latency", value=5.0)
    nodes.take("A", a.measure(slow, now_us=0))
    soon = Expectation(
        id="X",
        subscription="X",
        channel="e",
        requirements=(PropertyRequirement("latency", None, 35.0),),
    )
    nodes.take("C", c.register(soon, now_us=nodes.now_us))
    assert nodes.told["C"][-1] == StateChanged("X", "X", MatchState.SATISFIED)
    nodes.take("C", c.link_changed("B", {"latency": 25.0}, now_us=nodes.now_us))
    assert nodes.told["C"][-1] == StateChanged(
        "X", "X", MatchState.UNSATISFIED, reasons=(UnmetReason("X", "latency", 40.0),)
    )


class Publisher:
    """Follows advice after a while, or does not."""

    def __init__(self, random: Random, *, is_faithful: bool) -> None:
        self.obeys = is_faithful or random.random() < 0.8
        self.best = float(random.randrange(2, 12))
        self.now = float(random.randrange(1, int(self.best)))
        self.confidence = float(random.randrange(100))
        is_coupled = not is_faithful and random.random() < 0.3
        self.couplings = (Coupling("rate", "confidence", -1.0),) if is_coupled else ()

    def profile(self, name: str) -> Profile:
        capabilities = (
            Capability("rate", 0.0, self.best, self.now, LinearCost(0.0, 1.0)),
            Capability("confidence", 0.0, 100.0, self.confidence),
        )
        return Profile(
            publisher=name, channel="e", capabilities=capabilities, couplings=self.couplings
        )


class Noisy:
    """Nodes with lossy links, publishers and subscribers that come and go, all by a seed."""

    def __init__(self, seed: int, names: list[str], *, is_faithful: bool = False) -> None:
        self.random = Random(seed)  # noqa: S311
        self.is_faithful = is_faithful  # publishers do as advised
        self.has_alternatives = True
        self.loss = (0.0, 0.2, 0.4)[seed % 3]
        self.options = NegotiationOptions(
            strategy=("pareto", "cheapest", "freeing")[seed // 3 % 3],
            mechanism_timeout_us=2 * S,
            remote_timeout_us=6 * S,
            retry_us=10 * S,
            visits=(3, 64)[seed % 2],
        )
        self.now_us = 0
        self.nodes: dict[str, Negotiation] = {}
        self.links: dict[tuple[str, str], bool] = {}
        self.publishers: dict[tuple[str, str], Publisher] = {}
        self.told: dict[tuple[str, str], StateChanged] = {}
        self._count = count(1)
        self._queue: list[tuple[int, int, str, str, QualityMessage | Advice]] = []
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        self.nodes[name] = Negotiation(name, incarnation=next(self._count), options=self.options)

    def crash(self, name: str) -> None:
        del self.nodes[name]
        self.publishers = {k: v for k, v in self.publishers.items() if k[0] != name}
        self.told = {k: v for k, v in self.told.items() if k[0] != name}
        for one, other in list(self.links):
            if one == name:
                del self.links[one, other], self.links[other, one]
                down = self.nodes[other].link_down(one, now_us=self.now_us)
                self.take(other, down)

    def join(self, one: str, other: str) -> None:
        if (one, other) in self.links or one not in self.nodes or other not in self.nodes:
            return
        for here, there in ((one, other), (other, one)):
            self.links[here, there] = True
            up = self.nodes[here].link_up(there, {"latency": 1.0}, now_us=self.now_us)
            self.take(here, up)

    def cut(self, one: str, other: str) -> None:
        for here, there in ((one, other), (other, one)):
            if self.links.pop((here, there), False):
                self.take(here, self.nodes[here].link_down(there, now_us=self.now_us))

    def take(self, name: str, notices: list[Notice]) -> None:
        for notice in notices:
            if isinstance(notice, StateChanged):
                self.told[name, notice.expectation] = notice
            elif isinstance(notice, Advice):
                self._later(500 * MS, name, notice.publisher, notice)
            elif isinstance(notice, SendToNeighbour) and self.random.random() >= self.loss:
                self._later(80 * MS, name, notice.neighbour, notice.message)

    def _later(self, us: int, one: str, other: str, what: QualityMessage | Advice) -> None:
        at_us = self.now_us + self.random.randrange(1, us)
        heappush(self._queue, (at_us, next(self._count), one, other, what))

    def run(self, until_us: int) -> None:
        while True:
            due = min((node.next_due_us(), name) for name, node in self.nodes.items())
            queued = self._queue[0][0] if self._queue else until_us + 1
            if min(due[0], queued) > until_us:
                break
            self.now_us = max(self.now_us, min(due[0], queued))
            if queued <= due[0]:
                self._deliver(*heappop(self._queue)[2:])
            else:
                self.take(due[1], self.nodes[due[1]].advance(now_us=self.now_us))
        self.now_us = until_us

    def is_quiet(self) -> bool:
        dues = [node.supersets.sender.next_due_us() for node in self.nodes.values()]
        return not self._queue and min(dues) > self.now_us + 60 * S

    def _deliver(self, one: str, other: str, what: QualityMessage | Advice) -> None:
        if isinstance(what, Advice):
            publisher = self.publishers.get((one, other))
            if publisher is not None and publisher.obeys:
                self._obey(one, other, publisher, what)
        elif (other, one) in self.links:
            heard = self.nodes[other].receive(one, what, now_us=self.now_us)
            self.take(other, heard)

    def _obey(self, node: str, name: str, publisher: Publisher, advice: Advice) -> None:
        target = float(advice.target)
        if advice.property == "rate" and target > publisher.best:
            return  # meant for one of the same name that is gone
        if advice.property == "confidence":
            publisher.confidence = target
        else:
            if publisher.couplings:
                publisher.confidence -= target - publisher.now
                publisher.confidence = min(max(publisher.confidence, 0.0), 100.0)
            publisher.now = target
        update = self.nodes[node].update_profile(publisher.profile(name), now_us=self.now_us)
        self.take(node, update)


def random_expectation(random: Random, id_: str, *, is_alone: bool) -> Expectation:
    requirements = [PropertyRequirement("rate", float(random.randrange(1, 13)))]
    if random.random() < 0.4:
        requirements.append(PropertyRequirement("confidence", float(random.randrange(100))))
    return Expectation(
        id=id_,
        subscription=id_ if is_alone or random.random() < 0.7 else f"s{random.randrange(3)}",
        channel=random.choice(("e", "e", "#")),
        requirements=tuple(requirements),
        utility=float(random.randrange(1, 5)),
        publishers=random.choice((1, 1, 1, 2)),
    )


def step(network: Noisy, names: list[str], pairs: list[tuple[str, str]]) -> None:
    random, now_us = network.random, network.now_us
    name = random.choice(names)
    node = network.nodes.get(name)
    chance = random.random()
    if node is None:
        network.start(name)
    elif chance < 0.2:
        who = f"{name}P{random.randrange(4)}"
        if (name, who) in network.publishers:
            del network.publishers[name, who]
            network.take(name, node.on_publisher_gone(who, now_us=now_us))
        else:
            publisher = Publisher(random, is_faithful=network.is_faithful)
            network.publishers[name, who] = publisher
            network.take(name, node.register_profile(publisher.profile(who), now_us=now_us))
    elif chance < 0.7:
        id_ = f"{name}X{random.randrange(6)}"
        if id_ not in node.expectations:
            expectation = random_expectation(random, id_, is_alone=not network.has_alternatives)
            network.take(name, node.register(expectation, now_us=now_us))
        elif chance < 0.5:
            network.told.pop((name, id_), None)
            network.take(name, node.revoke(id_, now_us=now_us))
        elif node.expectations.get(id_).lifecycle is Lifecycle.ACTIVE:
            network.told.pop((name, id_), None)
            network.take(name, node.suspend(id_, now_us=now_us))
        else:
            network.take(name, node.resume(id_, now_us=now_us))
    elif chance < 0.9:
        network.join(*random.choice(pairs))
    elif chance < 0.98:
        network.cut(*random.choice(pairs))
    elif len(network.nodes) > 1:
        network.crash(name)


def run(network: Noisy, names: list[str]) -> None:
    """Some time of changes and faults; then all is joined and left alone."""
    pairs = [(one, other) for one in names for other in names if one < other]
    for number in range(120):
        step(network, names, pairs)
        network.run(network.now_us + network.random.randrange(1, 400 * MS))
        if number % 5 == 0:
            for node in network.nodes.values():
                node.check_invariants()
    for name in names:
        if name not in network.nodes:
            network.start(name)
    for pair in pairs:
        network.join(*pair)
    network.run(network.now_us + 300 * S)
    # Something may be tried again now and then: wait until nothing is on its way.
    network.loss = 0.0
    while not network.is_quiet():
        network.run(network.now_us + 50 * MS)


def check_truth(network: Noisy) -> None:
    profiles = [publisher.profile(who) for (_, who), publisher in network.publishers.items()]
    registry = PropertyRegistry()
    for name, node in network.nodes.items():
        node.check_invariants()
        assert not node.engine.dirty
        for held in node.expectations:
            if held.lifecycle is Lifecycle.ACTIVE:
                id_ = held.expectation.id
                truth = match(held.expectation, profiles, registry)
                assert node.report(id_).state is truth.state, (name, id_)
                assert network.told[name, id_].state is truth.state


@pytest.mark.parametrize("seed", range(18))
def test_random_runs_stay_consistent_and_end_with_the_truth(seed: int) -> None:
    names = ["A", "B", "C", "D"][: 2 + seed % 3]
    network = Noisy(seed, names)
    run(network, names)
    check_truth(network)
    # When nobody expects anything, nothing is left anywhere.
    for name, node in network.nodes.items():
        for held in list(node.expectations):
            network.take(name, node.revoke(held.expectation.id, now_us=network.now_us))
    network.run(network.now_us + 60 * S)
    for node in network.nodes.values():
        node.check_invariants()
        assert not node.supersets.groups
        assert not node.supersets.sender.entries()
        assert len(node.coordinator) == len(node.engine.demands) == 0


def test_where_all_publishers_follow_whatever_can_be_had_is_had() -> None:
    satisfied = 0
    for seed in (0, 1, 2, 7, 8, 9):
        names = ["A", "B", "C", "D"][: 2 + seed % 3]
        network = Noisy(seed, names, is_faithful=True)
        network.has_alternatives = False
        run(network, names)
        check_truth(network)
        states = [notice.state for notice in network.told.values()]
        assert MatchState.SATISFIABLE not in states, seed
        satisfied += states.count(MatchState.SATISFIED)
    assert satisfied > 10


@pytest.mark.parametrize("seed", range(9))
def test_where_all_publishers_follow_it_comes_to_rest(seed: int) -> None:
    names = ["A", "B", "C", "D"][: 2 + seed % 3]
    network = Noisy(seed, names, is_faithful=True)
    run(network, names)
    network.told.clear()
    network.run(network.now_us + 60 * S)
    assert not network.told
