"""Parts of routing: receivers, subscriptions, and fan-outs as publishers use them.

A `PublisherFanOut` adds to a channel's fan-out what policies grant one publisher's messages. Both
are cached together, so a message without conditions of its own costs no policy evaluation.

Messages with the same selection (the same receivers with the same grants) travel together as a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from accord.core.model.channels import selects_any
from accord.core.model.document import Document
from accord.core.monitoring.channel_counts import ChannelCounts
from accord.core.overlay.channel_directory import DEFAULT_TRAITS
from accord.core.policy.policies import DEFAULT_GRANT, ChannelPolicies, Entity, Grant
from accord.core.predicates.predicate import Predicate
from accord.core.router.message import Message
from accord.core.scheduling.outbox import EventRun

REQUESTS: Final = "$accord/"  # requests to the node itself
_REMEMBERED_OTHERS: Final = 64  # cached variants of a selection


class DeferredMatchError(Exception):
    """Conditions deferred by `document` must be evaluated before a message can be matched."""

    def __init__(self, document: Document) -> None:
        self.document = document
        super().__init__(f"{len(document.deferred)} conditions to be evaluated elsewhere")


class Receiver:
    """Destination of messages: a client's session or another node."""

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
        self.is_remote = False  # another node, which gets events and not frames
        # MQTT version of the frames it accepts in runs; 0: each message is encoded for it.
        self.dialect = 0
        self.run_qos = 0  # highest QoS of messages it accepts in runs

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
        """Accept messages as frames of its own dialect."""
        raise NotImplementedError


class RouterSubscription:
    """One receiver's subscription to the channels that a filter selects."""

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
        self.where = where  # source text of the predicate
        self.xpath = xpath
        self.importance = 0  # of its predicate in the index
        self.denied: tuple[str, ...] = ()  # filters of channels it never receives

    def denies(self, channel: str) -> bool:
        """Check whether `channel` is denied to the receiver, though the filter selects it."""
        return selects_any(self.denied, channel)


class MessageOverride:
    """Exceptions for one message: receivers to skip, and a change of grants."""

    def __init__(self) -> None:
        self.skipped: dict[Receiver, bool] = {}
        self.adjust_grant: Callable[[Grant], Grant] | None = None


class FanOutTarget:
    """One copy of a message for a receiver, for one or more of its subscriptions."""

    def __init__(self, subscription: RouterSubscription, view: ChannelPolicies) -> None:
        self.receiver = subscription.receiver
        self.side = view.receiver(subscription.receiver.entity)
        self.qos = -1
        self.keeps_retained_flag = False
        self.identifiers: tuple[int, ...] = ()
        # With no-local subscriptions: the target for the receiver's own messages, if any.
        self.is_local_excluded = False
        self.own: FanOutTarget | None = None
        self.add(subscription)

    def add(self, subscription: RouterSubscription) -> None:
        self.qos = max(self.qos, subscription.qos)
        self.keeps_retained_flag = self.keeps_retained_flag or subscription.keeps_retained_flag
        if subscription.identifier:
            self.identifiers = (*self.identifiers, subscription.identifier)

    def identity(self) -> tuple[object, ...]:
        """Return everything that distinguishes one target from another."""
        own = None if self.own is None else self.own.identity()
        kept = self.keeps_retained_flag
        identifiers = self.identifiers
        return self.receiver, self.side, self.qos, kept, identifiers, self.is_local_excluded, own


class SharedGroup:
    """Members of a shared subscription, which take turns."""

    def __init__(self) -> None:
        self.members: list[RouterSubscription] = []
        self.next_index = 0

    def choose(self, candidates: list[RouterSubscription], count: int) -> list[RouterSubscription]:
        """Return the next `count` in turn, or all if fewer; prefers connected members."""
        able = [each for each in candidates if each.receiver.is_connected] or candidates
        start = self.next_index % len(able)
        self.next_index += count
        return (able[start:] + able[:start])[:count]


class ReceiverCopy:
    """A receiver's copy of a run: its maximum QoS, identifiers and grant.

    A member of groups may get several copies of the same messages; `rank` counts them.
    """

    __slots__ = ("grant", "identifiers", "key", "qos", "rank", "receiver")

    def __init__(self, target: FanOutTarget, grant: Grant) -> None:
        self.receiver = target.receiver
        self.qos = target.qos
        self.identifiers = target.identifiers
        self.rank = 0
        self.grant = grant
        # Receivers with the same key share the encoded messages.
        self.key = (target.receiver.dialect, target.qos, target.identifiers, grant)

    def takes_run(self, qos: int) -> bool:
        """Check whether messages of this QoS go to the receiver as frames, not one by one."""
        receiver = self.receiver
        return (
            receiver.dialect > 0
            and not self.grant.shaping
            and (qos if qos < self.qos else self.qos) <= receiver.run_qos
        )


