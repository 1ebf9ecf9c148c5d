"""Workload: clients publish at rates, in bursts or at random, subscribe, and join and leave.

Each publisher and subscriber has its own random stream and schedules only its next step, so a long
workload takes no more memory than a short one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Final, Literal, Protocol

from msgspec import Struct

from accord.core.model.values import Value
from accord.sim.clock import Clock, stream
from accord.sim.machine import NUMBER_BYTES, Publication, SimSubscription, payload_of
from accord.sim.trace import SimulationError

FOREVER: Final = 1 << 62
S: Final = 1_000_000


class Choice(Struct, frozen=True, tag="choice"):
    """One of these, with equal probability."""

    values: tuple[Value, ...]

    def draw(self, random: Random) -> Value:
        return self.values[random.randrange(len(self.values))]


class Range(Struct, frozen=True, tag="range"):
    """A number from `least` to `most`, an integer if both are."""

    least: int | float
    most: int | float

    def draw(self, random: Random) -> Value:
        if isinstance(self.least, int) and isinstance(self.most, int):
            return random.randint(self.least, self.most)
        return random.uniform(self.least, self.most)


class Publisher(Struct, frozen=True, kw_only=True):
    """A client that publishes to one channel.

    `pattern`: evenly, at random (Poisson), or `burst` events at once followed by a pause that
    yields the rate.
    """

    name: str
    node: str
    channel: str
    rate_hz: float = 1.0
    pattern: Literal["steady", "poisson", "burst"] = "steady"
    burst: int = 10
    size_bytes: int = 100
    qos: int = 0
    deadline_us: int = 0
    attributes: Mapping[str, Choice | Range] = {}
    begin_us: int = 0
    end_us: int = FOREVER

    def __post_init__(self) -> None:
        if not 0.0 < self.rate_hz <= S:
            raise SimulationError(f"{self.name}: expected a rate up to {S} Hz, got {self.rate_hz}")
        if self.burst < 1 or self.size_bytes < NUMBER_BYTES:
            raise SimulationError(
                f"{self.name}: expected a burst of 1 or more, and {NUMBER_BYTES} bytes or more"
            )


class Subscriber(Struct, frozen=True, kw_only=True):
    """A client that subscribes; unless `away_us` is 0 it leaves and returns repeatedly."""

    name: str
    node: str
    filter: str
    where: str = ""
    xpath: str = ""
    qos: int = 0
    begin_us: int = 0
    end_us: int = FOREVER
    there_us: int = 60 * S  # mean, like `away_us`
    away_us: int = 0

    def subscription(self) -> SimSubscription:
        return SimSubscription(self.name, self.node, self.filter, self.where, self.xpath, self.qos)


class WorkloadTarget(Protocol):
    """What clients act upon."""

    @property
    def clock(self) -> Clock: ...

    def publish(self, publication: Publication, now_us: int) -> None: ...

    def subscribe(self, subscription: SimSubscription, now_us: int) -> None: ...

    def unsubscribe(self, subscription: SimSubscription, now_us: int) -> None: ...


class _Publishing:
    """A publisher's state."""

    def __init__(self, publisher: Publisher, random: Random) -> None:
        self.publisher = publisher
        self.random = random
        self.sequence = 0
        self.due = 0.0  # in µs, fractional, so that the rate is kept in the long run

    def pause_us(self) -> float:
        publisher = self.publisher
        mean_us = S / publisher.rate_hz
        if publisher.pattern == "poisson":
            return self.random.expovariate(1.0) * mean_us
        return mean_us * (publisher.burst if publisher.pattern == "burst" else 1)

    def next(self, number: int, now_us: int) -> Publication:
        self.sequence += 1
        publisher = self.publisher
        return Publication(
            number=number,
            publisher=publisher.name,
            node=publisher.node,
            channel=publisher.channel,
            sequence=self.sequence,
            published_us=now_us,
            payload=payload_of(number, publisher.size_bytes),
            attributes={
                name: source.draw(self.random) for name, source in publisher.attributes.items()
            },
            qos=publisher.qos,
            deadline_us=publisher.deadline_us,
        )


class Workload:
    """All clients of a run."""

    def __init__(
        self, publishers: tuple[Publisher, ...] = (), subscribers: tuple[Subscriber, ...] = ()
    ) -> None:
        self.publishers = publishers
        self.subscribers = subscribers
        self._published = 0
        self._world: WorkloadTarget | None = None
        for what, names in (
            ("publishers", [publisher.name for publisher in publishers]),
            ("subscribers", [f"{each.name} {each.filter}" for each in subscribers]),
        ):
            if len(dict.fromkeys(names)) != len(names):
                raise SimulationError(f"expected names of {what} that differ")

    def places(self) -> Iterator[tuple[str, str]]:
        """Names of clients, each with its node."""
        for publisher in self.publishers:
            yield publisher.name, publisher.node
        for subscriber in self.subscribers:
            yield subscriber.name, subscriber.node

    def begin(self, world: WorkloadTarget, seed: int) -> None:
        """Schedule the first step of every client."""
        if self._world is not None:
            raise SimulationError("expected a workload of its own for each simulation")
        self._world = world
        for subscriber in self.subscribers:
            random = stream(seed, "subscriber", subscriber.name, subscriber.filter)
            world.clock.at(subscriber.begin_us, self._join, (subscriber, random))
        for publisher in self.publishers:
            at_work = _Publishing(publisher, stream(seed, "publisher", publisher.name))
            # Random phase: otherwise clients with equal rates would publish simultaneously for
            # ever.
            offset = at_work.random.random() * at_work.pause_us()
            at_work.due = publisher.begin_us + offset
            world.clock.at(round(at_work.due), self._publish, at_work)

    def _publish(self, now_us: int, at_work: _Publishing) -> None:
        world = self._world
        assert world is not None
        publisher = at_work.publisher
        if now_us >= publisher.end_us:
            return
        for _ in range(publisher.burst if publisher.pattern == "burst" else 1):
            self._published += 1
            world.publish(at_work.next(self._published, now_us), now_us)
        at_work.due += at_work.pause_us()
        world.clock.at(round(at_work.due), self._publish, at_work)

    def _join(self, now_us: int, who: tuple[Subscriber, Random]) -> None:
        world = self._world
        assert world is not None
        subscriber, random = who
        if now_us >= subscriber.end_us:
            return
        world.subscribe(subscriber.subscription(), now_us)
        leaves_us = subscriber.end_us
        if subscriber.away_us:
            leaves_us = min(
                leaves_us, now_us + 1 + round(random.expovariate(1.0) * subscriber.there_us)
            )
        if leaves_us < FOREVER:
            world.clock.at(leaves_us, self._leave, who)

    def _leave(self, now_us: int, who: tuple[Subscriber, Random]) -> None:
        world = self._world
        assert world is not None
        subscriber, random = who
        world.unsubscribe(subscriber.subscription(), now_us)
        if subscriber.away_us:
            returns_us = now_us + 1 + round(random.expovariate(1.0) * subscriber.away_us)
            world.clock.at(returns_us, self._join, who)
