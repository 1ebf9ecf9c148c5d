"""Nodes of two tiers for the simulator: backbone nodes with children, and secondary nodes.

What is published to `to/NODE` is an answer to the source of an event at that node.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.signalling import TransitEvent
from accord.core.policy.policies import Entity, Policies
from accord.core.policy.policy_set import PolicySet
from accord.core.predicates.predicate import parse
from accord.core.router.fan_out import PublisherFanOut, RouterSubscription
from accord.core.router.message import Message
from accord.core.router.rights import FEEDBACK
from accord.core.router.router import Router
from accord.core.tiers.child import Child
from accord.core.tiers.child_receivers import ChildReceivers
from accord.core.tiers.feedback_router import FeedbackRouter
from accord.core.tiers.messages import ChannelLookup, DownstreamEvent, TierOptions, UpstreamEvent
from accord.core.tiers.parent import Parent
from accord.sim.machine import Delivery, Make, Publication, SimSubscription, Start
from accord.sim.node import OverlayNode, _Event, recording_subscriber

CHILD: Final = "x"  # how the names of secondary nodes begin
ANSWERS: Final = "to/"

_parcel: Final[msgspec.msgpack.Decoder[TransitEvent | DownstreamEvent | UpstreamEvent]] = (
    msgspec.msgpack.Decoder(TransitEvent | DownstreamEvent | UpstreamEvent)
)
_encode: Final = msgspec.msgpack.Encoder().encode


def is_child(name: str) -> bool:
    return name.startswith(CHILD)


class BackboneNode(OverlayNode):
    """An overlay node that has children."""

    def __init__(
        self,
        start: Start,
        overlay: OverlayOptions,
        tiers: TierOptions,
        definitions: list[ChannelDefinition],
    ) -> None:
        super().__init__(start, overlay)
        for definition in definitions:
            self.overlay.directory.create(definition)
        self.name = start.name
        self.answering = FeedbackRouter(self.channels)
        self.children = ChildReceivers(self.router, self.channels, self.answering)
        self.parent = Parent(start.incarnation, tiers, self)
        self.children.incarnation_of = self.parent.incarnation_of
        self.overlay.on_can_accept = self.parent.can_accept
        self._sends: list[tuple[str, Any]] = []
        self._ready: list[str] = []

    # What its children ask of it.

    def on_joined(self, child: str, incarnation: int) -> None:
        self.answering.on_joined(child, incarnation)

    def on_left(self, child: str) -> None:
        self.answering.on_left(child)

    def on_interest(self, child: str, key: str, need: Any) -> None:
        self.children.set_interest(child, key, need)

    def unconfirmed(self, channel: str) -> list[int]:
        return self.children.unconfirmed(channel)

    def child_timeout_us(self, channel: str) -> int:
        return self.children.child_timeout_us(channel)

    def look_up(self, ask: ChannelLookup) -> Any:
        return self.children.look_up(ask)

    def directory_version(self) -> int:
        return self.children.directory_version()

    def publish_event(self, event: TransitEvent, *, is_echoed: bool) -> int | None:
        if event.channel == FEEDBACK:
            self._bring(event, is_again=not self.children.is_new(event))
            return event.event
        if not self.channels.has_room(event.channel):
            return None
        if self.channels.channel_traits(event.channel).is_ordered:
            if not self.children.has_seen(event):
                self.channels.publish(event, [], self._now_us)
        elif self.children.is_new(event):
            self._publish_here(event, is_echoed=is_echoed)
        else:
            nodes = self.remotes.find_nodes(event.channel)
            self.channels.publish(event, nodes, self._now_us)
        return event.event

    def _bring(self, event: TransitEvent, *, is_again: bool = False) -> None:
        """An answer that has to find its node."""
        node = _answered(event)
        nodes = [] if node == self.name else self.answering.destinations(node)
        if self.name in nodes or (node == self.name and not is_again):
            self._answered_here(event)
        self.answering.send(event, nodes, "room", self._now_us)

    def _answered_here(self, event: TransitEvent) -> None:
        """An answer that has found its node, or a parent of it."""
        node = _answered(event)
        if node == self.name:
            self._route(_message(event, self._now_us))
            self.remotes.interested.clear()
            self.children.interested.clear()
        else:
            self.parent.put(node, event, self._now_us, is_in_order=False)

    def _publish_here(self, event: TransitEvent, *, is_echoed: bool) -> None:
        self._route(_message(event, self._now_us))
        nodes = list(self.remotes.interested)
        self.remotes.interested.clear()
        self._give(event, self.children.receivers_of(event, is_echoed=is_echoed))
        if nodes:
            self.channels.publish(event, nodes, self._now_us)

    def _give(self, event: TransitEvent, children: list[str]) -> None:
        is_in_order = self.channels.is_in_order(event.channel)
        for child in children:
            self.parent.put(child, event, self._now_us, is_in_order=is_in_order)

    # As the simulator sees it.

    @property
    def sends(self) -> list[tuple[str, Any]]:
        self._sends += self.overlay.sends
        self.overlay.sends.clear()
        self._sends += self.parent.sends
        self.parent.sends.clear()
        return self._sends

    @property
    def ready(self) -> list[str]:
        self._ready += [*self.overlay.ready, *self.parent.ready]
        self.overlay.ready.clear()
        self.parent.ready.clear()
        return self._ready

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        if is_child(neighbour):
            taken = self.parent.take(neighbour, bytes_wanted, self._now_us)
            return [_encode(each) for each in taken]
        return super().take(neighbour, bytes_wanted)

    def link_up(self, neighbour: str, now_us: int) -> None:
        self._now_us = now_us
        (self.parent if is_child(neighbour) else self.overlay).link_up(neighbour, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        self._now_us = now_us
        (self.parent if is_child(neighbour) else self.overlay).link_down(neighbour, now_us)

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        if not is_child(neighbour):
            super().receive(neighbour, message, now_us)
            return
        self._now_us = now_us
        known: Any = _parcel.decode(message) if isinstance(message, bytes) else message
        self.parent.receive(neighbour, known, now_us)
        self._deliver()

    def advance(self, now_us: int) -> None:
        super().advance(now_us)
        self.parent.retry_upstream(now_us)
        self.parent.advance(now_us)

    def next_due_us(self) -> int:
        due_us = self.parent.next_due_us()
        return min(super().next_due_us(), 1 << 62 if due_us is None else due_us)

    def publish(self, publication: Publication, now_us: int) -> None:
        event = replace(carried(publication), source=self.name)
        if event.channel == FEEDBACK:
            self._now_us = now_us
            self._bring(event)
            return
        super().publish(publication, now_us)
        self._give(event, self.children.receivers_of(event))
        self._deliver()

    def check_invariants(self) -> None:
        super().check_invariants()
        self.parent.check_invariants()
        self.children.check_invariants()
        self.answering.check_invariants()

    def _deliver(self) -> None:
        while self.overlay.deliveries:
            event = self.overlay.deliveries.pop(0)
            if not self.children.is_new(event):
                continue
            if event.channel == FEEDBACK:
                self._answered_here(event)
                continue
            self._route(_message(event, self._now_us))
            self.remotes.interested.clear()
            self._give(event, self.children.receivers_of(event))


class SecondaryNode:
    """A router, clients, and parents; it crashes with all it knows."""

    def __init__(self, start: Start, tiers: TierOptions) -> None:
        self.deliveries: list[Delivery] = []
        self.router = Router([], Policies(PolicySet()))
        self.child = Child(start.name, start.incarnation, tiers)
        self._now_us = start.now_us
        self._subscriptions: dict[SimSubscription, RouterSubscription] = {}
        self._ranks = {name: rank for rank, name in enumerate(start.neighbours)}

    @property
    def sends(self) -> list[tuple[str, Any]]:
        return self.child.sends

    @property
    def ready(self) -> list[str]:
        return self.child.ready

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        return [_encode(each) for each in self.child.take(neighbour, bytes_wanted, self._now_us)]

    def link_up(self, neighbour: str, now_us: int) -> None:
        self._now_us = now_us
        self.child.link_up(neighbour, self._ranks[neighbour], now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        self._now_us = now_us
        self.child.link_down(neighbour, now_us)

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        self._now_us = now_us
        known: Any = _parcel.decode(message) if isinstance(message, bytes) else message
        self.child.receive(neighbour, known, now_us)
        self._hand_over()

    def advance(self, now_us: int) -> None:
        self._now_us = now_us
        self.child.advance(now_us)
        self._hand_over()

    def next_due_us(self) -> int | None:
        return self.child.next_due_us()

    def publish(self, publication: Publication, now_us: int) -> None:
        self._now_us = now_us
        event = carried(publication)
        if event.channel == FEEDBACK and _answered(event) != self.child.name:
            assert self.child.send_feedback(event, now_us)
        elif self.child.bound(publication.channel, now_us).is_ordered:
            self.child.submit(event, now_us)
        else:
            self._route(_message(event, now_us))
            self.child.publish(event, now_us)
        self._hand_over()

    def subscribe(self, wish: SimSubscription, now_us: int) -> None:
        self._now_us = now_us
        predicate = parse(wish.where) if wish.where else None
        receiver = recording_subscriber(wish.subscriber, self.deliveries)
        subscription = RouterSubscription(receiver, wish.filter, qos=wish.qos, predicate=predicate)
        self._subscriptions[wish] = subscription
        self.router.add(subscription)
        self.child.add_interest(wish.filter, (wish.where, ""), predicate)

    def unsubscribe(self, wish: SimSubscription, now_us: int) -> None:
        self._now_us = now_us
        self.router.remove(self._subscriptions.pop(wish))
        self.child.remove_interest(wish.filter, (wish.where, ""))

    def check_invariants(self) -> None:
        self.child.check_invariants()
        self.router.check_invariants()

    def _hand_over(self) -> None:
        for event in self.child.deliveries:
            self._route(_message(event, self._now_us))
        self.child.deliveries.clear()

    def _route(self, message: Message) -> None:
        way = PublisherFanOut(Entity(message.publisher), self.router.fan_out(message.channel))
        self.router.publish(message, way)


def carried(publication: Publication) -> TransitEvent:
    channel, block = publication.channel, publication.attributes
    if channel.startswith(ANSWERS):
        channel, block = FEEDBACK, {"to": channel.removeprefix(ANSWERS)}
    return TransitEvent(
        "",
        0,
        0,
        (),
        channel,
        publication.payload,
        msgspec.msgpack.encode(block),
        publication.qos,
        publisher=publication.publisher,
        event=publication.number,
        deadline_us=publication.deadline_us,
    )


def _answered(event: TransitEvent) -> str:
    """The node that an answer is for."""
    node: str = msgspec.msgpack.decode(event.block)["to"]
    return node


def _message(event: TransitEvent, now_us: int) -> Message:
    channel = event.channel
    if channel == FEEDBACK:
        channel = ANSWERS + _answered(event)
    publication = Publication(
        number=event.event,
        publisher=event.publisher,
        node=event.source,
        channel=channel,
        sequence=0,
        published_us=0,
        payload=event.payload,
        attributes=msgspec.msgpack.decode(event.block),
    )
    return _Event(publication, now_us)


def tier_nodes(
    overlay: OverlayOptions, tiers: TierOptions, definitions: list[ChannelDefinition]
) -> Make:
    def make(start: Start) -> BackboneNode | SecondaryNode:
        if is_child(start.name):
            return SecondaryNode(start, tiers)
        return BackboneNode(start, overlay, tiers, definitions)

    return make
