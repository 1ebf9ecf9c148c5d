"""What a delivered message costs each broker: CPU time of its process, under saturating load."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from statistics import median
from typing import Final

from benchmarks.contenders import Field, running
from benchmarks.load import Shape
from benchmarks.options import Options, progress
from benchmarks.race import Case, Measured, race
from benchmarks.report import Table, number, significant

ABOUT: Final = (
    "CPU time that a broker's process uses per delivered message, in user and kernel, while one "
    "other process publishes and subscribes as fast as the broker takes it, with at most 512 KB on "
    "the way to a subscriber. In pairs: ten connections publish, each to one other; by topic: one "
    "publishes to ten topics in turns, and each topic has one subscriber. All brokers run, "
    "contenders take turns; medians of the rounds. Everything published was counted as it arrived."
)
_REFERENCE: Final = "mosquitto"
_BURST_S: Final = 0.5
_QUICK_BURST_S: Final = 0.1
_SHAPES: Final = (
    Shape("1→1"),
    Shape("1→10", subscribers=10),
    Shape("10→1", publishers=10),
    Shape("10→10 in pairs", lanes=10),
    Shape("1→10 by topic", subscribers=10, topics=10),
)
CASES: Final = (
    *(Case(shape, size, qos) for qos, size, shape in product((0, 1), (100, 1_024), _SHAPES)),
    *(Case(_SHAPES[0], 100, qos, level=5) for qos in (0, 1)),
)

Results = dict[Case, dict[str, Measured]]


def run(options: Options) -> list[Table]:
    burst_s = _QUICK_BURST_S if options.is_quick else _BURST_S
    results: Results = {}
    with running(options, suits=lambda _: True) as contenders:
        for case in CASES:
            progress(f"brokers: {', '.join(_labels(case))}")
            results[case] = race(contenders.brokers, case, options.rounds, burst_s)
        return [_costs(results, contenders), _rates(results, contenders)]


def _costs(results: Results, contenders: Field) -> Table:
    names = [broker.name for broker in contenders.brokers]
    compared = [name for name in names if name != _REFERENCE and _REFERENCE in names]
    table = Table(
        "CPU µs per delivered message",
        [*_LABELS, *names, *(f"{name} by {_REFERENCE}" for name in compared)],
    )
    for case, measured in results.items():
        costs = {name: _median(each.cpu_us) for name, each in measured.items()}
        cells = [significant(costs.get(name)) for name in names]
        ratios = [_ratio(costs.get(name), costs.get(_REFERENCE)) for name in compared]
        table.add(*_labels(case), *cells, *ratios)
    table.notes = [*contenders.absent, *_troubles(results)]
    return table


def _rates(results: Results, contenders: Field) -> Table:
    names = [broker.name for broker in contenders.brokers]
    table = Table("Delivered per second", [*_LABELS, *names, *(f"{name} busy" for name in names)])
    for case, measured in results.items():
        rates = [_median(measured[name].rate_hz) if name in measured else None for name in names]
        busy = [_median(measured[name].busy) if name in measured else None for name in names]
        table.add(*_labels(case), *map(number, rates), *(number(share, 2) for share in busy))
    table.notes = [
        "busy: cores that the broker uses. Both processes share the machine: rates are rough."
    ]
    return table


_LABELS: Final = ("shape", "payload", "QoS", "MQTT")


def _labels(case: Case) -> tuple[str, ...]:
    version = "5" if case.level == 5 else "3.1.1"
    return case.shape.name, f"{case.payload_size:,} B", str(case.qos), version


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
    return number(cost / reference, 2) if cost and reference else "–"
