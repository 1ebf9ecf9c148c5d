"""The load of `accord bench`: publishers and subscribers of one process that share a channel.

Without a rate the loop is closed: a window of events is in flight. This measures throughput. With a
rate the loop is open: events are sent when due, regardless of earlier ones.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter_ns, process_time
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from accord.apps.load.frames import LoadError, Run
from accord.apps.load.mqtt import Mqtt
from accord.apps.load.traffic import (
    ENDLESS,
    WAIT_S,
    LoadClient,
    LoadLane,
    LoadLoop,
    LoadPublisher,
    Plan,
)
from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import Connect
from accord.core.mqtt.properties import Properties

WINDOW_BYTES: Final = 1 << 21
CHUNK_BYTES: Final = 1 << 16
STAMP: Final = 8  # bytes of the timestamp at the start of each payload
MAX_ID: Final = 65_535
MAX_SAMPLES: Final = 2_000_000

_MAX_UNACKNOWLEDGED: Final = 16_384
_TIMEOUT_S: Final = 10.0
_PROGRESS_NS: Final = 100_000_000
_STALL_S: Final = 1.0
_DRAIN_S: Final = 30.0

Progress = Callable[[float], None]
Numbers = NDArray[np.int64]


class LoadTarget(NamedTuple):
    """A node over TCP, and the credentials."""

    host: str
    port: int
    username: str | None = None
    password: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """Numbers of publishers and subscribers, and the events."""

    publishers: int = 1
    subscribers: int = 1
    size: int = 100
    qos: int = 0


class Samples:
    """Holds all values up to `limit`, then every second, fourth, … of them; `most` is exact."""

    def __init__(self, limit: int = MAX_SAMPLES) -> None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Results over `spent_s`, and the share of a core the tool itself used."""

    published: int
    delivered: int
    lost: int
    refused: int
    spent_s: float
    cpu_share: float
    samples: Samples

    @property
    def published_hz(self) -> float:
        return self.published / self.spent_s

    @property
    def delivered_hz(self) -> float:
        return self.delivered / self.spent_s


