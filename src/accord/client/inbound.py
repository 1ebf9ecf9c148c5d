"""Inbound messages: dispatch to subscriptions, and acknowledgement after consumption.

A message of QoS 1 or 2 is acknowledged when all its consumers have finished with it, so the server
retransmits an unprocessed one after a crash. Until then it counts against our receive maximum,
which is the backpressure. `_held` has the unacknowledged messages by packet identifier; a
retransmission of one of them is not delivered twice.

A message belongs to the subscriptions whose identifiers it carries. If none of them fits (the
server does not support identifiers, or still has subscriptions of an earlier process), the filters
decide.
"""

from __future__ import annotations

from typing import Final

from accord.client.inbox import Inbox, ReceivedMessage
from accord.client.machine_io import SubscribeRequested
from accord.client.resume_point import SINCE, ResumePoint
from accord.core.model.channels import filter_selects
from accord.core.mqtt.codec import SHARED
from accord.core.mqtt.codes import ProtocolError, Reason
from accord.core.mqtt.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel

MAX_UNCLAIMED: Final = 100


class SubscriptionState:
    """One subscription of the session, and its state at the server.

    `packet_id` is that of an unacknowledged SUBSCRIBE, else 0; `token` is the requester that its
    first reply settles; `resume_point` is set if the subscription starts with history.
    """

    __slots__ = ("_pattern", "_user", "filter", "identifier", "inbox", "is_granted", "packet_id",
                 "resume_point", "token")  # fmt: skip

    def __init__(self, asked: SubscribeRequested, now_ms: int) -> None:
        self.token: int | None = asked.token
        self.filter = asked.filter
        self._user = asked.user
        since = next((value for name, value in asked.user if name == SINCE), None)
        self.resume_point = None if since is None else ResumePoint(since, now_ms)
        self.inbox = Inbox(asked.queue)
        self.identifier = asked.identifier
        self.packet_id = 0
        self.is_granted = False
        pattern = asked.filter.pattern
        if pattern.startswith(SHARED):
            pattern = pattern.removeprefix(SHARED).partition("/")[2]
        self._pattern = pattern

    @property
    def user(self) -> tuple[tuple[str, str], ...]:
        """User properties for a SUBSCRIBE sent now."""
        past = self.resume_point
        if past is None:
            return self._user
        return tuple((name, past.since if name == SINCE else value) for name, value in self._user)

    def selects(self, topic: str) -> bool:
        return filter_selects(self._pattern, topic)


