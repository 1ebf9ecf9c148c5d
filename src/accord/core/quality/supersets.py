"""The skylines of all nodes as one: what is forwarded to neighbours, and what came from them.

Where an expectation is, all nodes come to know which channels and properties it is over. For those
each node keeps the skyline of its own profiles and of what its neighbours forwarded, which is
treated alike, and forwards it in turn: under a number of the node where a profile is registered
instead of its publisher's name, and with what the link added to a latency (or took from a
reliability) taken into account by whoever receives it.

Nothing is lost by forwarding skylines only, because hops keep the order of what is better. Each
copy names the nodes over which it came. A node passes over copies that came over itself: it has
better ones, by at least two hops; so copies of what is gone die out instead of going round. By
that it works on any network of nodes, not on trees only. A node that is a leaf, because no events
go over it from one neighbour to another, forwards only what is its own.
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
        self.wants: dict[Scope, PropertyInterest] = {}
        self.haves: dict[Scope, dict[ProfileCopy, ForwardedProfile]] = {}


class SuperSets:
    def __init__(
        self, node: str, registry: PropertyRegistry, saying: DeltaSender, *, is_leaf: bool = False
    ) -> None:
        self.node = node
        self._hops = 1 if is_leaf else MAX_HOPS  # what came over so many nodes ends here
        self.groups: dict[Scope, MatchGroup] = {}
        self._believing = NeighbourValidator(node, registry)
        self.saying = saying
        self._local: dict[str, dict[str, ScoredCapabilities]] = {}  # by channel and source
        self._by_filter: ChannelMap[dict[tuple[str, ...], MatchGroup]] = ChannelMap()
        self._neighbours: dict[str, _Neighbour] = {}
        self._wanted: dict[Scope, int] = {}  # here: of how many publishers
        self._said: dict[Scope, dict[ProfileCopy, EntryKey]] = {}
        self._touched: dict[Scope, bool] = {}
        self._rewant: dict[Scope, bool] = {}
        self._changed: dict[tuple[Scope, ProfileCopy], bool] = {}  # copies from neighbours

    # Profiles that are registered here

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

    # Expectations that are registered here

    @property
    def is_full(self) -> bool:
        """No group for other channels and properties should be added."""
        return len(self.groups) >= MAX_SCOPES

    def group(self, scope: Scope, publishers: int) -> MatchGroup:
        """To add an expectation to, of so many publishers; `release` it after removing one."""
        if publishers > self._wanted.get(scope, 0):
            self._wanted[scope] = publishers
            self._adjust(scope)
        return self.groups[scope]

    def release(self, scope: Scope) -> None:
        group = self.groups[scope]
        wanted = group.publishers if len(group) else 0
        if wanted == self._wanted.get(scope, 0):
            return
        if wanted:
            self._wanted[scope] = wanted
        else:
            self._wanted.pop(scope, None)
        self._adjust(scope)

    # Neighbours

    def link_up(self, neighbour: str, qualities: Qualities) -> None:
        self._believing.check(qualities)
        self.link_down(neighbour)
        self._neighbours[neighbour] = _Neighbour(qualities)

    def link_changed(self, neighbour: str, qualities: Qualities) -> None:
        """What the link adds is different; small differences are passed over."""
        self._believing.check(qualities)
        known = self._neighbours.get(neighbour)
        if known is None or self._believing.is_close(known.qualities, qualities):
            return
        known.qualities = dict(qualities)
        for scope in known.haves:
            self._apply_all(known, scope)

    def link_down(self, neighbour: str) -> None:
        gone = self._neighbours.pop(neighbour, None)
        if gone is None:
            return
        for scope, haves in gone.haves.items():
            for source, path in haves:
                self._remove_copy(scope, source, path)
        for scope in gone.wants:
            self._adjust(scope)

    def want(
        self, neighbour: str, before: PropertyInterest | None, after: PropertyInterest | None
    ) -> None:
        """What it says that somebody wants, instead of what it said."""
        wants = self._neighbours[neighbour].wants
        if before is not None and wants.get(scope_of(before)) is before:
            del wants[scope_of(before)]
            self._adjust(scope_of(before))
        if after is None or not self._believing.want(neighbour, after):
            return
        scope = scope_of(after)
        # Nobody has more room than is left for all others, and for what is expected here.
        if scope in self.groups or len(wants) < MAX_SCOPES - len(self.groups):
            wants[scope] = after
            self._adjust(scope)

    def have(
        self, neighbour: str, before: ForwardedProfile | None, after: ForwardedProfile | None
    ) -> None:
        known = self._neighbours[neighbour]
        if before is not None:
            self._forget(known, before, after)
        if after is not None and self._believing.have(neighbour, after):
            known.haves.setdefault(scope_of(after), {})[after.source, after.path] = after
            self._apply(known, after)

    def property_defined(self, name: str) -> None:
        """What was heard of it before has a meaning now."""
        for known in self._neighbours.values():
            for scope in known.haves:
                if name in scope[1]:
                    self._apply_all(known, scope)

    # What follows

    def settle(self, now_us: int) -> list[str]:
        """Whose state changed; what is to be forwarded is said."""
        changed: list[str] = []
        for scope in self._rewant:
            self._say_want(scope, now_us)
        self._rewant.clear()
        for scope in list(self._touched):
            group = self.groups.get(scope)
            if group is not None:
                changed += group.settle()
            self._forward(scope, group, now_us)
        self._touched.clear()
        return changed

    def take_changed(self) -> list[tuple[ProfileCopy, ScoredCapabilities | None]]:
        """Copies from neighbours that are different, or gone, since the last time."""
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
        """What neighbours said that makes no sense."""
        return self._believing.malformed

    def check_invariants(self) -> None:
        for scope, group in self.groups.items():
            group.check_invariants()
            assert self._wanted.get(scope, 0) == (group.publishers if len(group) else 0)
            by_names = self._by_filter.get(scope[0])
            assert by_names is not None
            assert by_names[scope[1]] is group
            assert self._depth(scope) == group.skyline.depth
        if not self._touched:
            for scope, said in self._said.items():
                forwarded = self.groups[scope].forwarded()
                assert set(said) == {copy for copy in forwarded if len(copy[1]) < self._hops}
        for known in self._neighbours.values():
            assert all(known.haves.values())

    # Groups come with the first who wants them, and go with the last

    def _adjust(self, scope: Scope) -> None:
        depth = self._depth(scope)
        group = self.groups.get(scope)
        self._rewant[scope] = self._touched[scope] = True
        if depth == 0:
            if group is not None:
                self._drop(scope)
        elif group is None:
            self._create(scope, depth)
        elif group.skyline.depth != depth:
            group.deepen(depth)

    def _depth(self, scope: Scope) -> int:
        heard = [k.wants[scope].publishers for k in self._neighbours.values() if scope in k.wants]
        return max([self._wanted.get(scope, 0), *heard])

    def _create(self, scope: Scope, depth: int) -> None:
        group = self.groups[scope] = MatchGroup(scope, depth)
        group.retell(self._said.get(scope, ()))
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
            if scope in known.haves:
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

    # What came from neighbours

    def _apply_all(self, known: _Neighbour, scope: Scope) -> None:
        for have in known.haves[scope].values():
            self._apply(known, have)

    def _apply(self, known: _Neighbour, have: ForwardedProfile) -> None:
        scope = scope_of(have)
        group = self.groups.get(scope)
        if group is None:
            return
        offers = self._believing.arrived(have, known.qualities)
        if offers is None:
            self._remove_copy(scope, have.source, have.path)
            return
        group.set_copy(have.source, have.path, offers)
        self._touched[scope] = True
        self._changed[scope, (have.source, have.path)] = True

    def _forget(
        self, known: _Neighbour, have: ForwardedProfile, instead: ForwardedProfile | None
    ) -> None:
        scope, copy = scope_of(have), (have.source, have.path)
        haves = known.haves.get(scope)
        if haves is None or haves.get(copy) is not have:
            return
        del haves[copy]
        if not haves:
            del known.haves[scope]
        is_same = instead is not None and scope_of(instead) == scope
        if not is_same or instead is None or (instead.source, instead.path) != copy:
            self._remove_copy(scope, *copy)

    def _remove_copy(self, scope: Scope, source: str, path: Path) -> None:
        group = self.groups.get(scope)
        if group is not None:
            group.remove_copy(source, path)
            self._touched[scope] = True
            self._changed[scope, (source, path)] = True

    # What goes to neighbours

    def _say_want(self, scope: Scope, now_us: int) -> None:
        wants = [k.wants[scope] for k in self._neighbours.values() if scope in k.wants]
        if scope in self._wanted:
            wants.append(PropertyInterest(*scope, self._wanted[scope], ()))
        wants = [each for each in wants if len(each.path) < self._hops]
        said: PropertyInterest | None = None
        if wants:
            # The most that anybody wants: all other wants are within it.
            best = min(wants, key=lambda each: (-each.publishers, len(each.path), each.path))
            said = PropertyInterest(*scope, best.publishers, (self.node, *best.path))
        self.saying.say(_want_key(scope), said, now_us)

    def _forward(self, scope: Scope, group: MatchGroup | None, now_us: int) -> None:
        said = self._said.setdefault(scope, {})
        for copy in list(said) if group is None else group.take_news():
            key = _have_key(scope, copy)
            have = None if group is None else self._have(group, copy)
            self.saying.say(key, have, now_us)
            if have is None:
                said.pop(copy, None)
            else:
                said[copy] = key
        if not said:
            del self._said[scope]

    def _have(self, group: MatchGroup, copy: ProfileCopy) -> ForwardedProfile | None:
        source, path = copy
        if not group.skyline.represents(copy) or len(path) >= self._hops:
            return None
        offers = group.offers(copy)
        capabilities = tuple(offers[name].capability for name in group.names)
        return ForwardedProfile(*group.scope, source, (self.node, *path), capabilities)


def _want_key(scope: Scope) -> EntryKey:
    return ("want", scope[0], str(len(scope[1])), *scope[1])


def _have_key(scope: Scope, copy: ProfileCopy) -> EntryKey:
    return ("have", scope[0], str(len(scope[1])), *scope[1], copy[0], *copy[1])
