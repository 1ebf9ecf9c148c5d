"""One network connection: bytes in, frames out, and a client's session in between.

`receive` handles all packets of one read in one loop. Consecutive messages that only need
forwarding are not decoded: they are forwarded as runs of the publisher's own frames.
Acknowledgements are read in ranges.

A client's error closes its own connection, with a reason, and affects nothing else.

A connection owns its parts, `MqttHandshake`, `PublishHandler` and `ReplyQueue`: it reads packets
and dispatches them to those and to the session. Its states are a table in `connection_state`.
"""

from __future__ import annotations

from typing import Any, Final

from accord.core.broker import session_records
from accord.core.broker.broker import Broker, ClientConnection, SubscriptionPredicate
from accord.core.broker.broker_context import CommitWaiter
from accord.core.broker.connection_state import (
    AWAITING_CONNECT,
    AWAITING_LOGIN,
    BUFFERED,
    CLOSED,
    IGNORED,
    OPEN,
    REFUSALS,
    STATES,
)
from accord.core.broker.delivery_accounting import waiting_ms
from accord.core.broker.handshake import LoginGate, MqttHandshake
from accord.core.broker.publish_handler import PublishHandler
from accord.core.broker.reply_queue import MAX_PENDING_REPLIES, NO_FRAMES, ReplyQueue
from accord.core.broker.runs import ACK_BYTES, CutThrough
from accord.core.broker.session import MqttSession
from accord.core.broker.subscription_admission import SubackResult
from accord.core.monitoring.statistics import ClientStatus
from accord.core.monitoring.top import ClientReading
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import (
    REASONS,
    V5,
    V311,
    PacketType,
    ProtocolError,
    Reason,
    malformed,
    violation,
)
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
from accord.core.mqtt.properties import ENDED
from accord.core.native import acknowledged, single
from accord.core.router.fan_out import Selection
from accord.core.router.rights import Rights
from accord.core.scheduling.pacing import Gate
from accord.core.scheduling.queue_entries import QueueEntry
from accord.core.scheduling.timers import Timer

LOST: Final = "connection lost"

_PUBACK: Final = b"\x40\x02"
_PINGRESP: Final = b"\xd0\x00"
_CONNECT_5: Final = b"\x00\x04MQTT\x05"
_COSTLY_FILTERS: Final = 10
_COSTLY_RETAINED: Final = 100
_MAX_PACKETS: Final = 5_000  # handled per call
_GATHERED_BYTES: Final = 65_536
_MAX_FINAL_BYTES: Final = 262_144  # sent to a client after its DISCONNECT
_MAX_EARLY_BYTES: Final = 1_000_000  # buffered from a client before login
_NO_PARTS: Final[list[bytes]] = []  # shared and never modified


