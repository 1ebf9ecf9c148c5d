"""Exchanges skylines with neighbours, so that each node sees the best profiles of all nodes.

A path-vector protocol, as BGP. Interests spread from nodes with expectations to all nodes: they
name channels and properties. For each such scope a node maintains the skyline of its own profiles
and of the copies its neighbours forwarded, treated alike, and forwards it in turn. A copy
identifies its publisher by a number of the node where the profile is registered, not by name; the
receiver applies the link's effect on latency, reliability and the like.

Forwarding only skylines loses nothing, because hops preserve the order of better values. Each copy
lists the nodes it came over. A node ignores copies that came over itself: it has better ones, by at
least two hops. So copies of a removed profile die out instead of circulating, and the protocol
works on any topology, not only on trees. A leaf, over which no events pass from one neighbour to
another, forwards only its own profiles.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from accord.core.model.channels import ChannelMap, filter_selects
from accord.core.quality.delta_sync import DeltaSender
from accord.core.quality.match_groups import MatchGroup, Path, ProfileCopy, Scope
from accord.core.quality.messages import MAX_HOPS, EntryKey, ForwardedProfile, PropertyInterest
from accord.core.quality.profiles import ScoredCapabilities
from accord.core.quality.properties import PropertyRegistry
from accord.core.quality.validation import NeighbourValidator, Qualities, scope_of

MAX_SCOPES: Final = 10_000


class _Neighbour:
    def __init__(self, qualities: Qualities) -> None:
        self.qualities = dict(qualities)
        self.interests: dict[Scope, PropertyInterest] = {}
        self.profiles: dict[Scope, dict[ProfileCopy, ForwardedProfile]] = {}


class SuperSets:
    def __init__(
        self, node: str, registry: PropertyRegistry, sender: DeltaSender, *, is_leaf: bool = False
    ) -> None:
        self.node = node
        self._hops = 1 if is_leaf else MAX_HOPS  # longer paths are not forwarded
        self.groups: dict[Scope, MatchGroup] = {}
        self._validator = NeighbourValidator(node, registry)
        self.sender = sender
        self._local: dict[str, dict[str, ScoredCapabilities]] = {}  # by channel and source
        self._by_filter: ChannelMap[dict[tuple[str, ...], MatchGroup]] = ChannelMap()
        self._neighbours: dict[str, _Neighbour] = {}
        self._local_interest: dict[Scope, int] = {}  # local interest: number of publishers
        self._announced: dict[Scope, dict[ProfileCopy, EntryKey]] = {}
        self._touched: dict[Scope, bool] = {}
        self._changed_interests: dict[Scope, bool] = {}
        self._changed: dict[tuple[Scope, ProfileCopy], bool] = {}  # copies from neighbours

    # Local profiles

    def set_local(self, channel: str, source: str, offers: ScoredCapabilities) -> None:
        self._local.setdefault(channel, {})[source] = offers
        for group in self._groups_of(channel):
            group.set_copy(source, (), offers)
            self._touched[group.scope] = True

    def remove_local(self, channel: str, source: str) -> None:
        of_channel = self._local[channel]
        del of_channel[source]
        if not of_channel:
            del self._local[channel]
        for group in self._groups_of(channel):
            group.remove_copy(source, ())
            self._touched[group.scope] = True

    # Local expectations

    @property
    def is_full(self) -> bool:
        """Whether no group for a new scope should be added."""
        return len(self.groups) >= MAX_SCOPES

    def group(self, scope: Scope, publishers: int) -> MatchGroup:
        """Returns the group for an expectation of so many publishers; `release` it afterwards."""
        if publishers > self._local_interest.get(scope, 0):
            self._local_interest[scope] = publishers
            self._adjust(scope)
        return self.groups[scope]

    def release(self, scope: Scope) -> None:
        group = self.groups[scope]
        wanted = group.publishers if len(group) else 0
        if wanted == self._local_interest.get(scope, 0):
            return
        if wanted:
            self._local_interest[scope] = wanted
        else:
            self._local_interest.pop(scope, None)
        self._adjust(scope)

    # Neighbours

    def link_up(self, neighbour: str, qualities: Qualities) -> None:
        self._validator.check(qualities)
        self.link_down(neighbour)
        self._neighbours[neighbour] = _Neighbour(qualities)

    def link_changed(self, neighbour: str, qualities: Qualities) -> None:
        """Applies a changed effect of the link; small changes are ignored."""
        self._validator.check(qualities)
        known = self._neighbours.get(neighbour)
        if known is None or self._validator.is_close(known.qualities, qualities):
            return
        known.qualities = dict(qualities)
        for scope in known.profiles:
            self._apply_all(known, scope)

    def link_down(self, neighbour: str) -> None:
        gone = self._neighbours.pop(neighbour, None)
        if gone is None:
            return
        for scope, haves in gone.profiles.items():
            for source, path in haves:
                self._remove_copy(scope, source, path)
        for scope in gone.interests:
            self._adjust(scope)

    def update_interest(
        self, neighbour: str, before: PropertyInterest | None, after: PropertyInterest | None
    ) -> None:
        """Replaces an interest of the neighbour."""
        wants = self._neighbours[neighbour].interests
        if before is not None and wants.get(scope_of(before)) is before:
            del wants[scope_of(before)]
            self._adjust(scope_of(before))
        if after is None or not self._validator.accepts_interest(neighbour, after):
            return
        scope = scope_of(after)
        # A neighbour may use only the space left by all others and by local expectations.
        if scope in self.groups or len(wants) < MAX_SCOPES - len(self.groups):
            wants[scope] = after
            self._adjust(scope)

    def update_profile(
        self, neighbour: str, before: ForwardedProfile | None, after: ForwardedProfile | None
    ) -> None:
        known = self._neighbours[neighbour]
        if before is not None:
            self._remove_profile(known, before, after)
        if after is not None and self._validator.accepts_profile(neighbour, after):
            known.profiles.setdefault(scope_of(after), {})[after.source, after.path] = after
            self._apply(known, after)

    def property_defined(self, name: str) -> None:
        """Applies copies received before the property was defined."""
        for known in self._neighbours.values():
            for scope in known.profiles:
                if name in scope[1]:
                    self._apply_all(known, scope)

    # Propagation

    def propagate(self, now_us: int) -> list[str]:
        """Announces changes to neighbours; returns the expectations whose state changed."""
        changed: list[str] = []
        for scope in self._changed_interests:
            self._announce_interest(scope, now_us)
        self._changed_interests.clear()
        for scope in list(self._touched):
            group = self.groups.get(scope)
            if group is not None:
                changed += group.update_states()
            self._forward(scope, group, now_us)
        self._touched.clear()
        return changed

    def take_changed(self) -> list[tuple[ProfileCopy, ScoredCapabilities | None]]:
        """Copies from neighbours that changed, or were removed, since the last call."""
        found: list[tuple[ProfileCopy, ScoredCapabilities | None]] = []
        for scope, copy in self._changed:
            group = self.groups.get(scope)
            if group is not None:
                found.append((copy, group.offers(copy) if group.has(copy) else None))
        self._changed.clear()
        return found

    def qualities(self, neighbour: str) -> Qualities:
        known = self._neighbours.get(neighbour)
        return {} if known is None else known.qualities

    @property
    def malformed(self) -> int:
        """Number of invalid entries from neighbours."""
        return self._validator.malformed

    def check_invariants(self) -> None:
        for scope, group in self.groups.items():
            group.check_invariants()
            assert self._local_interest.get(scope, 0) == (group.publishers if len(group) else 0)
            by_names = self._by_filter.get(scope[0])
            assert by_names is not None
            assert by_names[scope[1]] is group
            assert self._depth(scope) == group.skyline.depth
        if not self._touched:
            for scope, announced in self._announced.items():
                forwarded = self.groups[scope].forwarded()
                assert set(announced) == {copy for copy in forwarded if len(copy[1]) < self._hops}
        for known in self._neighbours.values():
            assert all(known.profiles.values())

    # Groups exist while there is an interest in their scope

    def _adjust(self, scope: Scope) -> None:
        depth = self._depth(scope)
        group = self.groups.get(scope)
        self._changed_interests[scope] = self._touched[scope] = True
        if depth == 0:
            if group is not None:
                self._drop(scope)
        elif group is None:
            self._create(scope, depth)
        elif group.skyline.depth != depth:
            group.deepen(depth)

    def _depth(self, scope: Scope) -> int:
        depths = [
            k.interests[scope].publishers for k in self._neighbours.values() if scope in k.interests
        ]
        return max([self._local_interest.get(scope, 0), *depths])

    def _create(self, scope: Scope, depth: int) -> None:
        group = self.groups[scope] = MatchGroup(scope, depth)
        group.mark_changed(self._announced.get(scope, ()))
        by_names = self._by_filter.get(scope[0])
        if by_names is None:
            by_names = {}
            self._by_filter.set(scope[0], by_names)
        by_names[scope[1]] = group
        group.set_copies(
            (source, (), offers)
            for sources in self._local_of(scope[0])
            for source, offers in sources.items()
        )
        for known in self._neighbours.values():
            if scope in known.profiles:
                self._apply_all(known, scope)

    def _drop(self, scope: Scope) -> None:
        del self.groups[scope]
        by_names = self._by_filter.get(scope[0])
        assert by_names is not None
        del by_names[scope[1]]
        if not by_names:
            self._by_filter.remove(scope[0])

    def _local_of(self, pattern: str) -> Iterable[dict[str, ScoredCapabilities]]:
        if "+" not in pattern and "#" not in pattern:
            return [self._local.get(pattern, {})]
        return (of for channel, of in self._local.items() if filter_selects(pattern, channel))

    def _groups_of(self, channel: str) -> list[MatchGroup]:
        return [group for of in self._by_filter.select(channel) for group in of.values()]

    # Copies from neighbours

    def _apply_all(self, known: _Neighbour, scope: Scope) -> None:
        for have in known.profiles[scope].values():
            self._apply(known, have)

    def _apply(self, known: _Neighbour, profile: ForwardedProfile) -> None:
        scope = scope_of(profile)
        group = self.groups.get(scope)
        if group is None:
            return
        offers = self._validator.behind_link(profile, known.qualities)
        if offers is None:
            self._remove_copy(scope, profile.source, profile.path)
            return
        group.set_copy(profile.source, profile.path, offers)
        self._touched[scope] = True
        self._changed[scope, (profile.source, profile.path)] = True

    def _remove_profile(
        self, known: _Neighbour, profile: ForwardedProfile, instead: ForwardedProfile | None
    ) -> None:
        scope, copy = scope_of(profile), (profile.source, profile.path)
        haves = known.profiles.get(scope)
        if haves is None or haves.get(copy) is not profile:
            return
        del haves[copy]
        if not haves:
            del known.profiles[scope]
        is_same = instead is not None and scope_of(instead) == scope
        if not is_same or instead is None or (instead.source, instead.path) != copy:
            self._remove_copy(scope, *copy)

    def _remove_copy(self, scope: Scope, source: str, path: Path) -> None:
        group = self.groups.get(scope)
        if group is not None:
            group.remove_copy(source, path)
            self._touched[scope] = True
            self._changed[scope, (source, path)] = True

    # Announcements to neighbours

    def _announce_interest(self, scope: Scope, now_us: int) -> None:
        wants = [k.interests[scope] for k in self._neighbours.values() if scope in k.interests]
        if scope in self._local_interest:
            wants.append(PropertyInterest(*scope, self._local_interest[scope], ()))
        wants = [each for each in wants if len(each.path) < self._hops]
        announced: PropertyInterest | None = None
        if wants:
            # The largest number of publishers: it covers all other interests.
            best = min(wants, key=lambda each: (-each.publishers, len(each.path), each.path))
            announced = PropertyInterest(*scope, best.publishers, (self.node, *best.path))
        self.sender.announce(_interest_key(scope), announced, now_us)

    def _forward(self, scope: Scope, group: MatchGroup | None, now_us: int) -> None:
        announced = self._announced.setdefault(scope, {})
        for copy in list(announced) if group is None else group.take_changed():
            key = _profile_key(scope, copy)
            have = None if group is None else self._forwarded_profile(group, copy)
            self.sender.announce(key, have, now_us)
            if have is None:
                announced.pop(copy, None)
            else:
                announced[copy] = key
        if not announced:
            del self._announced[scope]

    def _forwarded_profile(self, group: MatchGroup, copy: ProfileCopy) -> ForwardedProfile | None:
        source, path = copy
        if not group.skyline.represents(copy) or len(path) >= self._hops:
            return None
        offers = group.offers(copy)
        capabilities = tuple(offers[name].capability for name in group.names)
        return ForwardedProfile(*group.scope, source, (self.node, *path), capabilities)


def _interest_key(scope: Scope) -> EntryKey:
    return ("want", scope[0], str(len(scope[1])), *scope[1])


def _profile_key(scope: Scope, copy: ProfileCopy) -> EntryKey:
    return ("have", scope[0], str(len(scope[1])), *scope[1], copy[0], *copy[1])
