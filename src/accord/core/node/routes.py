"""The parts of routing: who receives, what they wish for, and the ways that messages go.

A way is what one publisher has of a route: what policies grant its messages. Both are remembered
together, so a message without conditions of its own costs policies nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from accord.core.model.channels import selects_any
from accord.core.model.document import Document
from accord.core.monitoring.channels import ChannelCounts
from accord.core.node.message import Message
from accord.core.overlay.binding import UNBOUND
from accord.core.predicates.predicate import Predicate
from accord.core.qos.policies import DEFAULT_GRANT, Entity, Grant, View
from accord.core.scheduling.outbox import Run

REQUESTS: Final = "$accord/"  # what is published there is for the node itself


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
        self.denied: tuple[str, ...] = ()  # filters of channels whose events it never gets

    def denies(self, channel: str) -> bool:
        """Whether its receiver may not have events of `channel`, though its filter selects it."""
        return selects_any(self.denied, channel)

    def is_plain(self) -> bool:
        """Whether an unacknowledged message reaches the receiver just as it was published."""
        return not (self.is_local_excluded or self.identifier or self.receiver.dialect == 0)


class Special:
    """What is done to one message on its way: who is passed over, and what grants become."""

    def __init__(self) -> None:
        self.skipped: dict[Receiver, bool] = {}
        self.lift: Callable[[Grant], Grant] | None = None


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
        self.is_kept_always = False  # also where it was published at another node
        self.is_watched = False  # whether its events are measured, one by one
        self.bound = UNBOUND
        self.is_request = channel.startswith(REQUESTS)
        self.is_valid = True
        # Whether unacknowledged messages can be forwarded as they are to all of `plain`.
        self.is_plain = False
        self.plain: list[Receiver] = []


class Way:
    """A route as one publisher uses it.

    `pending` are its messages that wait for their turn on the CPU: no later one may overtake them.
    """

    def __init__(self, entity: Entity, route: Route, is_held: bool = False) -> None:
        self.entity = entity
        self.is_held = is_held  # whether each message is held against what was advertised
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
        self.is_plain = route.is_plain and self.side.mask == 0 and not self.is_held
        if self.is_plain and not view.is_plain:
            grants = [view.grant(self.side, target.side) for target in route.targets]
            if any(grant is not DEFAULT_GRANT for grant in grants):
                self.grants = grants
                self.is_plain = not any(grant.shaping for grant in grants)


def merge(subscriptions: list[Subscription], view: View) -> list[Target]:
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
