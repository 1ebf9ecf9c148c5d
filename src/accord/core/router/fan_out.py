"""The parts of routing: who receives, what they wish for, and the ways that messages go.

A way is what one publisher has of a route: what policies grant its messages. Both are remembered
together, so a message without conditions of its own costs policies nothing.

Messages with the same selection, the same receivers with the same grants, travel together as a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from accord.core.model.channels import selects_any
from accord.core.model.document import Document
from accord.core.monitoring.channel_counts import ChannelCounts
from accord.core.overlay.channel_traits import DEFAULT_TRAITS
from accord.core.policy.policies import DEFAULT_GRANT, ChannelPolicies, Entity, Grant
from accord.core.predicates.predicate import Predicate
from accord.core.router.message import Message
from accord.core.scheduling.outbox import EventRun

REQUESTS: Final = "$accord/"  # what is published there is for the node itself
_REMEMBERED_OTHERS: Final = 64  # selections like another


class DeferredMatchError(Exception):
    """Conditions that `document` defers have to be evaluated before a message can be matched."""

    def __init__(self, document: Document) -> None:
        self.document = document
        super().__init__(f"{len(document.deferred)} conditions to be evaluated elsewhere")


class Receiver:
    """Where messages go: a client's session, later also a neighbouring node."""

    __slots__ = (
        "dialect",
        "entity",
        "is_connected",
        "is_remote",
        "name",
        "run_qos",
    )

    def __init__(self, name: str, entity: Entity) -> None:
        self.name = name
        self.entity = entity
        self.is_connected = False
        self.is_remote = False  # another node: it gets events, not frames
        # The version of MQTT whose frames it takes in runs, 0 where each message is made for it.
        self.dialect = 0
        self.run_qos = 0  # the highest QoS of the messages that it takes in runs

    def deliver(
        self,
        message: Message,
        qos: int,
        is_retained: bool,
        identifiers: tuple[int, ...],
        grant: Grant,
    ) -> None:
        raise NotImplementedError

    def forward(self, run: EventRun) -> None:
        """Take messages as frames of its own dialect."""
        raise NotImplementedError


class RouterSubscription:
    """One receiver's wish for the channels a filter selects."""

    __slots__ = (
        "denied",
        "group",
        "identifier",
        "importance",
        "is_local_excluded",
        "keeps_retained_flag",
        "pattern",
        "predicate",
        "qos",
        "receiver",
        "where",
        "xpath",
    )

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
        self.denied: tuple[str, ...] = ()  # filters of channels whose events it never gets

    def denies(self, channel: str) -> bool:
        """Whether its receiver may not have events of `channel`, though its filter selects it."""
        return selects_any(self.denied, channel)


class MessageOverride:
    """What is done to one message on its way: who is passed over, and what grants become."""

    def __init__(self) -> None:
        self.skipped: dict[Receiver, bool] = {}
        self.lift: Callable[[Grant], Grant] | None = None


class FanOutTarget:
    """One copy of a message for a receiver, on behalf of one or more of its subscriptions."""

    def __init__(self, subscription: RouterSubscription, view: ChannelPolicies) -> None:
        self.receiver = subscription.receiver
        self.side = view.receiver(subscription.receiver.entity)
        self.qos = -1
        self.keeps_retained_flag = False
        self.identifiers: tuple[int, ...] = ()
        # Whether the copy of what the receiver itself published is another, and which one if any.
        self.is_local_excluded = False
        self.own: FanOutTarget | None = None
        self.add(subscription)

    def add(self, subscription: RouterSubscription) -> None:
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


class SharedGroup:
    """The members of a shared subscription, who take turns."""

    def __init__(self) -> None:
        self.members: list[RouterSubscription] = []
        self.turn = 0

    def choose(self, candidates: list[RouterSubscription], count: int) -> list[RouterSubscription]:
        """The next `count` in turn, or all if they are fewer; connected ones if there are any."""
        able = [each for each in candidates if each.receiver.is_connected] or candidates
        start = self.turn % len(able)
        self.turn += count
        return (able[start:] + able[:start])[:count]


class ReceiverCopy:
    """What one receiver gets of a run: at most this QoS, with these identifiers and this grant.

    It gets several copies of the same messages if it is a member of groups; `rank` counts them.
    """

    __slots__ = ("grant", "identifiers", "key", "qos", "rank", "receiver")

    def __init__(self, target: FanOutTarget, grant: Grant) -> None:
        self.receiver = target.receiver
        self.qos = target.qos
        self.identifiers = target.identifiers
        self.rank = 0
        self.grant = grant
        # Those who get the same messages under the same key share them.
        self.key = (target.receiver.dialect, target.qos, target.identifiers, grant)

    def takes_run(self, qos: int) -> bool:
        """Whether messages of this QoS go to the receiver as frames, not one by one."""
        receiver = self.receiver
        return (
            receiver.dialect > 0
            and not self.grant.shaping
            and (qos if qos < self.qos else self.qos) <= receiver.run_qos
        )


