"""Decides when a connection may be written to: by its link, its client's and the node's limits.

The link bounds the bytes handed to the kernel by a send window; limits are applied by pacers. Where
the node has a limit of its own, connections wait for turns, granted by the scheduling discipline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from accord.core.broker.connection import Connection
from accord.core.scheduling.egress import Egress, WaitingDestination
from accord.core.scheduling.pacing import Gate, Pacer
from accord.core.scheduling.strategies import FIFO, Discipline
from accord.runtime.socket_gauge import BandwidthLimits, SocketGauge

# Bytes written per call, if the link allows: more would leave the ordering to the kernel.
WRITE_BYTES: Final = 262_144
# Minimum time between two samples of the socket; an earlier one shows nothing new.
_RESAMPLE_US: Final = 200
_MIN_PACERS: Final = 100
# If the node's limit delays a turn longer than this, better events may overtake it.
_LONG_US: Final = 50_000
MAX_PACERS: Final = 10_000  # including those of clients that may be offline
_NO_LIMITS: Final = BandwidthLimits()


def clock_us() -> int:
    return time.monotonic_ns() // 1000


class Alarm:
    """One-shot timer that fires at the earliest of the times it was set to."""

    __slots__ = ("_call", "_due_us", "_timer")

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._due_us = 0
        self._timer: asyncio.TimerHandle | None = None

    def set(self, wait_us: int) -> None:
        due_us = clock_us() + wait_us
        if self._timer is not None and self._due_us <= due_us:
            return
        self.cancel()
        self._due_us = due_us
        self._timer = _later(wait_us, self._fire)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._call()


class NodeBandwidth:
    """The node's bandwidth limits, and the turns of connections where the node has its own.

    `resume_sending` is called when `pump` is due again.
    """

    def __init__(self, discipline: Discipline, resume: Callable[[], None]) -> None:
        self.limits = _NO_LIMITS
        self.is_limited = False  # whether any limit is set
        self.node: Pacer | None = None
        self.egress = Egress(discipline)
        self._alarm = Alarm(resume)
        self._pacers: dict[str, Pacer] = {}
        self._many = _MIN_PACERS

    def pacer_of(self, client: str, limit_bps: int) -> Pacer:
        """The pacer of a client; it survives reconnects, so reconnecting gains no bandwidth."""
        pacer = self._pacers.get(client)
        if pacer is None:
            pacer = Pacer(limit_bps)
            if client:
                self.remember(client, pacer)
        elif pacer.limit_bps != limit_bps:
            pacer.set_limit(limit_bps, clock_us())
        return pacer

    def remember(self, client: str, pacer: Pacer) -> None:
        self._pacers.setdefault(client, pacer)
        if len(self._pacers) > self._many:
            now_us = clock_us()
            self._pacers = {
                name: each for name, each in self._pacers.items() if not each.is_idle(now_us)
            }
            for name in list(self._pacers)[:-MAX_PACERS]:
                del self._pacers[name]
            self._many = min(max(2 * len(self._pacers), _MIN_PACERS), 2 * MAX_PACERS)

    def set_limits(self, limits: BandwidthLimits) -> None:
        """Replace the limits; writers notice at their next send."""
        self.limits = limits
        self.is_limited = bool(limits.node_bps or limits.client_bps or limits.clients)
        if limits.node_bps == 0:
            self.node = None
        elif self.node is None:
            self.node = Pacer(limits.node_bps)
        else:
            self.node.set_limit(limits.node_bps, clock_us())
        self._alarm.cancel()

    def pump(self) -> None:
        """Grant turns to waiting connections as long as the node's limit allows."""
        node = self.node
        egress = self.egress
        if node is None:
            return
        gate = Gate([node])
        while egress.waiting:
            gate.advance(clock_us())
            turn = egress.take(gate)
            if turn is None:
                if gate.wait_us > _LONG_US and self._has_urgent():
                    continue
                self._alarm.set(gate.wait_us)
                return
            sender = turn.owner
            assert isinstance(sender, ConnectionWriter)
            size = 0
            try:
                size = sender.take_turn()
            except Exception as error:  # fault isolation: the other connections continue
                sender.owner.failed(error)
            egress.sent(turn, size)
            if size:
                sender.offer()

    def _has_urgent(self) -> bool:
        """Whether a waiting connection has a more important event that may be sent immediately."""
        has_better = False
        if self.egress.discipline.strategy != FIFO:
            for turn in self.egress.destinations():
                assert isinstance(turn.owner, ConnectionWriter)
                has_better = turn.owner.rise() or has_better
        return has_better


class Owner(Protocol):
    """Owner of a connection."""

    def write(self, frames: list[bytes]) -> int:
        """Pass `frames` to the transport; returns their size."""

    def resume_sending(self) -> None:
        """Called when output that had to wait may be sent."""

    def failed(self, error: Exception) -> None:
        """Called when sending has failed."""


