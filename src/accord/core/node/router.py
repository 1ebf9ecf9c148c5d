"""Who gets what: subscriptions, and the routes of channels worked out from them.

A route is worked out when a channel is first published to and remembered until a subscription that
could select the channel changes, so a message usually costs one look-up. Subscriptions with a
predicate are kept apart, in the index: only channels that they select make an event of a message.

A receiver whose subscriptions overlap gets one copy, at the highest QoS among them. A shared
subscription gives each message to one member of its group.

A way is what one publisher has of a route: what policies grant its messages. Both are remembered
together, so a message without conditions of its own costs policies nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final

from accord.core.errors import EventError
from accord.core.model.channels import ChannelMap
from accord.core.model.document import Document
from accord.core.monitoring.channels import ChannelCounts, ChannelTable
from accord.core.node.message import Message
from accord.core.predicates.index import Index
from accord.core.predicates.predicate import Predicate
from accord.core.qos.policies import DEFAULT_GRANT, NO_SIDE, Entity, Grant, Policies, View
from accord.core.scheduling.outbox import Run

REQUESTS: Final = "$accord/"  # what is published there is for the node itself
_REMEMBERED_ROUTES: Final = 10_000
_REMEMBERED_LENGTH: Final = 1_024


class HeavyMatchError(Exception):
    """Conditions that `document` defers have to be evaluated before a message can be matched."""

    def __init__(self, document: Document) -> None:
        self.document = document
        super().__init__(f"{len(document.deferred)} conditions to be evaluated elsewhere")


class Receiver:
    """Where messages go: a client's session, later also a neighbouring node."""

    def __init__(self, name: str, entity: Entity) -> None:
        self.name = name
        self.entity = entity
        self.is_connected = False
        # Which publisher's frames it takes as they are; 0 means none, each is made for it.
        self.dialect = 0

    def deliver(
        self,
        message: Message,
        qos: int,
        is_retained: bool,
        identifiers: tuple[int, ...],
        grant: Grant,
    ) -> None:
        raise NotImplementedError

    def forward(self, run: Run) -> None:
        """Take unacknowledged messages as frames of its own dialect."""
        raise NotImplementedError


class Subscription:
    """One receiver's wish for the channels a filter selects."""

    def __init__(
        self,
        receiver: Receiver,
        pattern: str,
        *,
        group: str = "",
        qos: int = 0,
        is_local_excluded: bool = False,
        keeps_retained_flag: bool = False,
        identifier: int = 0,
        predicate: Predicate | None = None,
        where: str = "",
        xpath: str = "",
    ) -> None:
        self.receiver = receiver
        self.pattern = pattern
        self.group = group
        self.qos = qos
        self.is_local_excluded = is_local_excluded
        self.keeps_retained_flag = keeps_retained_flag
        self.identifier = identifier
        self.predicate = predicate
        self.where = where  # the predicate as its client wrote it
        self.xpath = xpath
        self.importance = 0  # of its predicate, as the index has it

    def is_plain(self) -> bool:
        """Whether an unacknowledged message reaches the receiver just as it was published."""
        return not (self.is_local_excluded or self.identifier or self.receiver.dialect == 0)


class Target:
    """One copy of a message for a receiver, on behalf of one or more of its subscriptions."""

    def __init__(self, subscription: Subscription, view: View) -> None:
        self.receiver = subscription.receiver
        self.side = view.receiver(subscription.receiver.entity)
        self.qos = -1
        self.keeps_retained_flag = False
        self.identifiers: tuple[int, ...] = ()
        # Whether the copy of what the receiver itself published is another, and which one if any.
        self.is_local_excluded = False
        self.own: Target | None = None
        self.add(subscription)

    def add(self, subscription: Subscription) -> None:
        self.qos = max(self.qos, subscription.qos)
        self.keeps_retained_flag = self.keeps_retained_flag or subscription.keeps_retained_flag
        if subscription.identifier:
            self.identifiers = (*self.identifiers, subscription.identifier)

    def facts(self) -> tuple[object, ...]:
        """All that makes it another target."""
        own = None if self.own is None else self.own.facts()
        kept = self.keeps_retained_flag
        identifiers = self.identifiers
        return self.receiver, self.side, self.qos, kept, identifiers, self.is_local_excluded, own


class Group:
    """The members of a shared subscription, who take turns."""

    def __init__(self) -> None:
        self.members: list[Subscription] = []
        self.turn = 0

    def choose(self, candidates: list[Subscription]) -> Subscription:
        """The next in turn, a connected one if there is any."""
        turn = self.turn
        self.turn += 1
        for step in range(len(candidates)):
            candidate = candidates[(turn + step) % len(candidates)]
            if candidate.receiver.is_connected:
                return candidate
        return candidates[turn % len(candidates)]


class Route:
    """Where the messages of one channel go."""

    def __init__(self, channel: str, view: View, counts: ChannelCounts) -> None:
        self.channel = channel
        self.view = view
        self.counts = counts
        self.targets: list[Target] = []
        self.subscriptions: list[Subscription] = []
        self.groups: list[tuple[str, str]] = []
        self.has_predicates = False
        self.is_kept = False
        self.is_request = channel.startswith(REQUESTS)
        self.is_valid = True
        # Whether unacknowledged messages can be forwarded as they are to all of `plain`.
        self.is_plain = False
        self.plain: list[Receiver] = []


