"""Bridges the broker and the overlay.

Publications that other nodes are interested in become transit events; transit events that arrive
become messages for local clients. Local subscriptions are announced as interests. Publishers are
paused while a channel has no capacity.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from accord.core.broker.feedback import UNKNOWN_NODE
from accord.core.broker.message import MqttMessage, properties_of_transit_event
from accord.core.channels.channels import TEMPLATE, Channels
from accord.core.model.channels import problem_with_channel
from accord.core.model.errors import EventError
from accord.core.model.receipts import Receipt
from accord.core.monitoring.ledger import DELIVERED, SHED, hop_detail
from accord.core.monitoring.ledger import EXPIRED as EXPIRED_OUTCOME
from accord.core.mqtt.wire import string_bytes
from accord.core.overlay.channel_directory import CHANNEL
from accord.core.overlay.interests import Interest
from accord.core.overlay.neighbour_outbox import EXPIRED
from accord.core.overlay.signalling import TransitEvent
from accord.core.overlay.validation import DAMAGED, problem_with_event
from accord.core.policy.policies import Entity
from accord.core.router.fan_out import RouterSubscription
from accord.core.router.message import Message
from accord.core.router.remote_interests import RemoteInterests
from accord.core.router.rights import FEEDBACK
from accord.core.tiers.feedback_router import FeedbackRouter
from accord.core.tiers.messages import event_id_of

if TYPE_CHECKING:
    from accord.core.broker.broker import Broker
    from accord.core.broker.child_bridge import ChildBridge

_FEW: Final = 1_000


class PausedPublisher(Protocol):
    """A publisher paused until its channel has room."""

    def resume_publishing(self) -> None: ...


class OverlayBridge:
    """The broker's view of the overlay; `clock_us` returns the overlay's time."""

    def __init__(self, broker: Broker, clock_us: Callable[[], int]) -> None:
        self.broker = broker
        self.remote_interests = RemoteInterests(broker.router)
        self._clock_us = clock_us
        self.channels: Channels | None = None
        self.feedback_router: FeedbackRouter | None = None  # feedback to sources at other nodes
        self.is_delivering = False
        self.source, self.incarnation = "", 0  # of the transit event being delivered
        self.event: TransitEvent | None = None  # that transit event itself
        self._is_alone = False
        self.children: ChildBridge | None = None  # secondary nodes, if it may have some
        self.child, self.child_number = "", 0  # of an event published at a child
        # Publishers paused until there is room, by channel.
        self.paused: dict[str, dict[PausedPublisher, bool]] = {}
        self._remote_retained: dict[
            str, bool
        ] = {}  # channels whose retained message is from another node

    def join(self, channels: Channels, *, is_alone: bool = False) -> None:
        """Connect to the overlay; with `is_alone` no node needs to know this node's interests."""
        self.channels = channels
        self._is_alone = is_alone
        self.feedback_router = FeedbackRouter(channels)
        router = self.broker.router
        router.traits = channels.channel_traits
        router.invalidate("#")
        for kind in (CHANNEL, TEMPLATE):  # a channel's template may have changed too
            channels.overlay.store.watch(kind, lambda *_: router.invalidate("#"))
        if is_alone:
            channels.overlay.add_interest(
                "#", ("", ""), None
            )  # makes this node a member of each channel
        for session in self.broker.sessions.values():
            for subscription in session.subscriptions.values():
                self.on_subscribed(subscription)

    def on_subscribed(self, subscription: RouterSubscription) -> None:
        """Announce the interest of a local subscription."""
        if self._is_announced(subscription):
            assert self.channels is not None
            condition = (subscription.where, subscription.xpath)
            self.channels.overlay.add_interest(
                subscription.pattern, condition, subscription.predicate
            )

    def on_unsubscribed(self, subscription: RouterSubscription) -> None:
        if self._is_announced(subscription):
            assert self.channels is not None
            condition = (subscription.where, subscription.xpath)
            self.channels.overlay.remove_interest(subscription.pattern, condition)

    def _is_announced(self, subscription: RouterSubscription) -> bool:
        is_joined = self.channels is not None and not self._is_alone
        return is_joined and not subscription.pattern.startswith("$")

    def on_interest(self, node: str, key: str, interest: Interest | None) -> None:
        """Add or remove another node's interest; a new one also gets retained messages."""
        self.remote_interests.set_interest(node, key, interest)
        if interest is None:
            return
        for message in self.broker.retained.select(
            interest.filter, now_ms=self.broker.context.now_ms
        ):
            if not self._remote_retained.get(message.channel) and isinstance(message, MqttMessage):
                channels = self.channels
                assert channels is not None
                channels.replay(self.transit_event(message, 0), [node], self._clock_us())

    def assign_event_id(self, message: MqttMessage) -> None:
        """Assign an event ID to a local publication if its number is not one."""

    def on_published(self, message: MqttMessage, importance: int) -> None:  # noqa: ARG002
        """Send `message` to the nodes and children the router has just selected."""
        wanted = self.remote_interests.interested
        if self.children is not None:
            self.children.on_published(message)
        if not self.is_delivering:
            if message.is_retained:
                self._remote_retained.pop(message.channel, None)
            if wanted and not message.channel.startswith("$"):
                granted = max(grant.importance for grant in wanted.values())
                self.send(message, list(wanted), granted)
        wanted.clear()

    def clear_interested(self) -> None:
        """Clear the selected nodes: the message just routed is for local clients alone."""
        self.remote_interests.interested.clear()
        if self.children is not None:
            self.children.interested.clear()

    def send(self, message: MqttMessage, nodes: list[str], importance: int) -> None:
        """Publish to these nodes, and to local clients too if the channel's template orders it."""
        assert self.channels is not None
        self.channels.publish(self.transit_event(message, importance), nodes, self._clock_us())

    def send_local_feedback(self, message: MqttMessage, receipt: Receipt, importance: int) -> str:
        """Send a local client's feedback to another node; returns why that failed, or ""."""
        event = msgspec.structs.replace(
            self.transit_event(message, importance), source=self.broker.context.node
        )
        return "" if self.send_feedback(event, receipt) else UNKNOWN_NODE

    def send_feedback(self, event: TransitEvent, receipt: Receipt) -> bool:
        """Send feedback to the node of its receipt or its parents; False if none is known."""
        if self.feedback_router is None:
            return False
        nodes = self.feedback_router.destinations(receipt.node)
        if self.broker.context.node in nodes:
            self._deliver_to_child(event, receipt)
        self.feedback_router.send(event, nodes, receipt.channel, self._clock_us())
        return bool(nodes)

    def _deliver_to_child(self, event: TransitEvent, receipt: Receipt) -> bool:
        """Pass feedback to a child of this node; False if there is none of that name."""
        return self.children is not None and self.children.put(receipt.node, event)

    def pause_publisher(self, channel: str, client: PausedPublisher) -> bool:
        """Whether `client` is paused until there is room; `resume_publishers` then resumes it."""
        if self.channels is None or self.channels.has_room(channel):
            return False
        self.paused.setdefault(channel, {})[client] = True
        return True

    def resume_publishers(self) -> None:
        assert self.channels is not None
        for channel in list(self.paused):
            if self.channels.has_room(channel):
                for client in self.paused.pop(channel):
                    client.resume_publishing()

    def child_event_id(self) -> tuple[str, int] | None:
        """The event ID from a secondary node of the event being published, if it has one."""
        event = self.event
        origin, original = (
            (self.child, self.child_number) if event is None else (event.child, event.child_number)
        )
        return (origin, original) if origin else None

    def transit_event(self, message: MqttMessage, importance: int) -> TransitEvent:
        context = self.broker.context
        age_ms = max(0, context.now_ms - message.received_ms)
        deadline_ms = message.expires_ms - message.received_ms if message.expires_ms else 0
        return TransitEvent(
            "",
            0,
            0,
            (),
            message.channel,
            message.payload,
            message.block,
            message.qos,
            message.is_retained,
            message.publisher,
            importance,
            message.number,
            message.expiry_s,
            0 if message.is_retained else age_ms * 1_000,
            max(deadline_ms, 1) * 1_000 if message.expires_ms else 0,
            child=self.child,
            child_number=self.child_number,
        )

    def on_sent(self, neighbour: str, event: TransitEvent) -> None:
        """Record a hop: each node's ledger has the hops that start there."""
        came_us = event.trail[-1][1] if event.trail else 0
        detail = hop_detail(event.trail, event.deadline_us, self._budget_us(event))
        self._record_outcome(event, f"node {neighbour}", DELIVERED, event.age_us - came_us, detail)

    def _budget_us(self, event: TransitEvent) -> int | None:
        """How long an event may wait at this node by the tightest of its routes."""
        if self.channels is None or not event.routes:
            return None
        return self.channels.overlay.outboxes.budget_us(event)

    def on_dropped(self, event: TransitEvent, cause: str, count: int = 1) -> None:
        """Record that a copy of an event, or of `count` like it, ends at this node."""
        outcome = EXPIRED_OUTCOME if cause == EXPIRED else SHED
        self._record_outcome(event, "other nodes", outcome, 0, cause, count)

    def _record_outcome(
        self,
        event: TransitEvent,
        destination: str,
        outcome: int,
        waited_us: int,
        detail: str,
        count: int = 1,
    ) -> None:
        context = self.broker.context
        if context.ledger.is_on and problem_with_event(event) is None:
            queued_ms = context.now_ms - waited_us // 1_000
            context.ledger.add(
                event.event,
                count,
                event.channel,
                event.publisher,
                destination,
                outcome,
                context.now_ms - event.age_us // 1_000,
                queued_ms,
                context.now_ms,
                len(event.payload),
                event.importance,
                "",
                detail,
                0,
            )

    def on_event(self, event: TransitEvent) -> None:
        """Deliver a remote event, or a local one that now has its position, to local clients."""
        broker = self.broker
        context = broker.context
        detail = hop_detail(event.trail, event.deadline_us)
        self._record_outcome(event, f"node {context.node}", DELIVERED, 0, detail)
        if self.children is not None and not self.children.is_new(event):
            # A duplicate by way of another parent of the secondary node that published it.
            if broker.histories is not None:
                broker.histories.on_duplicate(event)
            return
        if event.channel == FEEDBACK and broker.feedback is not None:
            broker.feedback.on_remote_feedback(event, context.now_ms, self._deliver_to_child)
            return
        message = message_of(event, context.now_ms)
        if message is None:
            context.counters.count_shed(DAMAGED, event.source)
            return
        is_own = context.node in (event.source, event.child)
        if event.is_retained and not is_own:
            known = broker.retained.get(event.channel)
            if known is not None and _is_same(known, event):
                return  # repeated after a restart of either node
        publisher = Entity(event.publisher, node=event.child or event.source)
        fan_out = broker.fan_out_for(publisher, event.channel)
        message.counts = fan_out.channel_fan_out.counts
        message.number = event.event
        message.event_node, message.event_number = event_id_of(event)
        self.is_delivering = True
        self.source, self.incarnation = event.source, event.incarnation
        self.event = event
        try:
            with suppress(EventError):
                broker.publish_inline(message, fan_out, is_kept_already=is_own)
        finally:
            self.is_delivering = False
            self.event = None
        if event.is_retained and not is_own:
            self._mark_remote_retained(event.channel)

    def _mark_remote_retained(self, channel: str) -> None:
        """Note that the retained message of a channel, if any, is from another node."""
        retained, remote = self.broker.retained, self._remote_retained
        if retained.get(channel) is None:
            remote.pop(channel, None)
            return
        remote[channel] = True
        if len(remote) > 2 * retained.messages + _FEW:  # most of them have expired
            self._remote_retained = {
                each: True for each in remote if retained.get(each) is not None
            }


def _is_same(known: Message, event: TransitEvent) -> bool:
    """Whether both are the same event; numbers are per node, so they are not sufficient."""
    return (known.number, known.publisher, known.payload) == (
        event.event, event.publisher, event.payload,
    )  # fmt: skip


def message_of(event: TransitEvent, now_ms: int) -> MqttMessage | None:
    """None if malformed: events of other nodes are validated."""
    if problem_with_channel(event.channel) or event.channel.startswith("$"):
        return None
    properties = properties_of_transit_event(event)
    if properties is None:
        return None
    received_ms = now_ms - event.age_us // 1_000
    message = MqttMessage(
        event.channel,
        string_bytes(event.channel),
        event.payload,
        event.qos,
        event.is_retained,
        event.publisher,
        received_ms,
        properties,
        event.block,
        received_ms + event.deadline_us // 1_000 if event.deadline_us else 0,
    )
    message.key = next((text for name, text in properties.user if name == "key"), "")
    return message
