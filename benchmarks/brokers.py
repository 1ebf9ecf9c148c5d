"""What a delivered message costs each broker: CPU time of its process, under saturating load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import median
from typing import Final

from benchmarks import ledger
from benchmarks.aims import Aim, aims_table, at_most
from benchmarks.cases import NOTES, cases
from benchmarks.contenders import CONTENDERS, running
from benchmarks.options import Options, progress
from benchmarks.race import Case, Measured, race
from benchmarks.report import Table, number, significant

ABOUT: Final = (
    "CPU time that a broker's process uses per delivered message, in user and kernel, while one "
    "other process publishes and subscribes as fast as the broker takes it, with at most 512 KB on "
    "the way to a subscriber. In pairs: ten connections publish, each to one other; by topic: one "
    "publishes to ten topics in turns, and each topic has one subscriber. Properties, and when "
    "messages expire, differ from one message to the next: 40,000 different ones go round. All "
    "brokers of a case run, contenders take turns; medians of the rounds. Everything that had to "
    "be delivered was counted as it arrived, to each subscriber, and nothing else came."
)
_REFERENCE: Final = "mosquitto"
_BURST_S: Final = 0.5
_QUICK_BURST_S: Final = 0.1

Results = dict[Case, dict[str, Measured]]


def run(options: Options) -> list[Table]:
    results, absent = _raced(options)
    tables = [_costs(results, absent), _rates(results)] if results else []
    aims = list(_aims(results))
    if options.has_case(ledger.GROUP):
        table, found = ledger.measure(options)
        tables.append(table)
        aims += found
    return [*tables, aims_table(aims, "Bars")]


def _raced(options: Options) -> tuple[Results, list[str]]:
    """Brokers start anew for each setup."""
    burst_s = _QUICK_BURST_S if options.is_quick else _BURST_S
    results: Results = {}
    absent: list[str] = []
    for setup, same in groupby(cases(options), key=lambda case: case.setup):
        chosen = list(same)
        suiting = {each for each in CONTENDERS for case in chosen if case.suits(each)}
        with running(options, suits=suiting.__contains__, setup=setup) as contenders:
            for case in chosen:
                progress(f"brokers: {', '.join(_labels(case))}")
                results[case] = race(contenders.brokers, case, options.rounds, burst_s)
            absent += contenders.absent
    return results, list(dict.fromkeys(absent))


def _names(results: Results) -> list[str]:
    raced = {name for measured in results.values() for name in measured}
    return [contender.name for contender in CONTENDERS if contender.name in raced]


def _costs(results: Results, absent: Iterable[str]) -> Table:
    names = _names(results)
    compared = [name for name in names if name != _REFERENCE and _REFERENCE in names]
    table = Table(
        "CPU µs per delivered message",
        [*_LABELS, *names, *(f"{name} by {_REFERENCE}" for name in compared)],
    )
    for case in results:
        costs = {name: _cost(results, case, name) for name in names}
        cells = [significant(costs[name]) for name in names]
        ratios = [_ratio(costs[name], costs.get(_REFERENCE)) for name in compared]
        table.add(*_labels(case), *cells, *ratios)
    groups = {case.group for case in results}
    notes = [note for note in NOTES if note.partition(":")[0] in groups]
    table.notes = [*notes, *absent, *_troubles(results)]
    return table


def _aims(results: Results) -> Iterable[Aim]:
    by_name = {(case.group, case.name): case for case in results}
    for contender in (each.name for each in CONTENDERS if each.has_predicates):
        for case, measured in results.items():
            if case.most is None or contender not in measured:
                continue
            where = f"{contender}: {case.group}, {case.name}"
            cost = _cost(results, case, contender)
            if case.beside:
                other = by_name[case.group, case.beside]
                reference = _cost(results, other, contender)
            else:
                reference = _cost(results, case, _REFERENCE)
            wanted = (case.most, case.beside or _REFERENCE)
            yield at_most(where, wanted, cost, reference, "µs")


def _cost(results: Results, case: Case, name: str) -> float | None:
    measured = results[case].get(name)
    return _median(measured.cpu_us) if measured is not None else None


def _rates(results: Results) -> Table:
    names = _names(results)
    table = Table("Delivered per second", [*_LABELS, *names, *(f"{name} busy" for name in names)])
    for case, measured in results.items():
        rates = [_median(measured[name].rate_hz) if name in measured else None for name in names]
        busy = [_median(measured[name].busy) if name in measured else None for name in names]
        table.add(*_labels(case), *map(number, rates), *(number(share, 2) for share in busy))
    table.notes = [
        "busy: cores that the broker uses. Both processes share the machine: rates are rough."
    ]
    return table


_LABELS: Final = ("group", "case", "shape", "payload", "QoS", "MQTT")


def _labels(case: Case) -> tuple[str, ...]:
    version = "5" if case.level == 5 else "3.1.1"
    size = f"{case.payload_size:,} B"
    return case.group, case.name, case.shape.name, size, str(case.qos), version


def _troubles(results: Results) -> list[str]:
    return [
        f"{name}, {', '.join(_labels(case))}: {each.trouble}."
        for case, measured in results.items()
        for name, each in measured.items()
        if each.trouble
    ]


def _median(figures: Sequence[float]) -> float | None:
    return median(figures) if figures else None


def _ratio(cost: float | None, reference: float | None) -> str:
    return number(cost / reference, 3) if cost and reference else "–"
