"""What a client publishes: the hot path, from a PUBLISH's bytes to the sessions that want it.

A client's channels are checked once, for form and rights, and remembered with their routes. Then a
QoS 0 message that needs nothing but forwarding is part of a run, which `forward` passes on as the
publisher's own bytes; `on_publish` takes apart all others.
"""

from __future__ import annotations

from typing import Final

from accord.core.errors import EventError
from accord.core.model.channels import problem_with_channel
from accord.core.model.importance import DEFAULT_IMPORTANCE
from accord.core.node.rights import Rights
from accord.core.node.router import Route
from accord.core.scheduling.outbox import Run
from accord.edges.mqtt import durable
from accord.edges.mqtt.answering import Answering
from accord.edges.mqtt.broker import Broker, expires_ms, passed_on
from accord.edges.mqtt.codec import encode
from accord.edges.mqtt.codes import V5, PacketType, ProtocolError, Reason, malformed, violation
from accord.edges.mqtt.message import DUPLICATE, RETAINED, MqttMessage, convert_run
from accord.edges.mqtt.packets import Puback, Pubrec
from accord.edges.mqtt.properties import (
    NO_PROPERTIES,
    Properties,
    decode_properties,
    encode_properties,
)
from accord.edges.mqtt.wire import read_varint, string_bytes

_REMEMBERED_TOPICS: Final = 1_000