class InboundMessages:
    """Subscriptions, their inboxes, and the unacknowledged messages."""

    def __init__(self, receive_maximum: int) -> None:
        self._receive_maximum = receive_maximum
        self.subscriptions: dict[int, SubscriptionState] = {}
        self.is_connected = False
        self.unmatched = 0  # events that no subscription selected
        self._by_pattern: dict[str, int] = {}
        self._held: dict[int, ReceivedMessage] = {}
        self._unclaimed: list[ReceivedMessage] | None = None
        self._full: set[int] = set()
        self._unacked: set[int] = set()  # received on this connection and not acknowledged

    def find(self, pattern: str) -> int | None:
        return self._by_pattern.get(pattern)

    def add(self, interest: SubscriptionState) -> None:
        """Add a subscription, and deliver the unclaimed messages that it selects."""
        self.subscriptions[interest.identifier] = interest
        self._by_pattern[interest.filter.pattern] = interest.identifier
        for delivery in self._unclaimed or ():
            if interest.selects(delivery.message.topic):
                self._put(interest, delivery)
        if self._unclaimed is not None:
            self._unclaimed = [each for each in self._unclaimed if not each.pending]

    def remove(self, identifier: int) -> list[Packet]:
        """Remove the subscription, and acknowledge what waits in its inbox."""
        interest = self.subscriptions.pop(identifier)
        del self._by_pattern[interest.filter.pattern]
        self._full.discard(identifier)
        answers: list[Packet] = []
        while (delivery := interest.inbox.take()) is not None:
            answers += self.consume(delivery)
        return answers

    def detach(self, identifier: int, *, is_kept: bool) -> None:
        """Remove the subscription, but keep what waits in its inbox for a later one.

        The subscription was not granted, or the server keeps it and continues to send.
        """
        if is_kept and self._unclaimed is None:
            self._unclaimed = []
        interest = self.subscriptions.pop(identifier)
        del self._by_pattern[interest.filter.pattern]
        self._full.discard(identifier)
        while (delivery := interest.inbox.take()) is not None:
            delivery.pending -= 1
            if not delivery.pending and delivery.message.qos and self._unclaimed is not None:
                self._unclaimed.append(delivery)

    def start(self, *, is_resumed: bool, is_first: bool) -> None:
        """Begin a connection; unless the session was resumed, no acknowledgements are due."""
        self.is_connected = True
        self._unacked.clear()
        if not is_resumed:
            self._held.clear()
        if is_first:
            # Messages for subscriptions of an earlier process arrive before those are made again.
            self._unclaimed = [] if is_resumed else None

    @property
    def is_blocked(self) -> bool:
        """Whether any inbox is full."""
        return bool(self._full)

    def take(self, identifier: int) -> ReceivedMessage | None:
        """The next message of a subscription; `consume` it afterwards."""
        inbox = self.subscriptions[identifier].inbox
        delivery = inbox.take()
        if not inbox.is_full:
            self._full.discard(identifier)
        return delivery

    def accept(self, message: Publish, now_ms: int) -> tuple[list[Packet], list[int]]:
        """Dispatch a message; returns packets to send, and the subscriptions that received it."""
        if message.qos:
            self._unacked.add(message.packet_id)
            held = self._held.get(message.packet_id)
            if held is not None and _is_duplicate(message, held):
                return self._acknowledge(held) if held.is_consumed else [], []
        delivery = ReceivedMessage(message, now_ms)
        if message.qos:
            self._held[message.packet_id] = delivery
        chosen = self._choose(message)
        if any(each.resume_point for each in chosen):
            chosen = [
                each
                for each in chosen
                if not each.resume_point or each.resume_point.accept(message, now_ms)
            ]
            if not chosen:
                delivery.pending = 1
                return self.consume(delivery), []
        for interest in chosen:
            if not interest.inbox.is_overfull:
                self._put(interest, delivery)
            elif message.qos == 0:
                interest.inbox.shed += 1
            else:
                self._check_receive_maximum()
                self._put(interest, delivery)
        if chosen:
            return [], [each.identifier for each in chosen]
        return self._hold_unclaimed(delivery), []

    def consume(self, delivery: ReceivedMessage) -> list[Packet]:
        """Record that one consumer has finished; the last one triggers the acknowledgement."""
        delivery.pending -= 1
        if delivery.pending > 0:
            return []
        delivery.is_consumed = True
        # After a lost session the packet identifier may belong to another message.
        if not self.is_connected or self._held.get(delivery.message.packet_id) is not delivery:
            return []
        return self._acknowledge(delivery)

    def on_pubrel(self, packet: Pubrel) -> list[Packet]:
        self._unacked.discard(packet.packet_id)
        if self._held.pop(packet.packet_id, None) is None:
            return [Pubcomp(packet.packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND)]
        return [Pubcomp(packet.packet_id)]

    def _put(self, interest: SubscriptionState, delivery: ReceivedMessage) -> None:
        interest.inbox.put(delivery)
        if interest.inbox.is_full:
            self._full.add(interest.identifier)

    def _acknowledge(self, delivery: ReceivedMessage) -> list[Packet]:
        packet_id = delivery.message.packet_id
        if delivery.message.qos == 2:
            return [Pubrec(packet_id)]
        del self._held[packet_id]
        self._unacked.discard(packet_id)
        return [Puback(packet_id)]

    def _check_receive_maximum(self) -> None:
        """Enforce the receive maximum, but only once an inbox overflows.

        Some brokers ignore it when they resume a session, which is tolerated while there is space.
        """
        if len(self._unacked) > self._receive_maximum:
            problem = f"more than {self._receive_maximum} messages without acknowledgement"
            raise ProtocolError(Reason.RECEIVE_MAXIMUM_EXCEEDED, problem)

    def _choose(self, message: Publish) -> list[SubscriptionState]:
        topic = message.topic
        named = [
            found
            for identifier in message.properties.subscription_identifiers
            if (found := self.subscriptions.get(identifier)) is not None and found.selects(topic)
        ]
        return named or [each for each in self.subscriptions.values() if each.selects(topic)]

    def _hold_unclaimed(self, delivery: ReceivedMessage) -> list[Packet]:
        if (
            delivery.message.qos
            and self._unclaimed is not None
            and len(self._unclaimed) < MAX_UNCLAIMED
        ):
            self._unclaimed.append(delivery)
            return []
        self.unmatched += 1
        delivery.pending = 1
        return self.consume(delivery)


def _is_duplicate(message: Publish, held: ReceivedMessage) -> bool:
    """Whether this is the held message, and not a later one under the same packet identifier.

    The server may have dropped an expired message and reused its identifier, but not one of QoS 2
    for which we sent PUBREC.
    """
    return message.dup or (held.message.qos == 2 and held.is_consumed)
