"""One network connection: bytes in, frames out, and a client's session in between.

`receive` is the hot path. It goes through all packets of one read in one loop. Consecutive QoS 0
messages to the same receivers that need nothing but forwarding are not even taken apart: they
travel as one run of bytes to everybody who takes the publisher's frames as they are.

Whatever a client does wrong ends its own connection, with a reason, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from accord.core.errors import EventError
from accord.core.model.channels import problem_with_channel
from accord.core.node.rights import Rights
from accord.core.node.router import Route
from accord.core.scheduling.outbox import DEFAULT_IMPORTANCE, Run
from accord.edges.mqtt import durable
from accord.edges.mqtt.broker import FOREVER, Broker, Client, condition_of, expires_ms, passed_on
from accord.edges.mqtt.codec import decode, encode
from accord.edges.mqtt.codes import V5, V311, PacketType, ProtocolError, Reason, malformed
from accord.edges.mqtt.exchange import Exchange
from accord.edges.mqtt.hub import HeldAnswer
from accord.edges.mqtt.message import DUPLICATE, MqttMessage, convert_run
from accord.edges.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from accord.edges.mqtt.properties import (
    NO_PROPERTIES,
    Properties,
    decode_properties,
    encode_properties,
)
from accord.edges.mqtt.session import Session
from accord.edges.mqtt.timers import Timer
from accord.edges.mqtt.wire import read_varint, string_bytes

# What a connection is waiting for.
CONNECT: Final = 0
LOGIN: Final = 1  # the driver's word on user name and password
EXCHANGE: Final = 2  # the client's next AUTH
NOTHING: Final = 3  # it is open
GONE: Final = 4

_FROM_SERVERS: Final = (
    PacketType.CONNACK,
    PacketType.SUBACK,
    PacketType.UNSUBACK,
    PacketType.PINGRESP,
)
_PINGRESP: Final = b"\xd0\x00"
_CONNECT_5: Final = b"\x00\x04MQTT\x05"
_UNREAD: Final = 2_000  # answers that wait for the client or for the disk
_LAST_BYTES: Final = 262_144  # sent to a client that says goodbye
_REMEMBERED_TOPICS: Final = 1_000
_EARLY_BYTES: Final = 1_000_000  # accepted from a client that is not logged in yet


class Gate:
    """Who may come in. Without one, everybody may do everything."""

    def __init__(self, methods: dict[str, Callable[[], Exchange]] | None = None) -> None:
        self.methods = methods or {}
        self.logins: list[Connection] = []  # for the driver to check, see `Connection.admit`


class Connection(Client):
    def __init__(self, broker: Broker, gate: Gate | None, address: str) -> None:
        super().__init__()
        self.broker = broker
        self.hub = broker.hub
        self.gate = gate
        self.address = address
        self.handle: Any = None  # the driver's own
        self.waits_for = CONNECT
        self.version = V311
        self.client_id = ""
        self.user = ""
        self.session: Session | None = None
        self.connect: Connect | None = None
        self.is_closing = False
        self.reason = ""  # why it ended, for logs and counters
        self.received_ms = self.hub.now_ms
        self.connected_ms = 0
        self.keep_alive_ms = 0
        self.packet_limit = 0
        self._control: list[bytes] = []
        self._held = 0  # answers that wait for the disk
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._wanted = 0  # bytes until the partial packet is whole, as far as known
        self._rights: Rights | None = None
        self._routes: dict[bytes, Route] = {}
        self._aliases: dict[int, str] = {}
        self._exchange: Exchange | None = None
        self._method = ""
        self._explains = True
        self._unanswered = 0  # QoS 1 messages of the client
        self._timer = ConnectionTimer(self)
        broker.timers.set(self._timer, self.hub.now_ms + broker.limits.connect_timeout_s * 1000)

    def receive(self, data: bytes, *, now_ms: int) -> None:
        """Take what came from the network."""
        if self.waits_for == GONE:
            return
        self.hub.now_ms = now_ms
        self.received_ms = now_ms
        self.hub.counters.bytes_received += len(data)
        if self._partial:
            self._partial.append(data)
            self._partial_size += len(data)
            if self._partial_size < self._wanted:
                return
            data = b"".join(self._partial)
            self._partial = []
        self._go_through(data, now_ms)

    def _go_through(self, data: bytes, now_ms: int) -> None:
        """Handle the packets in `data`, and keep the beginning of one that is not whole yet."""
        try:
            rest = self._receive_all(data, now_ms)
        except ProtocolError as error:
            self.end(error.reason, error.problem)
            return
        if rest < len(data) and self.waits_for != GONE:
            kept = data[rest:] if rest else data
            self._partial = [kept]
            self._partial_size = len(kept)

    def take(self, bytes_wanted: int) -> list[bytes]:
        """The next frames to send: answers first, then what the session has."""
        if self.connect is not None and self.waits_for == NOTHING:
            return []  # nothing before the CONNACK
        frames = self._control
        if frames:
            self._control = []
            self.hub.counters.packets_sent += len(frames)
        else:
            frames = []
        session = self.session
        if session is not None and self.waits_for == NOTHING:
            session.pull(bytes_wanted, frames)
        return frames

    def has_waiting(self) -> bool:
        if self._control:
            return True
        return self.waits_for == NOTHING and self.session is not None and self.session.has_waiting()

    def wants_data(self) -> bool:
        """Whether more may be read: not while the client leaves too many answers unread."""
        return len(self._control) < _UNREAD and self._held < _UNREAD

    def reply(self, frame: bytes) -> None:
        self._control.append(frame)
        self.hub.wake(self)

    def unhold(self) -> None:
        self._held -= 1

    def released(self, frame: bytes) -> None:
        self._held -= 1
        if self.waits_for == NOTHING:
            if frame[0] == 0x40:
                self._unanswered -= 1
            self.reply(frame)

    def lost(self, *, now_ms: int, why: str = "connection lost") -> None:
        """The network connection is gone."""
        self.hub.now_ms = now_ms
        self._close(why, is_will_wanted=True)

    def end(self, reason: Reason, problem: str = "") -> None:
        """Close the connection from our side, and tell the client why."""
        if self.waits_for == GONE:
            return
        if self.waits_for < NOTHING:
            is_version_known = self.connect is not None or self.version == V5
            if is_version_known or reason == Reason.UNSUPPORTED_PROTOCOL_VERSION:
                self._refuse(reason, problem)
                return
        elif self.version == V5:
            frame = encode(Disconnect(reason, self._explained(problem)), V5)
            self._control.append(self._fitting(frame, encode(Disconnect(reason), V5)))
        why = reason.name.lower().replace("_", " ")
        self._close(f"{why}: {problem}" if problem else why, is_will_wanted=True)

    def admit(self, rights: Rights | None, *, now_ms: int, is_busy: bool = False) -> None:
        """The driver's answer to this connection's login: what the client may do, or None."""
        if self.waits_for != LOGIN:
            return
        self.hub.now_ms = now_ms
        connect = self.connect
        assert connect is not None
        if rights is None:
            reason = Reason.SERVER_BUSY if is_busy else Reason.BAD_USER_NAME_OR_PASSWORD
            self._refuse(reason, "too many logins at once" if is_busy else "")
            return
        self.user = connect.username or ""
        self._rights = rights.bound(user=self.user, client=self.client_id)
        self._open(connect)
        if self._partial:
            # What came in the meantime.
            early = b"".join(self._partial)
            self._partial = []
            self._go_through(early, now_ms)

    def watch(self) -> None:
        """Look again when the client could have missed its keep-alive, with half of it as grace."""
        if self.keep_alive_ms:
            self.broker.timers.set(self._timer, self._silent_from_ms())
        else:
            self.broker.timers.cancel(self._timer)

    def is_silent(self, now_ms: int) -> bool:
        return self.keep_alive_ms > 0 and now_ms >= self._silent_from_ms()

    def _silent_from_ms(self) -> int:
        return self.received_ms + self.keep_alive_ms + self.keep_alive_ms // 2

    def _receive_all(self, data: bytes, now_ms: int) -> int:
        """Handle the whole packets in `data`; gives where the rest begins."""
        at = 0
        size = len(data)
        limit = self._packet_limit()
        packets = 0
        # The run of plain messages that ends at `at`.
        run_start = 0
        run_count = 0
        run_topic = b""
        run_route: Route | None = None
        is_v5 = self.version == V5
        mistake: ProtocolError | None = None
        self._wanted = 0
        if self.waits_for == CONNECT and size and data[0] >> 4 != PacketType.CONNECT:
            # Said at once, because another protocol's client may never send what looks whole.
            raise ProtocolError(Reason.PROTOCOL_ERROR, "expected CONNECT first")
        while at + 2 <= size:
            first = data[at]
            length = data[at + 1]
            body = at + 2
            if length >= 0x80:
                length &= 0x7F
                shift = 7
                while True:
                    if body >= size:
                        length = -1
                        break
                    byte = data[body]
                    body += 1
                    length |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        if byte == 0:
                            mistake = malformed("a remaining length longer than needed")
                        break
                    shift += 7
                    if shift > 21:
                        mistake = malformed("a remaining length without end")
                        break
                if length < 0 or mistake is not None:
                    break
            end = body + length
            if end - at > limit:
                mistake = ProtocolError(
                    Reason.PACKET_TOO_LARGE, f"{end - at} bytes, at most {limit} accepted"
                )
                break
            if end > size:
                self._wanted = end - at
                break
            if first == 0x30 and length > 2:
                if run_route is not None and data.startswith(run_topic, body):
                    topic_end = body + len(run_topic)
                    if topic_end < end and (not is_v5 or data[topic_end] == 0):
                        run_count += 1
                        at = end
                        continue
                topic_end = body + 2 + (data[body] << 8 | data[body + 1])
                if topic_end < end and (not is_v5 or data[topic_end] == 0):
                    topic = data[body:topic_end]
                    route = self._routes.get(topic)
                    if route is not None and route.is_valid and route.is_plain:
                        if run_route is not None and run_route.plain is route.plain:
                            run_topic = topic
                            run_count += 1
                            at = end
                            continue
                        if run_route is not None:
                            self._forward(data, run_start, at, run_count, run_route)
                            packets += run_count
                        run_route = route
                        run_topic = topic
                        run_start = at
                        run_count = 1
                        at = end
                        continue
            if run_route is not None:
                self._forward(data, run_start, at, run_count, run_route)
                packets += run_count
                run_route = None
            packets += 1
            if 0x30 <= first < 0x40 and self.waits_for == NOTHING:
                self._on_publish(data, at, body, end, now_ms)
            elif first == 0x40 and length == 2 and self.waits_for == NOTHING:
                session = self.session
                assert session is not None
                session.acknowledged(data[body] << 8 | data[body + 1])
            else:
                if self.waits_for == LOGIN:
                    if size - at > _EARLY_BYTES:
                        raise ProtocolError(Reason.PACKET_TOO_LARGE, "too much before the login")
                    self._wanted = size + 1
                    packets -= 1
                    break
                self._on_packet(first, data[body:end])
                is_v5 = self.version == V5
                limit = self._packet_limit()
            at = end
            if self.waits_for == GONE:
                return size
        if run_route is not None:
            self._forward(data, run_start, at, run_count, run_route)
            packets += run_count
        self.hub.counters.packets_received += packets
        if mistake is not None:
            raise mistake  # only now: what came before it counts
        return at

    def _packet_limit(self) -> int:
        """Strangers may send less than clients."""
        limits = self.broker.limits
        if self.waits_for == NOTHING:
            return limits.packet_bytes
        return min(limits.packet_bytes, _EARLY_BYTES + limits.will_bytes)

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
            raise ProtocolError(Reason.MALFORMED_PACKET, "a PUBLISH with QoS 3")
        if qos == 0 and first & DUPLICATE:
            raise ProtocolError(
                Reason.MALFORMED_PACKET, "a PUBLISH with QoS 0 marked as sent before"
            )
        at = body + 2
        if at > end:
            raise ProtocolError(Reason.MALFORMED_PACKET, "a PUBLISH without topic")
        at += data[body] << 8 | data[body + 1]
        topic = data[body:at]
        packet_id = 0
        if qos:
            if at + 2 > end:
                raise ProtocolError(Reason.MALFORMED_PACKET, "a PUBLISH that ends in its topic")
            packet_id = data[at] << 8 | data[at + 1]
            at += 2
            if packet_id == 0:
                raise ProtocolError(Reason.PROTOCOL_ERROR, "a packet identifier of 0")
        elif at > end:
            raise ProtocolError(Reason.MALFORMED_PACKET, "a PUBLISH that ends in its topic")
        tail = at
        properties = NO_PROPERTIES
        block = b""
        if self.version == V5:
            if at < end and data[at] == 0:
                at += 1
            else:
                properties, after = decode_properties(data, at, end, PacketType.PUBLISH)
                if properties.subscription_identifiers:
                    raise ProtocolError(
                        Reason.PROTOCOL_ERROR, "a subscription identifier in a client's PUBLISH"
                    )
                if properties.topic_alias is not None or properties.message_expiry_s is not None:
                    block = encode_properties(passed_on(properties))
                    block = block[read_varint(block, 0, len(block))[1] :]
                else:
                    block = data[read_varint(data, at, end)[1] : after]
                at = after
        counters = self.hub.counters
        counters.publishes_received[qos] += 1
        counters.publish_bytes_received += end - start
        route = self._routes.get(topic)
        if route is None or not route.is_valid or properties.topic_alias is not None:
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
        appended = self.hub.appended
        recorded = len(self.hub.state_records)
        if self.hub.overloaded and (qos or route.is_kept):
            counters.shed("journal overloaded", self.client_id)
            self._answer(qos, packet_id, Reason.QUOTA_EXCEEDED, self.hub.overloaded)
            return
        try:
            message = MqttMessage(
                route.channel,
                topic,
                data[at:end],
                qos,
                first & 1 == 1,
                self.client_id,
                now_ms,
                properties,
                block,
                -1 if properties.message_expiry_s is None else properties.message_expiry_s,
                expires_ms(properties, now_ms) if properties is not NO_PROPERTIES else 0,
            )
            if qos and properties is NO_PROPERTIES and not first & DUPLICATE:
                # Receivers at the same QoS get the publisher's frame with another identifier.
                head = data[start : body + len(topic)]
                message.has_frame(self.version, first, head, data[tail:end])
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
                self.hub.record(durable.Received(self.client_id, packet_id))
                self.hub.join(recorded)
        if reached or self.version != V5:
            head = b"\x40\x02" if qos == 1 else b"\x50\x02"
            frame = head + data[tail - 2 : tail]
        else:
            frame = self._acknowledgement(qos, packet_id, Reason.NO_MATCHING_SUBSCRIBERS)
        if self._held or self.hub.appended != appended:
            self.hold(frame)
        else:
            self._control.append(frame)
            if not self.is_dirty:
                self.hub.wake(self)

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
            raise ProtocolError(Reason.MALFORMED_PACKET, "a topic that is not UTF-8") from None
        alias = properties.topic_alias
        if alias is not None:
            if not 0 < alias <= self.broker.limits.topic_alias_maximum:
                raise ProtocolError(Reason.TOPIC_ALIAS_INVALID, f"topic alias {alias}")
            if channel:
                self._aliases[alias] = channel
            elif alias in self._aliases:
                channel = self._aliases[alias]
            else:
                raise ProtocolError(Reason.PROTOCOL_ERROR, f"topic alias {alias} is not known")
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

    def hold(self, frame: bytes) -> None:
        """Send `frame` when all that was recorded so far is on disk, after what waits already."""
        self._held += 1
        if frame[0] == 0x40:
            self._unanswered += 1
        self.hub.hold(HeldAnswer(self, frame))

    def _settle(self, frame: bytes, appended: int) -> None:
        """Send the answer to something that may have been recorded since `appended`."""
        if self.hub.appended != appended or self._held:
            self.hold(frame)
        else:
            self.reply(frame)

    def _on_packet(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if self.waits_for == CONNECT and kind != PacketType.CONNECT:
            raise ProtocolError(Reason.PROTOCOL_ERROR, "expected CONNECT first")
        if kind in _FROM_SERVERS:
            raise ProtocolError(
                Reason.PROTOCOL_ERROR, f"{PacketType(kind).name} is for clients to receive"
            )
        if self.waits_for == EXCHANGE and kind != PacketType.AUTH:
            raise ProtocolError(Reason.PROTOCOL_ERROR, "expected AUTH")
        if kind == PacketType.CONNECT and body[:7] == _CONNECT_5 and self.waits_for == CONNECT:
            self.version = V5  # so that a refusal can say why
        packet = decode(first, body, self.version)
        if isinstance(packet, Connect):
            if self.waits_for != CONNECT:
                raise ProtocolError(Reason.PROTOCOL_ERROR, "a second CONNECT")
            self._on_connect(packet)
        elif isinstance(packet, Auth):
            self._on_auth(packet)
        else:
            self._on_session_packet(packet)

    def _on_session_packet(self, packet: Packet) -> None:
        session = self.session
        assert session is not None
        if isinstance(packet, Puback):
            session.acknowledged(packet.packet_id)
        elif isinstance(packet, Pubrec):
            is_refused = packet.reason >= Reason.UNSPECIFIED_ERROR
            if not session.taken(packet.packet_id, is_refused) and not is_refused:
                reason = Reason.PACKET_IDENTIFIER_NOT_FOUND
                self.reply(encode(Pubrel(packet.packet_id, reason), self.version))
        elif isinstance(packet, Pubrel):
            self._on_pubrel(packet, session)
        elif isinstance(packet, Pubcomp):
            session.completed(packet.packet_id)
        elif isinstance(packet, Subscribe):
            self._on_subscribe(packet, session)
        elif isinstance(packet, Unsubscribe):
            self._on_unsubscribe(packet, session)
        elif isinstance(packet, Disconnect):
            self._on_disconnect(packet, session)
        else:
            assert isinstance(packet, Pingreq)
            self.reply(_PINGRESP)

    def _on_pubrel(self, packet: Pubrel, session: Session) -> None:
        appended = self.hub.appended
        reason = Reason.SUCCESS
        if session.received.pop(packet.packet_id, None) is None:
            reason = Reason.PACKET_IDENTIFIER_NOT_FOUND
        elif session.is_durable:
            self.hub.record(durable.Completed(self.client_id, packet.packet_id))
        self._settle(encode(Pubcomp(packet.packet_id, reason), self.version), appended)

    def _on_subscribe(self, packet: Subscribe, session: Session) -> None:
        appended = self.hub.appended
        reasons: list[int] = []
        problems: list[str] = []
        curious: list[str] = []  # those who get what is retained, after the SUBACK
        condition = condition_of(packet.properties)
        identifiers = packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else 0
        for wish in packet.filters:
            if self._rights is not None and not self._rights.may_subscribe(wish.pattern):
                reasons.append(Reason.NOT_AUTHORIZED)
                problems.append(f"not allowed to subscribe to {wish.pattern}")
                continue
            is_retained_wanted = self.broker.wants_retained(session, wish)
            refusal = self.broker.subscribe(session, wish, identifier, condition)
            if refusal is None and is_retained_wanted:
                curious.append(wish.pattern)
            if refusal is not None:
                reasons.append(refusal.reason)
                problems.append(refusal.problem)
            else:
                reasons.append(wish.qos)
        properties = self._explained("; ".join(dict.fromkeys(problems)))
        frame = self._fitting(
            encode(Suback(packet.packet_id, tuple(reasons), properties), self.version),
            encode(Suback(packet.packet_id, tuple(reasons)), self.version),
        )
        if self.hub.appended != appended or self._held:
            self._held += 1
            self.hub.hold(HeldSuback(self, frame, curious))
        else:
            self.subscribed(frame, curious)

    def subscribed(self, frame: bytes, curious: list[str]) -> None:
        """Send a SUBACK, and then what is retained."""
        session = self.session
        if session is not None:
            self.reply(frame)
            for name in dict.fromkeys(curious):
                self.broker.send_retained(session, name)

    def _on_unsubscribe(self, packet: Unsubscribe, session: Session) -> None:
        appended = self.hub.appended
        reasons = tuple(
            Reason.SUCCESS
            if self.broker.unsubscribe(session, pattern)
            else Reason.NO_SUBSCRIPTION_EXISTED
            for pattern in packet.patterns
        )
        self._settle(encode(Unsuback(packet.packet_id, reasons), self.version), appended)

    def _on_disconnect(self, packet: Disconnect, session: Session) -> None:
        expiry_s = packet.properties.session_expiry_s
        if expiry_s is not None:
            if expiry_s and not session.expiry_s:
                raise ProtocolError(
                    Reason.PROTOCOL_ERROR, "a session expiry in DISCONNECT and none in CONNECT"
                )
            session.expiry_s = expiry_s
        if self.connect is None:
            session.pull(_LAST_BYTES, self._control)
        self._close("by the client", is_will_wanted=packet.reason != Reason.SUCCESS)

    def _on_connect(self, connect: Connect) -> None:
        self.connect = connect
        self.version = connect.version
        self._explains = connect.properties.request_problem_information is not False
        self.packet_limit = connect.properties.maximum_packet_size or 0
        self.client_id = connect.client_id
        if not connect.client_id:
            if connect.version != V5 and not connect.clean_start:
                self._refuse(Reason.CLIENT_IDENTIFIER_NOT_VALID, "expected a client identifier")
                return
            self.client_id = self.broker.new_client_id()
        if connect.will is not None and len(connect.will.payload) > self.broker.limits.will_bytes:
            most = self.broker.limits.will_bytes
            self._refuse(Reason.PACKET_TOO_LARGE, f"a will of more than {most} bytes")
            return
        if connect.will is not None and self._is_deep(connect.will.topic):
            self._refuse(Reason.TOPIC_NAME_INVALID, "a will for a channel of too many levels")
            return
        method = connect.properties.authentication_method
        if method is not None:
            make = None if self.gate is None else self.gate.methods.get(method)
            if make is None:
                self._refuse(Reason.BAD_AUTHENTICATION_METHOD, f"{method!r} is not known here")
                return
            self._method = method
            self._exchange = make()
            self._step(connect.properties.authentication_data or b"")
        elif self.gate is not None:
            self.waits_for = LOGIN
            self.gate.logins.append(self)
        else:
            self._open(connect)

    def _on_auth(self, packet: Auth) -> None:
        if packet.properties.authentication_method != self._method or not self._method:
            raise ProtocolError(Reason.PROTOCOL_ERROR, "AUTH with another method than CONNECT")
        if self.waits_for == NOTHING:
            if packet.reason == Reason.REAUTHENTICATE:
                assert self.gate is not None
                self._exchange = self.gate.methods[self._method]()
            elif self._exchange is None:
                raise ProtocolError(Reason.PROTOCOL_ERROR, "AUTH without an exchange under way")
        elif packet.reason != Reason.CONTINUE_AUTHENTICATION:
            raise ProtocolError(Reason.PROTOCOL_ERROR, "expected AUTH to go on")
        self._step(packet.properties.authentication_data or b"")

    def _step(self, data: bytes) -> None:
        """One move of an enhanced authentication, at the start or again later."""
        exchange = self._exchange
        assert exchange is not None
        try:
            step = exchange.step(data)
        except ProtocolError as error:
            self.end(error.reason, error.problem)
            return
        properties = Properties(
            authentication_method=self._method, authentication_data=step.data or None
        )
        if step.rights is None:
            if self.waits_for == CONNECT:
                self.waits_for = EXCHANGE
            self.reply(encode(Auth(Reason.CONTINUE_AUTHENTICATION, properties), V5))
            return
        self._exchange = None
        self.user = step.user
        self._rights = step.rights.bound(user=self.user, client=self.client_id)
        self._routes = {}
        if self.waits_for == NOTHING:
            self.reply(encode(Auth(Reason.SUCCESS, properties), V5))
        else:
            assert self.connect is not None
            self._open(self.connect, properties)

    def _open(self, connect: Connect, authenticated: Properties = NO_PROPERTIES) -> None:
        """The client is in."""
        limits = self.broker.limits
        will = connect.will
        if will is not None and not self._may_publish(will.topic):
            self._refuse(Reason.NOT_AUTHORIZED, f"a will for {will.topic}")
            return
        if self.hub.counters.connections >= limits.connections:
            self._refuse(Reason.SERVER_BUSY, "too many connections")
            return
        appended = self.hub.appended
        opened = self.broker.open_session(self.client_id, is_clean=connect.clean_start)
        if opened is None:
            self._refuse(Reason.QUOTA_EXCEEDED, "too many sessions")
            return
        session, is_present = opened
        self.session = session
        self.waits_for = NOTHING
        self.connected_ms = self.hub.now_ms
        self.hub.counters.connected()
        asked = connect.properties
        if self.version == V5:
            expiry_s = asked.session_expiry_s or 0
        else:
            expiry_s = 0 if connect.clean_start else FOREVER
        session.version = self.version
        session.line = self
        self.broker.settle(session, expiry_s, will)
        keep_alive_s = connect.keep_alive_s
        if limits.keep_alive_s and (keep_alive_s == 0 or keep_alive_s > limits.keep_alive_s):
            keep_alive_s = limits.keep_alive_s
        self.keep_alive_ms = keep_alive_s * 1000
        self.watch()
        properties = NO_PROPERTIES
        if self.version == V5:
            properties = Properties(
                session_expiry_s=session.expiry_s if session.expiry_s != expiry_s else None,
                receive_maximum=limits.receive_maximum,
                maximum_packet_size=limits.packet_bytes,
                topic_alias_maximum=limits.topic_alias_maximum or None,
                assigned_client_id=None if connect.client_id else self.client_id,
                server_keep_alive_s=(
                    keep_alive_s if keep_alive_s != connect.keep_alive_s else None
                ),
                response_information=(
                    f"response/{self.client_id}" if asked.request_response_information else None
                ),
                authentication_method=authenticated.authentication_method,
                authentication_data=authenticated.authentication_data,
            )
        frame = encode(Connack(is_present, Reason.SUCCESS, properties), self.version)
        # Nothing may overtake the CONNACK: only then is the session told of this connection.
        if self.hub.appended != appended:
            self.hub.hold(HeldWelcome(self, frame))
        else:
            self.welcome(frame)

    def welcome(self, frame: bytes) -> None:
        """Send the CONNACK, and after it what the session has."""
        session = self.session
        connect = self.connect
        if session is None or connect is None or self.waits_for != NOTHING:
            return
        self._control.insert(0, frame)
        self.hub.wake(self)
        asked = connect.properties
        session.attach(
            self,
            self.version,
            asked.receive_maximum or 65_535,
            self.packet_limit,
            asked.topic_alias_maximum or 0,
        )
        self.connect = None

    def _refuse(self, reason: Reason, problem: str) -> None:
        """Answer CONNECT with a refusal."""
        properties = self._explained(problem) if self.version == V5 else NO_PROPERTIES
        self._control.append(encode(Connack(False, reason, properties), self.version))
        why = reason.name.lower().replace("_", " ")
        self.hub.counters.refused(why)
        self._close(f"{why}: {problem}" if problem else why, is_will_wanted=False)

    def _explained(self, problem: str) -> Properties:
        if not problem or not self._explains:
            return NO_PROPERTIES
        return Properties(reason_string=problem[:1_000])

    def _fitting(self, frame: bytes, short: bytes) -> bytes:
        """`frame` with its explanation, or without where the client takes no packet so large."""
        return short if 0 < self.packet_limit < len(frame) else frame

    def _close(self, why: str, *, is_will_wanted: bool) -> None:
        if self.waits_for == GONE:
            return
        was_open = self.waits_for == NOTHING
        self.waits_for = GONE
        self.reason = why
        self.is_closing = True
        self._partial = []
        self._routes = {}
        self._aliases = {}
        self.broker.timers.cancel(self._timer)
        session = self.session
        self.session = None
        if was_open:
            self.hub.counters.disconnected(why.partition(":")[0])
            if self.connect is not None:
                self._control = []  # it was not welcomed: nothing may come before a CONNACK
        if session is not None and session.line is self:
            self.broker.leave(session, is_will_wanted=is_will_wanted, expiry_s=session.expiry_s)
        self.hub.wake(self)


class HeldWelcome(HeldAnswer):
    """The CONNACK of a durable session."""

    def __init__(self, connection: Connection, frame: bytes) -> None:
        super().__init__(connection, frame)
        self.connection = connection

    def release(self) -> None:
        self.connection.welcome(self.frame)


class HeldSuback(HeldAnswer):
    """The SUBACK of a durable session."""

    def __init__(self, connection: Connection, frame: bytes, curious: list[str]) -> None:
        super().__init__(connection, frame)
        self.connection = connection
        self.curious = curious

    def release(self) -> None:
        self.connection.unhold()
        self.connection.subscribed(self.frame, self.curious)


class ConnectionTimer(Timer):
    """For a client that is silent: before its CONNECT, or for longer than its keep-alive."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection

    def fire(self, now_ms: int) -> None:
        connection = self.connection
        if connection.waits_for < NOTHING:
            connection.end(Reason.MAXIMUM_CONNECT_TIME, "no complete CONNECT in time")
        elif connection.is_silent(now_ms):
            connection.end(Reason.KEEP_ALIVE_TIMEOUT)
        else:
            connection.watch()
