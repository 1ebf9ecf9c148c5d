"""The results as tables: in the paper's form, then in full, then against the aims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.report import Table, number, significant
from benchmarks.table2 import bandwidth, cpu
from benchmarks.table2.bandwidth import Part
from benchmarks.table2.figures import Figures
from benchmarks.table2.nodes import FIFO, MOSQUITTO, STRICT, WEIGHTED

_NAMES: Final = (FIFO.name, WEIGHTED.name, STRICT.name, MOSQUITTO.name)
_SHARES: Final = (0.5, 0.95, 1.0)
_LATENCIES: Final = ("p50", "p95", "max")
_WHOLE_CORE: Final = 0.85


def paper(first: cpu.Half | None, second: bandwidth.Half | None) -> Table:
    """As the paper prints it; a dash where nothing arrived or was measured."""
    columns = [f"events/s, {name}" for name in _NAMES] + [f"p50 s, {name}" for name in _NAMES]
    table = Table("Table 2", ["overload", "channel", *columns])
    for channel in ("important", "normal"):
        if first is not None:
            table.add("CPU", channel, *_paper_row(_of_cpu(first, channel)))
    for channel in ("important", "normal"):
        if second is not None:
            table.add("bandwidth", channel, *_paper_row(_of_bandwidth(second, channel)))
    return table


def cpu_table(half: cpu.Half) -> Table:
    columns = ["offered/s", "arrived/s", "delivered", *(f"{each} ms" for each in _LATENCIES)]
    table = Table("CPU overload", ["contender", "channel", *columns, "cores"])
    offered = number(half.offered_hz)
    table.add(
        "unloaded", "important", offered, *_cells(half.unloaded, 1e3), _cores(half.unloaded_busy)
    )
    for name, loaded in half.loaded.items():
        cores = _cores(loaded.busy)
        table.add(name, "important", offered, *_cells(loaded.important, 1e3), cores)
        table.add(name, "normal", "full speed", *_cells(loaded.normal, 1e3), cores)
    capacity = f"The node can match about {half.capacity_hz:,.0f} events/s when it has a core"
    share = f"the important channel is offered {cpu.SHARE_OF_CAPACITY:.0%} of that"
    table.notes = [f"{capacity}; {share}.", *half.absent]
    least = min((min(loaded.busy) for loaded in half.loaded.values()), default=1.0)
    if least < _WHOLE_CORE:
        shared = f"The node once got only {least:.2f} of a core: others used the machine too"
        table.notes.append(f"{shared}, and these latencies are not its own.")
    return table


def bandwidth_table(half: bandwidth.Half) -> Table:
    columns = ["arrived/s", "delivered", *(f"{each} s" for each in _LATENCIES), "link use"]
    table = Table("Bandwidth overload", ["contender", "channel", *columns])
    for name, part in half.parts.items():
        _add(table, [name], part)
    table.notes = list(half.absent)
    return table


def further_links(half: bandwidth.Half) -> Table:
    columns = ["arrived/s", "bytes/s", *(f"{each} s" for each in _LATENCIES), "link use"]
    table = Table("Other links", ["case", "link kbit/s", "channel", *columns])
    cases = [(f"{STRICT.name}, rate changes", part) for part in half.changing]
    if half.saturated is not None:
        cases.insert(0, (f"{WEIGHTED.name}, both saturate", half.saturated))
    for case, part in cases:
        use = f"{part.used / part.capacity:.1%}"
        for channel, figures in (("important", part.important), ("normal", part.normal)):
            rate = number(figures.arrived_bytes / figures.seconds)
            cells = _cells(figures, 1.0)
            table.add(case, number(part.kbps), channel, cells[0], rate, *cells[2:], use)
    return table


def _add(table: Table, labels: Sequence[str], part: Part) -> None:
    use = f"{part.used / part.capacity:.1%}"
    for channel, figures in (("important", part.important), ("normal", part.normal)):
        table.add(*labels, channel, *_cells(figures, 1.0), use)


def _cells(figures: Figures, factor: float) -> list[str]:
    share = "–" if figures.share is None else f"{figures.share:.1%}"
    latencies = [figures.latency_s(each) for each in _SHARES]
    shown = [significant(None if each is None else each * factor) for each in latencies]
    return [significant(figures.rate_hz), share, *shown]


def _cores(busy: Sequence[float]) -> str:
    return number(sum(busy) / len(busy), 2) if busy else "–"


def _of_cpu(half: cpu.Half, channel: str) -> list[Figures | None]:
    loaded = [half.loaded.get(name) for name in _NAMES]
    return [
        None if each is None else (each.important if channel == "important" else each.normal)
        for each in loaded
    ]


def _of_bandwidth(half: bandwidth.Half, channel: str) -> list[Figures | None]:
    parts = [half.parts.get(name) for name in _NAMES]
    return [
        None if each is None else (each.important if channel == "important" else each.normal)
        for each in parts
    ]


def _paper_row(found: Sequence[Figures | None]) -> list[str]:
    rates = [significant(None if each is None else each.rate_hz) for each in found]
    latencies = [None if each is None else each.latency_s(0.5) for each in found]
    return [*rates, *map(significant, latencies)]
