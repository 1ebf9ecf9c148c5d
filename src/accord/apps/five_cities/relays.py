"""Emulated links between cities on one machine: TCP relays with a delay.

A connection to a relay is connected to the relay's target. Bytes reach the other end `delay_ms`
later, in order, even if the delay changes meanwhile. A link can fail in two ways. When cut, it
breaks its connections, and new ones as soon as they are made: both ends know at once. When silent,
it drops everything, as if a cable were torn: the ends have to detect it. Bytes in transit are lost
in both cases.

Each direction of a connection has at most one timer, for the next bytes due. The queue is bounded:
when it is full, reading pauses, as in a congested network.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

HOST: Final = "127.0.0.1"
WAITING_BYTES: Final = 4 << 20  # of one direction; then reading pauses until half is delivered
MAX_CONNECTIONS: Final = 64

OPEN: Final = 0
CUT: Final = 1
SILENT: Final = 2


class Relay:
    """One link. Connections to it wait until its target is known."""

    def __init__(
        self,
        delay_ms: float,
        *,
        jitter_ms: float = 0.0,
        random: Callable[[], float] | None = None,
    ) -> None:
        if delay_ms < 0 or jitter_ms < 0:
            raise ValueError(f"expected delays of at least 0, got {delay_ms} and {jitter_ms} ms")
        self.delay_ms = delay_ms
        self.state = OPEN
        self.port = 0
        self._jitter_ms = jitter_ms if random is not None else 0.0
        self._random = random or (lambda: 0.0)
        self._target: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None
        self._pairs: dict[_Pair, None] = {}

    async def start(self) -> int:
        """Start listening; returns the port to dial."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    def set_target(self, port: int) -> None:
        """Set the port on which the target listens."""
        self._target.set_result(port)

    def slow_down(self, delay_ms: float) -> None:
        """Change the delay of everything sent from now on."""
        if delay_ms < 0:
            raise ValueError(f"expected a delay of at least 0, got {delay_ms} ms")
        self.delay_ms = delay_ms

    def cut(self) -> None:
        self.state = CUT
        self._break()

    def silence(self) -> None:
        self.state = SILENT
        for pair in self._pairs:
            pair.discard()

    def heal(self) -> None:
        """Accept new connections again; connections that existed while silent are closed."""
        if self.state == SILENT:
            self._break()
        self.state = OPEN

    async def close(self) -> None:
        self._break()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        self._target.cancel()

    # ------------------------------------------------------------------------------ for its pairs

    def wait_s(self) -> float:
        return (self.delay_ms + self._jitter_ms * self._random()) / 1_000

    async def target(self) -> int:
        return await asyncio.shield(self._target)

    def on_closed(self, pair: _Pair) -> None:
        self._pairs.pop(pair, None)

    def _accept(self) -> asyncio.Protocol:
        pair = _Pair(self)
        if self.state == CUT or len(self._pairs) >= MAX_CONNECTIONS:
            pair.abort()
        else:
            self._pairs[pair] = None
        return pair.near

    def _break(self) -> None:
        for pair in list(self._pairs):
            pair.abort()


class _Pair:
    """An accepted connection, and the one to the target."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.near = _End(self)
        self.far = _End(self)
        self.near.lane = _Lane(relay, self.near, self.far)
        self.far.lane = _Lane(relay, self.far, self.near)
        self._dialling: asyncio.Task[None] | None = None
        self._is_aborted = False

    def on_connected(self, end: _End) -> None:
        if self._is_aborted:
            end.abort()
        elif end is self.near:
            end.pause(True)
            self._dialling = asyncio.get_running_loop().create_task(self._dial())
        else:
            self.near.pause(False)

    def on_lost(self) -> None:
        if self.near.is_lost and (self.far.is_lost or self.far.transport is None):
            self.abort()

    def discard(self) -> None:
        self.near.lane.clear()
        self.far.lane.clear()

    def abort(self) -> None:
        self._is_aborted = True
        if self._dialling is not None:
            self._dialling.cancel()
        for end in (self.near, self.far):
            end.lane.clear()
            end.abort()
        self.relay.on_closed(self)

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.far, HOST, await self.relay.target())
        except OSError:
            self._dialling = None
            self.abort()


class _End(asyncio.Protocol):
    """One of the two connections; received bytes go to its lane."""

    lane: _Lane

    def __init__(self, pair: _Pair) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_lost = False
        self.is_full = False
        self._pair = pair
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._pair.on_connected(self)

    def data_received(self, data: bytes) -> None:
        self.lane.put(data)

    def eof_received(self) -> bool:
        self.lane.put(b"")
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_lost = True
        self.lane.end()
        self._pair.on_lost()

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        other = self._pair.far if self is self._pair.near else self._pair.near
        other.lane.resume()

    def pause(self, is_paused: bool) -> None:
        if self.transport is None or self.is_lost or is_paused == self._is_paused:
            return
        self._is_paused = is_paused
        if is_paused:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _Lane:
    """One direction; b"" stands for the end of the byte stream, None for a lost connection."""

    def __init__(self, relay: Relay, source: _End, sink: _End) -> None:
        self._relay = relay
        self._source = source
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, bytes | None]] = deque()
        self._bytes = 0
        self._last_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def put(self, data: bytes | None) -> None:
        if self._relay.state == SILENT:
            return
        # Not before earlier bytes, though the delay may be smaller now.
        self._last_s = max(self._last_s, self._loop.time() + self._relay.wait_s())
        self._waiting.append((self._last_s, data))
        self._bytes += len(data or b"")
        if self._bytes > WAITING_BYTES:
            self._source.pause(True)
        self._set_timer()

    def end(self) -> None:
        self.put(None)

    def resume(self) -> None:
        """Continue, as the sink has space again."""
        self._set_timer()

    def clear(self) -> None:
        self._waiting.clear()
        self._bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if self._timer is None and self._waiting and not self._sink.is_full:
            self._timer = self._loop.call_at(self._waiting[0][0], self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        sink = self._sink.transport
        now_s = self._loop.time()
        while self._waiting and self._waiting[0][0] <= now_s and not self._sink.is_full:
            _, data = self._waiting.popleft()
            if sink is None or self._sink.is_lost or sink.is_closing():
                self._bytes -= len(data or b"")
            elif data is None:
                sink.close()
            elif data:
                sink.write(data)
                self._bytes -= len(data)
            elif sink.can_write_eof():
                with suppress(OSError):  # the peer may have disconnected unnoticed
                    sink.write_eof()
        if self._bytes <= WAITING_BYTES // 2:
            self._source.pause(False)
        self._set_timer()
