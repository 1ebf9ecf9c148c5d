"""Subscriptions as agreed with the server: SUBSCRIBE and UNSUBSCRIBE, and their replies.

Granted subscriptions last as long as the server has the session. When it has lost the session, all
are requested again under the same identifiers (those with history from their `ResumePoint`). One
that the server then refuses, or ends by itself, ends with the server's explanation.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from accord.client.errors import AlreadySubscribedError, RefusedError, refused_subscription
from accord.client.inbound import InboundMessages, SubscriptionState
from accord.client.machine_io import Arrived, Ended, Output, Send, Settled, SubscribeRequested
from accord.client.outbound import PacketIds
from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import V5, Reason
from accord.core.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe
from accord.core.mqtt.properties import NO_PROPERTIES, Properties

MAX_UNACKED: Final = 1_000  # unacknowledged SUBSCRIBE and UNSUBSCRIBE packets


class SubscribeProtocol:
    """The exchange of SUBSCRIBE and UNSUBSCRIBE."""

    def __init__(self, ids: PacketIds, incoming: InboundMessages) -> None:
        self._ids = ids
        self._inbound = incoming
        self._server: Properties | None = None
        self._to_subscribe: deque[SubscriptionState] = deque()
        self._subscribing: dict[int, SubscriptionState] = {}
        self._to_unsubscribe: deque[str] = deque()
        self._unsubscribing: dict[int, str] = {}

    @property
    def is_waiting(self) -> bool:
        return bool(self._subscribing or self._unsubscribing)

    def subscribe(self, asked: SubscribeRequested, now_ms: int) -> list[Output]:
        if self._inbound.find(asked.filter.pattern) is not None:
            raise AlreadySubscribedError(asked.filter.pattern)
        interest = SubscriptionState(asked, now_ms)
        self._inbound.add(interest)
        self._to_subscribe.append(interest)
        outputs = self._pump()
        if len(interest.inbox):
            outputs.append(Arrived(interest.identifier))
        return outputs

    def unsubscribe(self, identifier: int, *, is_kept: bool) -> list[Output]:
        interest = self._inbound.subscriptions.get(identifier)
        if interest is None:
            return []
        if is_kept:
            self._inbound.detach(identifier, is_kept=True)
            return []
        outputs: list[Output] = [
            Send(encode(packet, V5)) for packet in self._inbound.remove(identifier)
        ]
        if interest.is_granted or interest.packet_id:
            self._to_unsubscribe.append(interest.filter.pattern)
            return [*outputs, *self._pump()]
        self._to_subscribe.remove(interest)
        return outputs

    def start(self, server: Properties, *, is_resumed: bool, now_ms: int) -> list[Output]:
        """Begin a connection."""
        self._server = server
        if not is_resumed:
            self._to_unsubscribe.clear()
            self._to_subscribe = deque(self._inbound.subscriptions.values())
        for interest in self._to_subscribe:
            interest.is_granted = False
            if interest.resume_point is not None:
                interest.resume_point.resume(now_ms)
        return self._pump()

    def stop(self) -> None:
        """End the connection; unacknowledged requests return to the queue."""
        self._server = None
        for packet_id in (*self._subscribing, *self._unsubscribing):
            self._ids.free(packet_id)
        for interest in reversed(self._subscribing.values()):
            interest.packet_id = 0
            if self._is_current(interest):
                self._to_subscribe.appendleft(interest)
        self._to_unsubscribe.extendleft(reversed(self._unsubscribing.values()))
        self._subscribing.clear()
        self._unsubscribing.clear()

    def on_suback(self, packet: Suback) -> list[Output]:
        interest = self._subscribing.pop(packet.packet_id, None)
        if interest is None:
            return []
        self._ids.free(packet.packet_id)
        interest.packet_id = 0
        if not self._is_current(interest):
            return self._pump()
        token, interest.token = interest.token, None
        reason = packet.reasons[0]
        if reason < Reason.UNSPECIFIED_ERROR:
            interest.is_granted = True
            answer = [] if token is None else [Settled(token, reason, packet.properties)]
            return [*answer, *self._pump()]
        error = refused_subscription(
            Reason(reason),
            packet.properties.reason_string or "",
            f"the server refused the subscription to {interest.filter.pattern!r}",
            packet.properties.user,
        )
        return [self._end(interest, token, error, packet.properties), *self._pump()]

    def end(self, pattern: str, error: RefusedError, properties: Properties) -> list[Output]:
        """End a subscription that the server ended, perhaps before its SUBACK.

        The connection ends, too.
        """
        identifier = self._inbound.find(pattern)
        if identifier is None:
            return []
        interest = self._inbound.subscriptions[identifier]
        if interest in self._to_subscribe:
            self._to_subscribe.remove(interest)
        token, interest.token = interest.token, None
        return [self._end(interest, token, error, properties)]

    def _end(
        self,
        interest: SubscriptionState,
        token: int | None,
        error: RefusedError,
        properties: Properties,
    ) -> Output:
        self._inbound.detach(interest.identifier, is_kept=False)
        if token is None:
            return Ended(interest.identifier, error)
        return Settled(token, error.reason, properties, error)

    def on_unsuback(self, packet: Unsuback) -> list[Output]:
        if self._unsubscribing.pop(packet.packet_id, None) is None:
            return []
        self._ids.free(packet.packet_id)
        return self._pump()

    def _is_current(self, interest: SubscriptionState) -> bool:
        """Whether the subscription was not left while its request was unacknowledged."""
        return interest.identifier in self._inbound.subscriptions

    def _pump(self) -> list[Output]:
        """Send queued requests; UNSUBSCRIBE first, as a SUBSCRIBE may have the same filter."""
        outputs: list[Output] = []
        if self._server is None:
            return outputs
        while (
            self._to_unsubscribe and len(self._subscribing) + len(self._unsubscribing) < MAX_UNACKED
        ):
            pattern = self._to_unsubscribe.popleft()
            packet_id = self._ids.take()
            self._unsubscribing[packet_id] = pattern
            outputs.append(Send(encode(Unsubscribe(packet_id, (pattern,)), V5)))
        while (
            self._to_subscribe and len(self._subscribing) + len(self._unsubscribing) < MAX_UNACKED
        ):
            interest = self._to_subscribe.popleft()
            interest.packet_id = self._ids.take()
            self._subscribing[interest.packet_id] = interest
            outputs.append(Send(encode(self._packet(interest), V5)))
        return outputs

    def _packet(self, interest: SubscriptionState) -> Subscribe:
        assert self._server is not None
        identifiers: tuple[int, ...] = (interest.identifier,)
        if self._server.subscription_identifiers_available is False:
            identifiers = ()
        properties = NO_PROPERTIES
        if identifiers or interest.user:
            properties = Properties(subscription_identifiers=identifiers, user=interest.user)
        return Subscribe(interest.packet_id, (interest.filter,), properties)
