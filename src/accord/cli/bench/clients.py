"""The clients of a load: publishers and subscribers on non-blocking sockets."""

from __future__ import annotations

import socket
from collections import deque
from contextlib import suppress
from typing import Final

import numpy as np

from accord.cli.bench.frames import PacketRun, PacketTemplate, latencies_ns, replies, split
from accord.cli.bench.samples import Samples
from accord.cli.connection import ConnectionTarget, unreachable
from accord.core.model.errors import AccordError
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5, PacketType, Reason
from accord.core.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Pingreq,
    Suback,
    Subscribe,
    TopicFilter,
)
from accord.core.mqtt.properties import Properties
from accord.core.mqtt.wire import Framer

TIMEOUT_S: Final = 10.0
READ: Final = 1 << 18
MAX_REPLY: Final = 1 << 20

_FAILED: Final = 0x80
_PUBREL: Final = 0x62


class BenchError(AccordError):
    """The node did something that a measurement can't continue after."""


class BenchClient:
    """A client's connection; `_queue` is to be sent, `_rest` is an incomplete packet."""

    def __init__(self, target: ConnectionTarget, name: str) -> None:
        self.name = name
        self.watched = 0  # for the event loop
        self._queue: deque[memoryview] = deque()
        self._rest = b""
        address = target.address
        try:
            self.socket = socket.create_connection((address.host, address.port), TIMEOUT_S)
        except OSError as error:
            raise unreachable(error, address.url, address.host) from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        password = None if target.password is None else target.password.encode()
        connect = Connect(name, username=target.username, password=password)
        try:
            answer = self._request(connect)
            if not isinstance(answer, Connack) or answer.reason:
                raise BenchError(f"the node refused a connection: {_reason_text(answer)}")
        except BaseException:
            self.close()
            raise
        self.server = answer.properties

    def close(self) -> None:
        self.socket.close()

    @property
    def is_idle(self) -> bool:
        """Whether the kernel has accepted everything."""
        return not self._queue

    def put(self, data: bytes) -> None:
        self._queue.append(memoryview(data))

    def push(self) -> None:
        """Send as much as the kernel accepts."""
        while self._queue:
            first = self._queue.popleft()
            try:
                sent = self.socket.send(first)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                raise BenchError(f"the connection of {self.name} broke: {error}") from None
            if sent < len(first):
                self._queue.appendleft(first[sent:])
                return

    def take(self, now_ns: int) -> None:
        """Handle received data."""
        try:
            data = self.socket.recv(READ)
        except BlockingIOError:
            return
        except OSError as error:
            raise BenchError(f"the connection of {self.name} broke: {error}") from None
        if not data:
            raise BenchError(f"the node closed the connection of {self.name}")
        data = self._rest + data if self._rest else data
        runs, at = split(data)
        self._rest = data[at:]
        for run in runs:
            if run.kind == PacketType.DISCONNECT:
                raise BenchError(f"the node ended {self.name}: {_reason_text(_decoded(run))}")
            self.handle(run, now_ns)

    def handle(self, run: PacketRun, now_ns: int) -> None:
        raise NotImplementedError

    def _request(self, packet: Packet) -> Packet:
        """Send a packet on the still blocking socket and return its reply."""
        framer = Framer(MAX_REPLY)
        try:
            self.socket.sendall(encode(packet, V5))
            while True:
                data = self.socket.recv(READ)
                if not data:
                    raise BenchError(f"the node closed the connection of {self.name}")
                for head, body in framer.feed(data):
                    return decode(head, body, V5)
        except OSError as error:
            raise BenchError(f"the connection of {self.name} broke: {error}") from None


class BenchPublisher(BenchClient):
    """Counts events that were sent, acknowledged and refused."""

    def __init__(self, target: ConnectionTarget, name: str) -> None:
        super().__init__(target, name)
        self._window = min(self.server.receive_maximum or 65_535, 16_384)
        self.published = 0
        self.acknowledged = 0
        self.refused = 0
        self.is_fenced = True

    @property
    def room(self) -> int:
        """How many more events the window allows."""
        return self._window - (self.published - self.acknowledged)

    def publish(self, template: PacketTemplate, count: int, now_ns: int) -> None:
        self.put(template.packets(count, now_ns))
        self.published += count

    def fence(self) -> None:
        """Request a reply that follows the processing of everything sent."""
        self.is_fenced = False
        self.put(encode(Pingreq(), V5))

    def handle(self, run: PacketRun, now_ns: int) -> None:  # noqa: ARG002
        kind, packets = run.kind, run.packets
        if kind == PacketType.PINGRESP:
            self.is_fenced = True
            return
        failed = np.zeros(len(packets), bool)
        if packets.shape[1] > run.body_at + 2:
            failed = packets[:, run.body_at + 2] >= _FAILED
        self.refused += int(failed.sum())
        if kind == PacketType.PUBREC:
            self.acknowledged += int(failed.sum())
            self.put(replies(_PUBREL, run.ids(run.body_at)[~failed]))
        elif kind in (PacketType.PUBACK, PacketType.PUBCOMP):
            self.acknowledged += len(packets)


class BenchSubscriber(BenchClient):
    """Counts events and their latencies, and acknowledges them."""

    def __init__(
        self, target: ConnectionTarget, name: str, channel: str, qos: int, size: int
    ) -> None:
        super().__init__(target, name)
        self.delivered = 0
        self.last_ns = 0
        self.samples: Samples | None = None
        self._size = size
        answer = self._request(Subscribe(1, (TopicFilter(channel, qos),)))
        if not isinstance(answer, Suback) or answer.reasons[0] >= _FAILED:
            self.close()
            raise BenchError(f"the node refused a subscription: {_reason_text(answer)}")

    def handle(self, run: PacketRun, now_ns: int) -> None:
        if run.kind == PacketType.PUBREL:
            self.put(replies(PacketType.PUBCOMP << 4, run.ids(run.body_at)))
        elif run.kind == PacketType.PUBLISH:
            self.delivered += len(run.packets)
            self.last_ns = now_ns
            if self.samples is not None:
                self.samples.add(latencies_ns(run, self._size, now_ns))
            if qos := run.head >> 1 & 3:
                first = run.packets[0]
                id_at = (
                    run.body_at + 2 + int(first[run.body_at]) * 256 + int(first[run.body_at + 1])
                )
                kind = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
                self.put(replies(kind << 4, run.ids(id_at)))


def _decoded(run: PacketRun) -> Packet:
    body = run.packets[0, run.body_at :].tobytes()
    return decode(run.head, body, V5)


def _reason_text(packet: Packet) -> str:
    """The reason that a packet gives."""
    reasons = getattr(packet, "reasons", None) or (getattr(packet, "reason", 0),)
    properties = getattr(packet, "properties", Properties())
    text = properties.reason_string
    with suppress(ValueError):
        name = Reason(reasons[0]).name.lower().replace("_", " ")
        return f"{name}: {text}" if text else name
    return f"reason {reasons[0]:#x}"
