"""A node in memory, for tests of programs that use Accord: no sockets, no files, no waiting.

    async with MemoryNode() as node:
        async with accord.connect(transport=node.connect) as session:
            ...

It is the broker that a real node runs, with the same limits and predicates; only what is below it
is missing. `break_connections` shows how a program behaves when the network fails.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from importlib.metadata import version
from secrets import token_bytes
from typing import Final

from accord.client.address import Address
from accord.client.transport import Stream
from accord.core.admission.options import Mode
from accord.core.admission.status import AdmissionStatus, DemandStatus, NodeBook
from accord.core.broker.broker import Broker
from accord.core.broker.client_negotiation import ClientNegotiation
from accord.core.broker.connection import Connection, client_status
from accord.core.broker.feedback import FeedbackHandler
from accord.core.broker.quality_status import quality_status, quality_totals
from accord.core.model.receipts import SECRET_BYTES
from accord.core.monitoring.statistics import ClientStatus, Statistics
from accord.core.quality.negotiation import Negotiation
from accord.core.quality.properties import Property
from accord.core.quality.status import (
    PropertyStatus,
    QualityStatus,
    QualityTotals,
    property_statuses,
)
from accord.core.router.limits import Limits
from accord.operations.operation import RequestError
from accord.operations.ports import NodePorts
from accord.runtime.process import Clock
from accord.runtime.requests import RequestDispatcher

_BUFFER_BYTES: Final = 65_536
_TICK_S: Final = 0.05
_STEPS: Final = 1_000


class MemoryNode:
    """Use with `async with`; give its `connect` to `accord.connect` as the transport."""

    def __init__(self, limits: Limits | None = None, *, name: str = "memory") -> None:
        self.name = name
        self.version = version("accord")
        self._clock = Clock()
        names = itertools.count(1)
        self.broker = Broker(
            limits or Limits(),
            now_ms=self._clock.now_ms(),
            node=name,
            new_client_id=lambda: f"{name}-{next(names)}",
        )
        self.quality = ClientNegotiation(self.broker, Negotiation(name), self._now_us)
        self.broker.quality = self.quality
        self.broker.feedback = FeedbackHandler(self.broker, token_bytes(SECRET_BYTES))
        self._requests = RequestDispatcher(
            NodePorts(
                view=self,
                broker=self.broker,
                admission=_NoAdmission(),
                quality=MemoryQuality(self.quality, name),
                now_ms=self._clock.now_ms,
            ),
            self.broker,
        )
        self._streams: dict[Connection, _MemoryStream] = {}
        self._ticking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> MemoryNode:
        self._ticking = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        self.break_connections()

    async def connect(self, _: Address) -> Stream:
        """A new connection to this node, whatever the address."""
        self.broker.context.now_ms = self._clock.now_ms()
        connection = Connection(self.broker, None, "memory")
        stream = self._streams[connection] = _MemoryStream(self, connection)
        return stream

    def break_connections(self) -> None:
        """Let all connections fail, as if the network had."""
        for connection, stream in list(self._streams.items()):
            connection.on_closed(now_ms=self._clock.now_ms())
            stream.end()
        self._streams.clear()
        self.flush()

    def is_ready(self) -> bool:
        return True

    def clients(self) -> Iterator[ClientStatus]:
        return map(client_status, list(self.broker.sessions.values()))

    def statistics(self) -> Statistics:
        return self.broker.context.counters.snapshot(now_ms=self._clock.now_ms())

    def receive(self, connection: Connection, data: bytes) -> None:
        connection.receive(data, now_ms=self._clock.now_ms())
        while connection.has_rest and not connection.is_stalled:
            connection.resume(now_ms=self._clock.now_ms())
        self.flush()

    def disconnect(self, connection: Connection) -> None:
        self._streams.pop(connection, None)
        connection.on_closed(now_ms=self._clock.now_ms())
        self.flush()

    def flush(self) -> None:
        """Do what there is to do, and pass on what connections have to send."""
        context = self.broker.context
        while self.broker.run_task():
            for connection in list(self._streams):
                connection.resume(now_ms=self._clock.now_ms())
        requests, context.requests = context.requests, []
        for request in requests:
            self._requests.handle(request)
        self._negotiate()
        while context.dirty:
            dirty, context.dirty = context.dirty, []
            for line in dirty:
                line.is_dirty = False
                assert isinstance(line, Connection)
                stream = self._streams.get(line)
                if stream is not None:
                    stream.pull()

    def _negotiate(self) -> None:
        """Do what is due by now for anybody's quality."""
        for _ in range(_STEPS):
            if self.quality.next_due_us() > self._now_us():
                break
            self.quality.advance()

    def _now_us(self) -> int:
        return self._clock.now_ms() * 1_000

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.broker.advance(now_ms=self._clock.now_ms())
            self.flush()


class _MemoryStream:
    """One connection, as the client sees it."""

    def __init__(self, node: MemoryNode, connection: Connection) -> None:
        self._node = node
        self._connection = connection
        self._buffer = bytearray()
        self._changed = asyncio.Event()
        self._is_ended = False

    async def read(self) -> bytes:
        while not self._buffer and not self._is_ended:
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._buffer)
        self._buffer.clear()
        self.pull()
        return data

    async def write(self, data: bytes) -> None:
        if self._is_ended:
            raise ConnectionResetError("the connection is gone")
        self._node.receive(self._connection, data)
        await asyncio.sleep(0)

    async def close(self) -> None:
        if not self._is_ended:
            self.end()
            self._node.disconnect(self._connection)

    def pull(self) -> None:
        """Take from the node as much as a client that reads slowly would get."""
        while len(self._buffer) < _BUFFER_BYTES:
            frames = self._connection.take(_BUFFER_BYTES)
            if not frames:
                break
            self._buffer += b"".join(frames)
        if self._connection.is_closing:
            self._is_ended = True
        self._changed.set()

    def end(self) -> None:
        self._is_ended = True
        self._changed.set()


class _NoAdmission:
    """Admission control that is off: advertisements are accepted and not enforced."""

    mode = Mode.OFF
    admitting_now = None
    version = 0

    def status(self, most_pools: int | None = None) -> AdmissionStatus:
        del most_pools
        raise RequestError(404, "a node in memory has no admission control")

    def book(self, pools: int, refusals: int) -> NodeBook:
        del pools, refusals
        raise RequestError(404, "a node in memory has no admission control")

    async def show(self) -> AdmissionStatus:
        return self.status()

    async def check(
        self, channel: str, where: str, client_: str = "", wanted_hz: float | None = None
    ) -> DemandStatus:
        del channel, where, client_, wanted_hz
        raise RequestError(404, "a node in memory has no admission control")


class MemoryQuality:
    """Negotiated quality of this node alone."""

    def __init__(self, quality: ClientNegotiation, node: str) -> None:
        self.quality = quality
        self._node = node

    def status(self, pattern: str) -> QualityStatus:
        return quality_status(self.quality, self._node, pattern)

    def totals(self) -> QualityTotals:
        return quality_totals(self.quality)

    def properties(self) -> list[PropertyStatus]:
        return property_statuses(self.quality.negotiation.registry)

    def define(self, properties: list[Property]) -> None:
        self.quality.define(*properties)
