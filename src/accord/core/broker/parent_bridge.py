"""Bridges the broker and the parents of a secondary node.

It takes the part of `OverlayBridge` at a secondary node, with the parents in place of all other
nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from accord.core.broker.message import MqttMessage
from accord.core.broker.overlay_bridge import OverlayBridge, PausedPublisher
from accord.core.model.receipts import Receipt
from accord.core.overlay.channel_directory import DEFAULT_TRAITS, ChannelTraits
from accord.core.router.fan_out import RouterSubscription
from accord.core.tiers.child import NO_ROOM, Child

if TYPE_CHECKING:
    from accord.core.broker.broker import Broker


class ParentBridge(OverlayBridge):
    def __init__(self, broker: Broker, clock_us: Callable[[], int], child: Child) -> None:
        super().__init__(broker, clock_us)
        self._child = child
        self._is_sent = False  # the event being published was sent already: its channel is ordered

    def start(self) -> None:
        """Start bridging: announce local subscriptions to the parents."""
        router = self.broker.router
        self.broker.context.assigns_event_ids = False
        router.traits = self._traits
        router.invalidate("#")
        self._child.on_bound.append(lambda: router.invalidate("#"))
        for session in self.broker.sessions.values():
            for subscription in session.subscriptions.values():
                self.on_subscribed(subscription)

    def on_subscribed(self, subscription: RouterSubscription) -> None:
        if not subscription.pattern.startswith("$"):
            condition = (subscription.where, subscription.xpath)
            self._child.add_interest(subscription.pattern, condition, subscription.predicate)

    def on_unsubscribed(self, subscription: RouterSubscription) -> None:
        if not subscription.pattern.startswith("$"):
            condition = (subscription.where, subscription.xpath)
            self._child.remove_interest(subscription.pattern, condition)

    def assign_event_id(self, message: MqttMessage) -> None:
        if not message.channel.startswith("$"):
            message.event_node, message.event_number = self._child.new_event_id()

    def on_published(self, message: MqttMessage, importance: int) -> None:
        was_sent, self._is_sent = self._is_sent, False
        if self.is_delivering or message.channel.startswith("$"):
            return
        if message.is_retained:
            self._remote_retained.pop(message.channel, None)
        if not was_sent:
            event = msgspec.structs.replace(
                self.transit_event(message, importance),
                source=message.event_node,
                child=message.event_node,
                child_number=message.event_number,
            )
            self._child.publish(event, self._clock_us())

    def send(self, message: MqttMessage, nodes: list[str], importance: int) -> None:  # noqa: ARG002
        self._is_sent = True
        name = self._child.submit(self.transit_event(message, importance), self._clock_us())
        message.event_node, message.event_number = name or ("", -1)  # no event ID is assigned yet

    def send_local_feedback(self, message: MqttMessage, receipt: Receipt, importance: int) -> str:  # noqa: ARG002
        """Send feedback to a parent, which finds its destination."""
        event = self.transit_event(message, importance)
        return "" if self._child.send_feedback(event, self._clock_us()) else NO_ROOM

    def pause_publisher(self, channel: str, client: PausedPublisher) -> bool:
        if self._child.has_room(channel):
            return False
        self.paused.setdefault(channel, {})[client] = True
        return True

    def resume_publishers(self) -> None:
        for channel in list(self.paused):
            if self._child.has_room(channel):
                for client in self.paused.pop(channel):
                    client.resume_publishing()

    def _traits(self, channel: str) -> ChannelTraits:
        if channel.startswith("$"):
            return DEFAULT_TRAITS  # local only; no parent is asked
        return self._child.bound(channel, self._clock_us())
