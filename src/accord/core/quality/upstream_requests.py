"""Quality requests, sent hop by hop towards the node where a profile is registered.

Requests are receiver-initiated and merged at each hop, as in RSVP, but replicated reliably
(`delta_sync`) instead of refreshed. A node that depends on a remote copy sends the required values
and their utility to the neighbour the copy came from. That neighbour does the same for itself and
all its requesters, up to the node where the profile is registered. There the request counts as an
expectation of that one profile: it is weighed against others, and what it needs is not freed.

If a request cannot be met, a rejection travels back along the path. A request without a rejection
is in progress or met; the values of the copy show which.

Records which demand depends on which profile copy, and the score it requires per property.

The required scores of each property of a copy are kept sorted: the overall requirement is the last
of them, and the demands that a worse value would break are those above that value.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping

import msgspec

from accord.core.quality.delta_sync import DeltaSender
from accord.core.quality.expectations import (
    MAX_ID,
    MAX_REQUIREMENTS,
    MAX_UTILITY,
    PropertyRequirement,
    bounds_of,
)
from accord.core.quality.match_groups import ProfileCopy
from accord.core.quality.matching import UnmetReason
from accord.core.quality.messages import QualityRejection, QualityRequest
from accord.core.quality.properties import Better, HopEffect, PropertyRegistry, QualityError
from accord.core.quality.validation import Qualities, is_path

RequiredScores = Mapping[str, float]  # least score by property


class _Relied:
    __slots__ = ("levels", "utilities")

    def __init__(self) -> None:
        self.utilities: dict[str, float] = {}  # utility by demand
        self.levels: dict[str, list[tuple[float, str]]] = {}


class ProfileDependencies:
    def __init__(self) -> None:
        self._copies: dict[ProfileCopy, _Relied] = {}
        self._by_demand: dict[str, tuple[tuple[ProfileCopy, ...], RequiredScores]] = {}
        self._changed: dict[ProfileCopy, bool] = {}

    def replace(
        self, who: str, copies: tuple[ProfileCopy, ...], required: RequiredScores, utility: float
    ) -> None:
        """Replaces the dependencies of a demand with these copies."""
        if (copies, required) == self._by_demand.get(who) and all(
            self._copies[copy].utilities[who] == utility for copy in copies
        ):
            return
        self.release(who)
        if not copies:
            return
        self._by_demand[who] = copies, required
        for copy in copies:
            relied = self._copies.setdefault(copy, _Relied())
            relied.utilities[who] = utility
            for name, least in required.items():
                insort(relied.levels.setdefault(name, []), (least, who))
            self._changed[copy] = True

    def release(self, who: str) -> None:
        copies, needs = self._by_demand.pop(who, ((), {}))
        for copy in copies:
            relied = self._copies[copy]
            del relied.utilities[who]
            for name, least in needs.items():
                levels = relied.levels[name]
                del levels[bisect_left(levels, (least, who))]
                if not levels:
                    del relied.levels[name]
            if not relied.utilities:
                del self._copies[copy]
            self._changed[copy] = True

    def copies(self, who: str) -> tuple[ProfileCopy, ...]:
        found = self._by_demand.get(who)
        return found[0] if found else ()

    def required(self, copy: ProfileCopy) -> dict[str, float]:
        """The highest required score of each property."""
        relied = self._copies.get(copy)
        return {} if relied is None else {name: at[-1][0] for name, at in relied.levels.items()}

    def level(self, copy: ProfileCopy, name: str) -> float | None:
        relied = self._copies.get(copy)
        levels = None if relied is None else relied.levels.get(name)
        return levels[-1][0] if levels else None

    def between(self, copy: ProfileCopy, name: str, below: float, up_to: float) -> list[str]:
        """Demands that require more than `below` and at most `up_to`."""
        relied = self._copies.get(copy)
        levels = [] if relied is None else relied.levels.get(name, [])
        # No ID sorts after this character.
        first, end = (bisect_right(levels, (score, "\U0010ffff")) for score in (below, up_to))
        return [who for _, who in levels[first:end]]

    def all(self) -> list[ProfileCopy]:
        """Copies with at least one dependent demand."""
        return list(self._copies)

    def dependents(self, copy: ProfileCopy) -> list[str]:
        relied = self._copies.get(copy)
        return [] if relied is None else list(relied.utilities)

    def usage(self, copy: ProfileCopy) -> tuple[int, float]:
        """Number of dependent demands, and the sum of their utilities."""
        relied = self._copies.get(copy)
        return (
            (0, 0.0) if relied is None else (len(relied.utilities), sum(relied.utilities.values()))
        )

    def take_changed(self) -> list[ProfileCopy]:
        """Copies whose dependent demands or required scores changed since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def check_invariants(self) -> None:
        for who, (copies, needs) in self._by_demand.items():
            assert copies
            for copy in copies:
                relied = self._copies[copy]
                assert who in relied.utilities
                assert all((least, who) in relied.levels[n] for n, least in needs.items())
        for copy, relied in self._copies.items():
            assert relied.utilities
            assert all(copy in self._by_demand[who][0] for who in relied.utilities)
            for levels in relied.levels.values():
                assert levels
                assert levels == sorted(levels)
                assert all(who in relied.utilities for _, who in levels)


