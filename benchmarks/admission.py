"""Admission: how long decisions take among many advertised filters, and what they are good for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import median, quantiles
from time import process_time
from typing import Final

from accord.core.admission.admission import Admission
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.resources import MEMORY
from benchmarks import admission_experiment
from benchmarks.advertised import MAKERS, asked
from benchmarks.measure import apart, no_collection, resident_bytes
from benchmarks.options import Options, progress
from benchmarks.report import Table, number, significant

ABOUT: Final = (
    "A node that knows of many advertised filters decides on subscriptions: from the parsed "
    "predicate to what is promised, in the books. Of what is asked for, a tenth is on a wildcard "
    "over many channels, half of that without any predicate. `market` is like the paper's "
    "example, `sensors` has 800 channels, `siena_eq` is the literature's generator, of whose "
    "predicates hardly two limit the same attributes. CPU time of single calls.\n\n"
    "Then the experiment of the paper's figures 9 and 10, in the simulator: "
    + admission_experiment.ABOUT
)
_ONLY: Final = {"sensors": 100_000, "siena_eq": 100_000}  # and no more, as it takes too long
_KEPT: Final = 100_000  # beyond that filters are only put into the index, for the same reason
_FIRST_ROW: Final = 10 * _KEPT  # numbers of those, above all that the order gives
_NODE: Final = "orlando"
_AIMS_MS: Final = {100_000: 1.0, 1_000_000: 10.0}


@dataclass(frozen=True)
class Measured:
    """Seconds of each call; bytes of one filter."""

    workload: str
    filters: int
    bytes_each: float
    decisions: list[float]
    needs: list[float]
    advertised: list[float]
    unadvertised: list[float]


def run(options: Options) -> list[Table]:
    measured: list[Measured] = []
    for workload in MAKERS:
        if options.has_workload(workload):
            sizes = [size for size in options.sizes if size <= _ONLY.get(workload, size)]
            progress(f"admission: {workload}, up to {max(sizes):,} filters")
            measured += apart(measure, workload, sizes, options.changes)
    tables = [_deciding(measured), _changing(measured)] if measured else []
    return tables + admission_experiment.run(options)


def measure(workload: str, sizes: Sequence[int], calls: int) -> list[Measured]:
    random = Random(workload)
    before = resident_bytes()
    admission = Admission("denver", 1)
    admission.set_capacity(MEMORY, 1 << 50)
    found: list[Measured] = []
    filters = 0
    with no_collection():
        for size in sizes:
            for key in range(filters, size):
                _put(admission, key, MAKERS[workload](random))
            filters = size
            bytes_each = (resident_bytes() - before) / size
            found.append(_calls(admission, workload, size, bytes_each, calls))
    return found


def _put(admission: Admission, key: int, filter_: Filter) -> None:
    if key < _KEPT:
        _advertise(admission, key, filter_)
        return
    box = filter_.box
    assert box is not None
    rate = 1_000 * (1 + key % 5)
    index = admission.poset._relations.index
    index.add(_FIRST_ROW + key, filter_.channel, _NODE, box, (rate, 1, rate, 1))


def _calls(
    admission: Admission, workload: str, size: int, bytes_each: float, calls: int
) -> Measured:
    random = Random(f"{workload} {size}")
    make = MAKERS[workload]
    known = admission.poset.advertisements
    decisions: list[float] = []
    needs: list[float] = []
    for times in (decisions, needs):
        for number_ in range(calls):
            filter_ = asked(make, random)
            started = process_time()
            if times is decisions:
                outcome = admission.subscribe("bob", number_, filter_, now_us=0)
                assert outcome is not None
            else:
                admission.estimate_demand(filter_)
            times.append(process_time() - started)
            admission.unsubscribe("bob", number_)
    advertised: list[float] = []
    unadvertised: list[float] = []
    for key in range(known, known + calls):
        filter_ = make(random)
        started = process_time()
        _advertise(admission, key, filter_)
        advertised.append(process_time() - started)
    for key in range(known, known + calls):
        started = process_time()
        admission.unadvertise_remote(_NODE, "ann", str(key))
        unadvertised.append(process_time() - started)
    assert admission.poset.advertisements == known
    return Measured(workload, size, bytes_each, decisions, needs, advertised, unadvertised)


def _advertise(admission: Admission, key: int, filter_: Filter) -> None:
    admission.advertise_remote(_NODE, "ann", str(key), filter_, 1 + key % 5)


def _deciding(measured: Sequence[Measured]) -> Table:
    columns = ["workload", "filters", "decision ms", "p95", "most", "aim (p95)", "all bounds ms",
               "p95"]  # fmt: skip
    table = Table("Deciding on a subscription", columns)
    for each in measured:
        p50, p95 = _ms(each.decisions)
        aim_ms = _AIMS_MS.get(each.filters)
        table.add(
            each.workload,
            number(each.filters),
            significant(p50),
            significant(p95),
            significant(max(each.decisions) * 1e3),
            "–" if aim_ms is None else f"≤ {aim_ms:g}: {'met' if p95 <= aim_ms else 'missed'}",
            *map(significant, _ms(each.needs)),
        )
    table.notes = [
        "All bounds: the paper's interval beside the tighter one, as `accord admission check`",
        "shows them; a decision needs one of them.",
    ]
    return table


def _changing(measured: Sequence[Measured]) -> Table:
    columns = ["workload", "filters", "advertise ms", "p95", "unadvertise ms", "p95", "bytes each"]
    table = Table("Advertising, and what a filter takes", columns)
    for each in measured:
        table.add(
            each.workload,
            number(each.filters),
            *map(significant, _ms(each.advertised)),
            *map(significant, _ms(each.unadvertised)),
            number(each.bytes_each),
        )
    table.notes = [
        f"Beyond {_KEPT:,} filters, those in the table are in the index without rate and count",
        "being kept, as making them would take an hour; those measured are kept as always.",
    ]
    return table


def _ms(times: list[float]) -> tuple[float, float]:
    return median(times) * 1e3, quantiles(times, n=20)[-1] * 1e3
