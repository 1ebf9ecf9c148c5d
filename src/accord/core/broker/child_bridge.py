"""Bridges the broker and the secondary nodes whose parent this node is.

To the router, children are receivers like other nodes. Their clients' publications are published
here as if by clients of this node. A publication that already arrived through another parent is
only sent to the other nodes, which detect duplicates as this one does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress

import msgspec

from accord.core.broker.kept_messages import journal_form
from accord.core.broker.message import MqttMessage
from accord.core.broker.overlay_bridge import OverlayBridge, message_of
from accord.core.channels.channels import UNKNOWN
from accord.core.channels.history.history_protocol import HistoryProtocol
from accord.core.channels.history.messages import SERVICE, HistoryReply
from accord.core.model.errors import EventError
from accord.core.model.units import IMPORTANCES
from accord.core.overlay.interests import Interest
from accord.core.overlay.signalling import TransitEvent
from accord.core.overlay.tier_links import TierLinks
from accord.core.overlay.validation import DAMAGED
from accord.core.policy.policies import Entity
from accord.core.router.rights import FEEDBACK
from accord.core.tiers.child_receivers import ChildReceivers
from accord.core.tiers.messages import (
    ChannelLookup,
    ChannelLookupReply,
    RelayedHistoryReply,
    TierOptions,
)
from accord.core.tiers.parent import Parent


class ChildBridge:
    """Connects `core.tiers.parent` to the broker; requires `OverlayBridge.join` first."""

    def __init__(
        self,
        bridge: OverlayBridge,
        incarnation: int,
        clock_us: Callable[[], int],
        tiers: TierLinks | None = None,
    ) -> None:
        assert bridge.channels is not None
        assert bridge.feedback_router is not None
        self.parent = Parent(incarnation, TierOptions(), self, tiers)
        self._bridge = bridge
        self._channels = bridge.channels
        self._feedback_router = bridge.feedback_router
        self._broker = bridge.broker
        self._clock_us = clock_us
        self._children = ChildReceivers(
            bridge.broker.router, bridge.channels, bridge.feedback_router
        )
        self._children.incarnation_of = self.parent.incarnation_of
        self.interested = self._children.interested
        bridge.channels.overlay.on_can_accept = self.parent.can_accept
        self._is_echoed = False  # of the event being published
        # Events not on disk yet: required log position, channel and number.
        self._uncommitted: deque[tuple[int, str, int]] = deque()
        exchange = bridge.channels.services.get(SERVICE)
        if isinstance(exchange, HistoryProtocol):
            self.parent.history = exchange
            exchange.on_child_reply = self._on_history_reply

    def on_published(self, message: MqttMessage) -> None:
        """Pass `message` to the children the router has just selected."""
        wanted = self.interested
        if not wanted:
            return
        bridge = self._bridge
        event = bridge.event
        if event is None:
            importance = max(grant.importance for grant in wanted.values())
            source = self._broker.context.node
            event = msgspec.structs.replace(
                bridge.transit_event(message, importance), source=source
            )
        for child in self._children.receivers_of(event, is_echoed=self._is_echoed):
            self.put(child, event)

    def is_new(self, event: TransitEvent) -> bool:
        """Whether the event has not arrived through another parent of the secondary node."""
        return self._children.is_new(event)

    def put(self, child: str, event: TransitEvent, *, is_kept: bool = False) -> bool:
        """Take custody of the event until the child confirms it; False if the child is unknown."""
        is_in_order = not is_kept and self._channels.is_in_order(event.channel)
        clean = msgspec.structs.replace(event, routes=(), sequences=(), template="", header=b"")
        return self.parent.put(child, clean, self._clock_us(), is_in_order=is_in_order)

    def _on_history_reply(self, child: str, node: str, answer: HistoryReply, now_us: int) -> None:  # noqa: ARG002
        self.parent.on_history_reply(child, RelayedHistoryReply(node, answer))

    # ------------------------------------------------------------------------- children's requests

    def on_joined(self, child: str, incarnation: int) -> None:
        self._feedback_router.on_joined(child, incarnation)

    def on_left(self, child: str) -> None:
        self._feedback_router.on_left(child)

    def on_interest(self, child: str, key: str, interest: Interest | None) -> None:
        """Add or remove a child's interest; a new one also gets retained messages."""
        self._children.set_interest(child, key, interest)
        if interest is None:
            return
        context = self._broker.context
        for message in self._broker.retained.select(interest.filter, now_ms=context.now_ms):
            if isinstance(message, MqttMessage):
                event = self._bridge.transit_event(message, 0)
                self.put(child, msgspec.structs.replace(event, source=context.node), is_kept=True)

    def publish_event(self, event: TransitEvent, *, is_echoed: bool) -> int | None:
        if event.channel == FEEDBACK:
            return self._forward_feedback(event)
        if not self._channels.has_room(event.channel):
            return None
        context = self._broker.context
        message = message_of(event, context.now_ms)
        if message is None or 0 < event.deadline_us <= event.age_us:
            context.counters.count_shed(DAMAGED if message is None else "expired", event.child)
            return 0
        fan_out = self._broker.fan_out_for(Entity(event.publisher, node=event.child), event.channel)
        if fan_out.channel_fan_out.traits.problem:
            context.counters.count_shed(UNKNOWN, event.child)
            return 0
        is_ordered = fan_out.channel_fan_out.traits.is_ordered
        has_come = self._children.has_seen(event)
        is_kept = fan_out.channel_fan_out.traits.is_persistent
        if is_ordered and has_come and not is_kept:
            return 0  # it already has its position
        context.assign_number(message, fan_out.channel_fan_out.counts)
        message.event_node, message.event_number = event.child, event.child_number
        self._bridge.child, self._bridge.child_number = event.child, event.child_number
        self._is_echoed = is_echoed
        kept = context.appended
        try:
            if has_come and is_kept:
                self._keep(message)
            if has_come and not is_ordered:
                nodes = self._bridge.remote_interests.find_nodes(event.channel)
                self._bridge.send(message, nodes, event.importance)
            elif not has_come:
                # An event that waits for its position arrives through `OverlayBridge.on_event`.
                if not is_ordered:
                    self._children.is_new(event)
                with suppress(EventError):
                    self._broker.publish_inline(message, fan_out)
        finally:
            self._bridge.child, self._bridge.child_number = "", 0
            self._is_echoed = False
        if context.appended > kept:
            self._uncommitted.append((context.appended, event.channel, message.number))
        return message.number

    def _keep(self, message: MqttMessage) -> None:
        """Keep a duplicate too: the other parent may have failed before it was on disk there."""
        context, pasts = self._broker.context, self._broker.histories
        if pasts is not None and context.is_durable:
            pasts.client.announce_history()
        with suppress(EventError):
            message.event()
            context.keep(journal_form(message))

    def _forward_feedback(self, event: TransitEvent) -> int:
        """Forward feedback of a child's client to the source of an event, at any node."""
        context, feedback = self._broker.context, self._broker.feedback
        if feedback is None:
            context.counters.count_shed(DAMAGED, event.child)
            return 0
        context.number += 1
        importance = min(max(event.importance, 0), IMPORTANCES - 1)
        own = msgspec.structs.replace(event, event=context.number, importance=importance)
        is_again = not self.is_new(own)  # other nodes may still lack it
        feedback.on_remote_feedback(
            own, context.now_ms, self._bridge.send_feedback, is_duplicate=is_again
        )
        return context.number

    def unconfirmed(self, channel: str) -> list[int]:
        unkept = self._uncommitted
        while unkept and unkept[0][0] <= self._broker.context.committed:
            unkept.popleft()
        found = [number for _, name, number in unkept if name == channel]
        return [*self._children.unconfirmed(channel), *found]

    def child_timeout_us(self, channel: str) -> int:
        return self._children.child_timeout_us(channel)

    def look_up(self, request: ChannelLookup) -> ChannelLookupReply:
        return self._children.look_up(request)

    def directory_version(self) -> int:
        return self._children.directory_version()

    def check_invariants(self) -> None:
        self.parent.check_invariants()
        self._children.check_invariants()
