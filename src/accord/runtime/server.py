"""MQTT server over TCP and TLS: passes received bytes to connections and writes their output.

Connections are flushed once per turn of the event loop, after all readable sockets have been read,
so messages leave in order of importance and in few system calls. While reads arrive one at a time
and their effects wait for nothing, there is nothing to order: the output is sent before the read
returns, without a turn.

The node can't reorder bytes once they are written. A connection is therefore written to only as far
as its link, its client's limit and the node's limit allow (`core/scheduling`: `link_estimator`,
`pacing`, `egress`), and then waits for its own timer. Replies never wait for these limits, but
count towards them.

Token buckets that limit the rate of new connections, in total and per address.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

from accord.core.broker.broker import Broker
from accord.core.broker.broker_context import ConnectionPort
from accord.core.broker.connection import LOST, Connection
from accord.core.broker.handshake import LoginGate
from accord.core.broker.runs import ACK_BYTES
from accord.core.mqtt.codes import Reason
from accord.core.router.rights import Rights
from accord.runtime.connection_writer import WRITE_BYTES, ConnectionWriter, NodeBandwidth
from accord.runtime.fault_isolation import FaultIsolation
from accord.runtime.logs import get_log
from accord.runtime.password_queue import BusyError
from accord.runtime.process import Clock
from accord.runtime.socket_gauge import BandwidthLimits

_REMEMBERED: Final = 10_000


class _ConnectBucket:
    """Allows `rate` per second, with a burst of one second's tokens."""

    __slots__ = ("at_ms", "left")

    def __init__(self, rate: int, now_ms: int) -> None:
        self.left = float(rate)
        self.at_ms = now_ms

    def take(self, rate: int, now_ms: int) -> bool:
        self.left = min(float(rate), self.left + (now_ms - self.at_ms) * rate / 1000)
        self.at_ms = now_ms
        if self.left < 1:
            return False
        self.left -= 1
        return True


class ConnectLimiter:
    def __init__(self, *, per_s: int, per_s_per_address: int, now_ms: int) -> None:
        self._per_s = per_s
        self._per_s_per_address = per_s_per_address
        self._all = _ConnectBucket(per_s, now_ms)
        self._by_address: dict[str, _ConnectBucket] = {}

    def accept(self, address: str, *, now_ms: int) -> bool:
        bucket = self._by_address.get(address)
        if bucket is None:
            if len(self._by_address) >= _REMEMBERED:
                self._evict_idle(now_ms)
            bucket = self._by_address[address] = _ConnectBucket(self._per_s_per_address, now_ms)
        return bucket.take(self._per_s_per_address, now_ms) and self._all.take(self._per_s, now_ms)

    def _evict_idle(self, now_ms: int) -> None:
        """Evict buckets unused for a second: they would be full again anyway."""
        busy = {
            address: bucket
            for address, bucket in self._by_address.items()
            if now_ms - bucket.at_ms < 1_000
        }
        self._by_address = busy if len(busy) < _REMEMBERED else {}


log = get_log(__name__)

# Frames of at least this average size are written without joining them first.
_LARGE: Final = 16_384
_CLOSE_MS: Final = 2_000
_DISCARDED_BYTES: Final = 1_000_000
# Time slice for tasks before the network is polled again.
_WORK_NS: Final = 500_000
# Output no more important than pending tasks may wait this long, to be written together.
_GATHER_MS: Final = 5
# Reads answered immediately before a sample shows whether they still arrive one at a time. A prime:
# with reads in bursts of equal size, the sample can't always fall on the end of a burst.
_AT_ONCE: Final = 61
# A larger read holds many messages: other connections may have more important ones.
_FEW_BYTES: Final = 4_096
# A connection whose packets take longer than this pauses for `_OTHERS` times as long.
_SHORT_MS: Final = 5
_OTHERS: Final = 3


