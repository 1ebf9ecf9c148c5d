"""A demonstration on a screen: a table and sentences for each phase, and a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from accord.apps.demonstrations.meters import Meters, PhaseStats, SourceStats
from accord.apps.demonstrations.scenario import PhasePlan
from accord.apps.demonstrations.summary import summarise_phase
from accord.cli.quantities import latency_text

SPARKS: Final = "▁▂▃▄▅▆▇█"
WIDTH: Final = 18
# Columns that a table needs for what it shows beside the basics.
_MEANS: Final = 112
_SIZES: Final = 118
_RATES: Final = 132


def draw_phase(plan: PhasePlan, meters: Meters, width: int) -> Group:
    """What the phase changes, and its figures so far."""
    phase = meters.phase
    rates = f"{phase.offered_kbps:,.0f} kbit/s offered, {phase.received_kbps:,.0f} received"
    title = Text.assemble(
        (f"Phase {plan.name}", "bold"), (f"   {phase.seconds:.0f} s, {rates}", "dim")
    )
    return Group(title, Text(plan.text), _lines(phase, meters, width))


def draw_words(meters: Meters) -> RenderableType:
    before = meters.phases[-2] if len(meters.phases) > 1 else None
    words = [Text(f"→ {each}", "cyan") for each in summarise_phase(meters.phase, before)]
    return Padding(Group(*words), (0, 0, 1, 0))


def draw_summary(meters: Meters, width: int) -> Table:
    """All phases side by side: how much of what was offered arrived, and how late."""
    has_size = width >= _SIZES
    sizes = ", mean size" if has_size else ""
    table = _table(f"Summary: how many arrived of those whose outcome is known, p95{sizes}")
    for name in ("channel", "source"):
        table.add_column(name, no_wrap=True)
    for phase in meters.phases:
        name = phase.name if has_size else phase.name.replace(" · ", "\n")
        table.add_column(name, justify="right", no_wrap=True)
    for key in meters.keys:
        cells = [_summary(phase.lines[key], has_size=has_size) for phase in meters.phases]
        table.add_row(*key, *cells)
    table.add_section()
    offered = (f"{phase.offered_kbps:,.0f}" for phase in meters.phases)
    table.add_row("kbit/s offered", "", *offered, style="dim")
    received = (f"{phase.received_kbps:,.0f}" for phase in meters.phases)
    table.add_row("kbit/s received", "", *received, style="dim")
    return table


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """The latest values, against the highest of them."""
    shown = list(values[-width:])
    highest = max(shown, default=0.0)
    if highest <= 0:
        return SPARKS[0] * len(shown)
    last = len(SPARKS) - 1
    return "".join(SPARKS[round(value / highest * last)] for value in shown)


def _lines(phase: PhaseStats, meters: Meters, width: int) -> Table:
    """A row per source; what helps least is left out where it does not fit."""
    is_narrow = width < _MEANS
    table = _table()
    for name in ("channel", "source"):
        table.add_column(name, no_wrap=True)
    names = ["imp.", "received" if is_narrow else "received/offered", "dropped", "p95"]
    names += ["shaped KB"] if is_narrow else ["shaped", "mean", "kbit/s"]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    if width >= _RATES:
        table.add_column("kbit/s, by second", no_wrap=True)
    for key in meters.keys:
        line = phase.lines[key]
        importance = "–" if line.importance is None else str(line.importance)
        received = f"{line.received:,}/{line.offered:,}"
        cells: list[str | Text] = [
            importance,
            received,
            _dropped(line),
            _time(line.p95_s),
            _shaped(line, "" if is_narrow else " KB"),
        ]
        if not is_narrow:
            cells += [_time(line.mean_s), f"{phase.kbps(line):,.0f}"]
        if width >= _RATES:
            cells.append(Text(sparkline(meters.rates[key]), "green"))
        table.add_row(line.channel, line.source, *cells)
    return table


def _table(title: str | None = None) -> Table:
    return Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )


def _dropped(line: SourceStats) -> Text:
    """One cause per line."""
    if not line.dropped:
        return Text("0", "dim")
    causes = "\n".join(f"{count:,} {cause}" for cause, count in line.dropped.most_common())
    return Text(causes, "yellow")


def _shaped(line: SourceStats, unit: str) -> str:
    if not line.shaped:
        return "–"
    whole, small = (size / line.shaped / 1_000 for size in (line.shaped_from, line.shaped_to))
    return f"{line.shaped:,}: {whole:.0f}→{small:.0f}{unit}"


def _summary(line: SourceStats, *, has_size: bool) -> Text:
    if line.share is None:
        return Text("–", "dim")
    text = f"{line.share:.0%}"
    if has_size:
        size = line.received_bytes / line.received if line.received else 0.0
        digits = 0 if size >= 1_000 else 1
        text += f" {_time(line.p95_s)} {size / 1_000:.{digits}f} KB"
    elif line.p95_s is not None:
        text += f" {line.p95_s:.1f} s"
    return Text(text, "" if line.share >= 0.995 else "yellow")


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else latency_text(seconds)
