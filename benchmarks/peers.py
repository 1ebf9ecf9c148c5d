"""The index beside what others use for the same: rule-engine and RabbitMQ's headers exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Final

from accord.core.model.event import Event
from accord.predicates import Index
from benchmarks import rabbitmq
from benchmarks.measure import WrongAnswerError, alternate, apart, time_of
from benchmarks.naive import Naive, check
from benchmarks.options import Options, progress
from benchmarks.rabbitmq import QUEUES, Broker
from benchmarks.report import Table, number, significant
from benchmarks.rules import RuleEngine
from benchmarks.workloads import HEADERS, WORKLOADS, Keyed, Workload

ABOUT: Final = (
    "The same predicates and events, in one run, in turns; medians of CPU time per event. "
    "`rule-engine` is a Python library, its rules are evaluated one after the other. RabbitMQ's "
    "headers exchange filters by equality (`x-match: all`); its time is that of the broker's "
    "process, less what a message costs it without any binding, because the index here moves no "
    "messages. Answers were checked to be those of naive evaluation."
)
_LARGEST: Final = 10_000
_EVENTS: Final = 500
_CHECKED: Final = 5
_EXCHANGE: Final = "bindings"
_EMPTY: Final = "empty"

Row = tuple[str, ...]


def run(options: Options) -> list[Table]:
    sizes = [size for size in options.sizes if size <= _LARGEST]
    sizes = sizes[:1] if options.is_quick else sizes
    return [_rule_engine(sizes, options), _rabbitmq(sizes, options)]


def _rule_engine(sizes: Sequence[int], options: Options) -> Table:
    table = Table(
        "Beside rule-engine",
        ["workload", "predicates", "matches", "index µs", "naive µs", "rule-engine µs", "times"],
    )
    for workload in WORKLOADS:
        # Its rules expect every attribute, which only these workloads give.
        if workload.name not in ("rein", "rein_eq") or workload.distribution != "uniform":
            continue
        for size in sizes:
            progress(f"peers: rule-engine, {workload.name}, {size:,} predicates")
            table.add(*apart(_race_rules, workload, size, options))
    table.notes = ["times: rule-engine by index."]
    return table


def _race_rules(workload: Workload, size: int, options: Options) -> Row:
    predicates = list(workload.predicates(size))
    index, naive, rules = _indexed(predicates), Naive(predicates), RuleEngine(predicates)
    events = workload.events(_EVENTS)
    check("rule-engine", rules.match, naive, events[:_CHECKED])
    check("index", lambda event: index.match(event).keys, naive, events[:_CHECKED])
    few = events[: max(2, 20_000 // size)]
    spans = alternate(
        {
            "index": lambda: _each(index.match, events),
            "naive": lambda: _each(naive.match, few),
            "rules": lambda: _each(rules.match, few),
        },
        options.rounds,
    )
    index_us = spans["index"].cpu_s * 1e6 / len(events)
    naive_us, rules_us = (spans[name].cpu_s * 1e6 / len(few) for name in ("naive", "rules"))
    return (
        workload.name,
        number(size),
        significant(_matches(index, events)),
        significant(index_us),
        significant(naive_us),
        significant(rules_us),
        significant(rules_us / index_us),
    )


def _rabbitmq(sizes: Sequence[int], options: Options) -> Table:
    table = Table(
        "Beside RabbitMQ's headers exchange",
        ["workload", "predicates", "matches", "index µs", "RabbitMQ µs", "with I/O µs", "times"],
    )
    if reason := rabbitmq.missing():
        progress(f"peers: no RabbitMQ, {reason}")
        table.notes = [f"Left out: {reason}."]
        return table
    for size in sizes:
        progress(f"peers: RabbitMQ, {size:,} bindings")
        table.add(*_race_rabbitmq(size, options))
    table.notes = [
        "with I/O: all that the broker does for a message; times: RabbitMQ without I/O by index.",
        f"Bindings lead to {QUEUES} queues, that the broker drops the oldest messages of.",
    ]
    return table


def _race_rabbitmq(size: int, options: Options) -> Row:
    predicates = list(HEADERS.predicates(size))
    index, events = _indexed(predicates), HEADERS.events(_EVENTS)
    few = events[: max(20, 500_000 // size)]
    with rabbitmq.running() as broker:
        broker.bind(_EXCHANGE, predicates)
        broker.bind(_EMPTY, [])
        _check_broker(broker, Naive(predicates), events[:_CHECKED])
        rounds = [_round(broker, index, few, events) for _ in range(options.rounds)]
    bound_us, empty_us, index_us = (median(spent) for spent in zip(*rounds, strict=True))
    return (
        HEADERS.name,
        number(size),
        significant(_matches(index, events)),
        significant(index_us),
        significant(bound_us - empty_us),
        significant(bound_us),
        significant((bound_us - empty_us) / index_us),
    )


def _round(
    broker: Broker, index: Index, few: Sequence[Event], events: Sequence[Event]
) -> tuple[float, float, float]:
    """µs per event: with bindings, without, and through the index."""
    bound_us = _broker_us(broker, _EXCHANGE, few)
    # Cheap and the kernel counts in hundredths of a second: many, to see anything.
    empty_us = _broker_us(broker, _EMPTY, list(events) * 4)
    span = time_of(lambda: _each(index.match, events))
    return bound_us, empty_us, span.cpu_s * 1e6 / len(events)


def _broker_us(broker: Broker, exchange: str, events: Sequence[Event]) -> float:
    before = broker.cpu_s()
    broker.publish(exchange, events)
    return (broker.cpu_s() - before) * 1e6 / len(events)


def _check_broker(broker: Broker, naive: Naive, events: Iterable[Event]) -> None:
    for event in events:
        expected = {key % QUEUES for key in naive.match(event)}
        if broker.reached(_EXCHANGE, event) != expected:
            raise WrongAnswerError(f"RabbitMQ differs from naive for {event.attributes}")


def _indexed(predicates: Iterable[Keyed]) -> Index:
    index = Index()
    for key, predicate in predicates:
        index.add(key, predicate)
    return index


def _each(match: Callable[[Event], object], events: Iterable[Event]) -> None:
    for event in events:
        match(event)


def _matches(index: Index, events: Sequence[Event]) -> float:
    return sum(len(index.match(event).keys) for event in events) / len(events)
