"""Load for a broker: publishers and subscribers of one process, saturating it without a drop.

A lane is a set of publishers and subscribers that share topics. Publishers send prepared chunks of
frames, as long as no more than a window of messages is on its way to the slowest subscriber: the
broker always has work, in batches, and its queues stay short. It is one loop over sockets that
don't block; where a broker takes no more, the loop waits for what it delivers. A reader that wakes
for every message makes a broker pay for waking it, about as much as for moving the message: where
little arrives, the loop sleeps for a moment.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, cycle
from time import perf_counter, sleep
from typing import Final

from benchmarks.ends import Publisher, Subscriber
from benchmarks.wire import Dialect

# On the way per lane, and sent at once: enough to fill every read of a broker.
_WINDOW_BYTES: Final = 512 * 1024
_CHUNK_BYTES: Final = 32 * 1024
_LITTLE_BYTES: Final = 16 * 1024
_PAUSE_S: Final = 0.001
_STALL_S: Final = 5.0

Connect = Callable[[], socket.socket]


@dataclass(frozen=True)
class Shape:
    """How many publish to how many, and how many such lanes there are.

    The publishers of a lane go through its topics, of which each subscriber has one.
    """

    name: str
    publishers: int = 1
    subscribers: int = 1
    topics: int = 1
    lanes: int = 1


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


@dataclass(frozen=True)
class Plan:
    """In messages: how many a publisher sends at once, and how many may be on their way."""

    chunk: int
    window: int
    topics: int = 1

    @classmethod
    def of(cls, frame_size: int, most_unacknowledged: int, topics: int = 1) -> Plan:
        most = min(_WINDOW_BYTES // frame_size, most_unacknowledged)
        rounds = min(_CHUNK_BYTES // frame_size, most) // topics
        chunk = max(1, rounds) * topics
        return cls(chunk, max(1, most // chunk) * chunk, topics)


class Lane:
    """Publishers, and the subscribers that get what they publish."""

    def __init__(
        self, publishers: Sequence[Publisher], subscribers: Sequence[Subscriber], plan: Plan
    ) -> None:
        self.publishers = deque(publishers)
        self.subscribers = subscribers
        self.plan = plan
        self._target = 0
        self._receivers = len(subscribers) // plan.topics

    @property
    def published(self) -> int:
        return sum(publisher.sent for publisher in self.publishers)

    @property
    def delivered(self) -> int:
        return sum(subscriber.delivered for subscriber in self.subscribers)

    @property
    def is_done(self) -> bool:
        return (
            self.delivered == self._target * self._receivers
            and not any(publisher.unacknowledged for publisher in self.publishers)
            and all(subscriber.is_idle for subscriber in self.subscribers)
        )

    def begin(self, count: int) -> int:
        """`count` messages more, rounded up to chunks: how many are to be delivered."""
        chunks = -(-count // self.plan.chunk)
        self._target = self.published + chunks * self.plan.chunk
        return chunks * self.plan.chunk * self._receivers

    def feed(self) -> None:
        """Sends what the window allows, publishers in turns."""
        chunk, published = self.plan.chunk, self.published
        fewest = min(subscriber.delivered for subscriber in self.subscribers)
        slowest = fewest * self.plan.topics
        limit = min(self._target, slowest + self.plan.window)
        refused = 0
        while refused < len(self.publishers) and published + chunk <= limit:
            publisher = self.publishers[0]
            self.publishers.rotate(-1)
            if publisher.is_idle and publisher.unacknowledged + chunk <= self.plan.window:
                publisher.send()
                published += chunk
                refused = 0
            else:
                refused += 1


class Load:
    """All lanes of a shape, connected to one broker."""

    def __init__(self, connect: Connect, dialect: Dialect, shape: Shape, payload_size: int) -> None:
        self._fence = dialect.fence
        self._ends: dict[int, Publisher | Subscriber] = {}
        with ExitStack() as stack:
            self._poll = stack.enter_context(select.epoll())
            self._lanes = [
                _lane(lambda: stack.enter_context(connect()), dialect, shape, number, payload_size)
                for number in range(shape.lanes)
            ]
            for lane in self._lanes:
                self._watch([*lane.publishers, *lane.subscribers])
            self._stack = stack.pop_all()

    @property
    def window(self) -> int:
        """How many messages are on their way at most."""
        return sum(lane.plan.window for lane in self._lanes)

    def run(self, count: int) -> Burst:
        """Publishes about `count` messages; returns when they have arrived, or no more come."""
        lanes = self._lanes
        published, delivered = self._published, self._delivered
        started = perf_counter()
        expected = sum(lane.begin(-(-count // len(lanes))) for lane in lanes)
        if self._drive():
            for subscriber in chain.from_iterable(lane.subscribers for lane in lanes):
                subscriber.wait(*self._fence)
        wall_s = perf_counter() - started
        return Burst(self._published - published, expected, self._delivered - delivered, wall_s)

    def close(self) -> None:
        self._stack.close()

    def _watch(self, ends: Sequence[Publisher | Subscriber]) -> None:
        for end in ends:
            end.connection.setblocking(False)
            self._ends[end.connection.fileno()] = end
            self._poll.register(end.connection, select.EPOLLIN)

    @property
    def _published(self) -> int:
        return sum(lane.published for lane in self._lanes)

    @property
    def _delivered(self) -> int:
        return sum(lane.delivered for lane in self._lanes)

    def _drive(self) -> bool:
        """False if the broker has gone silent before all had arrived."""
        ends = self._ends
        while not all(lane.is_done for lane in self._lanes):
            for lane in self._lanes:
                lane.feed()
            ready = self._poll.poll(_STALL_S)
            if not ready:
                return False
            received = sum(ends[number].take() for number, _ in ready)
            for end in ends.values():
                if not end.is_idle:
                    end.push()
            if received < _LITTLE_BYTES:
                sleep(_PAUSE_S)
        return True


def _lane(connect: Connect, dialect: Dialect, shape: Shape, lane: int, payload_size: int) -> Lane:
    # All of the same length, so that all deliveries are.
    topics = [f"bench/{lane}/{number}" for number in range(shape.topics)]
    delivery = dialect.delivery(topics[0], payload_size)
    subscribers = []
    for number in range(shape.subscribers):
        connection = connect()
        dialect.enter(connection, f"subscriber/{lane}/{number}")
        dialect.subscribe(connection, topics[number % len(topics)])
        subscribers.append(Subscriber(connection, delivery))
    connections = [connect() for _ in range(shape.publishers)]
    most = min(
        dialect.enter(connection, f"publisher/{lane}/{number}")
        for number, connection in enumerate(connections)
    )
    plan = Plan.of(delivery.size, most, len(topics))
    chunks = _chunks(dialect, topics, bytes(payload_size), plan)
    publishers = [
        Publisher(connection, chunks, plan.chunk, has_acks=dialect.has_acks)
        for connection in connections
    ]
    return Lane(publishers, subscribers, plan)


def _chunks(dialect: Dialect, topics: Sequence[str], payload: bytes, plan: Plan) -> list[bytes]:
    """One more than the window holds: no packet identifier is used again before its time."""
    return [
        b"".join(
            dialect.message(topic, payload, start + number)
            for number, topic in zip(range(plan.chunk), cycle(topics), strict=False)
        )
        for start in range(1, plan.window + plan.chunk + 1, plan.chunk)
    ]
