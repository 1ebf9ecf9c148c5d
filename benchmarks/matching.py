"""Matching events against many predicates: the index beside naive evaluation."""

from __future__ import annotations

from typing import Final

from benchmarks.cell import LARGEST_NAIVE, LATENCY_SIZE, Cell, measure_cell
from benchmarks.measure import apart
from benchmarks.options import Options, progress
from benchmarks.report import Table, number, significant
from benchmarks.workloads import WORKLOADS, Workload

ABOUT: Final = (
    "One event after the other through `Index.match`, beside evaluating every predicate with "
    "`Predicate.evaluate` (naive), in one process, in turns; medians, CPU time of the process "
    "unless said otherwise. Every cell was checked to give the answers of naive evaluation."
)
# Building an index of this size takes minutes: only for workloads that have an aim there.
_LARGE: Final = 1_000_000
_LARGE_WORKLOADS: Final = ("siena_eq", "rein_eq")
_EVENTS_PER_S: Final = {100_000: 80_000, 1_000_000: 30_000}
_TIMES_NAIVE: Final = 100
_CHANGE_US: Final = 100


def run(options: Options) -> list[Table]:
    cells = [
        _measured(workload, size, options)
        for workload in WORKLOADS
        if options.has_workload(workload.name)
        for size in options.sizes
        if _is_worthwhile(workload, size, options)
    ]
    tables = [_speed(cells), _upkeep(cells), _latency(cells)]
    return [table for table in tables if table.rows]


def _is_worthwhile(workload: Workload, size: int, options: Options) -> bool:
    is_uniform = workload.distribution == "uniform"
    if size >= _LARGE:
        return is_uniform and workload.name in _LARGE_WORKLOADS
    return is_uniform or not options.is_quick or size == min(options.sizes)


def _measured(workload: Workload, size: int, options: Options) -> Cell:
    progress(f"matching: {workload.name}, {workload.distribution}, {size:,} predicates")
    return apart(measure_cell, workload, size, options)


def _speed(cells: list[Cell]) -> Table:
    table = Table(
        "Speed",
        ["workload", "values", "predicates", "matches", "events/s", "CPU µs", "naive µs",
         "times naive", "aim"],
    )  # fmt: skip
    for cell in cells:
        table.add(
            cell.workload,
            cell.distribution,
            number(cell.size),
            significant(cell.matches),
            number(cell.events_per_s),
            significant(cell.cpu_us),
            significant(cell.naive_us),
            significant(cell.times_naive),
            _aim(cell),
        )
    table.notes = [
        "matches, CPU µs: per event; events/s: by the wall clock.",
        "naive: on fewer events, with all predicates.",
        f"Above {LARGEST_NAIVE:,}: no naive, answers are checked on a sample of predicates.",
        f"{_LARGE:,} predicates: only {' and '.join(_LARGE_WORKLOADS)}, uniform.",
    ]
    return table


def _aim(cell: Cell) -> str:
    if cell.has_equality and (wanted := _EVENTS_PER_S.get(cell.size)):
        return _verdict(f"≥ {wanted:,} events/s", cell.events_per_s >= wanted)
    if not cell.has_equality and cell.size == LARGEST_NAIVE and cell.times_naive is not None:
        return _verdict(f"≥ {_TIMES_NAIVE} × naive", cell.times_naive >= _TIMES_NAIVE)
    return ""


def _upkeep(cells: list[Cell]) -> Table:
    table = Table(
        "Upkeep",
        ["workload", "values", "predicates", "add µs", "first pass ms", "remove µs",
         "add again µs", "change µs", "bytes", "aim"],
    )  # fmt: skip
    for cell in cells:
        upkeep = cell.upkeep
        worst_us = max(upkeep.add_us, upkeep.remove_us, upkeep.add_again_us)
        has_aim = cell.size == LARGEST_NAIVE
        table.add(
            cell.workload,
            cell.distribution,
            number(cell.size),
            significant(upkeep.add_us),
            significant(upkeep.first_pass_ms),
            significant(upkeep.remove_us),
            significant(upkeep.add_again_us),
            significant(upkeep.change_us),
            number(upkeep.size_bytes),
            _verdict(f"< {_CHANGE_US} µs", worst_us < _CHANGE_US) if has_aim else "",
        )
    table.notes = [
        "add: mean while building; remove, add again: at full size.",
        "first pass: what the first 1,000 events take longer than later ones.",
        "change: remove, add and match one event, less the match.",
        "bytes: growth of the process's resident memory per predicate, none held elsewhere.",
    ]
    return table


def _latency(cells: list[Cell]) -> Table:
    title = f"Latency with {LATENCY_SIZE:,} predicates"
    table = Table(title, ["workload", "values", "p50 µs", "p99 µs"])
    for cell in cells:
        if percentiles := cell.latencies_us:
            p50, p99 = significant(percentiles[49]), significant(percentiles[98])
            table.add(cell.workload, cell.distribution, p50, p99)
    table.notes = ["Of single calls, by the wall clock."]
    return table


def _verdict(aim: str, is_met: bool) -> str:
    return f"{aim}: {'met' if is_met else 'missed'}"
