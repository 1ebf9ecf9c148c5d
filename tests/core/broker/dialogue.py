"""Clients around a broker without a network: each packet sent is answered before the next line.

A `Table` is what a driver is for a node: it lets the broker record to a log, hands its frames to
the peers, and says when something is on disk. Nothing happens but what a test says.
"""

from __future__ import annotations

import itertools
from typing import Final, Self

from accord.core.broker.broker import Broker
from accord.core.broker.broker_context import ConnectionPort
from accord.core.broker.connection import Connection
from accord.core.broker.delivery import QUEUED
from accord.core.broker.handshake import LoginGate
from accord.core.broker.runs import ACK_BYTES, MessageRun
from accord.core.broker.session import MqttSession
from accord.core.broker.session_recovery import RecoveredState, restore, snapshot
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    TopicFilter,
    Will,
)
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from accord.core.mqtt.wire import Framer
from accord.core.router.limits import Limits
from accord.core.router.rights import EVERYTHING, Rights

START_MS: Final = 1_000_000
LIMITS: Final = Limits()
_WRITE_BYTES: Final = 1_000


class Peer:
    """One connection of a client."""

    def __init__(self, table: Table, version: int) -> None:
        self.table = table
        self.version = version
        self.connection = Connection(table.broker, table.gate, "test")
        self.connection.write = self.hears
        self.is_closed = False
        self.is_slow = False
        """Whether it takes only what a test asks the connection for."""
        self.data = b""
        """All that came, as it came."""
        self._framer = Framer(1 << 30)
        self._packets: list[Packet] = []
        self._packet_ids = itertools.count(1)

    def send(self, *packets: Packet) -> Self:
        """Everything in one read of the broker's."""
        return self.send_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def send_bytes(self, data: bytes) -> Self:
        if not (self.table.cuts_through and self._cut_through(data)):
            self.receive(data)
            self.table.turn()
        return self

    def _cut_through(self, data: bytes) -> bool:
        """What a driver does where nothing waits for its turn."""
        connection = self.connection
        if len(data) == ACK_BYTES and connection.try_ack(data, self.table.now_ms):
            return True
        found = connection.can_cut_through and connection.cut_through(data, self.table.now_ms)
        if not found:
            return False
        self.table.peers[found.connection].hears(found.frame)
        if found.qos:
            self.hears(found.ack())
        self.table.cut_throughs += 1
        return True

    def receive(self, data: bytes) -> None:
        """Let the broker read `data`, without a turn for it to answer."""
        self.connection.receive(data, now_ms=self.table.now_ms)
        self._go_on()

    def admit(self, rights: Rights | None, *, user: str = "", is_busy: bool = False) -> None:
        """Answer a login, without a turn."""
        self.connection.admit(rights, now_ms=self.table.now_ms, user=user, is_busy=is_busy)
        self._go_on()

    def _go_on(self) -> None:
        while self.connection.has_rest and not self.connection.is_stalled:
            self.connection.resume(now_ms=self.table.now_ms)

    def hear(self) -> list[Packet]:
        """What came since the last time."""
        packets, self._packets = self._packets, []
        return packets

    def expect(self, *packets: Packet) -> None:
        assert self.hear() == list(packets)

    def drop(self) -> None:
        """Vanish without a word."""
        self.is_closed = True
        self.connection.on_closed(now_ms=self.table.now_ms)
        self.table.turn()

    def subscribe(
        self, *wanted: TopicFilter | str, qos: int = 0, properties: Properties = NO_PROPERTIES
    ) -> Self:
        """Subscribe, and be granted what was asked for, whatever else comes."""
        filters = tuple(
            TopicFilter(each, qos) if isinstance(each, str) else each for each in wanted
        )
        packet_id = next(self._packet_ids)
        self.send(Subscribe(packet_id, filters, properties))
        self.table.commit()
        answer = Suback(packet_id, tuple(each.qos for each in filters))
        assert answer in self._packets
        self._packets.remove(answer)
        return self

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> int:
        """Send a PUBLISH; gives its packet identifier, 0 for QoS 0."""
        packet_id = next(self._packet_ids) if qos else 0
        self.send(Publish(topic, payload, qos, retain, False, packet_id, properties))
        return packet_id

    def hears(self, data: bytes) -> None:
        self.data += data
        for first, body in self._framer.feed(data):
            self._packets.append(decode(first, body, self.version))