class Server:
    """All MQTT connections of one node, over any transport."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        *,
        gate: LoginGate | None = None,
        login: Callable[[Connection], Awaitable[tuple[Rights | None, str]]] | None = None,
        on_turn: Callable[[], bool] | None = None,
    ) -> None:
        """`on_turn` returns whether it must, for now, be called after each read."""
        self.broker = broker
        self.clock = clock
        self.gate = gate
        self.connections: dict[Connection, MqttProtocol] = {}
        self._login = login
        self._on_turn = on_turn
        self._loop = asyncio.get_running_loop()
        self.bandwidth = NodeBandwidth(broker.context.discipline, self._pump)
        self._is_turn_due = False
        self._reads = 0  # reads since the last turn
        self._flushed_ms = 0
        self._at_once = 0  # remaining reads that may be answered without a turn
        self._appended = 0  # `hub.appended` at the last turn
        self._logins: set[asyncio.Task[None]] = set()
        self._closing: dict[MqttProtocol, int] = {}
        self._isolation = FaultIsolation(log)
        limits = broker.limits
        self._connects = ConnectLimiter(
            per_s=limits.connects_per_s,
            per_s_per_address=limits.connects_per_s_per_address,
            now_ms=clock.now_ms(),
        )

    def accept(self, protocol: MqttProtocol, address: str) -> Connection | None:
        """Returns a connection for a new client, or None if a limit refuses it."""
        now_ms = self.clock.now_ms()
        counters = self.broker.context.counters
        if len(self.connections) >= self.broker.limits.connections + 100:
            counters.count_refused("too many connections")
            return None
        if not self._connects.accept(address, now_ms=now_ms):
            counters.count_refused("connection rate exceeded")
            return None
        self.broker.context.now_ms = now_ms
        connection = Connection(self.broker, self.gate, address)
        connection.handle = protocol
        self.connections[connection] = protocol
        return connection

    def remove(self, protocol: MqttProtocol, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._closing.pop(protocol, None)

    def start_close_timeout(self, protocol: MqttProtocol) -> None:
        """Start the close timeout: `protocol` is aborted if the peer does not close in time."""
        self._closing.setdefault(protocol, self.clock.now_ms() + _CLOSE_MS)

    def due(self) -> None:
        """Schedule a turn: there may be output to send or state to record."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def is_idle(self, size: int) -> bool:
        """Whether the effects of a read of `size` bytes may be sent without a turn."""
        context = self.broker.context
        return not (
            self._at_once <= 0
            or self._is_turn_due
            or context.tasks.waiting
            or context.orders
            or context.appended != self._appended
            or self.bandwidth.is_limited
            or size > _FEW_BYTES
        )

    def received(self, connection: Connection, size: int) -> None:
        """Send the effects of a read of `size` bytes, immediately if the server is idle."""
        if connection.is_plain and self.is_idle(size):
            self._flush()
            self._sent_at_once()
        else:
            self._reads += 1
            self.due()

    def cut_through(self, connection: Connection, data: bytes) -> bool:
        """Write a message that arrived alone straight to its receiver, if possible."""
        if not self.is_idle(len(data)):
            return False
        found = connection.cut_through(data, self.clock.now_ms())
        if found is None:
            return False
        self._write(found.connection, found.frame)
        if found.qos:
            self._write(connection, found.ack())
        self._sent_at_once()
        return True

    def _write(self, port: ConnectionPort, frame: bytes) -> None:
        """Write to one connection; a failure affects no other."""
        try:
            if port.write is not None:
                port.write(frame)
        except Exception as error:
            self.failed(self.connections[port], error)  # type: ignore[index]

    def _sent_at_once(self) -> None:
        self._at_once -= 1
        if self._at_once == 0:
            # Other reads in this turn of the event loop show whether reads arrive in bursts.
            self._reads = 1
            self._loop.call_soon(self._sampled)

    def _sampled(self) -> None:
        if not self._is_turn_due:
            self._at_once = _AT_ONCE
            self._reads = 0

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._loop.call_later(delay_s, call)

    def set_limits(self, node_bps: int, client_bps: int, clients: Mapping[str, int]) -> None:
        """Set limits in bit/s: for all clients together, for each client, for single clients."""
        limits = BandwidthLimits(node_bps=node_bps, client_bps=client_bps, clients=dict(clients))
        self.bandwidth.set_limits(limits)
        for connection in self.connections:
            self.broker.context.wake(connection)
        self.due()

    def tick(self) -> None:
        """Run what is due by the clock."""
        now_ms = self.clock.now_ms()
        self.broker.advance(now_ms=now_ms)
        for protocol, until_ms in list(self._closing.items()):
            if now_ms >= until_ms:
                protocol.abort()
        self.due()

    def end_all(self, reason: Reason) -> None:
        self.broker.context.now_ms = self.clock.now_ms()
        for connection in list(self.connections):
            connection.end(reason)
        self.due()

    def _turn(self) -> None:
        self._is_turn_due = False
        context = self.broker.context
        context.now_ms = self.clock.now_ms()
        self.broker.cut_throughs.flush()
        if context.tasks.waiting:
            self._work()
        needs_turns = self._call_on_turn()
        if self.gate is not None and self.gate.logins:
            self._check_logins()
        if context.tasks.waiting and context.now_ms < self._flushed_ms + _GATHER_MS:
            self._flush_urgent()
        else:
            self._flushed_ms = context.now_ms
            self._flush()
        self.bandwidth.pump()
        self._at_once = 0 if needs_turns or self._reads > 1 else _AT_ONCE
        self._reads = 0
        self._appended = context.appended

    def _call_on_turn(self) -> bool:
        """Call `on_turn`; returns whether it must run again after each read."""
        try:
            return self._on_turn is not None and self._on_turn()
        except Exception as error:  # fault isolation: the turn continues
            self._isolation.failed("event loop turn: failed", error)
            return True

    def _flush(self) -> None:
        context = self.broker.context
        dirty = context.dirty
        context.dirty = []
        for line in dirty:
            line.is_dirty = False
            protocol = self.connections.get(line)  # type: ignore[call-overload]
            if protocol is not None:
                try:
                    protocol.flush()
                except Exception as error:  # fault isolation: the other connections continue
                    self.failed(protocol, error)

    def _flush_urgent(self) -> None:
        """Flush only connections with output more important than the waiting tasks."""
        context = self.broker.context
        importance = context.tasks.highest()
        others: list[ConnectionPort] = []
        urgent: list[ConnectionPort] = []
        for line in context.dirty:
            is_urgent = not isinstance(line, Connection) or line.is_urgent(importance)
            (urgent if is_urgent else others).append(line)
        context.dirty = urgent
        self._flush()
        context.dirty += others

    def failed(self, protocol: MqttProtocol, error: Exception) -> None:
        """Abort a connection that could not be served; its client has to reconnect."""
        self._isolation.failed("client: handling failed", error, client=protocol.client_id)
        protocol.abort()

    def _work(self) -> None:
        """Run tasks in order for one time slice; more important input may arrive meanwhile."""
        tasks = self.broker.context.tasks
        now_ns = time.perf_counter_ns()
        until_ns = now_ns + _WORK_NS
        while now_ns < until_ns:
            task = tasks.take()
            if task is None:
                return
            before_ns = now_ns
            try:
                task.run()
            except Exception as error:
                log.failure("task: failed", error)
            now_ns = time.perf_counter_ns()
            task.record_cost((now_ns - before_ns) // 1000)
        self.due()

    def _pump(self) -> None:
        self.broker.context.now_ms = self.clock.now_ms()
        self.bandwidth.pump()

    def _check_logins(self) -> None:
        assert self.gate is not None
        logins, self.gate.logins = self.gate.logins, []
        for connection in logins:
            task = self._loop.create_task(self._check_login(connection))
            self._logins.add(task)
            task.add_done_callback(self._logins.discard)

    async def _check_login(self, connection: Connection) -> None:
        assert self._login is not None
        rights: Rights | None = None
        user = ""
        is_busy = False
        try:
            rights, user = await self._login(connection)
        except BusyError as error:
            is_busy = True
            log.warning(
                "login rejected: verification queue full",
                client=connection.client_id,
                address=connection.address,
                problem=str(error),
            )
        connection.admit(rights, now_ms=self.clock.now_ms(), user=user, is_busy=is_busy)
        self.due()


class MqttProtocol(asyncio.Protocol):
    __slots__ = (
        "_connection",
        "_discarded",
        "_is_finished",
        "_is_resuming",
        "_sender",
        "_server",
        "_transport",
        "is_reading",
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self.is_reading = True
        self._is_resuming = False  # a call of `resume` is scheduled
        self._is_finished = False
        self._discarded = 0
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._sender: ConnectionWriter | None = None

    @property
    def client_id(self) -> str:
        return "" if self._connection is None else self._connection.client_id

    @property
    def is_paused(self) -> bool:
        """Whether the transport's write buffer is full."""
        return self._sender is not None and self._sender.is_paused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES)
        link = transport.get_extra_info("socket")
        if link is not None:
            # Detects a client without MQTT keep-alive whose host has disappeared.
            link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._connection = self._server.accept(self, peer_address(transport))
        if self._connection is None:
            self._transport.abort()
            return
        self._sender = ConnectionWriter(
            self._server.bandwidth, self._connection, self._transport, self
        )
        self._enable_cut_through()

    def _enable_cut_through(self) -> None:
        """Let a cut-through write to the transport directly."""
        if self._connection is not None and self._transport is not None:
            self._connection.write = self._transport.write

    def _disable_cut_through(self) -> None:
        if self._connection is not None:
            self._connection.write = None

    def data_received(self, data: bytes) -> None:
        connection = self._connection
        if self._is_finished:
            self._discarded += len(data)
            if self._discarded > _DISCARDED_BYTES:
                self.abort()
        elif connection is not None:
            server = self._server
            if connection.can_cut_through and server.cut_through(connection, data):
                return
            now_ms = server.clock.now_ms()
            if len(data) == ACK_BYTES and connection.try_ack(data, now_ms):
                return
            connection.receive(data, now_ms=now_ms)
            server.received(connection, len(data))
            if not connection.wants_data():
                self._stop_reading(connection, now_ms)

    def resume(self) -> None:
        """Process input that the connection deferred."""
        self._is_resuming = False
        connection = self._connection
        if connection is not None:
            now_ms = self._server.clock.now_ms()
            connection.resume(now_ms=now_ms)
            self._server.due()
            if not connection.wants_data():
                self._stop_reading(connection, now_ms)
            elif not self.is_reading:
                self._server.broker.context.wake(connection)  # so that reading resumes

    def _stop_reading(self, connection: Connection, started_ms: int) -> None:
        """Pause reading until replies are sent, or until others had their share of time."""
        if self.is_reading and self._transport is not None:
            self.is_reading = False
            self._transport.pause_reading()
        if connection.has_rest and not connection.is_stalled and not self._is_resuming:
            self._is_resuming = True
            spent_ms = self._server.clock.now_ms() - started_ms
            wait_s = 0 if spent_ms < _SHORT_MS else _OTHERS * spent_ms / 1000
            self._server.later(wait_s, self.resume)

    def eof_received(self) -> bool:
        self._server.start_close_timeout(self)
        return False

    def connection_lost(self, _: Exception | None) -> None:
        connection = self._connection
        if self._sender is not None:
            self._sender.stop()
        if connection is not None:
            self._disable_cut_through()
            self._server.broker.cut_throughs.flush()
            connection.on_closed(now_ms=self._server.clock.now_ms())
            was_refused = not connection.connected_ms and connection.reason != LOST
            write = log.warning if was_refused or ":" in connection.reason else log.debug
            write(
                "client: refused" if was_refused else "client: connection closed",
                client=connection.client_id,
                user=connection.user or connection.claimed_user,
                address=connection.address,
                reason=connection.reason,
            )
            self._server.remove(self, connection)
            self._server.due()
        self._connection = None
        self._transport = None
        self._sender = None

    def pause_writing(self) -> None:
        if self._sender is not None:
            self._sender.is_paused = True
        self._disable_cut_through()

    def resume_writing(self) -> None:
        if self._sender is not None:
            self._sender.is_paused = False
            self._enable_cut_through()
            self.resume_sending()

    def resume_sending(self) -> None:
        self._server.broker.context.now_ms = self._server.clock.now_ms()
        try:
            self.flush()
        except Exception as error:  # fault isolation: the other connections continue
            self.failed(error)
        self._server.bandwidth.pump()

    def failed(self, error: Exception) -> None:
        self._server.failed(self, error)

    def flush(self) -> None:
        """Write pending output as far as the link and the limits allow."""
        connection = self._connection
        transport = self._transport
        if connection is None or transport is None or self._sender is None:
            return
        self._sender.send()
        if connection.is_closing:
            if not transport.is_closing():
                self.finish()
        elif connection.has_rest:
            self._stop_reading(connection, self._server.clock.now_ms())
        elif not self.is_reading and connection.wants_data():
            self.is_reading = True
            transport.resume_reading()

    def write(self, frames: list[bytes]) -> int:
        """Pass `frames` to the transport; returns their size."""
        transport = self._transport
        assert transport is not None
        size = 0
        for frame in frames:
            size += len(frame)
        self._server.broker.context.counters.bytes_sent += size
        if len(frames) == 1:
            transport.write(frames[0])
        elif size < _LARGE * len(frames):
            transport.write(b"".join(frames))
        else:
            transport.writelines(frames)
        return size

    def finish(self) -> None:
        """Close the connection once the client has received what was written.

        Closing immediately would answer further input with a TCP reset, which can discard data the
        client has not read yet. So this side sends EOF first and discards input until the client
        closes too, or until the timeout set by `Server.start_close_timeout`.
        """
        transport = self._transport
        if transport is None or self._is_finished:
            return
        self._is_finished = True
        self._disable_cut_through()
        self._server.start_close_timeout(self)
        if transport.can_write_eof():
            transport.write_eof()
            if not self.is_reading:
                self.is_reading = True
                transport.resume_reading()
        else:
            transport.close()

    def abort(self) -> None:
        self._disable_cut_through()
        if self._transport is not None:
            self._transport.abort()


def peer_address(transport: asyncio.BaseTransport) -> str:
    peer: Any = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else str(peer or "")
