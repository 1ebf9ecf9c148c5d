"""Router of a node: all subscriptions, and the fan-outs of channels computed from them.

A fan-out is computed when a channel is first published to, and cached until a subscription that
could select the channel changes, so a message usually costs one lookup. Subscriptions with a
predicate are in a separate index: only on channels that they select is a message decoded for
matching.

A receiver with overlapping subscriptions gets one copy, at the highest QoS among them. A shared
subscription gives each message to one member of its group.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final

from accord.core.model.channels import ChannelMap
from accord.core.model.errors import EventError
from accord.core.monitoring.channel_counts import ChannelTable
from accord.core.overlay.channel_directory import DEFAULT_TRAITS, ChannelTraits
from accord.core.policy.policies import (
    DEFAULT_GRANT,
    NO_SIDE,
    ChannelPolicies,
    Entity,
    Grant,
    Policies,
    PolicySide,
)
from accord.core.predicates.index import FrameMatches, Index
from accord.core.router.fan_out import (
    DeferredMatchError,
    FanOut,
    FanOutTarget,
    MessageOverride,
    PublisherFanOut,
    Receiver,
    RouterSubscription,
    Selection,
    SharedGroup,
    merge,
)
from accord.core.router.message import Message

_REMEMBERED_ROUTES: Final = 10_000
_REMEMBERED_LENGTH: Final = 1_024
_REMEMBERED_SELECTIONS: Final = 100_000


# One subscription, or several by receiver; groups by name; those with predicates.
SelectedSubscriptions = (
    RouterSubscription
    | dict[Receiver, RouterSubscription]
    | dict[str, SharedGroup]
    | dict[RouterSubscription, bool]
)


def each_subscription(selected: SelectedSubscriptions) -> Iterator[RouterSubscription]:
    """Yield the subscriptions of what `Router.subscriptions_to` returns."""
    if isinstance(selected, RouterSubscription):
        yield selected
        return
    for key, value in selected.items():
        if isinstance(value, SharedGroup):
            yield from value.members
        elif isinstance(value, RouterSubscription):
            yield value
        else:
            assert isinstance(key, RouterSubscription)
            yield key


class Router:
    """All subscriptions of a node, and the cached fan-outs of its channels."""

    def __init__(self, kept: list[str], policies: Policies, *, match_limit: int = 0) -> None:
        self.policies = policies
        self.indexed_for = policies  # those by which the index is arranged
        self.channels = ChannelTable()
        self.watched: dict[str, bool] = {}  # channels whose events are measured one by one
        self.traits: Callable[[str], ChannelTraits] = _default_traits  # traits of a channel
        self.match_limit: int | None = match_limit or None
        # By filter, subscriptions without predicate and group: one, or several by receiver.
        self._plain: ChannelMap[RouterSubscription | dict[Receiver, RouterSubscription]] = (
            ChannelMap()
        )
        self._shared: ChannelMap[dict[str, SharedGroup]] = ChannelMap()
        self._conditional: ChannelMap[dict[RouterSubscription, bool]] = ChannelMap()
        self._index = Index()
        self._fan_outs: dict[str, FanOut] = {}
        self.changes = 0  # grows whenever a fan-out may have changed
        self.version = 0  # grows with each change of subscriptions
        self._kept: ChannelMap[bool] = ChannelMap()
        for pattern in kept:
            self._kept.set(pattern, True)
        self.size = 0
        self.unreadable = 0  # messages whose attributes could not be decoded
        self.unmatched_work = 0  # messages not matched with all predicates

    @property
    def predicates(self) -> int:
        return len(self._index)

    def add(self, subscription: RouterSubscription) -> None:
        """Add `subscription`; its receiver has no other for the same group and filter."""
        pattern = subscription.pattern
        self.size += 1
        self.version += 1
        if subscription.group:
            groups = self._shared.get(pattern)
            if groups is None:
                groups = {}
                self._shared.set(pattern, groups)
            if subscription.group not in groups:
                groups[subscription.group] = SharedGroup()
            groups[subscription.group].members.append(subscription)
        if subscription.predicate is not None:
            conditional = self._conditional.get(pattern)
            if conditional is None:
                conditional = {}
                self._conditional.set(pattern, conditional)
            conditional[subscription] = True
            subscription.importance = self._importance(subscription)
            self._index.add(
                subscription,
                subscription.predicate,
                channel=pattern,
                importance=subscription.importance,
            )
        elif not subscription.group:
            known = self._plain.get(pattern)
            if known is None:
                self._plain.set(pattern, subscription)
            elif isinstance(known, RouterSubscription):
                both = {each.receiver: each for each in (known, subscription)}
                self._plain.set(pattern, both)
            else:
                known[subscription.receiver] = subscription
        self.invalidate(pattern)

    def remove(self, subscription: RouterSubscription) -> None:
        pattern = subscription.pattern
        self.size -= 1
        self.version += 1
        if subscription.group:
            groups = self._shared.get(pattern)
            assert groups is not None
            group = groups[subscription.group]
            group.members.remove(subscription)
            if not group.members:
                del groups[subscription.group]
            if not groups:
                self._shared.remove(pattern)
        if subscription.predicate is not None:
            self._index.remove(subscription)
            conditional = self._conditional.get(pattern)
            assert conditional is not None
            del conditional[subscription]
            if not conditional:
                self._conditional.remove(pattern)
        elif not subscription.group:
            known = self._plain.get(pattern)
            if isinstance(known, RouterSubscription):
                assert known is subscription
                self._plain.remove(pattern)
            else:
                assert known is not None
                del known[subscription.receiver]
                if not known:
                    self._plain.remove(pattern)
        self.invalidate(pattern)

    def invalidate(self, pattern: str) -> None:
        """Drop the cached fan-outs of the channels that `pattern` selects."""
        if "+" in pattern or "#" in pattern:
            for route in self._fan_outs.values():
                route.is_valid = False
            self._fan_outs.clear()
            self.changes += 1
        else:
            known = self._fan_outs.pop(pattern, None)
            if known is not None:
                known.is_valid = False
                self.changes += 1

    def fan_out(self, channel: str) -> FanOut:
        """Return the fan-out of `channel`, cached if possible."""
        route = self._fan_outs.get(channel)
        if route is None:
            route = self._compute(channel)
            if len(channel) <= _REMEMBERED_LENGTH and route.is_valid:
                if len(self._fan_outs) >= _REMEMBERED_ROUTES:
                    self.invalidate("#")
                self._fan_outs[channel] = route
            else:
                route.is_valid = False  # for one message: not cached, so never invalidated
        return route

    def publish(
        self, message: Message, fan_out: PublisherFanOut, special: MessageOverride | None = None
    ) -> int:
        """Deliver `message` along `way`; returns the number of receivers.

        Raises DeferredMatchError if its document defers conditions; then nothing has happened.
        """
        route = fan_out.channel_fan_out
        view = route.view
        bound = route.traits
        targets = route.targets
        if route.has_predicates or route.groups:
            targets = self._choose(message, route)
        matching = self.matching_policies(message, view) if view.has_conditions else 0
        reached = 0
        for target in targets:
            if target.is_local_excluded and target.receiver.name == message.publisher:
                if target.own is None:
                    continue
                target = target.own  # noqa: PLW2901
            reached += 1
            if bound.keeps_order:
                grant = view.ordered_grant(fan_out.side, target.side, matching, bound.is_ordered)
            elif view.is_plain:
                grant = DEFAULT_GRANT
            else:
                grant = view.grant(fan_out.side, target.side, matching)
            if special is not None:
                if target.receiver in special.skipped:
                    continue
                if special.adjust_grant is not None and not bound.keeps_order:
                    grant = special.adjust_grant(grant)
            target.receiver.deliver(
                message,
                target.qos if target.qos < message.qos else message.qos,
                message.is_retained and target.keeps_retained_flag,
                target.identifiers,
                grant,
            )
        return reached

    def grant(self, message: Message, publisher: Entity, receiver: Entity) -> Grant:
        """Return the grant of one message to one receiver, for callers without a fan-out."""
        view = self.policies.view(message.channel)
        bound = self.traits(message.channel)
        return self._decide(message, view, publisher, view.receiver(receiver), bound)

    def query_grant(self, message: Message, publisher: Entity, client: Entity) -> Grant:
        """Return the grant of one message to a client that queried it."""
        view = self.policies.view(message.channel)
        return self._decide(message, view, publisher, view.query(client))

    def _decide(
        self,
        message: Message,
        view: ChannelPolicies,
        publisher: Entity,
        other: PolicySide,
        traits: ChannelTraits = DEFAULT_TRAITS,
    ) -> Grant:
        if view.is_plain and not traits.keeps_order:
            return DEFAULT_GRANT
        side = view.publisher(publisher)
        matching = self.matching_policies(message, view) if view.has_conditions else 0
        if traits.keeps_order:
            return view.ordered_grant(side, other, matching, traits.is_ordered)
        return view.grant(side, other, matching)

    def switch(self, policies: Policies) -> None:
        """Apply other policies from now on, also to open subscriptions."""
        self.policies = policies
        self.invalidate("#")

    def reindex(self, subscription: RouterSubscription) -> bool:
        """Move a predicate to the index part of its present importance; False if it is there."""
        predicate = subscription.predicate
        if predicate is None:
            return False
        importance = self._importance(subscription)
        if importance == subscription.importance:
            return False
        subscription.importance = importance
        self._index.remove(subscription)
        self._index.add(
            subscription, predicate, channel=subscription.pattern, importance=importance
        )
        return True

    def subscriptions_to(self, channel: str) -> list[SelectedSubscriptions]:
        """Return the subscriptions whose filters select `channel`, as the router keeps them.

        Equal filters give the same objects. A group's member with a predicate is in it twice.
        """
        found: list[SelectedSubscriptions] = []
        for kept in (self._plain, self._shared, self._conditional):
            if not kept.is_empty:
                found += kept.select(channel)
        return found

    def is_kept(self, channel: str) -> bool:
        """Check whether events of `channel` that are published here are kept."""
        traits = self.traits(channel)
        return bool(self._kept.select(channel)) or (traits.is_persistent and not traits.goes_up)

    def standing_grant(self, channel: str, publisher: Entity | None, receiver: Entity) -> Grant:
        """Return the grant of messages that meet no condition on single messages."""
        view = self.policies.view(channel)
        side = NO_SIDE if publisher is None else view.publisher(publisher)
        other = view.receiver(receiver)
        traits = self.traits(channel)
        if traits.keeps_order:
            return view.ordered_grant(side, other, 0, traits.is_ordered)
        return view.grant(side, other)

    def deliveries(self) -> Iterator[tuple[str, Receiver]]:
        """Yield channel and receiver of all cached fan-outs."""
        for channel, route in list(self._fan_outs.items()):
            for target in route.targets:
                yield channel, target.receiver

    def unused(self, subscriptions: Iterable[RouterSubscription]) -> list[str]:
        """Return the channels of single-channel subscriptions that have no cached fan-out."""
        return [
            each.pattern
            for each in subscriptions
            if "+" not in each.pattern
            and "#" not in each.pattern
            and each.pattern not in self._fan_outs
        ]

    def check_invariants(self) -> None:
        for channel, route in self._fan_outs.items():
            assert route.is_valid
            fresh = self._compute(channel)
            assert [target.identity() for target in fresh.targets] == [
                target.identity() for target in route.targets
            ]
            assert fresh.groups == route.groups
            assert fresh.has_predicates == route.has_predicates
            assert fresh.is_watched == route.is_watched
            assert fresh.traits == route.traits
            assert fresh.has_runs == route.has_runs

    def _choose(self, message: Message, fan_out: FanOut) -> list[FanOutTarget]:
        """Return the targets of one message: matching predicates, and one member per group."""
        matching = self._matching(message) if fan_out.has_predicates else []
        chosen, wanting = self._candidates(fan_out, matching)
        targets = merge(chosen, fan_out.view)
        for key, candidates in wanting.items():
            # A separate copy, which the receiver gets as a member of the group.
            (member,) = self._group(key).choose(candidates, 1)
            targets.append(FanOutTarget(member, fan_out.view))
        return targets

    def _candidates(
        self, fan_out: FanOut, matching: Iterable[Hashable]
    ) -> tuple[list[RouterSubscription], dict[tuple[str, str], list[RouterSubscription]]]:
        """Return subscriptions that get a message matching `matching`, and candidates by group."""
        channel = fan_out.channel
        if fan_out.open_groups is None:
            members = {key: self._group(key).members for key in fan_out.groups}
            fan_out.open_groups = {
                key: found
                for key, several in members.items()
                if (found := [each for each in several if _is_open(each, channel)])
            }
        chosen = list(fan_out.subscriptions)
        wanting = {key: list(members) for key, members in fan_out.open_groups.items()}
        for each in matching:
            assert isinstance(each, RouterSubscription)
            if each.denied and each.denies(channel):
                continue
            if each.group:
                wanting.setdefault((each.pattern, each.group), []).append(each)
            else:
                chosen.append(each)
        return chosen, wanting

    def fixed_selection(self, fan_out: PublisherFanOut) -> Selection | None:
        """Return the selection for all runs of `way`; None if it depends on the message."""
        if fan_out.channel_fan_out.has_predicates:
            return None
        selection = self.select(fan_out, ())
        if selection.mask or selection.needs_events:
            return None
        selection.only = selection.single()
        return selection

    def select(
        self, fan_out: PublisherFanOut, matching: tuple[RouterSubscription, ...]
    ) -> Selection:
        """Return the selection of the messages of `way` in runs that match exactly `matching`."""
        known = fan_out.selections.get(matching)
        if known is not None:
            return known
        route = fan_out.channel_fan_out
        chosen, groups = self._candidates(route, matching)
        targets = merge(chosen, route.view)
        taking_turns: list[tuple[SharedGroup, list[RouterSubscription]]] = []
        for key, members in groups.items():
            if len(members) == 1:
                targets.append(FanOutTarget(members[0], route.view))
            else:
                taking_turns.append((self._group(key), members))
        selection = Selection(fan_out, targets, taking_turns or None)
        if len(fan_out.selections) >= _REMEMBERED_SELECTIONS:
            fan_out.selections.clear()
            fan_out.distinct.clear()
        if selection.groups is None:
            received = tuple((each.receiver, each.rank, each.key) for each in selection.copies)
            selection = fan_out.distinct.setdefault(received, selection)
        fan_out.selections[matching] = selection
        return selection

    def _matching(self, message: Message) -> list[Hashable]:
        """Return the subscriptions whose predicates match; none if the attributes are malformed.

        The publisher is not notified: whether others get the message must not depend on who else
        has subscribed.
        """
        try:
            values, document = message.values(), message.document()
        except EventError:
            self.unreadable += 1
            return []
        limit = self.match_limit
        found = self._index.match_values(message.channel, values, document, limit=limit)
        if document is not None and document.deferred:
            raise DeferredMatchError(document)
        if limit is not None and found.work > limit:
            self.unmatched_work += 1
        return found.keys

    def match_frames(self, fan_out: FanOut, data: bytes, spans: bytes) -> FrameMatches:
        """Match predicates with messages whose properties are at `spans` of `data`."""
        return self._index.match_frames(fan_out.channel, data, spans, limit=self.match_limit)

    def matching_policies(self, message: Message, view: ChannelPolicies) -> int:
        """Return the bits of policy conditions that hold; malformed attributes match none."""
        size = len(message.payload)
        if view.needs_attributes:
            try:
                return view.matching(message.values(), size, message.document())
            except EventError:
                pass
        return view.matching({}, size)

    def _importance(self, subscription: RouterSubscription) -> int:
        """Return the importance of a predicate; those of one importance are matched together."""
        view = self.policies.view(subscription.pattern)
        return view.grant(NO_SIDE, view.receiver(subscription.receiver.entity)).importance

    def _group(self, group_key: tuple[str, str]) -> SharedGroup:
        groups = self._shared.get(group_key[0])
        assert groups is not None
        return groups[group_key[1]]

    def _compute(self, channel: str) -> FanOut:
        route = FanOut(channel, self.policies.view(channel), self.channels.get(channel))
        for known in self._plain.select(channel):
            subscriptions = known.values() if isinstance(known, dict) else (known,)
            route.subscriptions += [
                each for each in subscriptions if not each.denied or not each.denies(channel)
            ]
        for groups in self._shared.select(channel):
            for name, group in groups.items():
                route.groups.append((group.members[0].pattern, name))
        route.targets = merge(route.subscriptions, route.view)
        route.has_predicates = bool(self._conditional.select(channel))
        route.is_kept_always = bool(self._kept.select(channel))
        route.is_watched = channel in self.watched
        route.traits = self.traits(channel)
        is_kept_here = route.traits.is_persistent and not route.traits.goes_up
        route.is_kept = route.is_kept_always or is_kept_here
        route.is_valid = not route.traits.problem  # so that each message is checked
        route.has_runs = not (
            channel.startswith("$")
            or route.is_watched
            or route.traits.is_ordered
            or route.traits.keeps_order
            or route.traits.is_persistent
            or route.traits.goes_up
            or route.traits.problem
            or any(target.receiver.is_remote for target in route.targets)
        )
        return route


def _default_traits(_: str) -> ChannelTraits:
    return DEFAULT_TRAITS


def _is_open(member: RouterSubscription, channel: str) -> bool:
    """Check whether a group member may get each message of `channel`."""
    return member.predicate is None and not (member.denied and member.denies(channel))