class StampedEvents:
    """Up to `count` packets of one event; only times and packet identifiers are filled in."""

    def __init__(self, channel: str, size: int, qos: int) -> None:
        packet = Mqtt(V5, qos).message(channel, bytes(size), 1)
        self.packet_size = len(packet)
        self.count = max(CHUNK_BYTES // self.packet_size, 1)
        self._packets = np.tile(np.frombuffer(packet, np.uint8), (self.count, 1))
        self._stamp_at = len(packet) - size
        self._id_at = self._stamp_at - 3 if qos else None  # followed by an empty property list
        self._next_id = 0

    def take(self, most: int) -> tuple[bytes, int]:
        count = min(most, self.count)
        chosen = self._packets[:count]
        stamp = np.frombuffer(perf_counter_ns().to_bytes(STAMP, "big"), np.uint8)
        chosen[:, self._stamp_at : self._stamp_at + STAMP] = stamp
        if self._id_at is not None:
            ids = (np.arange(self._next_id, self._next_id + count) % MAX_ID + 1).astype(">u2")
            chosen[:, self._id_at : self._id_at + 2] = ids.view(np.uint8).reshape(count, 2)
            self._next_id = (self._next_id + count) % MAX_ID
        return chosen.tobytes(), count


def latencies_ns(run: Run, size: int, now_ns: int) -> Numbers:
    """Age of the payloads of published packets, `size` bytes at the end of each."""
    data = np.frombuffer(run.buffer, np.uint8, run.size * run.number, run.start)
    packets = data.reshape(run.number, run.size)
    stamps = np.ascontiguousarray(packets[:, run.size - size : run.size - size + STAMP])
    sent_ns: Numbers = stamps.view(">i8").astype(np.int64).reshape(-1)
    return now_ns - sent_ns


class ChannelLane(LoadLane):
    """A lane of which events may be refused or lost."""

    def __init__(
        self, publishers: Sequence[LoadPublisher], subscribers: Sequence[LoadClient], plan: Plan
    ) -> None:
        super().__init__(publishers, subscribers, plan)
        self._missed = [0] * len(subscribers)

    @property
    def refused(self) -> int:
        return sum(each.refused for each in self.publishers)

    @property
    def through(self) -> int:
        if not self.subscribers:
            return self.published
        counts = zip(self.subscribers, self._missed, strict=True)
        return self.refused + min(each.delivered + missed for each, missed in counts)

    def give_up(self) -> None:
        """Don't wait for events that have not arrived by now."""
        accepted = self.published - self.refused
        self._missed = [accepted - each.delivered for each in self.subscribers]


class ChannelLoad(LoadLoop):
    """All connections; can run repeatedly."""

    def __init__(self, target: LoadTarget, shape: LoadShape) -> None:
        self._target = target
        self._size = shape.size
        self._mqtt = Mqtt(V5, shape.qos)
        self._samples: Samples | None = None
        super().__init__(lambda stack: [self._connected(shape, stack)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, seconds: float, rate_hz: float | None, progress: Progress) -> Result:
        """Publish for so long, then wait for what is in flight."""
        lane, samples = self._lane, Samples()
        self._samples = samples if rate_hz is not None else None
        published, delivered, refused = lane.published, lane.delivered, lane.refused
        cpu_s, start_ns = process_time(), perf_counter_ns()
        end_ns = start_ns + int(seconds * 1e9)
        self._publish(start_ns, end_ns, rate_hz, progress)
        lane.target = lane.published
        self.fence(lane.publishers)
        self.finish(_STALL_S, _DRAIN_S)
        last_ns = max((each.last_ns for each in lane.subscribers), default=self.active_ns)
        published, refused = lane.published - published, lane.refused - refused
        delivered = lane.delivered - delivered
        return Result(
            published=published,
            delivered=delivered,
            lost=max((published - refused) * len(lane.subscribers) - delivered, 0),
            refused=refused,
            spent_s=(max(end_ns, last_ns) - start_ns) / 1e9,
            cpu_share=(process_time() - cpu_s) * 1e9 / (perf_counter_ns() - start_ns),
            samples=samples,
        )

    def _publish(
        self, start_ns: int, end_ns: int, rate_hz: float | None, progress: Progress
    ) -> None:
        lane = self._lane
        first, wait_s = lane.published, WAIT_S
        lane.target, lane.window = ENDLESS, lane.plan.window if rate_hz is None else ENDLESS
        now_ns = reported_ns = self.active_ns = start_ns
        while now_ns < end_ns:
            if rate_hz is not None:
                elapsed_s = (now_ns - start_ns) / 1e9
                lane.target = first + int(rate_hz * elapsed_s)
                next_s = (lane.published - first + 1) / rate_hz
                wait_s = min(max(next_s - elapsed_s, 0), WAIT_S)
            elif now_ns - self.active_ns > _STALL_S * 1e9:
                lane.give_up()
            self.turn(wait_s)
            now_ns = perf_counter_ns()
            if now_ns - reported_ns >= _PROGRESS_NS:
                progress(min((now_ns - start_ns) / (end_ns - start_ns), 1.0))
                reported_ns = now_ns

    # ---------------------------------------------------------------------------------- connecting

    def _connected(self, shape: LoadShape, stack: ExitStack) -> ChannelLane:
        token = secrets.token_hex(4)
        channel = f"bench/{token}"
        events = StampedEvents(channel, shape.size, shape.qos)
        subscribers = []
        for number in range(shape.subscribers):
            connection, _ = self._opened(f"{token}-sub-{number}", stack)
            self._mqtt.subscribe(connection, channel)
            subscribers.append(LoadClient(connection, self._mqtt))
            subscribers[-1].on_delivery = self._sample
        publishers = []
        for number in range(shape.publishers):
            connection, server = self._opened(f"{token}-pub-{number}", stack)
            limit = server.maximum_packet_size
            if limit is not None and events.packet_size > limit:
                raise LoadError(f"the node takes packets of at most {limit:,} bytes")
            window = min(server.receive_maximum or MAX_ID, _MAX_UNACKNOWLEDGED)
            publishers.append(LoadPublisher(connection, self._mqtt, events.take, window))
        plan = Plan(max(WINDOW_BYTES // events.packet_size, 1))
        self._lane = ChannelLane(publishers, subscribers, plan)
        return self._lane

    def _opened(self, name: str, stack: ExitStack) -> tuple[socket.socket, Properties]:
        target = self._target
        connection = socket.create_connection((target.host, target.port), _TIMEOUT_S)
        stack.enter_context(connection)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        packet = Connect(name, username=target.username, password=target.password)
        return connection, self._mqtt.connect(connection, packet)

    def _sample(self, run: Run, now_ns: int) -> None:
        if self._samples is not None:
            self._samples.add(latencies_ns(run, self._size, now_ns))
