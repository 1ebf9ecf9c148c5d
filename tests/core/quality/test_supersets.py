"""Each node ends with what a computation over the whole network gives, whatever was lost."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from random import Random

import pytest

from accord.core.quality import supersets as superset_module
from accord.core.quality.delta_sync import DeltaReceiver, DeltaSender
from accord.core.quality.expectations import Expectation, PropertyRequirement, score_expectation
from accord.core.quality.match_groups import Scope
from accord.core.quality.matching import MatchState, match
from accord.core.quality.messages import (
    ForwardedProfile,
    NegotiationAck,
    NegotiationDelta,
    PropertyInterest,
    QualityMessage,
)
from accord.core.quality.profiles import Capability, Profile, Vector, score_capabilities, vector_of
from accord.core.quality.properties import PropertyRegistry
from accord.core.quality.skyline import dominates
from accord.core.quality.supersets import SuperSets

REGISTRY = PropertyRegistry()
MS = 1_000
S = 1_000_000
SCOPES: tuple[Scope, ...] = (("c", ("latency", "rate")), ("c", ("rate",)), ("+", ("latency",)))


class Node:
    def __init__(self, name: str, incarnation: int) -> None:
        self.name = name
        self.saying = DeltaSender(incarnation)
        self.sets = SuperSets(name, REGISTRY, self.saying)
        self.hearing: dict[str, DeltaReceiver] = {}

    def receive(
        self, neighbour: str, message: QualityMessage, now_us: int
    ) -> NegotiationAck | None:
        hearing = self.hearing.get(neighbour)
        if hearing is None:
            return None
        if isinstance(message, NegotiationAck):
            self.saying.on_ack(neighbour, message, now_us)
            return None
        for before, after in hearing.on_delta(message):
            self._hear(neighbour, before, after)
        self.sets.propagate(now_us)
        return hearing.ack()

    def _hear(self, neighbour: str, before: object, after: object) -> None:
        wants = [each if isinstance(each, PropertyInterest) else None for each in (before, after)]
        haves = [each if isinstance(each, ForwardedProfile) else None for each in (before, after)]
        self.sets.update_interest(neighbour, wants[0], wants[1])
        self.sets.update_profile(neighbour, haves[0], haves[1])


class Network:
    """Nodes whose messages are lost, doubled and overtaken, all by a seed."""

    def __init__(self, seed: int, loss: float) -> None:
        self.random = Random(seed)  # noqa: S311
        self.loss = loss
        self.now_us = 0
        self.nodes: dict[str, Node] = {}
        self.links: dict[tuple[str, str], float] = {}  # both directions, with their latency
        self.profiles: dict[str, dict[str, Profile]] = {}  # by node and source
        self.wants: dict[str, dict[Scope, int]] = {}
        self.sent = 0
        self._number = count(1)
        self._queue: list[tuple[int, int, str, str, QualityMessage]] = []

    def start(self, name: str) -> None:
        self.nodes[name] = Node(name, next(self._number))
        self.profiles[name] = {}
        self.wants[name] = {}

    def crash(self, name: str) -> None:
        for one, other in list(self.links):
            if one == name:
                self.cut(one, other)
        del self.nodes[name], self.profiles[name], self.wants[name]

    def join(self, one: str, other: str, latency_ms: float) -> None:
        for here, there in ((one, other), (other, one)):
            node = self.nodes[here]
            if (here, there) in self.links:
                node.sets.link_changed(there, {"latency": latency_ms})
            else:
                node.hearing[there] = DeltaReceiver()
                node.saying.link_up(there, self.now_us)
                node.sets.link_up(there, {"latency": latency_ms})
            self.links[here, there] = latency_ms
            node.sets.propagate(self.now_us)

    def cut(self, one: str, other: str) -> None:
        for here, there in ((one, other), (other, one)):
            if self.links.pop((here, there), None) is not None:
                node = self.nodes[here]
                del node.hearing[there]
                node.saying.link_down(there)
                node.sets.link_down(there)
                node.sets.propagate(self.now_us)

    def publish(self, name: str, source: str, profile: Profile | None) -> None:
        node = self.nodes[name]
        known = self.profiles[name].pop(source, None)
        if known is not None and (profile is None or profile.channel != known.channel):
            node.sets.remove_local(known.channel, source)
        if profile is not None:
            self.profiles[name][source] = profile
            offers = score_capabilities(profile.capabilities, REGISTRY)
            node.sets.set_local(profile.channel, source, offers)
        node.sets.propagate(self.now_us)

    def want(self, name: str, scope: Scope, publishers: int) -> None:
        sets = self.nodes[name].sets
        if self.wants[name].pop(scope, 0):
            sets.groups[scope].remove("X")
            sets.release(scope)
        if publishers:
            self.wants[name][scope] = publishers
            sets.group(scope, publishers).add("X", (-1e9,) * len(scope[1]), publishers)
        sets.propagate(self.now_us)

    def run(self, until_us: int) -> None:
        while True:
            due = [(node.saying.next_due_us(), name) for name, node in self.nodes.items()]
            at_us, name = min(due)
            if self._queue and self._queue[0][0] <= at_us:
                at_us = self._queue[0][0]
                if at_us > until_us:
                    break
                self.now_us = max(self.now_us, at_us)
                _, _, sender, receiver, message = heappop(self._queue)
                self._deliver(sender, receiver, message)
                continue
            if at_us > until_us:
                break
            self.now_us = max(self.now_us, at_us)
            for neighbour, news in self.nodes[name].saying.take(self.now_us):
                self._send(name, neighbour, news)
        self.now_us = until_us

    def _deliver(self, sender: str, receiver: str, message: QualityMessage) -> None:
        if (receiver, sender) in self.links:
            answer = self.nodes[receiver].receive(sender, message, self.now_us)
            if answer is not None:
                self._send(receiver, sender, answer)

    def _send(self, sender: str, receiver: str, message: QualityMessage) -> None:
        self.sent += isinstance(message, NegotiationDelta)
        for _ in range(2 if self.random.random() < 0.05 else 1):
            if self.random.random() >= self.loss:
                at_us = self.now_us + self.random.randrange(1 * MS, 60 * MS)
                heappush(self._queue, (at_us, next(self._number), sender, receiver, message))

    def distances(self, name: str) -> dict[str, float]:
        best = {name: 0.0}
        heap = [(0.0, name)]
        while heap:
            far, here = heappop(heap)
            for (one, other), latency in self.links.items():
                if one == here and far + latency < best.get(other, 1e18):
                    best[other] = far + latency
                    heappush(heap, (far + latency, other))
        return best

    def seen_from(self, name: str) -> list[Profile]:
        """All profiles there are, as far away as they are."""
        distances = self.distances(name)
        seen: list[Profile] = []
        for node, profiles in self.profiles.items():
            for source, profile in profiles.items():
                if node in distances:
                    seen.append(_further(profile, source, distances[node]))
        return seen


def _further(profile: Profile, source: str, latency: float) -> Profile:
    capabilities = []
    for each in profile.capabilities:
        if each.property == "latency":
            low, high, now = (float(v) + latency for v in (each.lower, each.upper, each.current))
            capabilities.append(Capability("latency", low, high, now))
        else:
            capabilities.append(each)
    return Profile(publisher=source, channel=profile.channel, capabilities=tuple(capabilities))


def random_profile(random: Random) -> Profile:
    low, now, high = sorted(10.0 * random.randrange(10) for _ in range(3))
    rate = [float(each) for each in sorted(random.randrange(10) for _ in range(3))]
    capabilities = [Capability("latency", low, high, now)]
    if random.random() < 0.8:
        capabilities.append(Capability("rate", rate[0], rate[2], rate[1]))
    channel = random.choice(("c", "c", "d"))
    return Profile(publisher="hidden", channel=channel, capabilities=tuple(capabilities))


def scenario(seed: int) -> Network:
    network = Network(seed, (0.0, 0.1, 0.4)[seed % 3])
    random = network.random
    names = [f"n{number}" for number in range(3 + seed % 4)]
    for name in names:
        network.start(name)
    pairs = [(names[random.randrange(at)], name) for at, name in enumerate(names) if at]
    pairs += [(one, other) for one in names for other in names if one < other][: seed % 4]
    steps = 60
    for step in range(steps):
        name = random.choice(names)
        chance = random.random()
        if name not in network.nodes:
            network.start(name)
        elif chance < 0.5:
            source = f"{name}#{random.randrange(4)}"
            profile = None if random.random() < 0.3 else random_profile(random)
            network.publish(name, source, profile)
        elif chance < 0.65:
            network.want(name, random.choice(SCOPES), random.choice((0, 1, 1, 2, 3)))
        elif chance < 0.85:
            one, other = random.choice(pairs)
            if one in network.nodes and other in network.nodes:
                network.join(one, other, float(random.choice((0, 10, 20, 40))))
        elif chance < 0.93:
            network.cut(*random.choice(pairs))
        elif chance < 0.96:
            network.crash(name)
        network.run(network.now_us + random.randrange(1, 80 * MS))
        if step % 10 == 0:
            for node in network.nodes.values():
                node.sets.check_invariants()
                node.saying.check_invariants()
    for name in names:
        if name not in network.nodes:
            network.start(name)
    for one, other in pairs:
        network.join(one, other, float(random.choice((0, 10, 20, 40))))
    network.want(names[0], SCOPES[0], 1)
    network.want(names[-1], SCOPES[0], 2)
    return network


def brute_force(profiles: list[Profile], scope: Scope, depth: int) -> set[Vector]:
    vectors: dict[str, Vector] = {}
    for profile in profiles:
        if scope[0] in ("+", profile.channel):
            vector = vector_of(score_capabilities(profile.capabilities, REGISTRY), scope[1])
            if vector is not None:
                vectors[profile.publisher] = vector
    return {
        vector
        for vector in vectors.values()
        if sum(dominates(other, vector) for other in vectors.values()) < depth
    }


def random_expectation(random: Random, scope: Scope) -> Expectation:
    bounds = {
        "latency": PropertyRequirement("latency", None, 10.0 * random.randrange(15)),
        "rate": PropertyRequirement("rate", float(random.randrange(10)), None),
    }
    return Expectation(
        id="Y",
        subscription="s",
        channel=scope[0],
        requirements=tuple(bounds[name] for name in scope[1]),
        publishers=random.choice((1, 2)),
    )


@pytest.mark.parametrize("seed", range(24))
def test_every_node_ends_with_the_skyline_of_all(seed: int) -> None:
    network = scenario(seed)
    network.run(network.now_us + 60 * S)
    wanted = {scope: max(w.get(scope, 0) for w in network.wants.values()) for scope in SCOPES}
    for name, node in network.nodes.items():
        node.sets.check_invariants()
        node.saying.check_invariants()
        assert node.sets.malformed == 0
        assert set(node.sets.groups) == {scope for scope, most in wanted.items() if most}
        profiles = network.seen_from(name)
        for scope, group in node.sets.groups.items():
            assert group.skyline.depth == wanted[scope]
            found = set(group.skyline.members().values())
            assert found == brute_force(profiles, scope, wanted[scope]), (name, scope)
    sent = network.sent
    network.run(network.now_us + 60 * S)
    assert network.sent == sent, "when all is known nothing is said"


@pytest.mark.parametrize("seed", range(6))
def test_every_node_decides_as_if_it_knew_all(seed: int) -> None:
    network = scenario(seed)
    network.run(network.now_us + 60 * S)
    random = network.random
    scope = SCOPES[0]
    for name, node in network.nodes.items():
        profiles = [each for each in network.seen_from(name) if each.channel == "c"]
        for _ in range(30):
            expectation = random_expectation(random, scope)
            group = node.sets.group(scope, 1)
            wanted = score_expectation(expectation, REGISTRY)
            group.add("Y", wanted.least, expectation.publishers)
            truth = match(expectation, profiles, REGISTRY)
            assert group.state("Y") is truth.state
            if truth.state is MatchState.SATISFIED:
                assert len({source for source, _ in group.candidates(wanted.least)[0]}) >= 1
            group.remove("Y")


def test_publishers_are_masked_and_latency_is_added_hop_by_hop() -> None:
    network = Network(0, 0.0)
    for name in ("A", "B", "C"):
        network.start(name)
    network.join("A", "B", 20.0)
    network.join("B", "C", 10.0)
    network.want("C", SCOPES[0], 1)
    capabilities = (Capability("latency", 1.0, 5.0, 3.0), Capability("rate", 1.0, 9.0, 2.0))
    profile = Profile(publisher="alice", channel="c", capabilities=capabilities)
    network.publish("A", "A#1", profile)
    network.run(1 * S)
    group = network.nodes["C"].sets.groups[SCOPES[0]]
    assert group.forwarded() == [("A#1", ("B", "A"))]
    offers = group.offers(("A#1", ("B", "A")))
    assert offers["latency"].capability == Capability("latency", 31.0, 35.0, 33.0)
    assert offers["rate"].capability == capabilities[1]
    said = [
        *network.nodes["A"].saying.entries().values(),
        *network.nodes["B"].saying.entries().values(),
    ]
    assert "alice" not in repr(said)
    network.join("B", "C", 40.0)
    assert group.offers(("A#1", ("B", "A")))["latency"].capability.current == 63.0
    network.join("B", "C", 41.0)
    assert group.offers(("A#1", ("B", "A")))["latency"].capability.current == 63.0, "jitter"


def test_what_is_gone_does_not_go_round() -> None:
    network = Network(0, 0.0)
    for name in ("A", "B", "C", "D"):
        network.start(name)
    for pair in (("A", "B"), ("B", "C"), ("C", "D"), ("B", "D")):
        network.join(*pair, 0.0)
    network.want("D", SCOPES[1], 1)
    network.publish("A", "A#1", random_profile(Random(1)))  # noqa: S311
    rate = (Capability("rate", 1.0, 9.0, 2.0),)
    network.publish("A", "A#1", Profile(publisher="p", channel="c", capabilities=rate))
    network.run(1 * S)
    assert network.nodes["C"].sets.groups[SCOPES[1]].forwarded() == [("A#1", ("B", "A"))]
    network.cut("A", "B")
    network.run(2 * S)
    for name in ("B", "C", "D"):
        assert network.nodes[name].sets.groups[SCOPES[1]].forwarded() == []


def test_nobody_keeps_what_nobody_wants() -> None:
    network = Network(0, 0.0)
    for name in ("A", "B"):
        network.start(name)
    network.join("A", "B", 1.0)
    network.publish("A", "A#1", random_profile(Random(1)))  # noqa: S311
    network.run(1 * S)
    assert network.sent == 2, "both have said that they are there, and nothing else"
    network.want("B", SCOPES[2], 1)
    network.run(2 * S)
    assert network.nodes["A"].sets.groups.keys() == {SCOPES[2]}
    network.want("B", SCOPES[2], 0)
    network.run(3 * S)
    assert not network.nodes["A"].sets.groups
    assert not network.nodes["A"].saying.entries()
    assert not network.nodes["B"].saying.entries()


def test_what_one_neighbour_wants_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superset_module, "MAX_SCOPES", 8)
    node = Node("a", 1)
    for neighbour, most in (("b", 4), ("c", 6)):
        node.sets.link_up(neighbour, {})
        for number in range(8):
            want = PropertyInterest(f"{neighbour}{number}", ("rate",), 1, (neighbour,))
            node.sets.update_interest(neighbour, None, want)
        assert len(node.sets.groups) == most
    node.sets.update_interest("c", None, PropertyInterest("b1", ("rate",), 1, ("c",)))
    assert not node.sets.is_full
    node.sets.group(("here", ("rate",)), 1)
    node.sets.link_down("b")
    node.sets.propagate(0)
    assert len(node.sets.groups) == 4, "one of them is wanted by both"


def test_filters_of_many_levels_are_nothing_that_a_neighbour_wants() -> None:
    node = Node("a", 1)
    node.sets.link_up("b", {})
    node.sets.update_interest("b", None, PropertyInterest("x/" * 64 + "x", ("rate",), 1, ("b",)))
    assert (node.sets.malformed, len(node.sets.groups)) == (1, 0)
    node.sets.update_interest("b", None, PropertyInterest("x/" * 63 + "x", ("rate",), 1, ("b",)))
    assert (node.sets.malformed, len(node.sets.groups)) == (1, 1)
