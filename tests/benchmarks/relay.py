"""A broker of a few lines, in a thread: just enough MQTT for the load generator to run against."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

from benchmarks.mqtt import PUBACK

from accord.core.mqtt.wire import varint_bytes

_START_S: Final = 10


class Topics:
    """Who subscribed to what; forgets every `loses_every`th delivery, if that is not 0."""

    def __init__(self, loses_every: int) -> None:
        self.subscribers: dict[bytes, list[Client]] = {}
        self._loses_every = loses_every
        self._deliveries = 0

    def is_lost(self) -> bool:
        self._deliveries += 1
        return self._loses_every > 0 and self._deliveries % self._loses_every == 0


class Client(asyncio.Protocol):
    def __init__(self, topics: Topics, open_clients: set[Client]) -> None:
        self.topics = topics
        self.open_clients = open_clients
        self.data = b""
        self.level = 4
        self.packet_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.open_clients.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.open_clients.discard(self)
        for subscribers in self.topics.subscribers.values():
            if self in subscribers:
                subscribers.remove(self)

    def data_received(self, data: bytes) -> None:
        self.data += data
        start = 0
        while (split := _split(self.data, start)) is not None:
            body, start, kind = split
            self._handle(kind, body)
        self.data = self.data[start:]

    def _handle(self, kind: int, body: bytes) -> None:
        match kind >> 4:
            case 1:
                self.level = body[6]
                properties = b"\x00" if self.level == 5 else b""
                self.transport.write(frame(0x20, b"\x00\x00" + properties))
            case 3:
                self._publish(kind >> 1 & 3, body)
            case 8:
                self._subscribe(body)
            case 12:
                self.transport.write(b"\xd0\x00")

    def _subscribe(self, body: bytes) -> None:
        at = 2
        if self.level == 5:
            at += 1 + body[2]
        size = int.from_bytes(body[at : at + 2])
        self.topics.subscribers.setdefault(body[at + 2 : at + 2 + size], []).append(self)
        properties = b"\x00" if self.level == 5 else b""
        self.transport.write(frame(0x90, body[:2] + properties + b"\x00"))

    def _publish(self, qos: int, body: bytes) -> None:
        end = 2 + int.from_bytes(body[:2])
        rest = body[end + 2 :] if qos else body[end:]
        if qos:
            self.transport.write(PUBACK + body[end : end + 2])
        for subscriber in self.topics.subscribers.get(body[2:end], []):
            if not self.topics.is_lost():
                subscriber.deliver(qos, body[:end], rest)

    def deliver(self, qos: int, topic: bytes, rest: bytes) -> None:
        self.packet_id = self.packet_id % 65_535 + 1
        number = self.packet_id.to_bytes(2) if qos else b""
        self.transport.write(frame(0x30 | qos << 1, topic + number + rest))


@contextmanager
def relay(*, loses_every: int = 0) -> Iterator[int]:
    """Its port, while it runs."""
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()
    ports: list[int] = []

    async def serve() -> None:
        topics, clients = Topics(loses_every), set[Client]()
        server = await loop.create_server(lambda: Client(topics, clients), "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        await stop.wait()
        server.close()
        for client in list(clients):
            client.transport.abort()
        await asyncio.sleep(0)

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    try:
        assert ready.wait(_START_S)
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def frame(head: int, body: bytes) -> bytes:
    return bytes([head]) + varint_bytes(len(body)) + body


def _split(data: bytes, start: int) -> tuple[bytes, int, int] | None:
    """The body of the frame at `start`, where the next begins, and its first byte."""
    length, shift, at = 0, 0, start + 1
    while at < len(data):
        length |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            end = at + length
            return (data[at:end], end, data[start]) if end <= len(data) else None
    return None
