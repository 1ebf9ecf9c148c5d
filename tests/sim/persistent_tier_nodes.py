"""Nodes of two tiers for the simulator, with persistent channels: parents keep, children ask."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from accord.core.channels.history.messages import HistoryReply
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.signalling import TransitEvent
from accord.core.router.message import Message
from accord.core.tiers.messages import (
    DownstreamEvent,
    RelayedHistoryReply,
    TierOptions,
    UpstreamEvent,
)
from accord.sim.machine import Make, Publication, SimSubscription, Start, number_of
from tests.sim.persistent_nodes import Ground, Host, PersistentNode
from tests.sim.tier_nodes import BackboneNode, SecondaryNode, is_child

_parcel: Final[
    msgspec.msgpack.Decoder[TransitEvent | DownstreamEvent | UpstreamEvent | RelayedHistoryReply]
] = msgspec.msgpack.Decoder(TransitEvent | DownstreamEvent | UpstreamEvent | RelayedHistoryReply)


class ParentNode(PersistentNode, BackboneNode):
    """A backbone node with a journal and children."""

    def __init__(
        self,
        start: Start,
        ground: Ground,
        definitions: list[ChannelDefinition],
        overlay: OverlayOptions,
        tiers: TierOptions,
    ) -> None:
        BackboneNode.__init__(self, start, overlay, tiers, [])
        self.begin_node(start, ground, definitions)
        self.parent.history = self.exchange
        self.exchange.on_child_reply = self._answer

    def _answer(self, child: str, node: str, answer: HistoryReply, now_us: int) -> None:  # noqa: ARG002
        self.parent.on_history_reply(child, RelayedHistoryReply(node, answer))

    def publish_event(self, event: TransitEvent, *, is_echoed: bool) -> int | None:
        if not self.channels.has_room(event.channel):
            return None
        has_come = self.children.has_seen(event)
        is_ordered = self.channels.channel_traits(event.channel).is_ordered
        if has_come and is_ordered:
            return 0
        publication = self.ground.sent[number_of(event.payload)]
        original = (event.child, event.child_number)
        if has_come:
            self.number += 1
        else:
            self.keep(publication, original)
        own = replace(event, event=self.number, source=self.name)
        if has_come:
            self.channels.publish(own, self.remotes.find_nodes(event.channel), self._now_us)
        elif is_ordered:
            self.channels.publish(own, [], self._now_us)
        else:
            self.children.is_new(event)
            self.exchange.on_live_event(self.name, 0, self.number, self._now_us, original=original)
            self._publish_here(own, is_echoed=is_echoed)
        return own.event

    def came(self, event: TransitEvent) -> None:
        if event.child and self.children.has_seen(event):  # by another parent
            self.asker.on_live_event(event.source, event.incarnation, event.event, self.now_us)
        else:
            super().came(event)


class ChildNode(Host, SecondaryNode):
    """A secondary node whose clients have a past; what is durable of them outlives it."""

    def __init__(self, start: Start, ground: Ground, tiers: TierOptions) -> None:
        SecondaryNode.__init__(self, start, tiers)
        self.begin_pasts(start, ground, self.child.history.client)
        self.child.channel_cache.remembered = ground.channels

    @property
    def now_us(self) -> int:
        return self._now_us

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        known = _parcel.decode(message) if isinstance(message, bytes) else message
        super().receive(neighbour, known, now_us)
        self.step_pasts()

    def advance(self, now_us: int) -> None:
        super().advance(now_us)
        self.save_pasts()
        self.step_pasts()

    def next_due_us(self) -> int:
        due_us = super().next_due_us()
        return self.save_us if due_us is None else min(self.save_us, due_us)

    def publish(self, publication: Publication, now_us: int) -> None:
        self.ground.sent[publication.number] = publication
        super().publish(publication, now_us)
        self.step_pasts()

    def subscribe(self, wish: SimSubscription, now_us: int) -> None:
        self._now_us = now_us
        subscription = self._subscriptions[wish] = self.begin_past(wish)
        self.router.add(subscription)
        self.child.add_interest(wish.filter, ("", ""), None)

    def unsubscribe(self, wish: SimSubscription, now_us: int) -> None:
        self.end_past(wish)
        super().unsubscribe(wish, now_us)

    def _hand_over(self) -> None:
        events, self.child.deliveries[:] = list(self.child.deliveries), []
        for event in events:
            assert event.source != self.name  # what is kept comes from who keeps it
            self.came(event)
            self.child.deliveries.append(event)
            super()._hand_over()

    def _route(self, message: Message) -> None:
        message.number = self.numbered
        super()._route(message)


def persistent_tiers(
    ground: Ground,
    definitions: list[ChannelDefinition],
    overlay: OverlayOptions,
    tiers: TierOptions,
) -> Make:
    def make(start: Start) -> ParentNode | ChildNode:
        if is_child(start.name):
            return ChildNode(start, ground, tiers)
        return ParentNode(start, ground, definitions, overlay, tiers)

    return make
