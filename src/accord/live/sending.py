"""When connections may be written to: their links, the limits of clients, and that of the node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from accord.core.scheduling.egress import Egress, Turn
from accord.core.scheduling.pacing import Pacer
from accord.core.scheduling.strategies import Discipline
from accord.edges.mqtt.connection import Connection
from accord.live.links import Gauge, Limits

# Asked for at a time, where the link may have so much: more would leave the order to the kernel.
WRITE_BYTES: Final = 262_144
# Sooner than this after a look nothing new can be learned.
_AGAIN_US: Final = 200
_NO_LIMITS: Final = Limits()


def clock_us() -> int:
    return time.monotonic_ns() // 1000


class Bandwidth:
    """The limits of a node, and whose turn it is where the node's own is reached.

    `go_on` is called when it is time to `pump` again.
    """

    def __init__(self, discipline: Discipline, go_on: Callable[[], None]) -> None:
        self.limits = _NO_LIMITS
        self.node: Pacer | None = None
        self.egress = Egress(discipline)
        self._go_on = go_on
        self._timer: asyncio.TimerHandle | None = None

    def set_limits(self, limits: Limits) -> None:
        """Senders notice when they are next asked to send."""
        self.limits = limits
        if limits.node_bps == 0:
            self.node = None
        elif self.node is None:
            self.node = Pacer(limits.node_bps)
        else:
            self.node.set_limit(limits.node_bps, clock_us())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pump(self) -> None:
        """Give turns, as long as the node's limit allows it."""
        node = self.node
        egress = self.egress
        if node is None or self._timer is not None:
            return
        while egress.waiting:
            wait_us = node.free_us - clock_us()
            if wait_us > 0:
                self._timer = _later(wait_us, self._waited)
                return
            turn = egress.take()
            assert turn is not None
            sender = turn.owner
            assert isinstance(sender, Sender)
            size = 0
            try:
                size = sender.take_turn(node.portion)
            except Exception as error:  # whatever it is, others go on
                if sender.on_failure is None:
                    raise
                sender.on_failure(error)
            egress.sent(turn, size)
            if size:
                sender.offer()

    def _waited(self) -> None:
        self._timer = None
        self._go_on()


class Sender:
    """One connection's: writes what there is, as far as that is allowed, and else sees to it later.

    `write` hands frames to the transport and gives their size; `go_on` is called when it is time.
    """

    __slots__ = (
        "_bandwidth",
        "_client",
        "_connection",
        "_gauge",
        "_go_on",
        "_limits",
        "_timer",
        "_turn",
        "_write",
        "is_paused",
        "link",
        "on_failure",
        "pacer",
    )

    def __init__(
        self,
        bandwidth: Bandwidth,
        connection: Connection,
        transport: asyncio.Transport,
        *,
        write: Callable[[list[bytes]], int],
        go_on: Callable[[], None],
    ) -> None:
        self.is_paused = False  # by the transport
        self.on_failure: Callable[[Exception], None] | None = None  # to write something
        self.link = connection.link
        self.pacer: Pacer | None = None
        self._bandwidth = bandwidth
        self._connection = connection
        self._write = write
        self._go_on = go_on
        self._limits = _NO_LIMITS
        self._client = ""
        self._timer: asyncio.TimerHandle | None = None
        self._turn = Turn(self)
        self._gauge = Gauge(transport)
        self._gauge.route(self.link)

    def send(self) -> None:
        if self.is_paused:
            return
        connection = self._connection
        bandwidth = self._bandwidth
        if self._limits is not bandwidth.limits or self._client != connection.client_id:
            self._follow_limits()
        if self._timer is not None:
            self._send_answers()
            return
        link = self.link
        if link.carries_bps():
            link.renew(clock_us())
        if self.pacer is not None or bandwidth.node is not None:
            self._send_answers()  # apart from events: they count otherwise
        if bandwidth.node is not None:
            self.offer()
            return
        while not self.is_paused:
            wanted = link.room
            if wanted <= 0 or self.pacer is not None:
                wanted = self._room()
                if wanted == 0:
                    self._send_answers()
                    return
            elif link.allowance >= WRITE_BYTES:
                wanted = WRITE_BYTES
            frames = connection.take(wanted)
            if not frames:
                return
            link.sent(self._write_counted(frames))

    def offer(self) -> None:
        """Wait for a turn, where the link and the client's limit would allow one."""
        egress = self._bandwidth.egress
        head = None if self.is_paused or self._timer is not None else self._connection.peek()
        room = 0 if head is None else self._room()
        if head is None or room == 0:
            egress.remove(self._turn)
        else:
            egress.put(self._turn, head, room)

    def take_turn(self, portion: int) -> int:
        """Write the next events, about as much as `portion`; gives how many bytes."""
        self.link.renew(clock_us())
        room = 0 if self.is_paused else self._room()
        frames = self._connection.take(min(room, portion)) if room else []
        if not frames:
            return 0
        size = self._write_counted(frames)
        self.link.sent(size)
        return size

    def stop(self) -> None:
        """Nothing will be sent any more."""
        self.wait_no_longer()
        self.is_paused = True
        self._bandwidth.egress.remove(self._turn)

    def wait_no_longer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _room(self) -> int:
        """How many bytes may go now; if none, a timer is set where that is needed."""
        link = self.link
        room = link.room
        now_us = clock_us()
        if room <= 0:
            if now_us - link.looked_us < _AGAIN_US:
                link.hold(now_us)
            else:
                room = self._gauge.look(link, now_us)
            if room <= 0:
                self._wait(link.wait_us)
                return 0
        pacer = self.pacer
        if pacer is not None:
            room = min(room, pacer.room(now_us))
            if room == 0 and self._connection.has_waiting():
                self._wait(pacer.free_us - now_us)
        return room

    def _wait(self, wait_us: int) -> None:
        if self._timer is None:
            self._timer = _later(wait_us, self._waited)

    def _waited(self) -> None:
        self._timer = None
        self._go_on()

    def _send_answers(self) -> None:
        frames = self._connection.take(0)
        if frames:
            size = self._write(frames)
            self.link.sent(size)
            now_us = clock_us()
            if self.pacer is not None:
                self.pacer.answered(size, now_us)
            if self._bandwidth.node is not None:
                self._bandwidth.node.answered(size, now_us)

    def _write_counted(self, frames: list[bytes]) -> int:
        size = self._write(frames)
        pacer = self.pacer
        node = self._bandwidth.node
        if pacer is not None or node is not None:
            now_us = clock_us()
            if pacer is not None:
                pacer.sent(size, now_us)
            if node is not None:
                node.sent(size, now_us)
        return size

    def _follow_limits(self) -> None:
        limits = self._limits = self._bandwidth.limits
        client = self._client = self._connection.client_id
        limit_bps = limits.of(client)
        if limit_bps == 0:
            self.pacer = None
        elif self.pacer is None:
            self.pacer = Pacer(limit_bps)
        else:
            self.pacer.set_limit(limit_bps, clock_us())
        if self._bandwidth.node is None:
            self._bandwidth.egress.remove(self._turn)
        self.wait_no_longer()
        self.link.limit_bps = min(limit_bps or limits.node_bps, limits.node_bps or limit_bps)


def _later(wait_us: int, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(wait_us / 1e6, call)