class Publishing(Answering):
    """The publishing side of a connection."""

    def __init__(self, broker: Broker, address: str) -> None:
        super().__init__(broker, address)
        self._rights: Rights | None = None
        self._routes: dict[bytes, Route] = {}
        self._aliases: dict[int, str] = {}

    def _forward(self, data: bytes, start: int, end: int, count: int, route: Route) -> None:
        """Pass on `count` QoS 0 frames as they are."""
        hub = self.hub
        counters = hub.counters
        counters.publishes_received[0] += count
        counters.publish_bytes_received += end - start
        session = self.session
        if session is not None:
            session.published += count
        if not route.plain:
            counters.unmatched += count
            return
        counters.matched += count
        run = Run(data[start:end], count, DEFAULT_IMPORTANCE, hub.now_ms)
        converted: Run | None = None
        version = self.version
        for receiver in route.plain:
            if receiver.dialect == version:
                receiver.forward(run)
            else:
                if converted is None:
                    frames = convert_run(run.frames, receiver.dialect)
                    converted = Run(frames, count, DEFAULT_IMPORTANCE, hub.now_ms)
                receiver.forward(converted)

    def _on_publish(self, data: bytes, start: int, body: int, end: int, now_ms: int) -> None:
        """A PUBLISH from `start` to `end`; its fixed header ends at `body`."""
        first = data[start]
        qos = first >> 1 & 3
        if qos == 3:
            raise malformed("a PUBLISH with QoS 3")
        if qos == 0 and first & DUPLICATE:
            raise malformed("a PUBLISH with QoS 0 marked as sent before")
        at = body + 2
        if at > end:
            raise malformed("a PUBLISH without topic")
        at += data[body] << 8 | data[body + 1]
        topic = data[body:at]
        packet_id = 0
        if qos:
            if at + 2 > end:
                raise malformed("a PUBLISH that ends in its topic")
            packet_id = data[at] << 8 | data[at + 1]
            at += 2
            if packet_id == 0:
                raise violation("a packet identifier of 0")
        elif at > end:
            raise malformed("a PUBLISH that ends in its topic")
        tail = at
        version = self.version
        properties = NO_PROPERTIES
        has_alias = False
        block = b""
        if version == V5:
            if at < end and data[at] == 0:
                at += 1
            else:
                properties, block, at = _read_properties(data, at, end)
                has_alias = properties.topic_alias is not None
        hub = self.hub
        counters = hub.counters
        counters.publishes_received[qos] += 1
        counters.publish_bytes_received += end - start
        route = self._routes.get(topic)
        if route is None or has_alias or not route.is_valid:
            channel = self._channel(topic, properties)
            route = self.broker.router.route(channel)
            if not self._may_publish(channel):
                self._answer(qos, packet_id, Reason.NOT_AUTHORIZED, f"publishing to {channel}")
                counters.shed("not authorized", self.client_id)
                return
            topic = string_bytes(channel)
            if route.is_valid:
                if len(self._routes) >= _REMEMBERED_TOPICS:
                    self._routes.clear()
                self._routes[topic] = route
        session = self.session
        assert session is not None
        session.published += 1
        if qos == 2 and packet_id in session.received:
            self._answer(qos, packet_id, Reason.SUCCESS, "")
            return
        if qos and self._unanswered + len(session.received) >= self.broker.limits.receive_maximum:
            self._check_flood()
        if hub.overloaded and (qos or route.is_kept or first & RETAINED):
            counters.shed("journal overloaded", self.client_id)
            self._answer(qos, packet_id, Reason.QUOTA_EXCEEDED, hub.overloaded)
            return
        appended = hub.appended
        recorded = len(hub.state_records)
        try:
            message = MqttMessage(
                route.channel,
                topic,
                data[at:end],
                qos,
                first & RETAINED != 0,
                self.client_id,
                now_ms,
                properties,
                block,
                0 if properties is NO_PROPERTIES else expires_ms(properties, now_ms),
            )
            if qos and properties is NO_PROPERTIES and not first & DUPLICATE:
                # Receivers at the same QoS get the publisher's frame with another identifier.
                head = data[start : body + len(topic)]
                message.has_frame(version, first, head, data[tail:end])
            reached = self.broker.publish(message, route)
        except EventError as error:
            counters.shed("bad attributes", self.client_id)
            self._answer(qos, packet_id, Reason.PAYLOAD_FORMAT_INVALID, str(error))
            return
        if qos == 0:
            return
        if qos == 2:
            session.received[packet_id] = True
            if session.is_durable:
                # Neither may be lost without the other: the client would repeat it or not.
                hub.record(durable.Received(self.client_id, packet_id))
                hub.join(recorded)
        if reached or version != V5:
            frame = (b"\x40\x02" if qos == 1 else b"\x50\x02") + data[tail - 2 : tail]
        else:
            frame = self._acknowledgement(qos, packet_id, Reason.NO_MATCHING_SUBSCRIBERS)
        if self._held or hub.appended != appended:
            self.hold(frame)
        else:
            self._control.append(frame)
            if not self.is_dirty:
                hub.wake(self)

    def _check_flood(self) -> None:
        if self.version == V5:
            most = self.broker.limits.receive_maximum
            raise ProtocolError(
                Reason.RECEIVE_MAXIMUM_EXCEEDED, f"more than {most} messages not yet acknowledged"
            )

    def _channel(self, topic: bytes, properties: Properties) -> str:
        """The channel that a PUBLISH means, by its topic or by an alias."""
        try:
            channel = topic[2:].decode()
        except UnicodeDecodeError:
            raise malformed("a topic that is not UTF-8") from None
        alias = properties.topic_alias
        if alias is not None:
            if not 0 < alias <= self.broker.limits.topic_alias_maximum:
                raise ProtocolError(Reason.TOPIC_ALIAS_INVALID, f"topic alias {alias}")
            if channel:
                self._aliases[alias] = channel
            elif alias in self._aliases:
                channel = self._aliases[alias]
            else:
                raise violation(f"topic alias {alias} is not known")
        if "\0" in channel:
            raise malformed("a topic with a null character")
        if problem := problem_with_channel(channel):
            raise ProtocolError(Reason.TOPIC_NAME_INVALID, problem)
        if self._is_deep(channel):
            most = self.broker.limits.channel_levels
            raise ProtocolError(Reason.TOPIC_NAME_INVALID, f"expected at most {most} levels")
        return channel

    def _is_deep(self, channel: str) -> bool:
        return channel.count("/") >= self.broker.limits.channel_levels

    def _may_publish(self, channel: str) -> bool:
        if channel.startswith("$SYS/") or channel == "$SYS":
            return False
        return self._rights is None or self._rights.may_publish(channel)

    def _answer(self, qos: int, packet_id: int, reason: Reason, problem: str) -> None:
        """Acknowledge a message that was not taken, or was taken before."""
        if qos == 0:
            return
        if self.version != V5 and reason >= Reason.UNSPECIFIED_ERROR:
            # 3.1.1 can't say no; an acknowledgement would be a lie.
            raise ProtocolError(reason, problem)
        frame = self._acknowledgement(qos, packet_id, reason, problem)
        self._settle(frame, self.hub.appended)

    def _acknowledgement(
        self, qos: int, packet_id: int, reason: Reason, problem: str = ""
    ) -> bytes:
        if self.version != V5 or reason == Reason.SUCCESS:
            return (b"\x40\x02" if qos == 1 else b"\x50\x02") + packet_id.to_bytes(2, "big")
        if not problem:
            head = b"\x40\x03" if qos == 1 else b"\x50\x03"
            return head + packet_id.to_bytes(2, "big") + bytes((reason,))
        make = Puback if qos == 1 else Pubrec
        return self._fitting(
            encode(make(packet_id, reason, self._explained(problem)), V5),
            encode(make(packet_id, reason), V5),
        )


def _read_properties(data: bytes, at: int, end: int) -> tuple[Properties, bytes, int]:
    """A PUBLISH's properties, those of them that are passed on, encoded, and where they end."""
    properties, after = decode_properties(data, at, end, PacketType.PUBLISH)
    if properties.subscription_identifiers:
        raise violation("a subscription identifier in a client's PUBLISH")
    if properties.topic_alias is None and properties.message_expiry_s is None:
        return properties, data[read_varint(data, at, end)[1] : after], after
    block = encode_properties(passed_on(properties))
    return properties, block[read_varint(block, 0, len(block))[1] :], after
