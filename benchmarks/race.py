"""Brokers in turns under the same load: what it costs them, round by round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Final, TypeVar

from benchmarks.contenders import Broker, Contender
from benchmarks.load import Burst, Load, Shape
from benchmarks.mqtt import Mqtt
from benchmarks.nats import Nats
from benchmarks.wire import Dialect, UnexpectedAnswerError

_WARM_UP_WINDOWS: Final = 3

Item = TypeVar("Item")


@dataclass(frozen=True)
class Case:
    """What is sent, and how."""

    shape: Shape
    payload_size: int
    qos: int
    level: int = 4

    def suits(self, contender: Contender) -> bool:
        return contender.is_mqtt or (self.qos == 0 and self.level == 4)

    def dialect(self, contender: Contender) -> Dialect:
        return Mqtt(self.level, self.qos) if contender.is_mqtt else Nats()


@dataclass
class Measured:
    """A contender in one case, round by round; `trouble` is why it left the race."""

    cpu_us: list[float] = field(default_factory=list)
    rate_hz: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    trouble: str | None = None

    def add(self, burst: Burst, cpu_s: float) -> None:
        self.cpu_us.append(cpu_s * 1e6 / burst.delivered)
        self.rate_hz.append(burst.delivered / burst.wall_s)
        self.busy.append(cpu_s / burst.wall_s)


class Entrant:
    """A broker with its load, in one case."""

    def __init__(self, broker: Broker, load: Load) -> None:
        self.measured = Measured()
        self._broker = broker
        self._load = load
        self._rate_hz = 0.0

    def prepare(self) -> None:
        """Warms the broker up and finds out how fast it is."""
        for _ in range(2):
            burst = complete(self._load.run(_WARM_UP_WINDOWS * self._load.window))
        self._rate_hz = burst.published / burst.wall_s

    def round(self, burst_s: float) -> None:
        before_s = self._broker.cpu_s()
        burst = complete(self._load.run(int(self._rate_hz * burst_s)))
        self.measured.add(burst, self._broker.cpu_s() - before_s)


def race(brokers: Sequence[Broker], case: Case, rounds: int, burst_s: float) -> dict[str, Measured]:
    """All brokers that the case suits, in turns."""
    racing = {broker.name: broker for broker in brokers if case.suits(broker.contender)}
    results = {name: Measured() for name in racing}
    with ExitStack() as stack:
        entrants: dict[str, Entrant] = {}

        def enter(broker: Broker) -> None:
            dialect = case.dialect(broker.contender)
            load = Load(broker.connect, dialect, case.shape, case.payload_size)
            entrant = Entrant(broker, stack.enter_context(closing(load)))
            entrant.prepare()
            results[broker.name] = entrant.measured
            entrants[broker.name] = entrant

        troubles = attempt(racing, enter)
        for _ in range(rounds):
            troubles |= attempt(entrants, lambda entrant: entrant.round(burst_s))
    for name, trouble in troubles.items():
        results[name].trouble = trouble
    return results


def attempt(entrants: dict[str, Item], act: Callable[[Item], object]) -> dict[str, str]:
    """`act` for each; who fails leaves the race. Returns the reasons, by name.

    Whatever a broker does wrong is its result, not the end of the benchmark.
    """
    troubles = {}
    for name, entrant in list(entrants.items()):
        try:
            act(entrant)
        except (OSError, UnexpectedAnswerError) as error:
            troubles[name] = str(error)
            del entrants[name]
    return troubles


def complete(burst: Burst) -> Burst:
    """A burst that all arrived of; UnexpectedAnswerError for others."""
    if burst.lost:
        raise UnexpectedAnswerError(f"{burst.lost:,} of {burst.expected:,} messages were lost")
    return burst
