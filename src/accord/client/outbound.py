"""Outbound publications: the send queue and the in-flight window.

A *flight* is one publication of QoS 1 or 2. `_waiting` has those to be sent, in order; `_active`
those sent on this connection, at most the server's receive maximum. When the connection breaks,
active ones return to the head of the queue and keep their packet identifier. If the server still
has the session, they are retransmitted under it with the DUP flag; if it lost the session, they are
sent as new. Delivery is therefore at least once, and exactly once only while the server keeps its
sessions.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from accord.client.errors import ExpiredError
from accord.client.machine_io import Output, PublishRequested, Send, Settled
from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import V5, Reason
from accord.core.mqtt.event_mapping import DEADLINE
from accord.core.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from accord.core.mqtt.properties import NO_PROPERTIES, Properties

MAX_PACKET_IDS: Final = 65_535


class PacketIds:
    """Allocator of packet identifiers from 1 to 65,535, each in use once at a time."""

    def __init__(self) -> None:
        self._used: set[int] = set()
        self._last = 0

    def take(self) -> int:
        assert len(self._used) < MAX_PACKET_IDS
        while True:
            self._last = self._last % MAX_PACKET_IDS + 1
            if self._last not in self._used:
                self._used.add(self._last)
                return self._last

    def free(self, packet_id: int) -> None:
        self._used.discard(packet_id)

    def __len__(self) -> int:
        return len(self._used)


class InFlightPublish:
    """One publication; `packet_id` is 0 until it is sent for the first time."""

    __slots__ = (
        "expires_ms",
        "is_done",
        "is_released",
        "message",
        "packet_id",
        "properties",
        "reason",
        "requested_ms",
        "token",
    )  # fmt: skip

    def __init__(self, asked: PublishRequested, now_ms: int) -> None:
        self.token = asked.token
        self.message = asked.message
        self.requested_ms = now_ms
        self.expires_ms = None if asked.deadline_ms is None else now_ms + asked.deadline_ms
        self.packet_id = 0
        self.is_released = False
        # Of the PUBREC, which has more detail than the PUBCOMP.
        self.reason = 0
        self.properties = NO_PROPERTIES
        self.is_done = False


class OutboundMessages:
    """Publications from request to settlement."""

    def __init__(self, ids: PacketIds, limit: int) -> None:
        self._ids = ids
        self._limit = limit
        self._quota = 0
        self._server = NO_PROPERTIES
        self._waiting: deque[InFlightPublish] = deque()
        self._active: dict[int, InFlightPublish] = {}
        self._soonest_ms: int | None = None  # lower bound of the deadlines in the queue

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting or self._active)

    def request(self, asked: PublishRequested, now_ms: int) -> list[Output]:
        flight = InFlightPublish(asked, now_ms)
        if asked.message.qos == 0 and self._quota:
            return self._send(flight, now_ms)
        self._waiting.append(flight)
        outputs = self.pump(now_ms)
        if not flight.packet_id and not flight.is_done:
            self._soonest_ms = _sooner(self._soonest_ms, flight.expires_ms)
        return outputs

    def withdraw(self, token: int) -> None:
        for flight in self._waiting:
            if flight.token == token and not flight.packet_id:
                flight.is_done = True

    def start(self, server: Properties, *, is_resumed: bool) -> list[Output]:
        """Begin a connection."""
        self._server = server
        self._quota = min(self._limit, server.receive_maximum or MAX_PACKET_IDS)
        return [] if is_resumed else self._reset()

    def stop(self) -> None:
        """End the connection."""
        self._quota = 0
        self._waiting.extendleft(reversed(self._active.values()))
        self._active.clear()

    def pump(self, now_ms: int) -> list[Output]:
        """Send queued publications, as far as the server's window allows."""
        outputs: list[Output] = []
        while self._waiting and len(self._active) < self._quota:
            flight = self._waiting.popleft()
            if not flight.is_done:
                outputs += self._send(flight, now_ms)
        return outputs

    def on_ack(self, packet: Puback | Pubcomp, now_ms: int) -> list[Output]:
        flight = self._active.get(packet.packet_id)
        if flight is None:
            return []
        reason = packet.reason or flight.reason
        properties = packet.properties
        if properties is NO_PROPERTIES:
            properties = flight.properties
        return [self._settle(flight, reason, properties), *self.pump(now_ms)]

    def on_pubrec(self, packet: Pubrec, now_ms: int) -> list[Output]:
        """Handle PUBREC, the first half of QoS 2."""
        flight = self._active.get(packet.packet_id)
        if flight is None:
            unknown = Pubrel(packet.packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND)
            return [Send(encode(unknown, V5))]
        if packet.reason >= Reason.UNSPECIFIED_ERROR:
            return [self._settle(flight, packet.reason, packet.properties), *self.pump(now_ms)]
        flight.is_released = True
        flight.reason = packet.reason
        flight.properties = packet.properties
        return [Send(encode(Pubrel(packet.packet_id), V5))]

    def next_deadline_ms(self) -> int | None:
        return self._soonest_ms

    def expire(self, now_ms: int) -> list[Output]:
        """Drop publications that could not be sent before their deadline."""
        if self._soonest_ms is None or now_ms < self._soonest_ms:
            return []
        self._soonest_ms = None
        outputs: list[Output] = []
        for flight in self._waiting:
            if flight.packet_id or flight.is_done or flight.expires_ms is None:
                continue
            if flight.expires_ms <= now_ms:
                flight.is_done = True
                outputs.append(_expired(flight))
            else:
                self._soonest_ms = _sooner(self._soonest_ms, flight.expires_ms)
        if outputs:
            self._waiting = deque(each for each in self._waiting if not each.is_done)
        return outputs

    def _reset(self) -> list[Output]:
        outputs: list[Output] = []
        for flight in self._waiting:
            if not flight.packet_id:
                continue
            self._ids.free(flight.packet_id)
            flight.packet_id = 0
            if flight.is_released:  # the server had received it in the lost session
                flight.is_done = True
                outputs.append(Settled(flight.token))
        return outputs

    def _send(self, flight: InFlightPublish, now_ms: int) -> list[Output]:
        is_again = flight.packet_id != 0
        if flight.is_released:
            self._active[flight.packet_id] = flight
            return [Send(encode(Pubrel(flight.packet_id), V5))]
        message = flight.message
        if not is_again:
            if flight.expires_ms is not None and flight.expires_ms <= now_ms:
                flight.is_done = True
                return [_expired(flight)]
            message = _with_time_left(flight, now_ms)
        if message.qos:
            flight.packet_id = flight.packet_id or self._ids.take()
        message = msgspec.structs.replace(message, packet_id=flight.packet_id, dup=is_again)
        frame = encode(message, V5)
        if refusal := self._refusal(message, len(frame)):
            return [self._settle(flight, refusal[0], Properties(reason_string=refusal[1]))]
        if not message.qos:
            flight.is_done = True
            return [Send(frame), Settled(flight.token)]
        self._active[flight.packet_id] = flight
        return [Send(frame)]

    def _refusal(self, message: Publish, size: int) -> tuple[Reason, str] | None:
        """Why the server's announced limits rule the message out, if they do."""
        server = self._server
        if server.maximum_packet_size is not None and size > server.maximum_packet_size:
            most = server.maximum_packet_size
            problem = f"{size} bytes, the server takes at most {most} (its limits.packet_bytes)"
            return Reason.PACKET_TOO_LARGE, problem
        if server.maximum_qos is not None and message.qos > server.maximum_qos:
            problem = f"QoS {message.qos}, the server takes at most {server.maximum_qos}"
            return Reason.QOS_NOT_SUPPORTED, problem
        if server.retain_available is False and message.retain:
            return Reason.RETAIN_NOT_SUPPORTED, "the server keeps no retained messages"
        return None

    def _settle(self, flight: InFlightPublish, reason: int, properties: Properties) -> Settled:
        flight.is_done = True
        self._active.pop(flight.packet_id, None)
        self._ids.free(flight.packet_id)
        return Settled(flight.token, reason, properties)


def _sooner(one_ms: int | None, other_ms: int | None) -> int | None:
    if one_ms is None or other_ms is None:
        return other_ms if one_ms is None else one_ms
    return min(one_ms, other_ms)


def _expired(flight: InFlightPublish) -> Settled:
    assert flight.expires_ms is not None
    within_ms = flight.expires_ms - flight.requested_ms
    problem = f"not sent within {within_ms} ms: no connection, or too many events on the way"
    return Settled(flight.token, error=ExpiredError(problem))


def _with_time_left(flight: InFlightPublish, now_ms: int) -> Publish:
    """The message with its deadline and expiry counted from now instead of from the request."""
    waited_ms = now_ms - flight.requested_ms
    properties = flight.message.properties
    if flight.expires_ms is None or not waited_ms:
        return flight.message
    user = tuple(
        (name, str(max(int(text) - waited_ms, 0)) if name == DEADLINE else text)
        for name, text in properties.user
    )
    expiry_s = properties.message_expiry_s
    if expiry_s is not None:
        expiry_s = max(-(-(expiry_s * 1000 - waited_ms) // 1000), 1)
    left = msgspec.structs.replace(properties, message_expiry_s=expiry_s, user=user)
    return msgspec.structs.replace(flight.message, properties=left)
