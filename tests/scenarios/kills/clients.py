"""Clients with durable sessions that come back whenever their node does.

They keep their side of the session in memory, as the standard asks: a publisher sends what is not
acknowledged again, marked as a duplicate, and a subscriber remembers which QoS 2 messages it has.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import Connack, Connect, Packet
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from accord.core.mqtt.wire import Framer
from tests.brokers import HOST

EXPIRY_S: Final = 86_400
_PACKET_BYTES: Final = 1_000_000
_RETRY_S: Final = 0.02
_FLUSH_S: Final = 0.02


class Client:
    """One session, over as many connections as it takes."""

    def __init__(self, name: str, port: int, *, version: int = V5, window: int = 0) -> None:
        self.name = name
        self.problems: list[str] = []
        self.connects = 0
        self.is_connected = False
        self._port = port
        self._version = version
        self._window = window  # how many messages it takes at a time, 0 for any number
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def resume(self) -> None:
        """The session goes on: say again what may have been lost."""

    def handle(self, packet: Packet) -> None:
        raise NotImplementedError

    async def act(self) -> None:
        """What the client does by itself while it is connected."""

    def send(self, packet: Packet) -> None:
        self.send_bytes(encode(packet, self._version))

    def send_bytes(self, data: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)

    async def _run(self) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection(HOST, self._port)
            except OSError:
                await asyncio.sleep(_RETRY_S)
                continue
            self._writer = writer
            acting: asyncio.Task[None] | None = None
            try:
                framer = await self._connect(reader)
                acting = asyncio.create_task(self.act())
                while data := await reader.read(65_536):
                    self._take(framer, data)
            except OSError:
                pass  # the node was killed
            finally:
                self.is_connected = False
                self._writer = None
                writer.transport.abort()
                if acting is not None:
                    acting.cancel()
                    await asyncio.gather(acting, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader) -> Framer:
        properties = NO_PROPERTIES
        if self._version == V5:
            properties = Properties(session_expiry_s=EXPIRY_S, receive_maximum=self._window or None)
        self.send(Connect(self.name, self._version, clean_start=False, properties=properties))
        framer = Framer(_PACKET_BYTES)
        frames: list[tuple[int, bytes]] = []
        while not frames:
            data = await reader.read(65_536)
            if not data:
                raise ConnectionResetError
            frames = framer.feed(data)
        welcome = decode(*frames[0], self._version)
        assert isinstance(welcome, Connack), welcome
        if welcome.reason:
            self.problems.append(f"{self.name}: refused, {welcome}")
            raise ConnectionRefusedError
        if self.connects and not welcome.session_present:
            self.problems.append(f"{self.name}: its session is gone")
        self.connects += 1
        self.is_connected = True
        self.resume()
        for frame in frames[1:]:
            self.handle(decode(*frame, self._version))
        return framer

    def _take(self, framer: Framer, data: bytes) -> None:
        for frame in framer.feed(data):
            self.handle(decode(*frame, self._version))


class Answers:
    """Packets that a client does not send at once, so that a crash comes between."""

    def __init__(self, client: Client, *, is_lazy: bool) -> None:
        self._client = client
        self._is_lazy = is_lazy
        self._waiting: list[Packet] = []

    def add(self, packet: Packet) -> None:
        if self._is_lazy:
            self._waiting.append(packet)
        else:
            self._client.send(packet)

    def clear(self) -> None:
        self._waiting.clear()

    async def flush_often(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_S)
            for packet in self._waiting:
                self._client.send(packet)
            self._waiting.clear()
