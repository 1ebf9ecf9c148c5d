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
from accord.core.feedback.receipts import Receipt
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

    def begin(self) -> None:
        """Start bridging: announce local subscriptions to the parents."""
        router = self.broker.router
        self.broker.hub.is_naming = False
        router.bound = self._bound
        router.invalidate("#")
        self._child.on_bound.append(lambda: router.invalidate("#"))
        for session in self.broker.sessions.values():
            for subscription in session.subscriptions.values():
                self.subscribed(subscription)

    def subscribed(self, subscription: RouterSubscription) -> None:
        if not subscription.pattern.startswith("$"):
            condition = (subscription.where, subscription.xpath)
            self._child.need(subscription.pattern, condition, subscription.predicate)

    def unsubscribed(self, subscription: RouterSubscription) -> None:
        if not subscription.pattern.startswith("$"):
            condition = (subscription.where, subscription.xpath)
            self._child.unneed(subscription.pattern, condition)

    def name(self, message: MqttMessage) -> None:
        if not message.channel.startswith("$"):
            message.home, message.home_number = self._child.new_name()

    def published(self, message: MqttMessage, importance: int) -> None:
        was_sent, self._is_sent = self._is_sent, False
        if self.is_arriving or message.channel.startswith("$"):
            return
        if message.is_retained:
            self._foreign.pop(message.channel, None)
        if not was_sent:
            event = msgspec.structs.replace(
                self.carried(message, importance),
                source=message.home,
                origin=message.home,
                original=message.home_number,
            )
            self._child.publish(event, self._clock_us())

    def send(self, message: MqttMessage, nodes: list[str], importance: int) -> None:  # noqa: ARG002
        self._is_sent = True
        name = self._child.submit(self.carried(message, importance), self._clock_us())
        message.home, message.home_number = name or ("", -1)  # no event ID is assigned yet

    def answer(self, message: MqttMessage, answered: Receipt, importance: int) -> str:  # noqa: ARG002
        """Send feedback to a parent, which finds its destination."""
        event = self.carried(message, importance)
        return "" if self._child.answer(event, self._clock_us()) else NO_ROOM

    def hold_back(self, channel: str, client: PausedPublisher) -> bool:
        if self._child.has_room(channel):
            return False
        self.held_back.setdefault(channel, {})[client] = True
        return True

    def release(self) -> None:
        for channel in list(self.held_back):
            if self._child.has_room(channel):
                for client in self.held_back.pop(channel):
                    client.go_on()

    def _bound(self, channel: str) -> ChannelTraits:
        if channel.startswith("$"):
            return DEFAULT_TRAITS  # local only; no parent is asked
        return self._child.bound(channel, self._clock_us())
