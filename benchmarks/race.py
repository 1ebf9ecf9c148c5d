"""Brokers in turns under the same load: what it costs them, round by round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Final, TypeVar

from accord.apps.load.frames import LoadError
from benchmarks.contenders import PLAIN, Broker, Contender, Setup
from benchmarks.contents import Content
from benchmarks.load import Burst, Bursts, Load, Messages, Shape
from benchmarks.mqtt import Mqtt
from benchmarks.nats import Nats
from benchmarks.selecting import Selecting
from benchmarks.selections import Selection
from benchmarks.wire import Dialect

_WARM_UP_WINDOWS: Final = 3
# Who takes so long for a window is warm.
_LONG_S: Final = 0.5

Item = TypeVar("Item")
Key = TypeVar("Key")


@dataclass(frozen=True)
class Case:
    """What is sent, and how.

    `where` is a predicate that all messages meet. With a `selection`, brokers that have predicates
    get subscribers with these, others a plain one, and all get the same messages. `most` is the
    bar: how many times mosquitto's cost it may be, or that of the case `beside`.
    """

    shape: Shape
    payload_size: int
    qos: int
    level: int = 4
    group: str = "plain"
    name: str = ""
    content: Content | None = None
    where: str = ""
    selection: Selection | None = None
    session_s: int = 0
    setup: Setup = PLAIN
    most: float | None = None
    beside: str = ""

    def suits(self, contender: Contender) -> bool:
        return contender.is_mqtt or (self.qos == 0 and self.level == 4)

    def dialect(self, contender: Contender) -> Dialect:
        if not contender.is_mqtt:
            return Nats()
        return Mqtt(self.level, self.qos, session_s=self.session_s)

    def load(self, broker: Broker) -> Bursts:
        content, where = self.content, self.where
        if self.selection is not None:
            if broker.contender.has_predicates:
                return Selecting(broker, self.selection)
            content = self.selection.content
        if not broker.contender.has_predicates:
            where = ""
        dialect = self.dialect(broker.contender)
        messages = Messages(self.payload_size, content, where)
        return Load(broker.connect, dialect, self.shape, messages)

    def messages(self, burst: Burst) -> int:
        """Those whose cost it is: delivered ones, unless predicates decide on that."""
        return burst.delivered if self.selection is None else burst.published


@dataclass
class Measured:
    """A contender in one case, round by round; `trouble` is why it left the race."""

    cpu_us: list[float] = field(default_factory=list)
    rate_hz: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    trouble: str | None = None

    def add(self, burst: Burst, messages: int, cpu_s: float) -> None:
        self.cpu_us.append(cpu_s * 1e6 / messages)
        self.rate_hz.append(messages / burst.wall_s)
        self.busy.append(cpu_s / burst.wall_s)


class Entrant:
    """A broker with its load, in one case."""

    def __init__(self, broker: Broker, load: Bursts, case: Case) -> None:
        self.measured = Measured()
        self._broker = broker
        self._load = load
        self._case = case
        self._rate_hz = 0.0

    def prepare(self) -> None:
        """Warms the broker up and finds out how fast it is."""
        burst = complete(self._load.run(self._load.window))
        for _ in range(2):
            if burst.wall_s < _LONG_S:
                burst = complete(self._load.run(_WARM_UP_WINDOWS * self._load.window))
        self._rate_hz = burst.published / burst.wall_s
        self._load.settle()

    def round(self, burst_s: float) -> None:
        before_s = self._broker.cpu_s()
        burst = complete(self._load.run(max(1, int(self._rate_hz * burst_s))))
        spent_s = self._broker.cpu_s() - before_s
        self.measured.add(burst, self._case.messages(burst), spent_s)

    def finish(self) -> None:
        """After the last round: has everybody got what it had to, and no more?"""
        self._load.settle()


def race(brokers: Sequence[Broker], case: Case, rounds: int, burst_s: float) -> dict[str, Measured]:
    """All brokers that the case suits, in turns."""
    racing = {broker.name: broker for broker in brokers if case.suits(broker.contender)}
    results = {name: Measured() for name in racing}
    with ExitStack() as stack:
        entrants: dict[str, Entrant] = {}

        def enter(broker: Broker) -> None:
            load = case.load(broker)
            entrant = Entrant(broker, stack.enter_context(closing(load)), case)
            entrant.prepare()
            results[broker.name] = entrant.measured
            entrants[broker.name] = entrant

        troubles = attempt(racing, enter)
        for _ in range(rounds):
            troubles |= attempt(entrants, lambda entrant: entrant.round(burst_s))
        troubles |= attempt(entrants, Entrant.finish)
    for name, trouble in troubles.items():
        results[name].trouble = trouble
    return results


def attempt(entrants: dict[Key, Item], act: Callable[[Item], object]) -> dict[Key, str]:
    """`act` for each; who fails leaves the race. Returns the reasons, by name.

    Whatever a broker does wrong is its result, not the end of the benchmark.
    """
    troubles = {}
    for name, entrant in list(entrants.items()):
        try:
            act(entrant)
        except (OSError, LoadError) as error:
            troubles[name] = str(error)
            del entrants[name]
    return troubles


def complete(burst: Burst) -> Burst:
    """A burst that all arrived of; LoadError for others."""
    if burst.lost < 0:
        raise LoadError(f"{-burst.lost:,} messages came that were for nobody")
    if burst.lost:
        raise LoadError(f"{burst.lost:,} of {burst.expected:,} messages were lost")
    return burst