class Way:
    """A route as one publisher uses it.

    `pending` are its messages that wait for their turn on the CPU: no later one may overtake them.
    """

    def __init__(self, entity: Entity, route: Route) -> None:
        self.entity = entity
        self.pending = 0
        self.is_light = True  # those that wait: what comes behind them must not overtake them
        self.renew(route)

    def renew(self, route: Route) -> None:
        """Take another route, because the one before is not valid any more."""
        view = route.view
        self.route = route
        self.side = view.publisher(self.entity)
        self.grant = view.publish_grant(self.side)
        # What each of `route.plain` is granted; None where nobody is granted anything special.
        self.grants: list[Grant] | None = None
        self.is_plain = route.is_plain and self.side.mask == 0
        if self.is_plain and not view.is_plain:
            grants = [view.grant(self.side, target.side) for target in route.targets]
            if any(grant is not DEFAULT_GRANT for grant in grants):
                self.grants = grants
                self.is_plain = not any(grant.shaping for grant in grants)


class Router:
    """All subscriptions of a node."""

    def __init__(self, kept: list[str], policies: Policies, *, match_limit: int = 0) -> None:
        self.policies = policies
        self.placed_for = policies  # those by which all predicates have their place in the index
        self.channels = ChannelTable()
        self.match_limit: int | None = match_limit or None
        self._plain: ChannelMap[dict[Receiver, Subscription]] = ChannelMap()
        self._shared: ChannelMap[dict[str, Group]] = ChannelMap()
        self._conditional: ChannelMap[dict[Subscription, bool]] = ChannelMap()
        self._index = Index()
        self._routes: dict[str, Route] = {}
        self._audiences: dict[tuple[Receiver, ...], list[Receiver]] = {}
        self._kept: ChannelMap[bool] = ChannelMap()
        for pattern in kept:
            self._kept.set(pattern, True)
        self.size = 0
        self.unreadable = 0  # messages that predicates could not look into
        self.unmatched_work = 0  # messages whose matching was given up for the unimportant

    @property
    def predicates(self) -> int:
        return len(self._index)

    def add(self, subscription: Subscription) -> None:
        """Take `subscription` in; its receiver has no other for the same group and filter."""
        pattern = subscription.pattern
        self.size += 1
        if subscription.group:
            groups = self._shared.get(pattern)
            if groups is None:
                groups = {}
                self._shared.set(pattern, groups)
            if subscription.group not in groups:
                groups[subscription.group] = Group()
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
            receivers = self._plain.get(pattern)
            if receivers is None:
                receivers = {}
                self._plain.set(pattern, receivers)
            receivers[subscription.receiver] = subscription
        self.invalidate(pattern)

    def remove(self, subscription: Subscription) -> None:
        pattern = subscription.pattern
        self.size -= 1
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
            receivers = self._plain.get(pattern)
            assert receivers is not None
            del receivers[subscription.receiver]
            if not receivers:
                self._plain.remove(pattern)
        self.invalidate(pattern)

    def invalidate(self, pattern: str) -> None:
        """Forget the routes of the channels that `pattern` selects."""
        if "+" in pattern or "#" in pattern:
            for route in self._routes.values():
                route.is_valid = False
            self._routes.clear()
            self._audiences.clear()
        else:
            known = self._routes.pop(pattern, None)
            if known is not None:
                known.is_valid = False
                self._audiences.pop(tuple(known.plain), None)

    def route(self, channel: str) -> Route:
        """Where messages of `channel` go, from memory if possible."""
        route = self._routes.get(channel)
        if route is None:
            route = self._work_out(channel)
            if len(channel) <= _REMEMBERED_LENGTH:
                if len(self._routes) >= _REMEMBERED_ROUTES:
                    self.invalidate("#")
                self._routes[channel] = route
            else:
                route.is_valid = False  # for one message only: nobody would tell it of changes
        return route

    def publish(self, message: Message, way: Way) -> int:
        """Deliver `message` along `way`; gives the number of receivers.

        HeavyMatchError where its document defers conditions; then nothing has happened.
        """
        route = way.route
        view = route.view
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
            target.receiver.deliver(
                message,
                target.qos if target.qos < message.qos else message.qos,
                message.is_retained and target.keeps_retained_flag,
                target.identifiers,
                DEFAULT_GRANT if view.is_plain else view.grant(way.side, target.side, matching),
            )
        return reached

    def grant(self, message: Message, publisher: Entity, receiver: Entity) -> Grant:
        """What policies grant one message to one receiver, for whoever has no way at hand."""
        view = self.policies.view(message.channel)
        if view.is_plain:
            return DEFAULT_GRANT
        sides = (view.publisher(publisher), view.receiver(receiver))
        matching = self.matching_policies(message, view) if view.has_conditions else 0
        return view.grant(sides[0], sides[1], matching)

    def switch(self, policies: Policies) -> None:
        """Let other policies hold from now on, for all that is open too."""
        self.policies = policies
        self.invalidate("#")

    def place(self, subscription: Subscription) -> bool:
        """Move a predicate to where its importance belongs now; False where it is there."""
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

    def deliveries(self) -> Iterator[tuple[str, Receiver]]:
        """Who gets what of the channels that are known."""
        for channel, route in list(self._routes.items()):
            for target in route.targets:
                yield channel, target.receiver

    def unused(self, subscriptions: Iterable[Subscription]) -> list[str]:
        """The channels of subscriptions to one channel on which nothing was published yet."""
        return [
            each.pattern
            for each in subscriptions
            if "+" not in each.pattern
            and "#" not in each.pattern
            and each.pattern not in self._routes
        ]

    def check_invariants(self) -> None:
        for channel, route in self._routes.items():
            assert route.is_valid
            fresh = self._work_out(channel)
            assert [target.facts() for target in fresh.targets] == [
                target.facts() for target in route.targets
            ]
            assert fresh.groups == route.groups
            assert fresh.has_predicates == route.has_predicates
            assert fresh.is_plain == route.is_plain
            assert fresh.plain == route.plain

    def _choose(self, message: Message, route: Route) -> list[Target]:
        """The targets of one message: predicates decide, and shared subscriptions take turns."""
        chosen = list(route.subscriptions)
        wanting: dict[tuple[str, str], list[Subscription]] = {}
        for group_key in route.groups:
            wanting[group_key] = []
            for member in self._members(group_key):
                if member.predicate is None:
                    wanting[group_key].append(member)
        if route.has_predicates:
            for key in self._matching(message):
                assert isinstance(key, Subscription)
                if key.group:
                    wanting[key.pattern, key.group].append(key)
                else:
                    chosen.append(key)
        targets = _merge(chosen, route.view)
        for (pattern, name), candidates in wanting.items():
            if candidates:
                groups = self._shared.get(pattern)
                assert groups is not None
                # A copy of its own: the receiver has it on behalf of the group.
                targets.append(Target(groups[name].choose(candidates), route.view))
        return targets

    def _matching(self, message: Message) -> list[Hashable]:
        """The subscriptions whose predicates match; none where the attributes can't be read.

        Their publisher is not told: whether others get the message must not depend on who else
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
            raise HeavyMatchError(document)
        if limit is not None and found.work > limit:
            self.unmatched_work += 1
        return found.keys

    def matching_policies(self, message: Message, view: View) -> int:
        """Which policies' conditions hold for `message`: those on its attributes not, if bad."""
        size = len(message.payload)
        if view.needs_attributes:
            try:
                return view.matching(message.values(), size, message.document())
            except EventError:
                pass
        return view.matching({}, size)

    def _importance(self, subscription: Subscription) -> int:
        """The part of the index for a predicate: those of one importance are matched together."""
        view = self.policies.view(subscription.pattern)
        return view.grant(NO_SIDE, view.receiver(subscription.receiver.entity)).importance

    def _members(self, group_key: tuple[str, str]) -> list[Subscription]:
        groups = self._shared.get(group_key[0])
        assert groups is not None
        return groups[group_key[1]].members

    def _audience(self, receivers: list[Receiver]) -> list[Receiver]:
        """The same list for the same receivers, so that routes can be compared by it."""
        if len(self._audiences) >= _REMEMBERED_ROUTES:
            self._audiences.clear()
        return self._audiences.setdefault(tuple(receivers), receivers)

    def _work_out(self, channel: str) -> Route:
        route = Route(channel, self.policies.view(channel), self.channels.get(channel))
        for receivers in self._plain.select(channel):
            route.subscriptions += receivers.values()
        for groups in self._shared.select(channel):
            for name, group in groups.items():
                route.groups.append((group.members[0].pattern, name))
        route.targets = _merge(route.subscriptions, route.view)
        route.has_predicates = bool(self._conditional.select(channel))
        route.is_kept = bool(self._kept.select(channel))
        route.plain = self._audience([target.receiver for target in route.targets])
        route.is_plain = not (
            channel.startswith("$")
            or route.has_predicates
            or route.groups
            or route.is_kept
            or any(target.side.mask for target in route.targets)
            or any(not subscription.is_plain() for subscription in route.subscriptions)
        )
        return route


def _merge(subscriptions: list[Subscription], view: View) -> list[Target]:
    """One target for each receiver."""
    targets = _by_receiver(subscriptions, view)
    excluding = [each for each in subscriptions if each.is_local_excluded]
    if excluding:
        own = _by_receiver([each for each in subscriptions if not each.is_local_excluded], view)
        for each in excluding:
            target = targets[each.receiver]
            target.is_local_excluded = True
            target.own = own.get(each.receiver)
    return list(targets.values())


def _by_receiver(subscriptions: list[Subscription], view: View) -> dict[Receiver, Target]:
    targets: dict[Receiver, Target] = {}
    for subscription in subscriptions:
        known = targets.get(subscription.receiver)
        if known is None:
            targets[subscription.receiver] = Target(subscription, view)
        else:
            known.add(subscription)
    return targets