class Selection:
    """The receivers of some of the messages of one publisher's fan-out.

    `groups` are the shared subscriptions among them, with candidates that take turns. `mask` has
    the bits of the policy conditions that the grants depend on; the copies are for messages that
    meet those in `matching`. If it `needs_events`, its messages must be decoded. `only` is the copy
    of a single receiver that takes frames unchanged, if there is no other receiver.
    """

    __slots__ = (
        "_others",
        "copies",
        "fan_out",
        "groups",
        "mask",
        "matching",
        "needs_events",
        "only",
        "targets",
    )

    def __init__(
        self,
        fan_out: PublisherFanOut,
        targets: list[FanOutTarget],
        groups: list[tuple[SharedGroup, list[RouterSubscription]]] | None = None,
        matching: int = 0,
    ) -> None:
        self.fan_out = fan_out
        self.targets = targets
        self.groups = groups
        self.matching = matching
        self.copies = assign_ranks(fan_out.copies(targets, matching))
        self.mask = fan_out.side.mask
        self.needs_events = False
        view = fan_out.channel_fan_out.view
        members = [FanOutTarget(each, view) for _, several in groups or () for each in several]
        for target in (*targets, *members):
            self.mask |= target.side.mask
            # Remote nodes get events.
            self.needs_events = self.needs_events or target.receiver.is_remote
        self.only: ReceiverCopy | None = None  # set by `Router.fixed_selection`
        # Variants by conditions that are met, or by members whose turn it is.
        self._others: dict[int | tuple[RouterSubscription, ...], Selection] = {}

    def single(self) -> ReceiverCopy | None:
        """Return the only copy, if frames need not be changed or kept for it."""
        if len(self.copies) != 1 or self.groups or self.fan_out.channel_fan_out.is_kept:
            return None
        copy = self.copies[0]
        return copy if copy.takes_run(0) and not copy.identifiers else None

    def for_conditions(self, matching: int) -> Selection:
        """Return the variant for messages that meet these policy conditions."""
        matching &= self.mask
        if matching == self.matching:
            return self
        found = self._others.get(matching)
        if found is None:
            made = Selection(self.fan_out, self.targets, self.groups, matching)
            found = self._cache(matching, made)
        return found

    def with_members(self, members: tuple[RouterSubscription, ...]) -> Selection:
        """Return the variant with one member of each group, whose turn it is."""
        found = self._others.get(members)
        if found is None:
            view = self.fan_out.channel_fan_out.view
            # A separate target, which the receiver gets as a member of its group.
            chosen = [FanOutTarget(each, view) for each in members]
            made = Selection(self.fan_out, chosen, None, self.matching)
            made.copies = assign_ranks(self.copies + made.copies)
            found = self._cache(members, made)
        return found

    def _cache(self, key: int | tuple[RouterSubscription, ...], made: Selection) -> Selection:
        if len(self._others) >= _REMEMBERED_OTHERS:
            self._others.clear()
        self._others[key] = made
        return made


def assign_ranks(copies: list[ReceiverCopy]) -> list[ReceiverCopy]:
    """Set the ranks; copies that have one already come first, and keep it."""
    if len({copy.receiver for copy in copies}) < len(copies):
        counts: Counter[Receiver] = Counter()
        for copy in copies:
            copy.rank = counts[copy.receiver]
            counts[copy.receiver] += 1
    return copies


class FanOut:
    """The receivers of one channel at this node."""

    def __init__(self, channel: str, view: ChannelPolicies, counts: ChannelCounts) -> None:
        self.channel = channel
        self.view = view
        self.counts = counts
        self.targets: list[FanOutTarget] = []
        self.subscriptions: list[RouterSubscription] = []
        self.groups: list[tuple[str, str]] = []
        self.has_predicates = False
        self.is_kept = False
        self.is_kept_always = False  # also if published at another node
        self.is_watched = False  # its events are measured one by one
        self.traits = DEFAULT_TRAITS
        # By group, members without a predicate; None until first used.
        self.open_groups: dict[tuple[str, str], list[RouterSubscription]] | None = None
        self.is_request = channel.startswith(REQUESTS)
        self.is_valid = True
        # Whether ordinary messages may travel in runs.
        self.has_runs = False


class PublisherFanOut:
    """A fan-out as one publisher uses it.

    `pending` counts its messages, or runs of them, that wait for CPU: no later one may overtake
    them. `selections` are cached by the subscriptions whose predicates match.
    """

    def __init__(
        self, entity: Entity, channel_fan_out: FanOut, is_rate_limited: bool = False
    ) -> None:
        self.only: ReceiverCopy | None = None  # always None: receivers depend on the message
        self.entity = entity
        self.is_rate_limited = is_rate_limited  # each message is subject to rate enforcement
        self.pending = 0
        self.published = 0  # messages, as long as it is cached
        self.is_light = True  # bin of the pending ones; later ones must not overtake
        self.renew(channel_fan_out)

    @property
    def fan_out(self) -> PublisherFanOut:
        """Itself: a label stands for a publisher's fan-out or a selection of one."""
        return self

    def renew(self, channel_fan_out: FanOut) -> None:
        """Switch to another fan-out after the previous one became invalid."""
        view = channel_fan_out.view
        self.channel_fan_out = channel_fan_out
        self.side = view.publisher(self.entity)
        self.grant = view.publish_grant(self.side)
        self.has_runs = channel_fan_out.has_runs and not self.is_rate_limited
        self.selections: dict[tuple[RouterSubscription, ...], Selection] = {}
        self.distinct: dict[tuple[object, ...], Selection] = {}  # by what the receivers get

    def clear_caches(self) -> None:
        """Clear the caches when it is no longer used, so that no reference cycle remains."""
        self.selections = {}
        self.distinct = {}

    def copies(self, targets: list[FanOutTarget], matching: int) -> list[ReceiverCopy]:
        """Return the copies of this publisher's messages for `targets`.

        `matching` are the bits of the policy conditions that the messages meet.
        """
        view = self.channel_fan_out.view
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
    """Return one target per receiver."""
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
