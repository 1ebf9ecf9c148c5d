"""Clients that say exactly what a test wants said, and hear exactly what was answered.

A `Conversation` is one test's clients with names of their own, so that tests can share a broker.
Silence is heard without waiting: what a broker sends in answer to something done before comes
before the answer to a ping.
"""

from __future__ import annotations

import itertools
import socket
from types import TracebackType
from typing import Final, Self, TypeVar

import pytest

from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5, V311, Reason
from accord.core.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    TopicFilter,
    Unsuback,
    Unsubscribe,
    Will,
)
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from tests.brokers import IS_ACCORD, Broker

P = TypeVar("P")

PATIENCE_S: Final = 10.0 if IS_ACCORD else 3.0
NEVER_EXPIRES: Final = 0xFFFFFFFF

only_5: Final = pytest.mark.parametrize("version", [V5], ids=["5.0"])
only_311: Final = pytest.mark.parametrize("version", [V311], ids=["3.1.1"])

_numbers = itertools.count(1)


class ClosedError(Exception):
    """The broker closed the connection where a packet was expected."""


class Peer:
    """One connection of a client to the broker."""

    def __init__(self, broker: Broker, version: int, patience_s: float) -> None:
        self.version = version
        self.frame = b""
        """The last packet received, as it came."""
        self._packet_ids = itertools.count(1)
        self._socket = socket.create_connection((broker.host, broker.port), timeout=patience_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, *packets: Packet) -> None:
        """Everything in one write."""
        self.send_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> Packet:
        first = self._read(1)
        length, shift, header = 0, 0, first
        while True:
            byte = self._read(1)
            header += byte
            length |= (byte[0] & 0x7F) << shift
            shift += 7
            if byte[0] < 0x80:
                break
        body = self._read(length)
        self.frame = header + body
        return decode(first[0], body, self.version)

    def receive_rest(self) -> bytes:
        """All that comes until the broker closes the connection, as it comes."""
        data = b""
        try:
            while True:
                data += self._read(1)
        except ClosedError:
            return data

    def expect(self, kind: type[P], /, **fields: object) -> P:
        """The next packet is of this kind, with these fields."""
        packet = self.receive()
        assert isinstance(packet, kind), f"expected {kind.__name__}, got {packet}"
        for name, value in fields.items():
            assert getattr(packet, name) == value, f"expected {name}={value!r} in {packet}"
        return packet

    def expect_silence(self) -> None:
        """Nothing comes but what is asked for."""
        self.send(Pingreq())
        self.expect(Pingresp)

    def expect_closed(self) -> None:
        """The connection ends without a further packet."""
        with pytest.raises(ClosedError):
            pytest.fail(f"expected the end of the connection, got {self.receive()}")

    def expect_end(self, *reasons: Reason) -> None:
        """The broker ends the connection, in version 5 for one of these reasons.

        Saying so with DISCONNECT is a matter of courtesy in the standard, but not in Accord.
        """
        if self.version == V5:
            try:
                packet = self.receive()
            except ClosedError:
                assert not IS_ACCORD, f"expected DISCONNECT with {reasons}, got none"
                return
            assert isinstance(packet, Disconnect), f"expected Disconnect, got {packet}"
            assert packet.reason in reasons, f"expected one of {reasons}, got {packet}"
        self.expect_closed()

    def expect_refusal(self, return_code: int | None, *reasons: Reason) -> None:
        """CONNECT is refused; with None a 3.1.1 client gets no CONNACK."""
        try:
            packet = self.receive()
        except ClosedError:
            if IS_ACCORD:
                assert self.version == V311, f"expected CONNACK with {reasons}, got none"
                assert return_code is None, f"expected return code {return_code}, got no CONNACK"
            return
        assert isinstance(packet, Connack), f"expected Connack, got {packet}"
        assert not packet.session_present
        if self.version == V5:
            assert packet.reason in reasons, f"expected one of {reasons}, got {packet}"
        else:
            assert self.frame[3] == return_code, f"expected {return_code}, got {self.frame.hex()}"
        self.expect_closed()

    # Steps that most conversations share.

    def subscribe(
        self,
        *wanted: TopicFilter | str,
        qos: int = 0,
        properties: Properties = NO_PROPERTIES,
    ) -> Suback:
        filters = tuple(
            TopicFilter(each, qos) if isinstance(each, str) else each for each in wanted
        )
        packet_id = next(self._packet_ids)
        self.send(Subscribe(packet_id, filters, properties))
        return self.expect(Suback, packet_id=packet_id)

    def subscribed(
        self, *wanted: TopicFilter | str, qos: int = 0, properties: Properties = NO_PROPERTIES
    ) -> Self:
        """Subscribe, and be granted what was asked for."""
        answer = self.subscribe(*wanted, qos=qos, properties=properties)
        asked = tuple(qos if isinstance(each, str) else each.qos for each in wanted)
        assert answer.reasons == asked, f"expected {asked}, got {answer}"
        return self

    def unsubscribe(self, *patterns: str) -> Unsuback:
        packet_id = next(self._packet_ids)
        self.send(Unsubscribe(packet_id, patterns, NO_PROPERTIES))
        return self.expect(Unsuback, packet_id=packet_id)

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        *,
        qos: int = 1,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> None:
        """Publish and see it through: afterwards the broker has taken the message."""
        packet_id = next(self._packet_ids) if qos else 0
        self.send(Publish(topic, payload, qos, retain, False, packet_id, properties))
        if qos == 0:
            return self.expect_silence()
        answer: Puback | Pubrec
        if qos == 1:
            answer = self.expect(Puback, packet_id=packet_id)
        else:
            answer = self.expect(Pubrec, packet_id=packet_id)
            self.send(Pubrel(packet_id))
            self.expect(Pubcomp, packet_id=packet_id)
        assert answer.reason < 0x80, answer
        return None

    def take(self, topic: str, payload: bytes = b"", *, qos: int = 0, **fields: object) -> Publish:
        """The next packet is this message; see it through."""
        message = self.expect(Publish, topic=topic, payload=payload, qos=qos, **fields)
        self.settle(message)
        return message

    def settle(self, message: Publish) -> None:
        """Acknowledge a received message, up to the last packet of its flow."""
        if message.qos == 1:
            self.send(Puback(message.packet_id))
        elif message.qos == 2:
            self.send(Pubrec(message.packet_id))
            self.expect(Pubrel, packet_id=message.packet_id)
            self.send(Pubcomp(message.packet_id))

    def leave(
        self, reason: Reason = Reason.SUCCESS, properties: Properties = NO_PROPERTIES
    ) -> None:
        """Disconnect as a client should, and see the connection closed."""
        self.send(Disconnect(reason, properties))
        self.expect_closed()
        self.drop()

    def drop(self) -> None:
        """Vanish without a word."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                piece = self._socket.recv(min(size - len(data), 1 << 20))
            except ConnectionError:
                piece = b""
            except TimeoutError:
                pytest.fail(f"nothing came for {self._socket.gettimeout()} s")
            if not piece:
                raise ClosedError
            data += piece
        return data


class Conversation:
    """The clients of one test, by the parts they play."""

    def __init__(self, broker: Broker, version: int, patience_s: float = PATIENCE_S) -> None:
        self.broker = broker
        self.version = version
        self.patience_s = patience_s
        self.name = f"c{next(_numbers)}"
        self._peers: list[Peer] = []

    def open(self, version: int | None = None) -> Peer:
        """A connection on which nothing was said yet."""
        peer = Peer(self.broker, version or self.version, self.patience_s)
        self._peers.append(peer)
        return peer

    def client_id(self, part: str) -> str:
        return f"{self.name}-{part}"

    def connect(
        self,
        part: str,
        *,
        version: int | None = None,
        clean_start: bool = True,
        keep_alive_s: int = 0,
        will: Will | None = None,
        properties: Properties = NO_PROPERTIES,
    ) -> tuple[Peer, Connack]:
        peer = self.open(version)
        packet = Connect(
            client_id=self.client_id(part),
            version=peer.version,
            clean_start=clean_start,
            keep_alive_s=keep_alive_s,
            will=will,
            properties=properties,
        )
        peer.send(packet)
        answer = peer.expect(Connack)
        assert answer.reason == 0, answer
        return peer, answer

    def join(
        self,
        part: str,
        *,
        version: int | None = None,
        keep_alive_s: int = 0,
        will: Will | None = None,
        properties: Properties = NO_PROPERTIES,
    ) -> Peer:
        """A connected client with a fresh session."""
        return self.connect(
            part, version=version, keep_alive_s=keep_alive_s, will=will, properties=properties
        )[0]

    def stay(self, part: str, *, expect_session: bool, expiry_s: int = NEVER_EXPIRES) -> Peer:
        """A client with a session that outlives the connection; says whether there was one."""
        properties = NO_PROPERTIES
        if self.version == V5:
            properties = Properties(session_expiry_s=expiry_s)
        peer, answer = self.connect(part, clean_start=False, properties=properties)
        assert answer.session_present is expect_session
        return peer

    def end(self) -> None:
        for peer in self._peers:
            peer.drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
