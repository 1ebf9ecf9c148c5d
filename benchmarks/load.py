"""Load for a broker: publishers and subscribers of one process, saturating it without a drop.

A lane is a set of publishers and subscribers that share topics. Publishers send prepared chunks of
frames, and a burst is over when all subscribers have what was published.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle, islice
from time import perf_counter
from typing import Final

from accord.apps.load.frames import LoadError
from accord.apps.load.traffic import LoadClient, LoadLane, LoadLoop, LoadPublisher, Plan, Source
from benchmarks.contents import DIFFERENT, Content
from benchmarks.mqtt import Mqtt
from benchmarks.wire import Delivery, Dialect

# On the way per lane, and sent at once: enough to fill every read of a broker.
_WINDOW_BYTES: Final = 512 * 1024
_CHUNK_BYTES: Final = 32 * 1024
_READ_BYTES: Final = 1024 * 1024
_PAUSE_S: Final = 0.001
_STALL_S: Final = 5.0
_PATIENCE_S: Final = 30.0

Connect = Callable[[], socket.socket]


@dataclass(frozen=True)
class Shape:
    """How many publish to how many, and how many such lanes there are.

    The publishers of a lane go through its topics, of which each subscriber has one. Where they
    share a subscription, each message reaches one of them.
    """

    name: str
    publishers: int = 1
    subscribers: int = 1
    topics: int = 1
    lanes: int = 1
    is_shared: bool = False


@dataclass(frozen=True)
class Burst:
    """What was published, should have been delivered and was, in what time."""

    published: int
    expected: int
    delivered: int
    wall_s: float

    @property
    def lost(self) -> int:
        return self.expected - self.delivered


def plan_of(frame_size: int, most_unacknowledged: int, topics: int = 1) -> Plan:
    most = min(_WINDOW_BYTES // frame_size, most_unacknowledged)
    rounds = min(_CHUNK_BYTES // frame_size, most) // topics
    chunk = max(1, rounds) * topics
    return Plan(max(1, most // chunk) * chunk, chunk, topics)


class BurstLane(LoadLane):
    """A lane whose publishers send prepared chunks, so many messages at a time."""

    @property
    def fenced(self) -> Sequence[LoadClient]:
        """Those that are asked after each burst whether there is more than was published."""
        return self.subscribers

    @property
    def receivers(self) -> int:
        """How many get each message."""
        return len(self.subscribers) // self.plan.topics

    def begin(self, count: int) -> int:
        """`count` messages more, rounded up to chunks: how many are to be delivered."""
        chunks = -(-count // self.plan.chunk)
        self.target = self.published + chunks * self.plan.chunk
        return chunks * self.plan.chunk * self.receivers


class SharingLane(BurstLane):
    """Whose subscribers share a subscription: each message reaches one of them."""

    receivers = 1

    @property
    def through(self) -> int:
        return self.delivered


class Bursts(LoadLoop):
    """Lanes of which each gets so many messages at once; `make` connects them to a broker."""

    lanes: Sequence[BurstLane]

    def __init__(self, make: Callable[[ExitStack], Sequence[BurstLane]]) -> None:
        super().__init__(make, _PAUSE_S)

    @property
    def window(self) -> int:
        """How many messages are on their way at most."""
        return sum(lane.window for lane in self.lanes)

    def run(self, count: int, *, is_fenced: bool = True) -> Burst:
        """Publishes about `count` messages; returns when they have arrived, or no more come.

        Where it is not fenced, nobody is asked whether there is more than was published.
        """
        lanes = self.lanes
        published, delivered = self._published, self._delivered
        started = perf_counter()
        expected = sum(lane.begin(-(-count // len(lanes))) for lane in lanes)
        if self.finish(_STALL_S) and is_fenced:
            self._ask([each for lane in lanes for each in lane.fenced])
        wall_s = perf_counter() - started
        return Burst(self._published - published, expected, self._delivered - delivered, wall_s)

    def settle(self) -> None:
        """Asks every subscriber whether there is more than was published."""
        delivered = self._delivered
        self._ask([each for lane in self.lanes for each in lane.subscribers])
        if more := self._delivered - delivered:
            raise LoadError(f"{more:,} messages more than was published")

    def _ask(self, subscribers: Sequence[LoadClient]) -> None:
        self.fence(subscribers)
        if not self.finish(_PATIENCE_S):
            raise LoadError("a subscriber has other than it has to, or gets no answer")

    @property
    def _published(self) -> int:
        return sum(lane.published for lane in self.lanes)

    @property
    def _delivered(self) -> int:
        return sum(lane.delivered for lane in self.lanes)


def subscriber(connection: socket.socket, dialect: Dialect, frame_size: int) -> LoadClient:
    # As much as may be on the way, so that a broker never waits for its subscriber.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _READ_BYTES)
    return LoadClient(connection, dialect, frame_size)


def in_turns(chunks: Sequence[bytes], size: int) -> Source:
    """Prepared chunks of `size` messages each, always whole."""
    following = cycle(chunks)
    return lambda most: (next(following), size) if most >= size else (b"", 0)


@dataclass(frozen=True)
class Messages:
    """What is published, without content all the same; and a predicate that all of them meet."""

    payload_size: int
    content: Content | None = None
    where: str = ""

    def delivery(self, dialect: Dialect, topic: str) -> Delivery:
        if self.content is None:
            return dialect.delivery(topic, self.payload_size)
        assert isinstance(dialect, Mqtt)
        return dialect.delivery_of(self.content.frame(dialect, topic, self.payload_size))


class Load(Bursts):
    """All lanes of a shape, connected to one broker; subscribers may have a predicate."""

    def __init__(
        self, connect: Connect, dialect: Dialect, shape: Shape, messages: Messages
    ) -> None:
        def make(stack: ExitStack) -> list[BurstLane]:
            return [
                _lane(lambda: stack.enter_context(connect()), dialect, shape, number, messages)
                for number in range(shape.lanes)
            ]

        super().__init__(make)


def _lane(
    connect: Connect, dialect: Dialect, shape: Shape, lane: int, messages: Messages
) -> BurstLane:
    # All of the same length, so that all deliveries are.
    topics = tuple(f"bench/{lane}/{number}" for number in range(shape.topics))
    delivery = messages.delivery(dialect, topics[0])
    subscribers = []
    for number in range(shape.subscribers):
        connection = connect()
        dialect.enter(connection, f"subscriber/{lane}/{number}")
        topic = topics[number % len(topics)]
        asked = f"$share/group/{topic}" if shape.is_shared else topic
        dialect.subscribe(connection, asked, messages.where)
        subscribers.append(subscriber(connection, dialect, delivery.size))
    connections = [connect() for _ in range(shape.publishers)]
    most = min(
        dialect.enter(connection, f"publisher/{lane}/{number}")
        for number, connection in enumerate(connections)
    )
    plan = plan_of(delivery.size, most, len(topics))
    chunks = _chunks(dialect, topics, messages, plan)
    publishers = [
        LoadPublisher(connection, dialect, in_turns(chunks, plan.chunk), plan.window)
        for connection in connections
    ]
    kind = SharingLane if shape.is_shared else BurstLane
    return kind(publishers, subscribers, plan)


def _chunks(
    dialect: Dialect, topics: tuple[str, ...], messages: Messages, plan: Plan
) -> list[bytes]:
    """Of packet identifiers, one chunk more than the window holds: none is used before its time."""
    ids = range(1, plan.window + plan.chunk + 1)
    if messages.content is None:
        payload = bytes(messages.payload_size)
        frames = [
            dialect.message(topic, payload, number)
            for number, topic in zip(ids, cycle(topics), strict=False)
        ]
    else:
        assert isinstance(dialect, Mqtt)
        frames = different_frames(dialect, topics, messages.content, messages.payload_size, ids)
    return [
        b"".join(frames[start : start + plan.chunk]) for start in range(0, len(frames), plan.chunk)
    ]


@lru_cache(maxsize=4)
def different_frames(
    dialect: Mqtt, topics: tuple[str, ...], content: Content, payload_size: int, ids: range
) -> list[bytes]:
    """Whole rounds through the packet identifiers; prepared once for all contenders."""
    rounds = -(-DIFFERENT // len(ids))
    packet_ids = list(islice(cycle(ids), rounds * len(ids)))
    return content.frames(dialect, topics, payload_size, packet_ids)