class NeighbourDemand(msgspec.Struct, frozen=True):
    """A neighbour's request; `copy` is the requested copy as this node identifies it."""

    id: str
    requester: str
    copy: ProfileCopy
    required: RequiredScores
    utility: float


class UpstreamRequests:
    """Sends, relays and rejects quality requests; `qualities(neighbour)` are those of its link."""

    def __init__(
        self,
        node: str,
        registry: PropertyRegistry,
        sender: DeltaSender,
        qualities: Callable[[str], Qualities],
    ) -> None:
        self.malformed = 0
        self._node = node
        self._registry = registry
        self._sender = sender
        self._qualities = qualities
        self._relayed: dict[
            ProfileCopy, dict[str, NeighbourDemand]
        ] = {}  # by demand; without those for local profiles
        self._rejections: dict[ProfileCopy, QualityRejection] = {}

    # Upstream, towards the profile

    def request(self, copy: ProfileCopy, dependencies: ProfileDependencies, now_us: int) -> None:
        """Requests what all demands together need now of a copy from a neighbour."""
        source, path = copy
        needs = dependencies.required(copy)
        ask: QualityRequest | None = None
        if needs:
            link = self._qualities(path[0])
            requirements = tuple(self._requirement(name, needs[name], link) for name in needs)
            utility = min(dependencies.usage(copy)[1], MAX_UTILITY)
            ask = QualityRequest(source, path, requirements, utility)
        self._sender.announce(("ask", source, *path), ask, now_us)

    def on_rejection(
        self, neighbour: str, before: QualityRejection | None, after: QualityRejection | None
    ) -> list[ProfileCopy]:
        """Records a rejection; returns the copies it newly concerns."""
        if before is not None and self._is_mine(neighbour, before):
            self._rejections.pop((before.source, before.path), None)
        if after is None or not self._is_mine(neighbour, after):
            return []
        copy = after.source, after.path
        self._rejections[copy] = after
        return [copy]

    # Downstream, towards the requesters

    def to_demand(self, neighbour: str, request: QualityRequest | None) -> NeighbourDemand | None:
        """Converts a neighbour's request to a demand; None if it is invalid or for another node."""
        if request is None or not request.path or request.path[0] != self._node:
            return None
        is_good = (
            is_path(request.path, self._node)
            and neighbour not in request.path
            and 0 < len(request.source) <= MAX_ID
            and 0 < request.utility <= MAX_UTILITY
            and 1 <= len(request.requirements) <= MAX_REQUIREMENTS * 2
        )
        needs: dict[str, float] = {}
        try:
            for requirement in request.requirements:
                needs[requirement.property] = bounds_of(requirement, self._registry)[0]
        except QualityError:
            is_good = False
        self.malformed += not is_good
        if not is_good:
            return None
        id_ = "\0".join(("", neighbour, request.source, *request.path))
        return NeighbourDemand(
            id_, neighbour, (request.source, request.path[1:]), needs, request.utility
        )

    def relay(self, demand: NeighbourDemand, now_us: int) -> None:
        """Relays a demand for a remote copy; rejections are passed back to the requester."""
        self._relayed.setdefault(demand.copy, {})[demand.id] = demand
        self.relay_rejection(demand.copy, now_us)

    def relayed(self) -> list[NeighbourDemand]:
        return [claim for claims in self._relayed.values() for claim in claims.values()]

    def remove(self, demand: NeighbourDemand, now_us: int) -> None:
        relayed = self._relayed.get(demand.copy, {})
        if relayed.pop(demand.id, None) is not None and not relayed:
            del self._relayed[demand.copy]
        self.set_rejection(demand, None, now_us)

    def set_rejection(
        self, demand: NeighbourDemand, reason: UnmetReason | None, now_us: int
    ) -> None:
        """Sends a rejection with its reason; None withdraws it."""
        source, path = demand.copy
        asked = (self._node, *path)
        answer: QualityRejection | None = None
        if reason is not None:
            answer = QualityRejection(demand.requester, source, asked, reason.property, reason.now)
        self._sender.announce(("answer", demand.requester, source, *asked), answer, now_us)

    def relay_rejection(self, copy: ProfileCopy, now_us: int) -> None:
        refused = self._rejections.get(copy)
        for claim in self._relayed.get(copy, {}).values():
            reason = (
                None if refused is None else UnmetReason(claim.id, refused.property, refused.now)
            )
            self.set_rejection(claim, reason, now_us)

    def check_invariants(self) -> None:
        for copy, claims in self._relayed.items():
            assert claims
            assert all(claim.copy == copy and copy[1] for claim in claims.values())

    def _requirement(self, name: str, least: float, link: Qualities) -> PropertyRequirement:
        property_ = self._registry.get(name)
        value = property_.from_score(least)
        hop = link.get(name)
        if hop is not None and property_.over_hops is not HopEffect.KEEP:
            value = property_.before_hop(value, hop)
        if property_.better is Better.HIGHER:
            return PropertyRequirement(name, value, None)
        return PropertyRequirement(name, None, value)

    def _is_mine(self, neighbour: str, rejection: QualityRejection) -> bool:
        return rejection.requester == self._node and is_path(rejection.path, neighbour)
