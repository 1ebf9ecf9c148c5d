"""Output of a demonstration: a table and sentences for each phase, and a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from accord.apps.demonstrations.meters import Meters, PhaseStats, SourceStats
from accord.apps.demonstrations.scenario import PhasePlan
from accord.apps.demonstrations.summary import summarise_phase
from accord.cli.quantities import latency_text
from accord.cli.table import NOTHING, Column, Table, figures

SPARKS: Final = "▁▂▃▄▅▆▇█"
WIDTH: Final = 18


def draw_phase(plan: PhasePlan, meters: Meters, *, is_brief: bool = False) -> Group:
    """The change of the phase, and its figures so far; only the most important ones if brief."""
    phase = meters.phase
    rates = f"{phase.offered_kbps:,.0f} kbit/s offered, {phase.received_kbps:,.0f} received"
    title = Text.assemble(
        (f"Phase {plan.name}", "bold"), (f"   {phase.seconds:.0f} s, {rates}", "dim")
    )
    return Group(title, Text(plan.text), _lines(phase, meters, is_brief=is_brief))


def draw_words(meters: Meters) -> RenderableType:
    before = meters.phases[-2] if len(meters.phases) > 1 else None
    words = [Text(f"→ {each}", "cyan") for each in summarise_phase(meters.phase, before)]
    return Group(*words, Text())


def draw_summary(meters: Meters) -> Group:
    """All phases side by side: how much of the offered load arrived, how late, and how large."""
    phases = [Column(phase.name, is_number=True) for phase in meters.phases]
    table = Table("channel", "source", *phases)
    for key in meters.keys:
        table.add_row(*key, *(_summary(phase.sources[key]) for phase in meters.phases))
    offered = (f"{phase.offered_kbps:,.0f}" for phase in meters.phases)
    table.add_row("kbit/s offered", "", *offered)
    received = (f"{phase.received_kbps:,.0f}" for phase in meters.phases)
    table.add_row("kbit/s received", "", *received)
    title = "Summary: how many arrived of those whose outcome is known, p95, mean size"
    return Group(Text(title, "italic"), table)


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """The latest values, relative to the highest of them."""
    shown = list(values[-width:])
    highest = max(shown, default=0.0)
    if highest <= 0:
        return SPARKS[0] * len(shown)
    last = len(SPARKS) - 1
    return "".join(SPARKS[round(value / highest * last)] for value in shown)


def _lines(phase: PhaseStats, meters: Meters, *, is_brief: bool) -> Table:
    """A row per source."""
    extra = (*figures("mean", "kbit/s", weight=0), Column("kbit/s, by second", weight=0))
    table = Table(
        "channel",
        "source",
        *figures("imp.", "received"),
        "dropped",
        *figures("p95", "shaped KB"),
        *(() if is_brief else extra),
    )
    for key in meters.keys:
        line = phase.sources[key]
        table.add_row(
            line.channel,
            line.source,
            NOTHING if line.importance is None else str(line.importance),
            f"{line.received:,}/{line.offered:,}",
            _dropped(line),
            _time(line.p95_s),
            _shaped(line),
            *(() if is_brief else _extra(phase, line, meters.rates[key])),
        )
    return table


def _extra(phase: PhaseStats, line: SourceStats, rates: Sequence[float]) -> tuple[str | Text, ...]:
    return _time(line.mean_s), f"{phase.kbps(line):,.0f}", Text(sparkline(rates), "green")


def _dropped(line: SourceStats) -> Text:
    if not line.dropped:
        return Text("0", "dim")
    causes = ", ".join(f"{count:,} {cause}" for cause, count in line.dropped.most_common())
    return Text(causes, "yellow")


def _shaped(line: SourceStats) -> str:
    if not line.shaped:
        return NOTHING
    whole, small = (size / line.shaped / 1_000 for size in (line.shaped_from, line.shaped_to))
    return f"{line.shaped:,}: {whole:.0f}→{small:.0f}"


def _summary(line: SourceStats) -> Text:
    if line.share is None:
        return Text(NOTHING, "dim")
    size = line.received_bytes / line.received if line.received else 0.0
    digits = 0 if size >= 1_000 else 1
    text = f"{line.share:.0%} {_time(line.p95_s)} {size / 1_000:.{digits}f} KB"
    return Text(text, "" if line.share >= 0.995 else "yellow")


def _time(seconds: float | None) -> str:
    return NOTHING if seconds is None else latency_text(seconds)
