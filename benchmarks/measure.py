"""How things are measured: CPU time, medians over alternating rounds, memory of this process."""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class WrongAnswerError(Exception):
    """A contender disagrees with naive evaluation: its speed is of no interest."""


@dataclass(frozen=True)
class Span:
    """Seconds that something took, by the wall clock and of this process's CPU."""

    wall_s: float
    cpu_s: float


class Stopwatch:
    """Adds up the time spent in its `with` blocks."""

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.cpu_s = 0.0

    def __enter__(self) -> Stopwatch:
        self._wall, self._cpu = perf_counter(), process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu_s += process_time() - self._cpu
        self.wall_s += perf_counter() - self._wall


def time_of(action: Callable[[], object]) -> Span:
    with Stopwatch() as watch:
        action()
    return Span(watch.wall_s, watch.cpu_s)


def alternate(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Span]:
    """The median of each contender, run in turns so that a busy moment strikes all alike."""
    spans: dict[str, list[Span]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, action in contenders.items():
            spans[name].append(time_of(action))
    return {name: _median(measured) for name, measured in spans.items()}


def _median(spans: list[Span]) -> Span:
    return Span(median(span.wall_s for span in spans), median(span.cpu_s for span in spans))


@contextmanager
def no_collection() -> Iterator[None]:
    """Without garbage collection, which would count what the benchmark itself holds."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def resident_bytes() -> int:
    """Memory of this process, as the kernel counts it."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def apart(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """`function` in a process of its own: memory starts from nothing, and goes when it ends."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(function, args, kwargs)


def machine() -> str:
    """What the figures depend on most."""
    return (
        f"{os.cpu_count()} cores ({_processor()}), {_memory_gb():.0f} GB, "
        f"{platform.system()} {platform.machine()}, "
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}; {_reference_us():.0f} µs for sum(range(1000))"
    )


def _reference_us() -> float:
    """How fast plain Python is here, to judge the figures of one machine by another's."""
    return 1e6 * min(time_of(lambda: sum(range(1000))).cpu_s for _ in range(1000))


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


def _memory_gb() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
