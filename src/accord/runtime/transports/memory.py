"""In-process links for tests: no sockets, and the same order in every run.

A network can be silenced, like one with its cables cut: nothing arrives, and no end is notified.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from accord.runtime.transports.interface import IS_LOCAL, Factory, Listener

_HIGH: Final = 64 << 10
_READ_BYTES: Final = 256 << 10


class MemoryNetwork:
    """Addresses are any host and port; port 0 is replaced by a free one."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[str, int], Factory] = {}
        self._ends: list[MemoryConnection] = []
        self._last_port = 50_000
        self.is_silent = False

    async def listen(self, host: str, port: int, factory: Factory) -> Listener:
        if port == 0:
            self._last_port += 1
            port = self._last_port
        if (host, port) in self._listeners:
            raise OSError(98, "Address already in use")
        self._listeners[host, port] = factory
        return _MemoryListener(self._listeners, host, port)

    async def dial(self, host: str, port: int, factory: Factory) -> None:
        accept = self._listeners.get((host, port))
        if accept is None:
            raise ConnectionRefusedError(111, "Connection refused")
        dialer = MemoryConnection(self, f"{host}:{port}", factory())
        listener = MemoryConnection(self, "dialer", accept())
        dialer.set_peer(listener)
        listener.set_peer(dialer)
        self._ends += (dialer, listener)
        listener.start()
        dialer.start()

    def cut(self) -> None:
        """Break all connections."""
        for end in list(self._ends):
            end.abort()

    def silence(self, is_silent: bool) -> None:
        """Hold all data back, or release it again."""
        self.is_silent = is_silent
        for end in list(self._ends):
            end.schedule_read()

    def remove(self, end: MemoryConnection) -> None:
        if end in self._ends:
            self._ends.remove(end)


class _MemoryListener:
    def __init__(self, places: dict[tuple[str, int], Factory], host: str, port: int) -> None:
        self._listeners = places
        self.host = host
        self.port = port

    def close(self) -> None:
        self._listeners.pop((self.host, self.port), None)


class MemoryConnection(asyncio.Transport):
    """One end of a connection. Written data counts as buffered until the other end reads it."""

    def __init__(self, network: MemoryNetwork, other: str, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": other, IS_LOCAL: True})
        self._network = network
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._peer: MemoryConnection | None = None
        self._incoming: deque[bytes] = deque()  # an empty item means EOF
        self._waiting = 0
        self._high = _HIGH
        self._low = _HIGH // 4
        self._is_writing_paused = False
        self._is_reading = True
        self._is_read_due = False
        self._is_finished = False  # EOF was written
        self._is_closing = False
        self._is_disconnected = False

    def set_peer(self, other: MemoryConnection) -> None:
        self._peer = other

    def start(self) -> None:
        self._protocol.connection_made(self)

    def write(self, data: Any) -> None:
        other = self._peer
        if not data or other is None or self._is_finished or self._is_disconnected:
            return
        if other._is_disconnected and not self._network.is_silent:
            self._loop.call_soon(self._disconnect, ConnectionResetError("connection reset"))
            return
        self._waiting += len(data)
        other._incoming.append(bytes(data))
        other.schedule_read()
        if self._waiting > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        other = self._peer
        if not self._is_finished and other is not None:
            self._is_finished = True
            other._incoming.append(b"")
            other.schedule_read()

    def close(self) -> None:
        if not self._is_closing:
            self.write_eof()
            self._is_closing = True
            self._is_reading = False
            if self._waiting == 0:
                self._loop.call_soon(self._disconnect, None)

    def abort(self) -> None:
        other = self._peer
        self._is_closing = self._is_finished = True
        self._loop.call_soon(self._disconnect, None)
        if other is not None and not self._network.is_silent:
            self._loop.call_soon(other._disconnect, ConnectionResetError("connection reset"))

    def is_closing(self) -> bool:
        return self._is_closing or self._is_disconnected

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = not self._is_closing
        self.schedule_read()

    def is_reading(self) -> bool:
        return self._is_reading

    def get_write_buffer_size(self) -> int:
        return self._waiting

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH if high is None else high
        self._low = self._high // 4 if low is None else low

    def schedule_read(self) -> None:
        """Read what has arrived, at the end of this turn of the event loop."""
        if not self._is_read_due and self._incoming:
            self._is_read_due = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_read_due = False
        if self._is_disconnected or self._network.is_silent:
            return
        if not self._is_reading and not self._is_closing:
            return
        pieces: list[bytes] = []
        size = 0
        while self._incoming and self._incoming[0] and size < _READ_BYTES:
            pieces.append(self._incoming.popleft())
            size += len(pieces[-1])
        other = self._peer
        if size and other is not None:
            other._on_peer_read(size)
            if not self._is_closing:
                self._protocol.data_received(b"".join(pieces))
        elif self._incoming:
            self._incoming.popleft()
            if not self._protocol.eof_received() or self._is_closing:
                self.close()
                self._disconnect(None)
        self.schedule_read()

    def _on_peer_read(self, size: int) -> None:
        self._waiting -= size
        if self._is_writing_paused and self._waiting <= self._low:
            self._is_writing_paused = False
            self._loop.call_soon(self._resume_writing)
        if self._is_closing and self._waiting == 0:
            self._loop.call_soon(self._disconnect, None)

    def _resume_writing(self) -> None:
        if not self._is_disconnected:
            self._protocol.resume_writing()

    def _disconnect(self, error: Exception | None) -> None:
        if self._is_disconnected:
            return
        self._is_disconnected = True
        self._incoming.clear()
        self._network.remove(self)
        self._protocol.connection_lost(error)
