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
WIDTH: Final = 18
_NARROW: Final = 98
_WIDE: Final = 118


def draw_phase(act: Act, meters: Meters, width: int) -> Group:
    """What is done in the phase, and what comes of it so far."""
    phase = meters.phase
    rates = f"{phase.offered_kbps:,.0f} kbit/s offered, {phase.received_kbps:,.0f} received"
    title = Text.assemble(
        (f"Phase {act.name}", "bold"), (f"   {phase.seconds:.0f} s, {rates}", "dim")
    )
    return Group(title, Text(act.words), _lines(phase, meters, width))


def draw_words(meters: Meters) -> RenderableType:
    before = meters.phases[-2] if len(meters.phases) > 1 else None
    words = [Text(f"→ {each}", "cyan") for each in narrate(meters.phase, before)]
    return Padding(Group(*words), (0, 0, 1, 0))


def draw_summary(meters: Meters, width: int) -> Table:
    """All phases side by side: how much of what was offered arrived, and how late."""
    has_size = width >= _WIDE
    sizes = ", mean size" if has_size else ""
    table = _table(f"Summary: how many arrived of those whose fate is known, p95{sizes}")
    for name in ("channel", "source"):
        table.add_column(name, no_wrap=True)
    for phase in meters.phases:
        table.add_column(phase.name, justify="right", no_wrap=True)
    for key in meters.keys:
        cells = [_summary(phase.lines[key], has_size=has_size) for phase in meters.phases]
        table.add_row(*key, *cells)
    table.add_section()
    rates = [f"{phase.offered_kbps:,.0f} → {phase.received_kbps:,.0f}" for phase in meters.phases]
    table.add_row("kbit/s: offered → received", "", *rates, style="dim")
    return table


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """The latest values, against the highest of them."""
    shown = list(values[-width:])
    highest = max(shown, default=0.0)
    if highest <= 0:
        return SPARKS[0] * len(shown)
    last = len(SPARKS) - 1
    return "".join(SPARKS[round(value / highest * last)] for value in shown)


def _lines(phase: Phase, meters: Meters, width: int) -> Table:
    """Where there is no room for all columns, the last ones that help are left out."""
    table = _table()
    for name in ("channel", "source"):
        table.add_column(name, no_wrap=True)
    names = ["imp.", "received/offered", "dropped", "p95", "shaped"]
    names += ["mean", "kbit/s"] if width >= _NARROW else []
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    if width >= _WIDE:
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
            _shaped(line),
        ]
        if width >= _NARROW:
            cells += [_time(line.mean_s), f"{phase.kbps(line):,.0f}"]
        if width >= _WIDE:
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


def _summary(line: Line, *, has_size: bool) -> Text:
    if line.share is None:
        return Text("–", "dim")
    size = line.received_bytes / line.received / 1_000 if line.received else 0.0
    words = f"{line.share:.0%} {_time(line.p95_s)}" + (f" {size:.0f} KB" if has_size else "")
    return Text(words, "" if line.share >= 0.995 else "yellow")


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else latency_text(seconds)