class ConnectionWriter:
    """Writer of one connection: sends pending output as far as allowed, the rest on a timer.

    Most connections are idle, so the alarm, gates and turns are created on demand.
    """

    __slots__ = (
        "_alarm",
        "_bandwidth",
        "_client",
        "_connection",
        "_gauge",
        "_has_risen",
        "_is_full",
        "_limits",
        "_own",
        "_turn",
        "is_paused",
        "link",
        "owner",
    )

    def __init__(
        self,
        bandwidth: NodeBandwidth,
        connection: Connection,
        transport: asyncio.Transport,
        owner: Owner,
    ) -> None:
        self.is_paused = False  # by the transport
        self.owner = owner
        self.link = connection.link
        self._bandwidth = bandwidth
        self._connection = connection
        self._limits = _NO_LIMITS
        self._client = ""
        self._own: Gate | None = None  # the client's limit only, without the node's
        self._alarm: Alarm | None = None
        self._is_full = False  # the link's send window, until the alarm
        self._turn: WaitingDestination | None = None  # only if the node has a limit
        self._has_risen = False  # since the last offer
        self._gauge = SocketGauge(transport)
        self._gauge.route(self.link)

    def send(self) -> None:
        if self.is_paused:
            return
        connection = self._connection
        bandwidth = self._bandwidth
        if self._limits is not bandwidth.limits or self._client != connection.client_id:
            self._apply_limits()
        if self._is_full:
            self._send_replies()
            return
        link = self.link
        if link.rate_bps or link.limit_bps:
            link.expire_sample(clock_us())
        gate = link.gate
        if gate is not None:
            self._send_replies()  # separately from events: the gate accounts for them differently
        if bandwidth.node is not None:
            self.offer()
            return
        while not self.is_paused:
            wanted = link.room
            if wanted <= 0 or gate is not None:
                wanted = self._room()
                if wanted == 0:
                    self._send_replies()
                    return
            elif link.send_window >= WRITE_BYTES:
                wanted = WRITE_BYTES
            frames = connection.take_uncounted(wanted)
            if not frames:
                if gate is not None:
                    self._wait_for(gate)
                return
            try:
                size = self.owner.write(frames) if gate is None else self._write_counted(frames)
            finally:
                connection.count_taken()
            link.sent(size)
            if not connection.has_more:
                return

    def offer(self) -> None:
        """Queue for a turn, if the link and the client's limit would allow one."""
        gate = self.link.gate
        connection = self._connection
        room = 0
        if gate is not None and not self.is_paused and not self._is_full and connection.peek(None):
            room = self._room()
        if gate is None or room == 0:
            self._leave()
            return
        gate.lowest_bin = 0
        self._has_risen = False
        # An event that waits only for the node's limit keeps its place among the connections.
        head = connection.peek(gate) or connection.peek(self._own)
        if head is not None:
            if self._turn is None:
                self._turn = WaitingDestination(self)
            self._bandwidth.egress.put(self._turn, head, room, gate.large())
        else:
            self._leave()
            if self._own is not None:
                self._wait_for(self._own)

    def rise(self) -> bool:
        """Queue with a more important event that may be sent immediately, if there is one."""
        gate = self.link.gate
        turn = self._turn
        if gate is None or turn is None or self._has_risen:
            return False
        self._has_risen = True  # events that arrive or become sendable later are offered then
        gate.advance(clock_us())
        gate.lowest_bin = turn.bin + 1
        head = self._connection.peek(gate)
        if head is None:
            gate.lowest_bin = 0
            self._wait_for(gate)
            return False
        self._bandwidth.egress.put(turn, head, gate.portion(), gate.large())
        return True

    def take_turn(self) -> int:
        """Write about one portion of the next events; returns the bytes written."""
        self.link.expire_sample(clock_us())
        room = 0 if self.is_paused else self._room()
        frames = self._connection.take(room) if room else []
        if not frames:
            if room and self.link.gate is not None:
                self._wait_for(self.link.gate)
            return 0
        size = self._write_counted(frames)
        self.link.sent(size)
        return size

    def stop(self) -> None:
        """Stop sending for good."""
        self.cancel_wait()
        self.is_paused = True
        if self._own is not None and self._client:
            self._bandwidth.remember(self._client, self._own.pacers[0])
        self._leave()

    def cancel_wait(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._is_full = False

    def _room(self) -> int:
        """How many bytes may be sent now; if none, sets a timer where one is needed."""
        link = self.link
        room = link.room
        now_us = clock_us()
        if room <= 0:
            if now_us - link.sampled_us < _RESAMPLE_US:
                link.hold(now_us)
            else:
                room = self._gauge.sample(link, now_us)
            if room <= 0:
                self.cancel_wait()
                self._wait(link.wait_us)
                self._is_full = True
                return 0
        if link.gate is not None:
            link.gate.advance(now_us)
            room = min(room, link.gate.portion())
        return room

    def _wait_for(self, gate: Gate) -> None:
        if gate.wait_us > 0 and self._connection.has_waiting():
            self._wait(gate.wait_us)

    def _wait(self, wait_us: int) -> None:
        if self._alarm is None:
            self._alarm = Alarm(self._on_timer)
        self._alarm.set(wait_us)

    def _on_timer(self) -> None:
        self._is_full = False
        self.owner.resume_sending()

    def _leave(self) -> None:
        """Leave the queue for turns."""
        if self._turn is not None:
            self._bandwidth.egress.remove(self._turn)

    def _send_replies(self) -> None:
        frames = self._connection.take(0)
        if frames:
            size = self.owner.write(frames)
            self.link.sent(size)
            if self.link.gate is not None:
                self.link.gate.sent_reply(size, clock_us())

    def _write_counted(self, frames: list[bytes]) -> int:
        size = self.owner.write(frames)
        if self.link.gate is not None:
            self.link.gate.sent(size, clock_us())
        return size

    def _apply_limits(self) -> None:
        limits = self._limits = self._bandwidth.limits
        client = self._client = self._connection.client_id
        limit_bps = limits.of(client)
        node = self._bandwidth.node
        pacers = [self._bandwidth.pacer_of(client, limit_bps)] if limit_bps else []
        self._own = Gate(list(pacers)) if pacers else None
        if node is not None:
            pacers.append(node)
        self.link.gate = Gate(pacers) if pacers else None
        if node is None:
            self._leave()
        self.cancel_wait()
        self.link.limit_bps = min(limit_bps or limits.node_bps, limits.node_bps or limit_bps)


def _later(wait_us: int, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(wait_us / 1e6, call)
