"""The clients of a load, on non-blocking sockets, and MQTT packets in bulk.

At hundreds of thousands of events a second there is no time to handle each packet. But consecutive
packets are mostly alike: a *run* is a sequence of packets with the same header, and so of the same
size. A run is an array with a row per packet, in which packet identifiers and timestamps are
columns, read or written all at once.
"""

from __future__ import annotations

import socket
from collections import deque
from contextlib import suppress
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accord.core.model.errors import AccordError
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5, PacketType, Reason
from accord.core.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Pingreq,
    Publish,
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


class LoadError(AccordError):
    """The node did something that a measurement can't continue after."""


class LoadTarget(NamedTuple):
    """A node over TCP, and the credentials."""

    host: str
    port: int
    username: str | None = None
    password: bytes | None = None


class LoadClient:
    """A client's connection; `_queue` is to be sent, `_rest` is an incomplete packet."""

    def __init__(self, target: LoadTarget, name: str) -> None:
        self.name = name
        self.watched = 0  # for the event loop
        self._queue: deque[memoryview] = deque()
        self._rest = b""
        self.socket = socket.create_connection((target.host, target.port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connect = Connect(name, username=target.username, password=target.password)
        try:
            answer = self._request(connect)
            if not isinstance(answer, Connack) or answer.reason:
                raise LoadError(f"the node refused a connection: {_reason_text(answer)}")
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
                raise LoadError(f"the connection of {self.name} broke: {error}") from None
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
            raise LoadError(f"the connection of {self.name} broke: {error}") from None
        if not data:
            raise LoadError(f"the node closed the connection of {self.name}")
        data = self._rest + data if self._rest else data
        runs, at = split(data)
        self._rest = data[at:]
        for run in runs:
            if run.kind == PacketType.DISCONNECT:
                raise LoadError(f"the node ended {self.name}: {_reason_text(_decoded(run))}")
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
                    raise LoadError(f"the node closed the connection of {self.name}")
                for head, body in framer.feed(data):
                    return decode(head, body, V5)
        except OSError as error:
            raise LoadError(f"the connection of {self.name} broke: {error}") from None


class LoadPublisher(LoadClient):
    """Counts events that were sent, acknowledged and refused."""

    def __init__(self, target: LoadTarget, name: str) -> None:
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


class LoadSubscriber(LoadClient):
    """Counts events and their latencies, and acknowledges them."""

    def __init__(self, target: LoadTarget, name: str, channel: str, qos: int, size: int) -> None:
        super().__init__(target, name)
        self.delivered = 0
        self.last_ns = 0
        self.samples: Samples | None = None
        self._size = size
        answer = self._request(Subscribe(1, (TopicFilter(channel, qos),)))
        if not isinstance(answer, Suback) or answer.reasons[0] >= _FAILED:
            self.close()
            raise LoadError(f"the node refused a subscription: {_reason_text(answer)}")

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


Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]

STAMP: Final = 8  # bytes of the timestamp at the start of each payload
MAX_ID: Final = 65_535
CHUNK_BYTES: Final = 1 << 16

_FIRST_LOOK: Final = 16


class PacketRun(NamedTuple):
    """Packets of one kind: their first byte, the offset of the body, and all bytes."""

    head: int
    body_at: int
    packets: Bytes

    @property
    def kind(self) -> int:
        return self.head >> 4

    def ids(self, at: int) -> Bytes:
        return self.packets[:, at : at + 2]


def split(data: bytes) -> tuple[list[PacketRun], int]:
    """Return the runs of whole packets in `data`, and where the first incomplete one starts."""
    array = np.frombuffer(data, np.uint8)
    found: list[PacketRun] = []
    at, look = 0, _FIRST_LOOK
    while (header := _header(data, at)) is not None:
        body_at, size = header
        whole = min((len(data) - at) // size, look)
        if not whole:
            break
        rows = array[at : at + whole * size].reshape(whole, size)
        alike = (rows[:, :body_at] == rows[0, :body_at]).all(axis=1)
        count = whole if alike.all() else int(alike.argmin())
        found.append(PacketRun(data[at], body_at, rows[:count]))
        at += count * size
        # A long look-ahead pays only if runs are long.
        look = look * 4 if count == whole else _FIRST_LOOK
    return found, at


def _header(data: bytes, at: int) -> tuple[int, int] | None:
    """Relative start of the body of the packet at `at`, and the packet's size."""
    length = shift = 0
    for place in range(at + 1, min(at + 5, len(data))):
        length |= (data[place] & 0x7F) << shift
        if data[place] < 0x80:
            start = place + 1 - at
            return start, start + length
        shift += 7
    return None


def replies(first: int, ids: Bytes) -> bytes:
    """An acknowledgement with this first byte for each of the packet identifiers."""
    packets = np.empty((len(ids), 4), np.uint8)
    packets[:, 0], packets[:, 1], packets[:, 2:] = first, 2, ids
    return packets.tobytes()


def latencies_ns(run: PacketRun, size: int, now_ns: int) -> Numbers:
    """Age of the payloads of published packets, `size` bytes at the end of each."""
    end = run.packets.shape[1]
    stamps = np.ascontiguousarray(run.packets[:, end - size : end - size + STAMP])
    sent_ns: Numbers = stamps.view(">i8").astype(np.int64).reshape(-1)
    return now_ns - sent_ns


class PacketTemplate:
    """Up to `count` packets of one event; only times and packet identifiers are filled in."""

    def __init__(self, channel: str, size: int, qos: int) -> None:
        packet = encode(Publish(channel, bytes(size), qos, packet_id=1 if qos else 0), V5)
        self.packet_size = len(packet)
        self.count = max(CHUNK_BYTES // self.packet_size, 1)
        self._packets = np.tile(np.frombuffer(packet, np.uint8), (self.count, 1))
        self._stamp_at = len(packet) - size
        self._id_at = self._stamp_at - 3 if qos else None  # followed by an empty property list
        self._next_id = 0

    def packets(self, count: int, now_ns: int) -> bytes:
        chosen = self._packets[:count]
        stamp = np.frombuffer(now_ns.to_bytes(STAMP, "big"), np.uint8)
        chosen[:, self._stamp_at : self._stamp_at + STAMP] = stamp
        if self._id_at is not None:
            ids = (np.arange(self._next_id, self._next_id + count) % MAX_ID + 1).astype(">u2")
            chosen[:, self._id_at : self._id_at + 2] = ids.view(np.uint8).reshape(count, 2)
            self._next_id = (self._next_id + count) % MAX_ID
        return chosen.tobytes()


LIMIT: Final = 2_000_000


class Samples:
    """Holds all values up to `limit`, then every second, fourth, … of them; `most` is exact."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._parts: list[Numbers] = []
        self._held = 0
        self.most = 0

    def __len__(self) -> int:
        return self._held

    def add(self, values: Numbers) -> None:
        self._parts.append(values)
        self._held += len(values)
        self.most = max(self.most, int(values.max(initial=0)))
        while self._held > self._limit:
            self._parts = [np.concatenate(self._parts)[::2].copy()]
            self._held = len(self._parts[0])

    def percentile(self, share: int) -> float:
        """The value below which `share` percent lie; 0 if empty."""
        return float(np.percentile(np.concatenate(self._parts), share)) if self._held else 0.0
