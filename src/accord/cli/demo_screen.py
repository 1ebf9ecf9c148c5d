"""The targeting demonstration on a screen: a table for each phase, words, and a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from accord.apps.targeting.meters import Line, Meters, Phase
from accord.apps.targeting.story import Act, narrate
from accord.cli.quantities import latency_text

SPARKS: Final = "▁▂▃▄▅▆▇█"
WIDTH: Final = 16


def draw_phase(act: Act, meters: Meters) -> Group:
    """What is done in the phase, and what comes of it so far."""
    phase = meters.phase
    rates = f"{phase.offered_kbps:,.0f} kbit/s offered, {phase.received_kbps:,.0f} received"
    title = Text.assemble(
        (f"Phase {act.name}", "bold"), (f"   {phase.seconds:.0f} s, {rates}", "dim")
    )
    return Group(title, Text(act.words), _lines(phase, meters))


def draw_words(meters: Meters) -> RenderableType:
    before = meters.phases[-2] if len(meters.phases) > 1 else None
    words = [Text(f"→ {each}", "cyan") for each in narrate(meters.phase, before)]
    return Padding(Group(*words), (0, 0, 1, 0))


def draw_summary(meters: Meters) -> Table:
    """All phases side by side: how much of what was offered arrived, and how late."""
    table = _table("Summary: arrived of those whose fate is known, p95 latency, mean size")
    table.add_column("channel")
    table.add_column("source")
    for phase in meters.phases:
        table.add_column(phase.name, justify="right")
    for key in meters.keys:
        cells = [_summary(phase.lines[key]) for phase in meters.phases]
        table.add_row(*key, *cells)
    table.add_section()
    rates = [f"{phase.offered_kbps:,.0f} → {phase.received_kbps:,.0f}" for phase in meters.phases]
    table.add_row("kbit/s", "offered → received", *rates, style="dim")
    return table


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """The latest values, against the highest of them."""
    shown = list(values[-width:])
    highest = max(shown, default=0.0)
    if highest <= 0:
        return SPARKS[0] * len(shown)
    last = len(SPARKS) - 1
    return "".join(SPARKS[round(value / highest * last)] for value in shown)


def _lines(phase: Phase, meters: Meters) -> Table:
    table = _table()
    for name in ("channel", "source"):
        table.add_column(name, no_wrap=True)
    for name in ("imp.", "offered", "received", "dropped", "kbit/s", "mean", "p95", "shaped"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("rate", no_wrap=True)
    for key in meters.keys:
        line = phase.lines[key]
        table.add_row(
            line.channel,
            line.source,
            "–" if line.importance is None else str(line.importance),
            f"{line.offered:,}",
            f"{line.received:,}",
            _dropped(line),
            f"{phase.kbps(line):,.0f}",
            _time(line.mean_s),
            _time(line.p95_s),
            _shaped(line),
            Text(sparkline(meters.rates[key]), "green"),
        )
    return table


def _table(title: str | None = None) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)


def _dropped(line: Line) -> Text:
    if not line.dropped:
        return Text("0", "dim")
    causes = ", ".join(f"{count:,} {cause}" for cause, count in line.dropped.most_common())
    return Text(causes, "yellow")


def _shaped(line: Line) -> str:
    if not line.shaped:
        return "–"
    whole, small = (size / line.shaped / 1_000 for size in (line.shaped_from, line.shaped_to))
    return f"{line.shaped:,}: {whole:.0f}→{small:.0f} KB"


def _summary(line: Line) -> Text:
    if line.share is None:
        return Text("–", "dim")
    size = line.received_bytes / line.received / 1_000 if line.received else 0.0
    style = "" if line.share >= 0.995 else "yellow"
    return Text(f"{line.share:.0%}  {_time(line.p95_s)}  {size:.0f} KB", style)


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else latency_text(seconds)
