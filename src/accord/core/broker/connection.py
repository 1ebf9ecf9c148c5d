"""One network connection: bytes in, frames out, and a client's session in between.

`receive` handles all packets of one read in one loop. Consecutive messages that only need
forwarding are not decoded: they are forwarded as runs of the publisher's own frames.
Acknowledgements are read in ranges.

A client's error closes its own connection, with a reason, and affects nothing else.

A connection is built in layers: `reply_queue`, `publish_handler`, `handshake`, and this module,
which reads packets and dispatches them to those and to the session.
"""

from __future__ import annotations

from typing import Any, Final

from accord.core.broker import session_records
from accord.core.broker.broker import Broker, SubscriptionPredicate
from accord.core.broker.broker_context import HeldReply
from accord.core.broker.connection_state import (
    AWAITING_CONNECT,
    BUFFERED,
    CLOSED,
    OPEN,
    REFUSALS,
    STATES,
)
from accord.core.broker.handshake import LoginGate, MqttHandshake
from accord.core.broker.runs import ACK_BYTES, CutThrough
from accord.core.broker.session import MqttSession
from accord.core.broker.suback_results import SubackResult
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5, PacketType, ProtocolError, Reason, malformed, violation
from accord.core.mqtt.packets import (
    Auth,
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
from accord.core.native import acknowledged, single
from accord.core.router.fan_out import Selection

_PUBACK: Final = b"\x40\x02"
_PINGRESP: Final = b"\xd0\x00"
_CONNECT_5: Final = b"\x00\x04MQTT\x05"
_COSTLY_FILTERS: Final = 10
_COSTLY_RETAINED: Final = 100
_MAX_PACKETS: Final = 5_000  # handled per call
_MAX_FINAL_BYTES: Final = 262_144  # sent to a client after its DISCONNECT
_MAX_EARLY_BYTES: Final = 1_000_000  # buffered from a client before login
_NO_PARTS: Final[list[bytes]] = []  # shared and never modified


class Connection(MqttHandshake):
    __slots__ = (
        "_expected_size",
        "_partial",
        "_partial_size",
        "_was_costly",
        "handle",
        "is_plain",
    )

    def __init__(self, broker: Broker, gate: LoginGate | None, address: str) -> None:
        super().__init__(broker, gate, address)
        self.handle: Any = None  # for the driver's use
        self._partial = _NO_PARTS
        self._partial_size = 0
        self._expected_size = 0  # bytes until the partial packet is complete, as far as known
        # Whether the last read had nothing but forwarded messages and acknowledgements.
        self.is_plain = False
        self._was_costly = False  # whether the last packet was slow for its size

    def receive(self, data: bytes, *, now_ms: int) -> None:
        """Handle bytes read from the network."""
        if self.state == CLOSED:
            return
        self.context.now_ms = now_ms
        self.received_ms = now_ms
        self.context.counters.bytes_received += len(data)
        if self._partial:
            self._partial.append(data)
            self._partial_size += len(data)
            if self._partial_size < self._expected_size or self.has_rest:
                return
            data = b"".join(self._partial)
            self._partial = _NO_PARTS
        try:
            rest = self._receive_all(data, now_ms)
            if rest < len(data):
                self._keep_rest(data, rest)
        except ProtocolError as error:
            self.end(error.reason, error.problem)

    def cut_through(self, data: bytes, now_ms: int) -> CutThrough | None:
        """Prepare a read of one clean frame for immediate writing; None if it must be queued.

        Called only while no task is queued. If it fails, `can_cut_through` is cleared until a run
        shows that the next read may qualify.
        """
        self.can_cut_through = False
        hub = self.context
        publisher = self.session
        size = len(data)
        if (
            self.state != OPEN
            or self._topics_at != hub.router.changes
            or hub.overload_cause
            or publisher is None
        ):
            return None
        version = self.version
        qos = data[0] >> 1 & 1
        found = single(data, version == V5, self._topics[qos])
        if found is None:
            return None
        selection: Selection = found[0]
        _, expiry_s, packet_id = found
        copy = selection.only
        if copy is None or selection.fan_out.pending:
            return None
        # Only sessions take frames.
        receiver: MqttSession = copy.receiver  # type: ignore[assignment]
        line = receiver.connection
        outbox = receiver.outbox
        if (
            line is None
            or line.write is None
            or receiver.dialect != version
            or outbox.bytes
            or outbox.tracked
            or not line.link.can_send(size)
            or expiry_s == 0
        ):
            return None
        # At QoS 1 the receiver's copy must be QoS 1 too, and no earlier reply may be pending.
        if qos and (
            copy.qos == 0
            or self.write is None
            or self._control
            or self._held
            or self._unacknowledged
            or not receiver.has_window()
        ):
            return None
        line.link.sent(size)
        if qos:
            self.link.sent(ACK_BYTES)
        self.can_cut_through = True
        self.received_ms = now_ms
        hub.now_ms = now_ms
        hub.number += 1
        made = CutThrough(
            line, data, qos, packet_id, selection, publisher, now_ms, hub.number, expiry_s
        )
        if qos:
            receiver.track(made)
        self.broker.cut_throughs.add(made)
        return made

    def try_ack(self, data: bytes, now_ms: int) -> bool:
        """Handle a read that is a single PUBACK, if it has no further effect."""
        session = self.session
        if (
            data[:2] != _PUBACK
            or session is None
            or self._partial
            or self.state != OPEN
            or session.is_durable
            or session.outbox.tracked
            or not session.on_puback(data[2] << 8 | data[3])
        ):
            return False
        self.received_ms = now_ms
        counters = self.context.counters
        counters.bytes_received += len(data)
        counters.packets_received += 1
        return True

    def resume(self, *, now_ms: int) -> None:
        """Continue with deferred packets, unless the client is stalled by its tasks."""
        if self.has_rest and not self.is_stalled:
            self.context.now_ms = now_ms
            self.has_rest = False
            self._resume_reading(now_ms)

    def _resume_reading(self, now_ms: int) -> None:
        early = b"".join(self._partial)
        self._partial = _NO_PARTS
        if not early:
            return
        try:
            self._keep_rest(early, self._receive_all(early, now_ms))
        except ProtocolError as error:
            self.end(error.reason, error.problem)

    def _keep_rest(self, data: bytes, rest: int) -> None:
        """Keep the beginning of an incomplete packet."""
        if rest < len(data) and self.state != CLOSED:
            kept = data[rest:] if rest else data
            self._partial = [kept]
            self.can_cut_through = False
            self._partial_size = len(kept)

    def _close(self, why: str, *, is_will_wanted: bool) -> None:
        super()._close(why, is_will_wanted=is_will_wanted)
        self._partial = _NO_PARTS
        self._clear_fan_outs()

    def _receive_all(self, data: bytes, now_ms: int) -> int:
        """Handle the complete packets in `data`; returns the offset of the rest."""
        at = 0
        size = len(data)
        is_open = self.state == OPEN
        limit = self.broker.limits.packet_bytes if is_open else self._packet_limit()
        packets = 0
        mistake: ProtocolError | None = None
        self._expected_size = 0
        self.is_plain = True
        if self.state == AWAITING_CONNECT and size:
            # Before the packet is complete: a client of another protocol may never complete one.
            self._check_acceptable(data[0] >> 4)
        while at + 2 <= size:
            first = data[at]
            if self.state == OPEN:
                # Frequent packets are handled as runs.
                count = 0
                if first == 0x30 or first == 0x32:  # noqa: PLR1714 - faster than a set
                    frames = self._scan(data, at, limit, first)
                    if frames is not None:
                        count = frames.count
                        at = frames.end
                        self._expected_size = frames.wanted
                        self._on_run(frames)
                elif first == 0x40:
                    ranges, end = acknowledged(data, at)
                    count = (end - at) // 4
                    at = end
                    if count:
                        self._on_pubacks(ranges)
                if count:
                    packets += count
                    if self.is_stalled:
                        self.has_rest = at < size
                        break
                    continue
            self.is_plain = False
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
                self._expected_size = end - at
                break
            packets += 1
            if 0x30 <= first < 0x40 and self.state == OPEN:
                self._on_publish(data, at, body, end, now_ms)
                if self.is_stalled:
                    at = end
                    self.has_rest = at < size
                    break
            else:
                if STATES[self.state].others is BUFFERED:
                    if size - at > _MAX_EARLY_BYTES:
                        raise ProtocolError(Reason.PACKET_TOO_LARGE, "too much before the login")
                    self._expected_size = size + 1
                    packets -= 1
                    break
                self._on_packet(first, data[body:end])
                limit = self._packet_limit()
                if self._was_costly or packets > _MAX_PACKETS:
                    self._was_costly = False
                    at = end
                    self.has_rest = at < size
                    break
            at = end
            if self.state == CLOSED:
                return size
        self.context.counters.packets_received += packets
        if mistake is not None:
            raise mistake  # only now, so that the packets before it take effect
        return at

    def _on_pubacks(self, ranges: list[tuple[int, int]]) -> None:
        session = self.session
        assert session is not None
        for first, count in ranges:
            session.on_pubacks(first, count)

    def _packet_limit(self) -> int:
        """Maximum packet size; smaller before login."""
        limits = self.broker.limits
        if self.state == OPEN:
            return limits.packet_bytes
        return min(limits.packet_bytes, _MAX_EARLY_BYTES + limits.will_bytes)

    def _check_acceptable(self, kind: int) -> None:
        refusal = REFUSALS[self.state][kind]
        if refusal:
            raise violation(refusal)

    def _on_packet(self, first: int, body: bytes) -> None:
        kind = first >> 4
        self._check_acceptable(kind)
        if kind == PacketType.CONNECT and body[:7] == _CONNECT_5:
            self.version = V5  # so that the refusal carries a reason
        packet = decode(first, body, self.version)
        if isinstance(packet, Connect):
            self._on_connect(packet)
        elif isinstance(packet, Auth):
            self._on_auth(packet)
        else:
            self._on_session_packet(packet)

    def _on_session_packet(self, packet: Packet) -> None:
        session = self.session
        assert session is not None
        if isinstance(packet, Puback):
            session.on_puback(packet.packet_id)
        elif isinstance(packet, Pubrec):
            is_refused = packet.reason >= Reason.UNSPECIFIED_ERROR
            if not session.on_pubrec(packet.packet_id, is_refused) and not is_refused:
                reason = Reason.PACKET_IDENTIFIER_NOT_FOUND
                self.reply(encode(Pubrel(packet.packet_id, reason), self.version))
        elif isinstance(packet, Pubrel):
            self._on_pubrel(packet, session)
        elif isinstance(packet, Pubcomp):
            session.on_pubcomp(packet.packet_id)
        elif isinstance(packet, Subscribe):
            self._on_subscribe(packet, session)
        elif isinstance(packet, Unsubscribe):
            self._on_unsubscribe(packet, session)
        elif isinstance(packet, Disconnect):
            self._on_disconnect(packet, session)
        else:
            assert isinstance(packet, Pingreq)
            self.reply(_PINGRESP)

    def _on_pubrel(self, packet: Pubrel, session: MqttSession) -> None:
        appended = self.context.appended
        reason = Reason.SUCCESS
        if session.received.pop(packet.packet_id, None) is None:
            reason = Reason.PACKET_IDENTIFIER_NOT_FOUND
        elif session.is_durable:
            self.context.record(session_records.Completed(self.client_id, packet.packet_id))
        self._reply_when_durable(encode(Pubcomp(packet.packet_id, reason), self.version), appended)

    def _on_subscribe(
        self,
        packet: Subscribe,
        session: MqttSession,
        decided: dict[str, SubackResult] | None = None,
    ) -> None:
        appended = self.context.appended
        reasons: list[int] = []
        problems: list[str] = []
        facts: list[tuple[str, str]] = []
        curious: list[str] = []  # patterns that get retained messages after the SUBACK
        condition = self.broker.predicate_of(packet.properties)
        since = self.broker.history_start(packet.properties) if packet.properties.user else None
        expecting = None
        if packet.properties.user and self.broker.quality is not None:
            expecting = self.broker.quality.parse_expectations(packet.properties)
        self._was_costly = condition.is_new or len(packet.filters) > _COSTLY_FILTERS
        admitting = self.broker.admission
        if admitting is not None and decided is None:
            patterns = self._admissible(packet, session, condition)
            decided = admitting.request(self, session, packet, condition, patterns)
            if decided is None:
                return  # other nodes decide
        identifiers = packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else 0
        for wish in packet.filters:
            if decided is not None and wish.pattern in decided:
                answer = decided[wish.pattern]
                if answer.facts and len(packet.filters) > 1:
                    facts.append(("filter", wish.pattern))
                facts += answer.facts
                if answer.problem:
                    reasons.append(answer.reason)
                    problems.append(answer.problem)
                    continue
            if self._rights is not None and not self._rights.may_subscribe(wish.pattern):
                reasons.append(Reason.NOT_AUTHORIZED)
                problem = f"no right to subscribe to {wish.pattern}"
                problems.append(
                    f"{problem}; ask for it (may.subscribe, may_not.subscribe in accord.toml)"
                )
                continue
            if session.is_durable and self.context.overload_cause:
                reasons.append(Reason.QUOTA_EXCEEDED)
                problems.append(self.context.overload_cause)
                if admitting is not None:
                    admitting.release_refused(session, wish.pattern)
                continue
            # With history requested, retained messages are part of it.
            is_retained_wanted = since is None and self.broker.wants_retained(session, wish)
            refusal = self.broker.subscribe(session, wish, identifier, condition, since, expecting)
            if refusal is None and is_retained_wanted:
                curious.append(wish.pattern)
            if refusal is not None:
                reasons.append(refusal.reason)
                problems.append(refusal.problem)
                if admitting is not None:
                    admitting.release_refused(session, wish.pattern)
            else:
                reasons.append(wish.qos)
        properties = self._reason_properties("; ".join(dict.fromkeys(problems)), tuple(facts))
        frame = self._fit_limit(
            encode(Suback(packet.packet_id, tuple(reasons), properties), self.version),
            encode(Suback(packet.packet_id, tuple(reasons)), self.version),
        )
        if self.context.appended != appended or self._held:
            self._held += 1
            self.context.hold(HeldSuback(self, frame, curious))
        else:
            self.send_suback(frame, curious)

    def _admissible(
        self, packet: Subscribe, session: MqttSession, condition: SubscriptionPredicate
    ) -> list[str]:
        """The patterns that only a lack of resources could still exclude."""
        if session.is_durable and self.context.overload_cause:
            return []
        return [
            wish.pattern
            for wish in packet.filters
            if (self._rights is None or self._rights.may_subscribe(wish.pattern))
            and self.broker.refusal_of(session, wish, condition) is None
        ]

    def on_decided(self, packet: Subscribe, results: dict[str, SubackResult]) -> None:
        """Complete a SUBSCRIBE once other nodes have replied."""
        session = self.session
        if session is not None:
            self._on_subscribe(packet, session, results)

    def send_suback(self, frame: bytes, retained_patterns: list[str]) -> None:
        """Send a SUBACK, then retained messages."""
        session = self.session
        if session is not None:
            self.reply(frame)
            sent = sum(
                self.broker.send_retained(session, name)
                for name in dict.fromkeys(retained_patterns)
            )
            self._was_costly = self._was_costly or sent > _COSTLY_RETAINED

    def _on_unsubscribe(self, packet: Unsubscribe, session: MqttSession) -> None:
        appended = self.context.appended
        reasons = tuple(
            Reason.SUCCESS
            if self.broker.unsubscribe(session, pattern)
            else Reason.NO_SUBSCRIPTION_EXISTED
            for pattern in packet.patterns
        )
        self._reply_when_durable(
            encode(Unsuback(packet.packet_id, reasons), self.version), appended
        )

    def _on_disconnect(self, packet: Disconnect, session: MqttSession) -> None:
        expiry_s = packet.properties.session_expiry_s
        if expiry_s is not None:
            if expiry_s and not session.expiry_s:
                raise violation("a session expiry in DISCONNECT and none in CONNECT")
            session.expiry_s = expiry_s
        if self.connect is None and not self.link.capacity_bps():
            # Not on a slow link: it would be busy for a client that has left.
            self._control = list(self._control)
            session.pull(_MAX_FINAL_BYTES, self._control)
            session.count_pulled()
        self._close("by the client", is_will_wanted=packet.reason != Reason.SUCCESS)


class HeldSuback(HeldReply):
    """The SUBACK of a durable session."""

    def __init__(self, connection: Connection, frame: bytes, retained_patterns: list[str]) -> None:
        super().__init__(connection, frame)
        self.connection = connection
        self.retained_patterns = retained_patterns

    def release(self) -> None:
        self.connection.release_held()
        self.connection.send_suback(self.frames, self.retained_patterns)
