"""One cell of the matching benchmark: an index of one size with one workload.

Runs in a process of its own. First the index is built from predicates that nobody else holds, which
gives its memory; then the predicates are made again, for naive evaluation and for changes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice
from statistics import mean, quantiles
from time import perf_counter_ns, process_time
from typing import Final

from accord.core.model.event import Event
from accord.predicates import Index
from benchmarks.measure import (
    Span,
    Stopwatch,
    alternate,
    no_collection,
    resident_bytes,
    time_of,
)
from benchmarks.naive import Naive, aimed, check
from benchmarks.options import Options
from benchmarks.workloads import BLOCK, Keyed, Workload

LARGEST_NAIVE: Final = 100_000
LATENCY_SIZE: Final = 1_000
_EVENTS: Final = 1_000
_FEWEST: Final = 100
_SAMPLED_BLOCKS: Final = 20
# Below this, an index is no larger than what the allocator takes from the system at once.
_SMALLEST_WEIGHED: Final = 10_000


@dataclass(frozen=True)
class Upkeep:
    """What it costs to have an index; times in µs for one predicate, by CPU."""

    add_us: float
    first_pass_ms: float
    remove_us: float
    add_again_us: float
    change_us: float
    size_bytes: float | None


@dataclass(frozen=True)
class Cell:
    workload: str
    distribution: str
    size: int
    has_equality: bool
    matches: float
    events_per_s: float
    cpu_us: float
    naive_us: float | None
    latencies_us: list[float] | None
    upkeep: Upkeep

    @property
    def times_naive(self) -> float | None:
        return None if self.naive_us is None else self.naive_us / self.cpu_us


def measure_cell(workload: Workload, size: int, options: Options) -> Cell:
    index: Index = Index()
    add_us, size_bytes = _build(index, workload, size)
    events = workload.events(_EVENTS)
    first = time_of(lambda: _pass(index, events))
    naive = Naive(_known(workload, size))
    # What naive evaluation holds must not make collections longer while changes are timed.
    gc.collect()
    gc.freeze()
    # Fewer where naive takes long: as many predicates are compared then.
    checked = min(options.checked, max(4, 400_000 // size))
    check_index(index, workload, naive, events[:checked])

    spans, counts = _race(index, naive if size <= LARGEST_NAIVE else None, events, options)
    index_span = spans["index"]
    cpu_us = _each_us(index_span.cpu_s, counts["index"])
    calls = options.calls if size == LATENCY_SIZE else 0
    latencies = _latencies_us(index, islice(cycle(events), calls)) if calls else None
    chosen = naive.predicates[:: max(1, len(naive.predicates) // options.changes)]
    remove_us, add_again_us = _replace(index, chosen)
    change_us = _change(index, chosen, events)
    check_index(index, workload, naive, events[-checked:])
    upkeep = Upkeep(
        add_us=add_us,
        first_pass_ms=max(0.0, first.cpu_s * 1e3 - cpu_us * len(events) / 1e3),
        remove_us=remove_us,
        add_again_us=add_again_us,
        change_us=max(0.0, change_us - cpu_us),
        size_bytes=size_bytes if size >= _SMALLEST_WEIGHED else None,
    )
    return Cell(
        workload=workload.name,
        distribution=workload.distribution,
        size=size,
        has_equality=workload.has_equality,
        matches=mean(len(index.match(event).keys) for event in events[:200]),
        events_per_s=counts["index"] / index_span.wall_s,
        cpu_us=cpu_us,
        naive_us=_each_us(spans["naive"].cpu_s, counts["naive"]) if "naive" in spans else None,
        latencies_us=latencies,
        upkeep=upkeep,
    )


def check_index(index: Index, workload: Workload, naive: Naive, events: Sequence[Event]) -> None:
    """Against naive, for events as they come and for events aimed at some predicate."""
    step = max(1, len(naive.predicates) // len(events))
    targets = naive.predicates[::step]
    more = [aimed(event, predicate) for event, (_, predicate) in zip(events, targets, strict=False)]
    name = f"index with {workload.name}, {workload.distribution}"
    check(name, lambda event: index.match(event).keys, naive, chain(events, more))


def _build(index: Index, workload: Workload, size: int) -> tuple[float, float]:
    before = resident_bytes()
    watch = Stopwatch()
    for number in range(size // BLOCK):
        with no_collection():
            block = workload.block(number)
        with watch:
            for key, predicate in block:
                index.add(key, predicate)
        del block, predicate
    return _each_us(watch.cpu_s, size), (resident_bytes() - before) / size


def _known(workload: Workload, size: int) -> list[Keyed]:
    """All predicates, or of a very large index some blocks from everywhere."""
    blocks = size // BLOCK
    step = 1 if size <= LARGEST_NAIVE else blocks // _SAMPLED_BLOCKS
    with no_collection():
        return [keyed for number in range(0, blocks, step) for keyed in workload.block(number)]


def _pass(index: Index, events: Sequence[Event]) -> None:
    match = index.match
    for event in events:
        match(event)


def _race(
    index: Index, naive: Naive | None, events: Sequence[Event], options: Options
) -> tuple[dict[str, Span], dict[str, int]]:
    """Index and naive in turns; naive on as many events as it can do in about that time."""
    batch = list(islice(cycle(events), _fitting(index, events, options.batch_s)))
    contenders: dict[str, Callable[[], object]] = {"index": lambda: _pass(index, batch)}
    counts = {"index": len(batch)}
    if naive is not None:
        few = events[: max(2, int(options.batch_s * 600_000 / len(naive.predicates)))]
        contenders["naive"] = lambda: [naive.match(event) for event in few]
        counts["naive"] = len(few)
    return alternate(contenders, options.rounds), counts


def _fitting(index: Index, events: Sequence[Event], batch_s: float) -> int:
    """About how many events the index matches in `batch_s`."""
    few = events[:_FEWEST]
    span = time_of(lambda: _pass(index, few))
    return max(_FEWEST, int(len(few) * batch_s / span.wall_s))


def _latencies_us(index: Index, events: Iterable[Event]) -> list[float]:
    """The 99 percentiles of single calls."""
    match, spent = index.match, []
    for event in events:
        start = perf_counter_ns()
        match(event)
        spent.append((perf_counter_ns() - start) / 1e3)
    return quantiles(spent, n=100)


def _replace(index: Index, chosen: Sequence[Keyed]) -> tuple[float, float]:
    """µs to remove a predicate, and to add it again."""
    removing, adding = Stopwatch(), Stopwatch()
    with removing:
        for key, _ in chosen:
            index.remove(key)
    with adding:
        for key, predicate in chosen:
            index.add(key, predicate)
    return _each_us(removing.cpu_s, len(chosen)), _each_us(adding.cpu_s, len(chosen))


def _change(index: Index, chosen: Sequence[Keyed], events: Sequence[Event]) -> float:
    """µs to remove, add and match one event: what an index puts off, it pays in the match."""
    start = process_time()
    for (key, predicate), event in zip(chosen, cycle(events), strict=False):
        index.remove(key)
        index.add(key, predicate)
        index.match(event)
    return _each_us(process_time() - start, len(chosen))


def _each_us(seconds: float, count: int) -> float:
    return seconds * 1e6 / count