class Selection:
    """Who gets some of the messages of a way.

    `groups` are the shared subscriptions among them: their candidates, who take turns. `mask` are
    the bits of the policies' conditions that the grants depend on; the copies are for messages that
    meet those of `matching`. Where it `needs_events`, its messages have to be taken apart. `only`
    is the copy of a single receiver who takes frames as they come, where nobody else gets them.
    """

    __slots__ = (
        "_others",
        "copies",
        "groups",
        "mask",
        "matching",
        "needs_events",
        "only",
        "targets",
        "way",
    )

    def __init__(
        self,
        way: PublisherFanOut,
        targets: list[FanOutTarget],
        groups: list[tuple[SharedGroup, list[RouterSubscription]]] | None = None,
        matching: int = 0,
    ) -> None:
        self.way = way
        self.targets = targets
        self.groups = groups
        self.matching = matching
        self.copies = ranked(way.copies(targets, matching))
        self.mask = way.side.mask
        self.needs_events = False
        view = way.route.view
        members = [FanOutTarget(each, view) for _, several in groups or () for each in several]
        for target in (*targets, *members):
            self.mask |= target.side.mask
            # Other nodes get events.
            self.needs_events = self.needs_events or target.receiver.is_remote
        self.only: ReceiverCopy | None = None  # where the router looked for it
        # By the conditions that are met, or the members whose turn it is.
        self._others: dict[int | tuple[RouterSubscription, ...], Selection] = {}

    def single(self) -> ReceiverCopy | None:
        """The copy that is all there is, if frames need not be changed or kept for it."""
        if len(self.copies) != 1 or self.groups or self.way.route.is_kept:
            return None
        copy = self.copies[0]
        return copy if copy.takes_run(0) and not copy.identifiers else None

    def under(self, matching: int) -> Selection:
        """The same for messages that meet these conditions of policies."""
        matching &= self.mask
        if matching == self.matching:
            return self
        found = self._others.get(matching)
        if found is None:
            made = Selection(self.way, self.targets, self.groups, matching)
            found = self._remember(matching, made)
        return found

    def with_members(self, members: tuple[RouterSubscription, ...]) -> Selection:
        """The same with one member of each group, whose turn it is."""
        found = self._others.get(members)
        if found is None:
            view = self.way.route.view
            # A target of its own: a receiver has it on behalf of its group.
            chosen = [FanOutTarget(each, view) for each in members]
            made = Selection(self.way, chosen, None, self.matching)
            made.copies = ranked(self.copies + made.copies)
            found = self._remember(members, made)
        return found

    def _remember(self, key: int | tuple[RouterSubscription, ...], made: Selection) -> Selection:
        if len(self._others) >= _REMEMBERED_OTHERS:
            self._others.clear()
        self._others[key] = made
        return made


def ranked(copies: list[ReceiverCopy]) -> list[ReceiverCopy]:
    """The same with their ranks; those that have one already come first, and keep it."""
    if len({copy.receiver for copy in copies}) < len(copies):
        counts: Counter[Receiver] = Counter()
        for copy in copies:
            copy.rank = counts[copy.receiver]
            counts[copy.receiver] += 1
    return copies


class FanOut:
    """Where the messages of one channel go."""

    def __init__(self, channel: str, view: ChannelPolicies, counts: ChannelCounts) -> None:
        self.channel = channel
        self.view = view
        self.counts = counts
        self.targets: list[FanOutTarget] = []
        self.subscriptions: list[RouterSubscription] = []
        self.groups: list[tuple[str, str]] = []
        self.has_predicates = False
        self.is_kept = False
        self.is_kept_always = False  # also where it was published at another node
        self.is_watched = False  # whether its events are measured, one by one
        self.bound = DEFAULT_TRAITS
        # Of groups with members that have no predicate: those. None until somebody asks.
        self.open_groups: dict[tuple[str, str], list[RouterSubscription]] | None = None
        self.is_request = channel.startswith(REQUESTS)
        self.is_valid = True
        # Whether messages that need nothing special can travel in runs.
        self.has_runs = False


class PublisherFanOut:
    """A route as one publisher uses it.

    `pending` are its messages, or runs of them, that wait for their turn on the CPU: no later one
    may overtake them. `selections` are remembered by the subscriptions whose predicates hold.
    """

    def __init__(self, entity: Entity, route: FanOut, is_held: bool = False) -> None:
        self.only: ReceiverCopy | None = None  # who gets its messages depends on them
        self.entity = entity
        self.is_held = is_held  # whether each message is held against what was advertised
        self.pending = 0
        self.is_light = True  # those that wait: what comes behind them must not overtake them
        self.renew(route)

    @property
    def way(self) -> PublisherFanOut:
        """Itself: a label stands for a way or for a selection of one."""
        return self

    def renew(self, route: FanOut) -> None:
        """Take another route, because the one before is not valid any more."""
        view = route.view
        self.route = route
        self.side = view.publisher(self.entity)
        self.grant = view.publish_grant(self.side)
        self.has_runs = route.has_runs and not self.is_held
        self.selections: dict[tuple[RouterSubscription, ...], Selection] = {}
        self.distinct: dict[tuple[object, ...], Selection] = {}  # by what their receivers get

    def forget(self) -> None:
        """It is not used any more: leave no cycle of it and its selections."""
        self.selections = {}
        self.distinct = {}

    def copies(self, targets: list[FanOutTarget], matching: int) -> list[ReceiverCopy]:
        """What the receivers of `targets` get of this publisher's messages.

        `matching` are the bits of the policies' conditions that the messages meet.
        """
        view = self.route.view
        copies: list[ReceiverCopy] = []
        for target in targets:
            if target.is_local_excluded and target.receiver.name == self.entity.client:
                if target.own is None:
                    continue
                target = target.own  # noqa: PLW2901
            grant = DEFAULT_GRANT
            if not view.is_plain:
                grant = view.grant(self.side, target.side, matching)
            copies.append(ReceiverCopy(target, grant))
        return copies


def merge(subscriptions: list[RouterSubscription], view: ChannelPolicies) -> list[FanOutTarget]:
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


def _by_receiver(
    subscriptions: list[RouterSubscription], view: ChannelPolicies
) -> dict[Receiver, FanOutTarget]:
    targets: dict[Receiver, FanOutTarget] = {}
    for subscription in subscriptions:
        known = targets.get(subscription.receiver)
        if known is None:
            targets[subscription.receiver] = FanOutTarget(subscription, view)
        else:
            known.add(subscription)
    return targets
