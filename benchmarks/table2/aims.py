"""What is to be reached, and whether it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.aims import Aim
from benchmarks.report import number
from benchmarks.table2 import bandwidth, cpu
from benchmarks.table2.bandwidth import Part
from benchmarks.table2.figures import Figures
from benchmarks.table2.nodes import (
    FIFO,
    IMPORTANCES,
    IMPORTANT,
    NORMAL,
    STRICT,
    WEIGHTED,
    WEIGHTS,
)

DELIVERED: Final = 0.99
TIMES_UNLOADED: Final = 2.0
TRANSMISSIONS: Final = 2.0
TIMES_LOWER: Final = 50.0
LINK_USE: Final = 0.95
SHARE_ERROR: Final = 0.05
_P95: Final = 0.95


def aims(first: cpu.Half | None, second: bandwidth.Half | None) -> list[Aim]:
    found: list[Aim] = []
    if first is not None:
        found += _cpu(first)
    if second is not None:
        found += _bandwidth(second)
        found += _saturated(second.saturated)
        for part in second.changing:
            where = f"link changes, {STRICT.name}, {part.kbps:,} kbit/s"
            found += _link(where, part)
    return found


def _cpu(half: cpu.Half) -> Iterator[Aim]:
    baseline = half.loaded.get(FIFO.name)
    unloaded_s = half.unloaded.latency_s(_P95)
    for name in (WEIGHTED.name, STRICT.name):
        loaded = half.loaded.get(name)
        if loaded is None:
            continue
        where = f"CPU, {name}"
        yield _delivered(where, loaded.important)
        latency_s = loaded.important.latency_s(_P95)
        if latency_s is None or unloaded_s is None:
            continue
        wanted = f"important p95 ≤ {TIMES_UNLOADED:g} × unloaded"
        times = latency_s / unloaded_s
        measured = f"{latency_s * 1e3:.1f} ms, unloaded {unloaded_s * 1e3:.1f} ms: {times:.1f} ×"
        yield Aim(where, wanted, measured, times <= TIMES_UNLOADED)
        if baseline is not None:
            yield _lower(where, latency_s, baseline.important, longest_s=None)


def _bandwidth(half: bandwidth.Half) -> Iterator[Aim]:
    baseline = half.parts.get(FIFO.name)
    for name in (WEIGHTED.name, STRICT.name):
        part = half.parts.get(name)
        if part is None:
            continue
        where = f"bandwidth, {name}"
        yield from _link(where, part)
        latency_s = part.important.latency_s(_P95)
        if baseline is not None and latency_s is not None:
            yield _lower(where, latency_s, baseline.important, longest_s=part.important.seconds)


def _link(where: str, part: Part) -> Iterator[Aim]:
    yield _delivered(where, part.important)
    latency_s = part.important.latency_s(_P95)
    if latency_s is not None:
        transmission_s = part.important.largest / part.capacity
        times = latency_s / transmission_s
        wanted = f"important p95 ≤ {TRANSMISSIONS:g} transmissions of its largest event"
        measured = f"{latency_s:.2f} s, one takes {transmission_s:.2f} s: {times:.1f} ×"
        yield Aim(where, wanted, measured, times <= TRANSMISSIONS)
    use = part.used / part.capacity
    measured = f"{use:.1%} of {part.capacity * 8 / 1_000:,.0f} kbit/s"
    yield Aim(where, f"link use ≥ {LINK_USE:.0%}", measured, use >= LINK_USE)


def _saturated(part: Part | None) -> Iterator[Aim]:
    if part is None:
        return
    weights = {channel: WEIGHTS[importance] for channel, importance in IMPORTANCES.items()}
    wanted = weights[NORMAL] / (weights[NORMAL] + weights[IMPORTANT])
    both = part.normal.arrived_bytes + part.important.arrived_bytes
    share = part.normal.arrived_bytes / both if both else 0.0
    error = abs(share / wanted - 1)
    yield Aim(
        f"both channels saturate, {WEIGHTED.name}",
        f"normal gets its share of {wanted:.0%}, within {SHARE_ERROR:.0%} of it",
        f"{share:.1%} of the bytes: {error:.1%} off",
        error <= SHARE_ERROR,
    )
    use = part.used / part.capacity
    measured = f"{use:.1%} of {part.capacity * 8 / 1_000:,.0f} kbit/s"
    where = f"both channels saturate, {WEIGHTED.name}"
    yield Aim(where, f"link use ≥ {LINK_USE:.0%}", measured, use >= LINK_USE)


def _delivered(where: str, important: Figures) -> Aim:
    share = important.share
    events = f"{important.delivered:,} of {important.offered:,} events"
    measured = "nothing offered" if share is None else f"{share:.1%}, {events}"
    is_met = None if share is None else share >= DELIVERED
    return Aim(where, f"important ≥ {DELIVERED:.0%} delivered", measured, is_met)


def _lower(where: str, latency_s: float, baseline: Figures, *, longest_s: float | None) -> Aim:
    wanted = f"important p95 ≥ {TIMES_LOWER:g} × lower than {FIFO.name}"
    baseline_s = baseline.latency_s(_P95)
    if baseline_s is None:
        return Aim(where, wanted, f"{FIFO.name} delivered none in time", None)
    times = baseline_s / latency_s
    measured = f"{baseline_s:,.2f} s there: {number(times, 1)} ×"
    if times < TIMES_LOWER and longest_s is not None and longest_s < TIMES_LOWER * latency_s:
        return Aim(where, wanted, f"{measured}, which can't be more in {longest_s:.0f} s", None)
    return Aim(where, wanted, measured, times >= TIMES_LOWER)