class Table:
    """A broker with its clients and its disk."""

    def __init__(
        self,
        limits: Limits = LIMITS,
        *,
        is_durable: bool = False,
        gate: LoginGate | None = None,
        kept: list[str] | None = None,
        now_ms: int = START_MS,
    ) -> None:
        names = (f"client-{number}" for number in itertools.count(1))
        self.broker = Broker(
            limits,
            now_ms=now_ms,
            kept=kept,
            is_durable=is_durable,
            new_client_id=lambda: next(names),
        )
        self.hub = self.broker.context
        self.gate = gate
        self.now_ms = now_ms
        self.log: list[bytes] = []
        self.turns: list[tuple[int, int]] = []
        self.cuts_through = False  # whether what comes alone does
        self.cut_throughs = 0
        """After each turn that recorded something: the position, and the length of the log."""
        self.peers: dict[ConnectionPort, Peer] = {}

    def open(self, version: int = V5) -> Peer:
        """A connection on which nothing was said yet."""
        peer = Peer(self, version)
        self.peers[peer.connection] = peer
        return peer

    def connect(
        self,
        client_id: str,
        version: int = V5,
        *,
        clean: bool = True,
        expiry_s: int = 0,
        keep_alive_s: int = 0,
        will: Will | None = None,
        properties: Properties | None = None,
    ) -> Peer:
        """A client that asked to come in."""
        if properties is None:
            is_staying = version == V5 and expiry_s > 0
            properties = Properties(session_expiry_s=expiry_s) if is_staying else NO_PROPERTIES
        connect = Connect(client_id, version, clean, keep_alive_s, will=will, properties=properties)
        return self.open(version).send(connect)

    def join(
        self,
        client_id: str,
        version: int = V5,
        *,
        clean: bool = True,
        expiry_s: int = 0,
        keep_alive_s: int = 0,
        will: Will | None = None,
        properties: Properties | None = None,
        is_present: bool = False,
    ) -> Peer:
        """A client that is in; everything recorded so far is on disk then."""
        peer = self.connect(
            client_id,
            version,
            clean=clean,
            expiry_s=expiry_s,
            keep_alive_s=keep_alive_s,
            will=will,
            properties=properties,
        )
        if self.gate is not None:
            self.gate.logins.remove(peer.connection)
            peer.admit(EVERYTHING)
        self.commit()
        packets = peer.hear()
        answer = packets.pop(0)
        assert isinstance(answer, Connack), answer
        assert (answer.reason, answer.session_present) == (0, is_present)
        peer._packets = packets
        return peer

    def after_crash(self, records: list[bytes]) -> tuple[Table, RecoveredState]:
        """The node as it comes back when `records` are what is left of its log."""
        table = Table(self.broker.limits, is_durable=True, now_ms=self.now_ms)
        restored = restore(table.broker, records, now_ms=self.now_ms)
        table.log = list(records)
        table.turns.append((0, len(records)))
        return table, restored

    def compact(self) -> None:
        """Replace the log by a snapshot of the present state."""
        self.commit()
        self.log = snapshot(self.broker)
        self.turns = [(self.hub.appended, len(self.log))]

    def session(self, client_id: str) -> MqttSession:
        return self.broker.sessions[client_id]

    def _work(self) -> None:
        """Run all tasks, and let those be read from again who had to wait for them."""
        while self.broker.run_task():
            for peer in list(self.peers.values()):
                peer.connection.resume(now_ms=self.now_ms)

    def turn(self) -> None:
        """What a driver does after it read: see to the log, and send what there is to send."""
        hub = self.hub
        self._work()
        if hub.appended > (self.turns[-1][0] if self.turns else 0):
            self.log += hub.state_records
            hub.state_records = []
            self.turns.append((hub.appended, len(self.log)))
        while hub.dirty:
            dirty, hub.dirty = hub.dirty, []
            for line in dirty:
                line.is_dirty = False
                if not self.peers[line].is_slow:
                    self._flush(self.peers[line])

    def commit(self, position: int | None = None) -> None:
        """Everything up to `position` is on disk, or all there is."""
        self.turn()
        self.hub.advance_committed(self.hub.appended if position is None else position)
        self.turn()

    def on_disk(self) -> int:
        """How many records of the log are on disk for sure."""
        lengths = [length for position, length in self.turns if position <= self.hub.committed]
        return lengths[-1] if lengths else 0

    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.now_ms += ms
        self.broker.advance(now_ms=self.now_ms)
        self.turn()

    def check_invariants(self) -> None:
        self.broker.router.check_invariants()
        for session in self.broker.sessions.values():
            session.check_invariants()
            outbox = session.outbox
            queued = [each for each in session.unacknowledged.values() if each.stage == QUEUED]
            runs = [each for each in outbox.tracked_entries() if isinstance(each, MessageRun)]
            assert outbox.tracked == len(queued) + sum(run.count for run in runs)
            assert outbox.tracked_bytes == sum(each.size for each in (*queued, *runs))
            assert sum(outbox.bytes_waiting()) == outbox.bytes + outbox.tracked_bytes
        for peer in self.peers.values():
            if peer.connection.session is not None and peer.connection.connect is None:
                assert not peer.connection.has_waiting(), "something to send was forgotten"

    def _flush(self, peer: Peer) -> None:
        while frames := peer.connection.take(_WRITE_BYTES):
            if not peer.is_closed:
                peer.hears(b"".join(frames))
        if peer.connection.is_closing and not peer.is_closed:
            peer.is_closed = True
            peer.connection.on_closed(now_ms=self.now_ms)