class Connection(ClientConnection):
    """The server side of one client's connection."""

    __slots__ = (
        "_expected_size",
        "_partial",
        "_partial_size",
        "_timer",
        "_was_costly",
        "address",
        "broker",
        "can_cut_through",
        "claimed_user",
        "client_id",
        "connect",
        "connected_ms",
        "context",
        "handle",
        "handshake",
        "has_more",
        "has_rest",
        "is_closing",
        "is_plain",
        "is_stalled",
        "keep_alive_ms",
        "reason",
        "received_ms",
        "rights",
        "session",
        "state",
        "user",
        "version",
    )

    def __init__(self, broker: Broker, gate: LoginGate | None, address: str) -> None:
        super().__init__()
        self.broker = broker
        self.context = context = broker.context
        self.address = address
        self.handle: Any = None  # for the driver's use
        self.state = AWAITING_CONNECT
        self.replies = ReplyQueue(self, context)
        # As long as it is needed: for an authentication method until the end, else until CONNACK.
        self.handshake: MqttHandshake | None = MqttHandshake(self, gate)
        self.version = V311
        self.client_id = ""
        self.user = ""  # the verified user, if any
        self.claimed_user = ""
        self.rights: Rights | None = None  # None: unrestricted
        self.session: MqttSession | None = None
        self.connect: Connect | None = None  # until the CONNACK is sent
        self.connected_ms = 0
        self.is_closing = False
        self.reason = ""  # why it was closed, for logs and counters
        # Whether the last read has more packets, deferred so that other connections are served.
        self.has_rest = False
        # Whether reading is paused until most of the client's tasks are done.
        self.is_stalled = False
        self.has_more = False  # whether `take` left something, even if it can't be sent yet
        # Whether the last read had one message for one receiver; the next is likely the same.
        self.can_cut_through = False
        # Whether the last read had nothing but forwarded messages and acknowledgements.
        self.is_plain = False
        self._partial = _NO_PARTS
        self._partial_size = 0
        self._expected_size = 0  # bytes until the partial packet is complete, as far as known
        self._was_costly = False  # whether the last packet was slow for its size
        self.received_ms = context.now_ms
        self.keep_alive_ms = 0
        self._timer = ClientTimer(self)
        broker.timers.set(self._timer, context.now_ms + broker.limits.connect_timeout_s * 1000)

    def change_state(self, state: int) -> None:
        before = STATES[self.state]
        assert state in before.successors, f"{before.name} to {STATES[state].name}"
        self.state = state

    def open(self, session: MqttSession, *, acks_event_ids: bool) -> None:
        """Let the client use its session; called by the handshake."""
        self.change_state(OPEN)
        self.session = session
        self.publisher = PublishHandler(self, session, acks_event_ids=acks_event_ids)
        self.connected_ms = self.context.now_ms
        self.context.counters.count_connect()
        self.context.changes.client_connected(
            session.name, self.user, self.address, now_ms=self.context.now_ms
        )

    def admit(
        self, rights: Rights | None, *, now_ms: int, user: str = "", is_busy: bool = False
    ) -> None:
        """Conclude a login with the client's rights, or refuse it with None.

        `user` is empty for a client that was not verified.
        """
        if self.state == AWAITING_LOGIN:
            self.context.now_ms = now_ms
            assert self.handshake is not None
            self.handshake.on_login(rights, user, is_busy=is_busy)
            self._resume_reading(now_ms)

    def end(self, reason: Reason, problem: str = "", ended: str = "") -> None:
        """Close the connection from this side with a reason.

        `ended` is the filter of a subscription that ends with it: MQTT has no other way to report
        that.
        """
        if self.state == CLOSED:
            return
        if self.state < OPEN:
            is_version_known = self.connect is not None or self.version == V5
            if is_version_known or reason == Reason.UNSUPPORTED_PROTOCOL_VERSION:
                assert self.handshake is not None
                self.handshake.refuse(reason, problem)
                return
        elif self.version == V5:
            replies = self.replies
            sent = reason if reason in REASONS[PacketType.DISCONNECT] else Reason.UNSPECIFIED_ERROR
            facts = ((ENDED, ended),) if ended else ()
            packet = Disconnect(sent, replies.reason_properties(problem, facts))
            replies.reply(replies.encode_fitting(packet, Disconnect(sent), V5))
        self.close(reason.name.lower().replace("_", " "), problem, is_will_wanted=True)

    def on_closed(self, *, now_ms: int) -> None:
        """The network connection was closed."""
        self.context.now_ms = now_ms
        self.close(LOST, is_will_wanted=True)

    def close(self, why: str, problem: str = "", *, is_will_wanted: bool) -> None:
        """Close the connection; replies that are ready can still be taken.

        No reference cycle remains: nothing that the connection refers to refers to it.
        """
        if self.state == CLOSED:
            return
        was_open = self.state == OPEN
        self.change_state(CLOSED)
        self.reason = f"{why}: {problem}" if problem else why
        self.is_closing = True
        self._partial = _NO_PARTS
        self.broker.timers.cancel(self._timer)
        self._timer.connection = None
        self.handshake = None
        if self.publisher is not None:
            self.publisher.clear_fan_outs()
            self.publisher = None
        self.replies.close()
        session = self.session
        self.session = None
        if was_open:
            self.context.counters.count_disconnect(why)
            self.context.changes.client_disconnected(
                self.client_id, self.user, why, now_ms=self.context.now_ms
            )
            if self.connect is not None:
                self.replies.clear()  # nothing may be sent before a CONNACK
        if session is not None and session.connection is self:
            self.broker.detach_session(
                session, is_will_wanted=is_will_wanted, expiry_s=session.expiry_s
            )
        self.context.wake(self)

    def set_keep_alive_timer(self) -> None:
        """Set the keep-alive timer, with half of the interval as grace."""
        if self.keep_alive_ms:
            self.broker.timers.set(self._timer, self._timeout_ms())
        else:
            self.broker.timers.cancel(self._timer)

    def on_timer(self, now_ms: int) -> None:
        """Close the connection if it is silent: before its CONNECT, or beyond its keep-alive."""
        if self.state < OPEN:
            self.end(Reason.MAXIMUM_CONNECT_TIME, "no complete CONNECT in time")
        elif now_ms < self._timeout_ms():
            self.set_keep_alive_timer()
        elif self.wants_data():
            self.end(Reason.KEEP_ALIVE_TIMEOUT)
        else:
            self.received_ms = now_ms  # reading was paused: the interval starts when it resumes
            self.set_keep_alive_timer()

    def _timeout_ms(self) -> int:
        return self.received_ms + self.keep_alive_ms + self.keep_alive_ms // 2

    def take(self, bytes_wanted: int) -> list[bytes]:
        """The next frames to send: replies, then the session's; for 0 bytes only replies."""
        frames = self.take_uncounted(bytes_wanted)
        self.count_taken()
        return frames

    def count_taken(self) -> None:
        if self.session is not None:
            self.session.count_pulled()

    def take_uncounted(self, bytes_wanted: int) -> list[bytes]:
        """As `take`, for callers that call `count_taken` themselves once the frames are written."""
        if self.connect is not None and self.state == OPEN:
            return []  # nothing before the CONNACK
        replies = self.replies
        frames = replies.frames
        if frames:
            replies.frames = NO_FRAMES
            self.context.counters.packets_sent += replies.count
            replies.count = 0
        else:
            frames = []
        session = self.session
        self.has_more = False
        if bytes_wanted > 0 and session is not None:
            outbox = session.outbox
            if outbox.bytes or outbox.tracked:
                session.pull(bytes_wanted, frames)
                self.has_more = outbox.bytes > 0 or outbox.tracked > 0
        return frames

    def peek(self, gate: Gate | None) -> QueueEntry | None:
        """The entry the session would send first, if it may send now."""
        if self.connect is not None or self.session is None:
            return None
        return self.session.peek(gate)

    def has_waiting(self) -> bool:
        if self.replies.frames:
            return True
        return self.session is not None and self.session.has_waiting()

    def is_urgent(self, importance: int) -> bool:
        """Whether sending must not wait for tasks of this importance.

        Entries that are no more important than the tasks may accumulate, to save writes.
        """
        if self.replies.frames or self.session is None:
            return True
        outbox = self.session.outbox
        size = outbox.bytes + outbox.tracked_bytes
        return not 0 < size < _GATHERED_BYTES or outbox.highest() > importance

    def wants_data(self) -> bool:
        """Whether to read more: not while too many replies are pending."""
        replies = self.replies
        return (
            not self.has_rest
            and not self.is_stalled
            and replies.count < MAX_PENDING_REPLIES
            and replies.held < MAX_PENDING_REPLIES
        )

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
        context = self.context
        publisher = self.publisher
        size = len(data)
        if (
            publisher is None
            or publisher.topics_at != context.router.changes
            or context.overload_cause
        ):
            return None
        version = self.version
        qos = data[0] >> 1 & 1
        found = single(data, version == V5, publisher.topics[qos])
        if found is None:
            return None
        selection: Selection
        selection, expiry_s, packet_id = found
        copy = selection.only
        if copy is None or selection.fan_out.pending:
            return None
        # Only sessions take frames.
        receiver: MqttSession = copy.receiver  # type: ignore[assignment]
        port = receiver.connection
        outbox = receiver.outbox
        if (
            port is None
            or port.write is None
            or receiver.dialect != version
            or outbox.bytes
            or outbox.tracked
            or not port.link.can_send(size)
            or expiry_s == 0
        ):
            return None
        # At QoS 1 the receiver's copy must be QoS 1 too, and no earlier reply may be pending.
        if qos:
            replies = self.replies
            if (
                copy.qos == 0
                or self.write is None
                or replies.frames
                or replies.held
                or replies.unacknowledged
                or not receiver.has_window()
            ):
                return None
        port.link.sent(size)
        if qos:
            self.link.sent(ACK_BYTES)
        self.can_cut_through = True
        self.received_ms = now_ms
        context.now_ms = now_ms
        context.number += 1
        made = CutThrough(
            port,
            data,
            qos,
            packet_id,
            selection,
            publisher.session,
            now_ms,
            context.number,
            expiry_s,
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

    def _receive_all(self, data: bytes, now_ms: int) -> int:
        """Handle the complete packets in `data`; returns the offset of the rest."""
        at = 0
        size = len(data)
        publisher = self.publisher
        limit = self.broker.limits.packet_bytes if publisher is not None else self._packet_limit()
        packets = 0
        mistake: ProtocolError | None = None
        self._expected_size = 0
        self.is_plain = True
        if self.state == AWAITING_CONNECT and size:
            # Before the packet is complete: a client of another protocol may never complete one.
            self._check_acceptable(data[0] >> 4)
        while at + 2 <= size:
            first = data[at]
            publisher = self.publisher
            if publisher is not None:
                # Frequent packets are handled as runs.
                count = 0
                if first == 0x30 or first == 0x32:  # noqa: PLR1714 - faster than a set
                    frames = publisher.scan(data, at, limit, first)
                    if frames is not None:
                        count = frames.count
                        at = frames.end
                        self._expected_size = frames.wanted
                        publisher.on_run(frames)
                elif first == 0x40:
                    ranges, end = acknowledged(data, at)
                    count = (end - at) // 4
                    at = end
                    for packet_id, number in ranges:
                        publisher.session.on_pubacks(packet_id, number)
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
            if 0x30 <= first < 0x40 and publisher is not None:
                publisher.on_publish(data, at, body, end, now_ms)
                if self.is_stalled:
                    at = end
                    self.has_rest = at < size
                    break
            else:
                others = STATES[self.state].others
                if others is IGNORED:
                    return size  # closed by a message before
                if others is BUFFERED:
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
            assert self.handshake is not None
            self.handshake.on_connect(packet)
        elif isinstance(packet, Auth):
            if self.handshake is None:
                raise violation("AUTH with another method than CONNECT")
            self.handshake.on_auth(packet)
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
                self.replies.reply(encode(Pubrel(packet.packet_id, reason), self.version))
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
            self.replies.reply(_PINGRESP)

    def _on_pubrel(self, packet: Pubrel, session: MqttSession) -> None:
        appended = self.context.appended
        reason = Reason.SUCCESS
        if session.received.pop(packet.packet_id, None) is None:
            reason = Reason.PACKET_IDENTIFIER_NOT_FOUND
        elif session.is_durable:
            self.context.record(session_records.Completed(self.client_id, packet.packet_id))
        self.replies.reply_when_durable(
            encode(Pubcomp(packet.packet_id, reason), self.version), appended
        )

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
        for requested in packet.filters:
            if decided is not None and requested.pattern in decided:
                answer = decided[requested.pattern]
                if answer.facts and len(packet.filters) > 1:
                    facts.append(("filter", requested.pattern))
                facts += answer.facts
                if answer.problem:
                    reasons.append(answer.reason)
                    problems.append(answer.problem)
                    continue
            if self.rights is not None and not self.rights.may_subscribe(requested.pattern):
                reasons.append(Reason.NOT_AUTHORIZED)
                problem = f"no right to subscribe to {requested.pattern}"
                problems.append(
                    f"{problem}; ask for it (may.subscribe, may_not.subscribe in accord.toml)"
                )
                continue
            if session.is_durable and self.context.overload_cause:
                reasons.append(Reason.QUOTA_EXCEEDED)
                problems.append(self.context.overload_cause)
                if admitting is not None:
                    admitting.release_refused(session, requested.pattern)
                continue
            # With history requested, retained messages are part of it.
            is_retained_wanted = since is None and self.broker.wants_retained(session, requested)
            refusal = self.broker.subscribe(
                session, requested, identifier, condition, since, expecting
            )
            if refusal is None and is_retained_wanted:
                curious.append(requested.pattern)
            if refusal is not None:
                reasons.append(refusal.reason)
                problems.append(refusal.problem)
                if admitting is not None:
                    admitting.release_refused(session, requested.pattern)
            else:
                reasons.append(requested.qos)
        properties = self.replies.reason_properties(
            "; ".join(dict.fromkeys(problems)), tuple(facts)
        )
        short = Suback(packet.packet_id, tuple(reasons))
        suback = Suback(packet.packet_id, tuple(reasons), properties)
        frame = self.replies.encode_fitting(suback, short, self.version)
        if self.context.appended != appended or self.replies.held:
            self.replies.held += 1
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
            requested.pattern
            for requested in packet.filters
            if (self.rights is None or self.rights.may_subscribe(requested.pattern))
            and self.broker.refusal_of(session, requested, condition) is None
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
            self.replies.reply(frame)
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
        self.replies.reply_when_durable(
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
            frames = list(self.replies.frames)
            session.pull(_MAX_FINAL_BYTES, frames)
            session.count_pulled()
            self.replies.frames = frames
        self.close("by the client", is_will_wanted=packet.reason != Reason.SUCCESS)


class HeldSuback(CommitWaiter):
    """The SUBACK of a durable session."""

    def __init__(self, connection: Connection, frame: bytes, retained_patterns: list[str]) -> None:
        super().__init__()
        self.connection = connection
        self.frame = frame
        self.retained_patterns = retained_patterns

    def release(self) -> None:
        self.connection.replies.held -= 1
        self.connection.send_suback(self.frame, self.retained_patterns)


class ClientTimer(Timer):
    """The timer of a connection, for its CONNECT and its keep-alive."""

    __slots__ = ("connection",)

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection: Connection | None = connection  # None once it is closed

    def fire(self, now: int) -> None:
        if self.connection is not None:
            self.connection.on_timer(now)


def client_status(session: MqttSession) -> ClientStatus:
    outbox = session.outbox
    found = session.connection
    connection = found if isinstance(found, Connection) else None
    return ClientStatus(
        client=session.name,
        user="" if connection is None else connection.user,
        address="" if connection is None else connection.address,
        protocol="MQTT 5.0" if session.version == V5 else "MQTT 3.1.1",
        is_connected=connection is not None,
        connected_ms=None if connection is None else connection.connected_ms,
        subscriptions=len(session.subscriptions),
        queued_messages=sum(outbox.depth()),
        queued_bytes=outbox.bytes + outbox.tracked_bytes,
        received=session.published,
        sent=session.sent,
        shed=session.shed,
        replaced=session.replaced,
    )


def client_reading(session: MqttSession, now_ms: int) -> ClientReading:
    """State of a client and its link, with counts of what was sent."""
    connection = session.connection
    link = None if connection is None else connection.link
    outbox = session.outbox
    return ClientReading(
        client=session.name,
        user=session.owner,
        is_connected=connection is not None,
        sent=session.sent,
        sent_bytes=session.sent_bytes,
        shed=session.shed,
        replaced=session.replaced,
        queued_messages=sum(outbox.depth()),
        queued_bytes=outbox.bytes + outbox.tracked_bytes,
        waiting_ms=waiting_ms(outbox, now_ms),
        link_kbps=link.rate_bps / 1_000 if link is not None and link.rate_bps else None,
        limit_kbps=link.limit_bps / 1_000 if link is not None and link.limit_bps else None,
        rtt_ms=link.rtt_ms if link is not None and link.rtt_ms else None,
    )
