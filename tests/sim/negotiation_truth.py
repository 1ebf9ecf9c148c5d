"""What must hold between nodes that negotiate, worked out from all of them at once.

The truth is made of what publishers declare and nodes measure, and of what each link adds. Every
profile goes over every path; every expectation is matched with all of it by the paper's figure 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from accord.core.model.channels import filter_selects
from accord.core.quality.expectations import Expectation, Lifecycle
from accord.core.quality.match_groups import Scope
from accord.core.quality.matching import MatchState, check_properties, state_of_profile
from accord.core.quality.negotiation import Negotiation
from accord.core.quality.profiles import Capability, Profile, Vector, score_capabilities, vector_of
from accord.core.quality.properties import HopEffect, PropertyRegistry
from tests.sim.quality_nodes import QualityNode

Nodes = Mapping[str, QualityNode]
Capabilities = tuple[Capability, ...]
Found = dict[str, list[tuple[str, str, Capabilities]]]  # at each node: source, channel, what it has


def is_quiet(nodes: Nodes) -> bool:
    """Nothing is on its way, and nobody is about to say something."""
    for node in nodes.values():
        if node.is_busy or node.quality.engine.dirty:
            return False
        saying = node.quality.supersets.sender
        if saying.next_due_us() < 2**62 or node.quality.protocol.next_due_us() < 2**62:
            return False
    return True


def problems(nodes: Nodes) -> Iterator[tuple[str, str]]:
    """Where nodes do not agree with the truth, or with each other."""
    found = everywhere(nodes)
    for name, node in nodes.items():
        yield from ((name, each) for each in _wrong_states(node, found[name]))
        yield from ((name, each) for each in _wrong_skylines(node.quality, found[name]))
        yield from ((name, each) for each in _unheard_asks(nodes, node))


def left_over(nodes: Nodes) -> Iterator[tuple[str, str]]:
    """Where there is something although nobody expects anything."""
    for name, node in nodes.items():
        quality = node.quality
        left = {
            "sets of channels and properties": len(quality.supersets.groups),
            "things said to neighbours": len(quality.supersets.sender.entries()),
            "reactions": len(quality.coordinator),
            "parties": len(quality.engine.demands),
            "acts": len(node.acts),
            "profiles relied on": sum(
                quality.usage(local.profile.publisher, local.profile.channel)[0]
                for local in quality.profiles
            ),
        }
        yield from ((name, f"{count} {what} left") for what, count in left.items() if count)


def everywhere(nodes: Nodes) -> Found:
    found: Found = {name: [] for name in nodes}
    for name, node in nodes.items():
        for local in node.quality.profiles:
            capabilities = tuple(offer.capability for offer in local.offers.values())
            source, channel = local.subject.source, local.subject.channel
            for place, arrived in _over_all_paths(nodes, name, capabilities):
                found[place].append((source, channel, arrived))
    return found


def _over_all_paths(
    nodes: Nodes, origin: str, capabilities: Capabilities
) -> Iterator[tuple[str, Capabilities]]:
    seen: set[tuple[str, Capabilities]] = set()
    paths: list[tuple[tuple[str, ...], Capabilities]] = [((origin,), capabilities)]
    while paths:
        path, here = paths.pop()
        # What is the same at the same place goes on in the same ways: or over a node before, where
        # it was no worse.
        if (path[-1], here) in seen:
            continue
        seen.add((path[-1], here))
        yield path[-1], here
        if len(path) > 1 and nodes[path[-1]].is_leaf:
            continue  # nothing goes over it
        for name, node in nodes.items():
            link = node.quality.supersets.qualities(path[-1])
            if link and name not in path:
                registry = node.quality.registry
                arrived = tuple(_over(each, link, registry) for each in here)
                paths.append(((*path, name), arrived))


def _over(
    capability: Capability, link: Mapping[str, float | str], registry: PropertyRegistry
) -> Capability:
    property_ = registry.get(capability.property)
    hop = link.get(capability.property)
    if hop is None or property_.over_hops is HopEffect.KEEP:
        return capability
    lower, upper, current = (
        property_.over_hop(value, hop)
        for value in (capability.lower, capability.upper, capability.current)
    )
    return Capability(capability.property, lower, upper, current, capability.cost)


def _wrong_states(node: QualityNode, found: list[tuple[str, str, Capabilities]]) -> Iterator[str]:
    for held in node.quality.expectations:
        if held.lifecycle is not Lifecycle.ACTIVE:
            continue
        expectation = held.expectation
        truth = state_among(expectation, found, node.quality.registry)
        known = node.quality.report(expectation.id).state
        told = node.told[expectation.id].state
        if not known is told is truth:
            words = [
                each.word if each is not None else "suspended" for each in (truth, known, told)
            ]
            yield "{}: is {}, known as {}, told as {}".format(expectation.id, *words)


def state_among(
    expectation: Expectation, found: list[tuple[str, str, Capabilities]], registry: PropertyRegistry
) -> MatchState:
    """By figure 3, for as many publishers as are wanted."""
    best: dict[str, MatchState] = {}
    for source, channel, capabilities in found:
        if filter_selects(expectation.channel, channel):
            profile = Profile(publisher=source, channel=channel, capabilities=capabilities)
            state = state_of_profile(check_properties(expectation, profile, registry).values())
            best[source] = max(state, best.get(source, state))
    for state in (MatchState.SATISFIED, MatchState.SATISFIABLE):
        if sum(each >= state for each in best.values()) >= expectation.publishers:
            return state
    return MatchState.UNSATISFIED


def _wrong_skylines(
    quality: Negotiation, found: list[tuple[str, str, Capabilities]]
) -> Iterator[str]:
    for scope, group in quality.supersets.groups.items():
        known = set(group.skyline.members().values())
        truth = skyline_among(scope, found, quality.registry, group.skyline.depth)
        if known != truth:
            yield f"{scope}: a skyline of {len(known)}, in truth {len(truth)}"


def skyline_among(
    scope: Scope,
    found: list[tuple[str, str, Capabilities]],
    registry: PropertyRegistry,
    depth: int,
) -> set[Vector]:
    vectors: dict[str, set[Vector]] = {}
    for source, channel, capabilities in found:
        vector = vector_of(score_capabilities(capabilities, registry), scope[1])
        if vector is not None and filter_selects(scope[0], channel):
            vectors.setdefault(source, set()).add(vector)
    skyline: set[Vector] = set()
    for source, of_source in vectors.items():
        for vector in of_source:
            above = [each for each, of in vectors.items() if any(_is_above(o, vector) for o in of)]
            if source not in above and len(above) < depth:
                skyline.add(vector)
    return skyline


def _is_above(one: Vector, other: Vector) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))


def _unheard_asks(nodes: Nodes, node: QualityNode) -> Iterator[str]:
    """What one node relies on the next one knows, and nothing else."""
    mine = {copy for copy in node.quality.engine.dependencies.all() if copy[1]}
    for neighbour, other in nodes.items():
        heard = {
            (claim.copy[0], (neighbour, *claim.copy[1]))
            for claim in other.quality.protocol.neighbour_demands()
            if claim.requester == node.name
        }
        asked = {copy for copy in mine if copy[1][0] == neighbour}
        if heard != asked:
            yield f"{neighbour} knows {sorted(heard)} of {sorted(asked)} that is relied on"
