"""A whole node for the simulator: a live node's overlay and router, with recording clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from accord.core.channels.channels import Channels
from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Control, Overlay
from accord.core.overlay.signalling import TransitEvent
from accord.core.policy.policies import Entity, Grant, Policies
from accord.core.policy.policy_set import PolicySet
from accord.core.predicates.predicate import parse, parse_xpath
from accord.core.router.fan_out import PublisherFanOut, Receiver, RouterSubscription
from accord.core.router.message import Message
from accord.core.router.remote_interests import RemoteInterests
from accord.core.router.router import Router
from accord.core.scheduling.outbox import EventRun
from accord.sim.machine import Delivery, Make, Publication, SimSubscription, Start

_decoder: Final = msgspec.msgpack.Decoder(TransitEvent)


class _Event(Message):
    """An event with attributes, as published by a simulated client."""

    __slots__ = ("_values",)

    def __init__(self, publication: Publication, now_us: int) -> None:
        super().__init__(
            publication.channel,
            publication.payload,
            publication.qos,
            False,
            publication.publisher,
            now_us // 1_000,
            0,
        )
        self._values = publication.attributes

    def values(self) -> Mapping[str, Value]:
        return self._values

    def document(self) -> Document | None:
        return None

    def size(self) -> int:
        return len(self.payload)


class RouterSubscriber(Receiver):
    """Passes each message to `on_message`."""

    def __init__(self, name: str, on_message: Callable[[Message], None]) -> None:
        super().__init__(name, Entity(name))
        self.is_connected = True
        self._on_message = on_message

    def deliver(
        self,
        message: Message,
        qos: int,  # noqa: ARG002
        is_retained: bool,  # noqa: ARG002
        identifiers: tuple[int, ...],  # noqa: ARG002
        grant: Grant,  # noqa: ARG002
    ) -> None:
        self._on_message(message)

    def forward(self, run: EventRun) -> None:
        raise NotImplementedError


def recording_subscriber(name: str, deliveries: list[Delivery]) -> RouterSubscriber:
    """A subscriber that appends what it receives to `deliveries`."""
    return RouterSubscriber(
        name, lambda message: deliveries.append(Delivery(name, message.payload))
    )


class OverlayNode:
    """One node of a simulated overlay."""

    def __init__(self, start: Start, options: OverlayOptions) -> None:
        self.deliveries: list[Delivery] = []
        self.router = Router([], Policies(PolicySet()))
        self.remotes = RemoteInterests(self.router)
        self.overlay = Overlay(
            start.name, start.incarnation, options, start.random.random, self.remotes.set_interest
        )
        self.channels = Channels(self.overlay)
        self._now_us = start.now_us
        self._subscriptions: dict[SimSubscription, RouterSubscription] = {}
        for channel in start.channels:
            self.overlay.directory.create(
                ChannelDefinition(
                    name=channel.filter,
                    template="routed",
                    max_delay_us=channel.max_delay_us,
                    paths=channel.paths,
                    resiliency=channel.resiliency,
                )
            )

    @property
    def sends(self) -> list[tuple[str, Control]]:
        return self.overlay.sends

    @property
    def ready(self) -> list[str]:
        return self.overlay.ready

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        taken = self.overlay.take(neighbour, bytes_wanted, self._now_us)
        return [msgspec.msgpack.encode(each) for each in taken]

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        self._now_us = now_us
        known = _decoder.decode(message) if isinstance(message, bytes) else message
        self.overlay.receive(neighbour, known, now_us)
        self._deliver()

    def advance(self, now_us: int) -> None:
        self._now_us = now_us
        self.channels.advance(now_us)
        self._deliver()

    def next_due_us(self) -> int:
        return self.channels.next_due_us()

    def link_up(self, neighbour: str, now_us: int) -> None:
        self._now_us = now_us
        self.overlay.link_up(neighbour, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        self._now_us = now_us
        self.overlay.link_down(neighbour, now_us)

    def publish(self, publication: Publication, now_us: int) -> None:
        self._now_us = now_us
        wanted: list[str] = []
        is_held = self.channels.channel_traits(publication.channel).is_ordered
        if not is_held:
            self._route(_Event(publication, now_us))
            wanted = list(self.remotes.interested)
            self.remotes.interested.clear()
        if wanted or is_held:
            event = TransitEvent(
                "",
                0,
                0,
                (),
                publication.channel,
                publication.payload,
                msgspec.msgpack.encode(publication.attributes),
                publication.qos,
                publisher=publication.publisher,
                event=publication.number,
                deadline_us=publication.deadline_us,
            )
            self.channels.publish(event, wanted, now_us)

    def subscribe(self, wanted: SimSubscription, now_us: int) -> None:
        self._now_us = now_us
        predicate = parse(wanted.where) if wanted.where else None
        if wanted.xpath:
            predicate = parse_xpath(wanted.xpath)
        receiver = recording_subscriber(wanted.subscriber, self.deliveries)
        subscription = RouterSubscription(
            receiver, wanted.filter, qos=wanted.qos, predicate=predicate
        )
        self._subscriptions[wanted] = subscription
        self.router.add(subscription)
        self.overlay.add_interest(wanted.filter, (wanted.where, wanted.xpath), predicate)

    def unsubscribe(self, subscription: SimSubscription, now_us: int) -> None:
        self._now_us = now_us
        self.router.remove(self._subscriptions.pop(subscription))
        self.overlay.remove_interest(subscription.filter, (subscription.where, subscription.xpath))

    def check_invariants(self) -> None:
        self.channels.check_invariants()
        self.router.check_invariants()

    def _deliver(self) -> None:
        if not self.overlay.deliveries:
            return
        for event in self.overlay.deliveries:
            attributes = msgspec.msgpack.decode(event.block)
            publication = Publication(
                number=event.event,
                publisher=event.publisher,
                node=event.source,
                channel=event.channel,
                sequence=0,
                published_us=0,
                payload=event.payload,
                attributes=attributes,
            )
            self._route(_Event(publication, self._now_us))
            self.remotes.interested.clear()  # no longer for remote nodes
        self.overlay.deliveries.clear()

    def _route(self, message: Message) -> None:
        fan_out = PublisherFanOut(Entity(message.publisher), self.router.fan_out(message.channel))
        self.router.publish(message, fan_out)


def overlay_nodes(options: OverlayOptions | None = None) -> Make:
    """Factory for the nodes of a simulation."""
    chosen = OverlayOptions() if options is None else options

    def make(start: Start) -> OverlayNode:
        return OverlayNode(start, chosen)

    return make
