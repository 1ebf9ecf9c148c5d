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
from functools import lru_cache
from itertools import chain, cycle, islice
from time import perf_counter, sleep
from typing import Final

from benchmarks.contents import DIFFERENT, Content
from benchmarks.ends import Publisher, Subscriber
from benchmarks.mqtt import Mqtt
from benchmarks.wire import Delivery, Dialect

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

    @property
    def fenced(self) -> Sequence[Subscriber]:
        """Those that are asked after each burst whether there is more than was published."""
        return self.subscribers

    def check(self) -> None:
        """UnexpectedAnswerError where some got less and others more than they have to."""

    @property
    def through(self) -> int:
        """How many messages are certainly on their way no more."""
        return min(subscriber.delivered for subscriber in self.subscribers) * self.plan.topics

    def begin(self, count: int) -> int:
        """`count` messages more, rounded up to chunks: how many are to be delivered."""
        chunks = -(-count // self.plan.chunk)
        self._target = self.published + chunks * self.plan.chunk
        return chunks * self.plan.chunk * self._receivers

    def feed(self) -> None:
        """Sends what the window allows, publishers in turns."""
        chunk, published = self.plan.chunk, self.published
        limit = min(self._target, self.through + self.plan.window)
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


class SharingLane(Lane):
    """Whose subscribers share a subscription: each message reaches one of them."""

    @property
    def through(self) -> int:
        return self.delivered

    def begin(self, count: int) -> int:
        self._receivers = 1
        return super().begin(count)


class Traffic:
    """Lanes, driven by one loop; `make` connects them to a broker."""

    def __init__(
        self, fence: tuple[bytes, bytes], make: Callable[[ExitStack], Sequence[Lane]]
    ) -> None:
        self._fence = fence
        self._ends: dict[int, Publisher | Subscriber] = {}
        with ExitStack() as stack:
            self._poll = stack.enter_context(select.epoll())
            self._lanes = make(stack)
            for lane in self._lanes:
                self._watch([*lane.publishers, *lane.subscribers])
            self._stack = stack.pop_all()

    @property
    def window(self) -> int:
        """How many messages are on their way at most."""
        return sum(lane.plan.window for lane in self._lanes)

    def run(self, count: int, *, is_fenced: bool = True) -> Burst:
        """Publishes about `count` messages; returns when they have arrived, or no more come.

        Where it is not fenced, nobody is asked whether there is more than was published.
        """
        lanes = self._lanes
        published, delivered = self._published, self._delivered
        started = perf_counter()
        expected = sum(lane.begin(-(-count // len(lanes))) for lane in lanes)
        if self._drive() and is_fenced:
            for subscriber in chain.from_iterable(lane.fenced for lane in lanes):
                subscriber.wait(*self._fence)
        wall_s = perf_counter() - started
        return Burst(self._published - published, expected, self._delivered - delivered, wall_s)

    def settle(self) -> None:
        """Asks every subscriber whether there is more than was published."""
        for lane in self._lanes:
            for subscriber in lane.subscribers:
                subscriber.wait(*self._fence)
            lane.check()

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
        return dialect.delivery_of(self.content.frame(dialect, topic, self.payload_size), topic)


class Load(Traffic):
    """All lanes of a shape, connected to one broker; subscribers may have a predicate."""

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        connect: Connect,
        dialect: Dialect,
        shape: Shape,
        payload_size: int,
        content: Content | None = None,
        where: str = "",
    ) -> None:
        messages = Messages(payload_size, content, where)

        def make(stack: ExitStack) -> list[Lane]:
            return [
                _lane(lambda: stack.enter_context(connect()), dialect, shape, number, messages)
                for number in range(shape.lanes)
            ]

        super().__init__(dialect.fence, make)


def _lane(connect: Connect, dialect: Dialect, shape: Shape, lane: int, messages: Messages) -> Lane:
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
        subscribers.append(Subscriber(connection, delivery))
    connections = [connect() for _ in range(shape.publishers)]
    most = min(
        dialect.enter(connection, f"publisher/{lane}/{number}")
        for number, connection in enumerate(connections)
    )
    plan = Plan.of(delivery.size, most, len(topics))
    chunks = _chunks(dialect, topics, messages, plan)
    publishers = [
        Publisher(connection, chunks, plan.chunk, has_acks=dialect.has_acks)
        for connection in connections
    ]
    kind = SharingLane if shape.is_shared else Lane
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
