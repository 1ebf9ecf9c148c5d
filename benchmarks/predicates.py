"""Predicates on the path: what events with attributes cost a node that has to match them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Final

from benchmarks.audience import SESSIONS, Audience, Deliveries, Expected
from benchmarks.connections import allow
from benchmarks.contenders import Broker, running
from benchmarks.options import Options, progress
from benchmarks.race import attempt
from benchmarks.report import Table, number, significant
from benchmarks.workloads import WORKLOADS, Keyed, Workload

ABOUT: Final = (
    "MQTT 5 messages of 100 B with attributes as user properties, QoS 0, to one channel that up to "
    f"{SESSIONS:,} sessions have subscribed to with predicates (`where`). One that has several has "
    "them with different filters, for no session has the same filter twice; a session "
    "gets an event once, however many of its predicates match. CPU time of the node's process: per "
    "published event, with what it delivers; the same per delivery; per SUBSCRIBE. Every delivery "
    "of one pass was checked to be what the index says."
)
_SIZES: Final = (0, 1, 1_000, 10_000, 100_000)
_LARGEST_QUICK: Final = 1_000
_EVENTS: Final = 500
_BURST_S: Final = 0.5
_QUICK_BURST_S: Final = 0.1
_MOST_PASSES: Final = 200
# With fewer deliveries per event than this, their cost drowns in that of matching.
_FEW: Final = 0.1
# Few attributes, of which hardly any predicate matches; and many, where one in 1,400 does, whose
# predicates take twice as long to parse.
_LARGEST: Final = {("siena_eq", "zipf"): 100_000, ("rein_eq", "uniform"): 10_000}


@dataclass(frozen=True)
class Stage:
    """A number of predicates, those that are new, and what one pass of events has to deliver."""

    size: int
    predicates: Sequence[Keyed]
    matches: int
    deliveries: Deliveries
    burst_s: float


class Entrant:
    """A node and its audience, which grows from stage to stage."""

    def __init__(self, broker: Broker, audience: Audience) -> None:
        self.subscribe_us: float | None = None
        self.event_us: list[float] = []
        self._broker = broker
        self._audience = audience
        self._pass_bytes = 0
        self._passes = 0

    def grow(self, stage: Stage) -> None:
        """Subscribes, checks what is delivered and finds out how long a pass takes."""
        self._audience.gather(stage.predicates)
        before_s = self._broker.cpu_s()
        self._audience.subscribe(stage.predicates)
        spent_s = self._broker.cpu_s() - before_s
        # The first one also pays for reading the grammar.
        many = len(stage.predicates) > 1
        self.subscribe_us = spent_s * 1e6 / len(stage.predicates) if many else None
        self.event_us = []
        self._audience.check(stage.deliveries)
        self._pass_bytes = self._audience.size_of(stage.deliveries)
        wall_s = self._audience.run(1, self._pass_bytes)
        self._passes = min(_MOST_PASSES, max(1, int(stage.burst_s / wall_s)))

    def round(self) -> None:
        before_s = self._broker.cpu_s()
        self._audience.run(self._passes, self._pass_bytes)
        spent_s = self._broker.cpu_s() - before_s
        self.event_us.append(spent_s * 1e6 / (self._passes * _EVENTS))


def run(options: Options) -> list[Table]:
    table = Table(
        "CPU µs with predicates",
        [
            "workload",
            "predicates",
            "filters",
            "node",
            "matches",
            "deliveries",
            "event",
            "delivery",
            "SUBSCRIBE",
        ],
    )
    # For the nodes, and for the sessions that two of them have from here.
    allow(2 * SESSIONS)
    with running(options, suits=lambda contender: contender.has_predicates) as contenders:
        for workload in WORKLOADS:
            largest = _LARGEST.get((workload.name, workload.distribution))
            if largest and contenders.brokers and options.has_workload(workload.name):
                largest = min(largest, _LARGEST_QUICK) if options.is_quick else largest
                _race(table, contenders.brokers, (workload, largest), options)
        table.notes += contenders.absent
    return [table]


def _race(
    table: Table, brokers: Sequence[Broker], asked: tuple[Workload, int], options: Options
) -> None:
    workload, largest = asked
    events = workload.events(_EVENTS)
    expected = Expected(events)
    predicates = workload.predicates(largest)
    done = 0
    with ExitStack() as stack:
        entrants: dict[str, Entrant] = {}

        def enter(broker: Broker) -> None:
            audience = stack.enter_context(closing(Audience(broker, events)))
            entrants[broker.name] = Entrant(broker, audience)

        troubles = attempt({broker.name: broker for broker in brokers}, enter)
        for size in (size for size in _SIZES if size <= largest):
            progress(f"predicates: {workload.name}, {size:,}")
            new = list(islice(predicates, size - done))
            done = size
            expected.add(new)
            burst_s = _QUICK_BURST_S if options.is_quick else _BURST_S
            stage = Stage(size, new, expected.matches(), expected.deliveries(), burst_s)
            troubles |= _stage(entrants, stage, options.rounds)
            for name, entrant in entrants.items():
                _add(table, workload, stage, name, entrant)
    table.notes += [f"{name}, {workload.name}: {trouble}." for name, trouble in troubles.items()]


def _stage(entrants: dict[str, Entrant], stage: Stage, rounds: int) -> dict[str, str]:
    troubles = attempt(entrants, lambda entrant: entrant.grow(stage))
    for _ in range(rounds):
        troubles |= attempt(entrants, Entrant.round)
    return troubles


def _add(table: Table, workload: Workload, stage: Stage, name: str, entrant: Entrant) -> None:
    event_us = median(entrant.event_us)
    deliveries = stage.deliveries.total() / _EVENTS
    table.add(
        workload.name,
        number(stage.size),
        number(-(-stage.size // SESSIONS)),
        name,
        number(stage.matches / _EVENTS, 2),
        number(deliveries, 2),
        significant(event_us),
        significant(event_us / deliveries if deliveries >= _FEW else None),
        significant(entrant.subscribe_us),
    )
