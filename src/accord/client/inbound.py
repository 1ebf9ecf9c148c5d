"""What comes in: which subscription gets it, and when it is acknowledged.

An event of QoS 1 or 2 is acknowledged when its consumers are done with it, so one that was not
worked on is sent again after a crash. Until then the server counts it against our receive maximum:
that is the back-pressure. `_held` has what is not acknowledged yet, by packet identifier; a
message that the server sends again while it is still there is not delivered twice.

A message belongs to the subscriptions whose identifiers it carries. If none of them fits (the
server has no identifiers, or still has subscriptions of an earlier process) the filters decide.
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
    """A subscription as the server sees it.

    `packet_id` is that of a SUBSCRIBE on its way, else 0; `token` whom its first answer goes to;
    `past` is there where it was to begin in the past.
    """

    __slots__ = ("_pattern", "_user", "filter", "identifier", "inbox", "is_granted", "packet_id",
                 "past", "token")  # fmt: skip

    def __init__(self, asked: SubscribeRequested, now_ms: int) -> None:
        self.token: int | None = asked.token
        self.filter = asked.filter
        self._user = asked.user
        since = next((value for name, value in asked.user if name == SINCE), None)
        self.past = None if since is None else ResumePoint(since, now_ms)
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
        """User properties to subscribe with now."""
        past = self.past
        if past is None:
            return self._user
        return tuple((name, past.since if name == SINCE else value) for name, value in self._user)

    def selects(self, topic: str) -> bool:
        return filter_selects(self._pattern, topic)


class InboundMessages:
    """Subscriptions, their inboxes, and what is not acknowledged."""

    def __init__(self, receive_maximum: int) -> None:
        self._receive_maximum = receive_maximum
        self.interests: dict[int, SubscriptionState] = {}
        self.is_connected = False
        self.unwanted = 0  # events that no subscription selected
        self._by_pattern: dict[str, int] = {}
        self._held: dict[int, ReceivedMessage] = {}
        self._unclaimed: list[ReceivedMessage] | None = None
        self._full: set[int] = set()
        self._unanswered: set[int] = set()  # on this connection

    def find(self, pattern: str) -> int | None:
        return self._by_pattern.get(pattern)

    def add(self, interest: SubscriptionState) -> None:
        """Take it in, with what waits for it from before."""
        self.interests[interest.identifier] = interest
        self._by_pattern[interest.filter.pattern] = interest.identifier
        for delivery in self._unclaimed or ():
            if interest.selects(delivery.message.topic):
                self._put(interest, delivery)
        if self._unclaimed is not None:
            self._unclaimed = [each for each in self._unclaimed if not each.owed]

    def remove(self, identifier: int) -> list[Packet]:
        """Forget the subscription and what waits in its inbox."""
        interest = self.interests.pop(identifier)
        del self._by_pattern[interest.filter.pattern]
        self._full.discard(identifier)
        answers: list[Packet] = []
        while (delivery := interest.inbox.take()) is not None:
            answers += self.consume(delivery)
        return answers

    def give_back(self, identifier: int, *, is_kept: bool) -> None:
        """Forget the subscription, but not what waits in its inbox: that is for another.

        It was not granted, or is kept by the server, which then goes on sending.
        """
        if is_kept and self._unclaimed is None:
            self._unclaimed = []
        interest = self.interests.pop(identifier)
        del self._by_pattern[interest.filter.pattern]
        self._full.discard(identifier)
        while (delivery := interest.inbox.take()) is not None:
            delivery.owed -= 1
            if not delivery.owed and delivery.message.qos and self._unclaimed is not None:
                self._unclaimed.append(delivery)

    def start(self, *, is_resumed: bool, is_first: bool) -> None:
        """A connection was made. Without a resumed session nothing is owed any more."""
        self.is_connected = True
        self._unanswered.clear()
        if not is_resumed:
            self._held.clear()
        if is_first:
            # Messages for subscriptions of an earlier process come before those are made again.
            self._unclaimed = [] if is_resumed else None

    @property
    def is_blocked(self) -> bool:
        """Whether some inbox has no room."""
        return bool(self._full)

    def take(self, identifier: int) -> ReceivedMessage | None:
        """The next of a subscription; `consume` it afterwards."""
        inbox = self.interests[identifier].inbox
        delivery = inbox.take()
        if not inbox.is_full:
            self._full.discard(identifier)
        return delivery

    def accept(self, message: Publish, now_ms: int) -> tuple[list[Packet], list[int]]:
        """Answers to send at once, and the subscriptions that got something."""
        if message.qos:
            self._unanswered.add(message.packet_id)
            held = self._held.get(message.packet_id)
            if held is not None and _is_again(message, held):
                return self._answer(held) if held.is_consumed else [], []
        delivery = ReceivedMessage(message, now_ms)
        if message.qos:
            self._held[message.packet_id] = delivery
        chosen = self._choose(message)
        if any(each.past for each in chosen):
            chosen = [each for each in chosen if not each.past or each.past.accept(message, now_ms)]
            if not chosen:
                delivery.owed = 1
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
        return self._put_aside(delivery), []

    def consume(self, delivery: ReceivedMessage) -> list[Packet]:
        """One consumer is done with it; the last one makes the acknowledgement."""
        delivery.owed -= 1
        if delivery.owed > 0:
            return []
        delivery.is_consumed = True
        # After a lost session the identifier may stand for another message.
        if not self.is_connected or self._held.get(delivery.message.packet_id) is not delivery:
            return []
        return self._answer(delivery)

    def release(self, packet: Pubrel) -> list[Packet]:
        self._unanswered.discard(packet.packet_id)
        if self._held.pop(packet.packet_id, None) is None:
            return [Pubcomp(packet.packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND)]
        return [Pubcomp(packet.packet_id)]

    def _put(self, interest: SubscriptionState, delivery: ReceivedMessage) -> None:
        interest.inbox.put(delivery)
        if interest.inbox.is_full:
            self._full.add(interest.identifier)

    def _answer(self, delivery: ReceivedMessage) -> list[Packet]:
        packet_id = delivery.message.packet_id
        if delivery.message.qos == 2:
            return [Pubrec(packet_id)]
        del self._held[packet_id]
        self._unanswered.discard(packet_id)
        return [Puback(packet_id)]

    def _check_receive_maximum(self) -> None:
        """Some brokers forget it when they resume a session: that is borne while there is room."""
        if len(self._unanswered) > self._receive_maximum:
            problem = f"more than {self._receive_maximum} messages without acknowledgement"
            raise ProtocolError(Reason.RECEIVE_MAXIMUM_EXCEEDED, problem)

    def _choose(self, message: Publish) -> list[SubscriptionState]:
        topic = message.topic
        named = [
            found
            for identifier in message.properties.subscription_identifiers
            if (found := self.interests.get(identifier)) is not None and found.selects(topic)
        ]
        return named or [each for each in self.interests.values() if each.selects(topic)]

    def _put_aside(self, delivery: ReceivedMessage) -> list[Packet]:
        if (
            delivery.message.qos
            and self._unclaimed is not None
            and len(self._unclaimed) < MAX_UNCLAIMED
        ):
            self._unclaimed.append(delivery)
            return []
        self.unwanted += 1
        delivery.owed = 1
        return self.consume(delivery)


def _is_again(message: Publish, held: ReceivedMessage) -> bool:
    """Whether it is the message that is held, and not a later one under the same identifier.

    The server may have dropped an expired one, but of QoS 2 none that it has our word for.
    """
    return message.dup or (held.message.qos == 2 and held.is_consumed)
