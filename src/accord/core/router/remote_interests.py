"""Remote nodes as receivers: the local router finds the nodes that want an event.

A node's interest is in the router like a client's subscription, so one lookup and one pass through
the predicate index finds local and remote receivers alike.

Parsing long predicates takes time, and a node may announce many at once. They are parsed in
batches; until its turn, an interest counts as wanting all events of its filter. So too much may be
sent for a moment, never too little.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from accord.core.model.channels import filter_selects
from accord.core.model.errors import PredicateError
from accord.core.overlay.interests import Interest
from accord.core.policy.policies import Entity, Grant
from accord.core.predicates.predicate import Predicate, parse, parse_xpath
from accord.core.router.fan_out import Receiver, RouterSubscription
from accord.core.router.message import Message
from accord.core.router.router import Router
from accord.core.scheduling.outbox import EventRun

_ALL: Final = 1 << 62


class RemoteNode(Receiver):
    """A remote node as receiver; delivery records it in `interested` for the current message."""

    def __init__(self, name: str, interested: dict[str, Grant]) -> None:
        super().__init__(name, Entity("", node=name))
        self.is_connected = True
        self.is_remote = True
        self.interests = 0
        self._interested = interested

    def deliver(
        self,
        message: Message,  # noqa: ARG002
        qos: int,  # noqa: ARG002
        is_retained: bool,  # noqa: ARG002
        identifiers: tuple[int, ...],  # noqa: ARG002
        grant: Grant,
    ) -> None:
        self._interested[self.name] = grant

    def forward(self, run: EventRun) -> None:
        raise NotImplementedError  # each event is encoded for it


class RemoteInterests:
    """Interests of all remote nodes; `interested` has the nodes that want the last message.

    A caller that sets `batch_characters`, the characters of predicates parsed per batch, must call
    `parse_next`.
    """

    def __init__(self, router: Router) -> None:
        self.batch_characters = _ALL
        self._batch_left = _ALL
        self._unparsed: dict[tuple[str, str], Interest] = {}
        self.router = router
        self.nodes: dict[str, RemoteNode] = {}
        self.interested: dict[str, Grant] = {}
        self._subscriptions: dict[tuple[str, str], RouterSubscription] = {}
        # Interests without a predicate, by node and filter. Several keys may have the same one
        # while a restarted node withdraws its old ones; the router holds it once.
        self._unconditional: dict[tuple[str, str], RouterSubscription] = {}
        self._share_counts: dict[RouterSubscription, int] = {}

    def set_interest(self, node: str, key: str, interest: Interest | None) -> None:
        """Set the interest of `node` under `key`; None if it was withdrawn."""
        known = self._subscriptions.pop((node, key), None)
        self._unparsed.pop((node, key), None)
        if interest is not None:
            size = len(interest.where) + len(interest.xpath)
            if size > self._batch_left < self.batch_characters:
                self._unparsed[node, key] = interest
                interest = Interest(interest.filter)
            else:
                self._batch_left -= size
            self._subscriptions[node, key] = self._add(node, interest)
        if known is not None:
            self._remove(node, known)

    def has_unparsed(self) -> bool:
        """Check whether predicates wait to be parsed."""
        return bool(self._unparsed)

    def parse_next(self) -> None:
        """Parse the next batch of predicates, at least one."""
        self._batch_left = self.batch_characters
        for (node, key), need in list(self._unparsed.items()):
            if (
                self._batch_left < self.batch_characters
                and len(need.where) + len(need.xpath) > self._batch_left
            ):
                break
            self.set_interest(node, key, need)

    def find_nodes(self, channel: str) -> list[str]:
        """Return all nodes that may want an event of `channel`."""
        found = {
            node: True
            for (node, _), each in self._subscriptions.items()
            if filter_selects(each.pattern, channel)
        }
        return list(found)

    def _add(self, node: str, need: Interest) -> RouterSubscription:
        receiver = self.nodes.get(node)
        if receiver is None:
            receiver = self.nodes[node] = RemoteNode(node, self.interested)
        receiver.interests += 1
        predicate = predicate_of(need)
        if predicate is None:
            known = self._unconditional.get((node, need.filter))
            if known is not None:
                self._share_counts[known] += 1
                return known
        subscription = RouterSubscription(
            receiver,
            need.filter,
            qos=2,
            keeps_retained_flag=True,
            predicate=predicate,
            where=need.where,
            xpath=need.xpath,
        )
        if predicate is None:
            self._unconditional[node, need.filter] = subscription
            self._share_counts[subscription] = 1
        self.router.add(subscription)
        return subscription

    def _remove(self, node: str, subscription: RouterSubscription) -> None:
        sharing = self._share_counts.get(subscription, 1) - 1
        if sharing:
            self._share_counts[subscription] = sharing
        else:
            if self._share_counts.pop(subscription, None):
                del self._unconditional[node, subscription.pattern]
            self.router.remove(subscription)
        receiver = self.nodes[node]
        receiver.interests -= 1
        if not receiver.interests:
            del self.nodes[node]


@lru_cache(maxsize=64)
def predicate_of(need: Interest) -> Predicate | None:
    """Return the predicate; None (all events) also if it is of a newer, unknown syntax."""
    try:
        if need.where:
            return parse(need.where)
        return parse_xpath(need.xpath) if need.xpath else None
    except PredicateError:
        return None
