"""A demonstration on a terminal: a table for each phase, its figures in words, and a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from accord.apps.demonstrations.meters import Meters, PhaseStats, SourceStats
from accord.apps.demonstrations.scenario import PhasePlan
from accord.apps.demonstrations.summary import summarise_phase
from accord.terminal.amounts import latency_text
from accord.terminal.rows import NOTHING, Cell, Column, Figure, Table, table


class DemoScreen:
    """Updates a phase's table in place while it runs, and leaves it when the phase is over."""

    def __init__(self, console: Console, *, is_live: bool) -> None:
        self._console = console
        self._is_live = is_live
        self._live: Live | None = None

    def tick(self, plan: PhasePlan, meters: Meters) -> None:
        if not self._is_live:
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        picture = draw_phase(plan, meters)
        if len(self._console.render_lines(picture)) > self._console.height:
            picture = draw_phase(plan, meters, is_brief=True)
        self._live.update(picture, refresh=True)

    def end(self, plan: PhasePlan, meters: Meters) -> None:
        self.stop()
        self._console.print(draw_phase(plan, meters))
        self._console.print(draw_words(meters))

    def close(self, meters: Meters) -> None:
        self._console.print(draw_summary(meters))

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


SPARKS: Final = "▁▂▃▄▅▆▇█"
WIDTH: Final = 18


class SourceStatsRow(Struct, frozen=True):
    channel: str
    source: str
    importance: Annotated[int | None, Column("imp.", str)]
    received: Figure
    dropped: Cell
    p95: Figure
    shaped: Annotated[Cell, Column("shaped KB", is_number=True)]
    mean: Annotated[Cell, Column(is_number=True, weight=0, is_optional=True)] = ""
    rate: Annotated[Cell, Column("kbit/s", is_number=True, weight=0, is_optional=True)] = ""
    sparks: Annotated[Cell, Column("kbit/s, by second", weight=0, is_optional=True)] = ""


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
    summary = Table("channel", "source", *phases)
    for key in meters.keys:
        summary.add_row(*key, *(_summary(phase.sources[key]) for phase in meters.phases))
    offered = (f"{phase.offered_kbps:,.0f}" for phase in meters.phases)
    summary.add_row("kbit/s offered", "", *offered)
    received = (f"{phase.received_kbps:,.0f}" for phase in meters.phases)
    summary.add_row("kbit/s received", "", *received)
    title = "Summary: how many arrived of those whose outcome is known, p95, mean size"
    return Group(Text(title, "italic"), summary)


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
    rows = []
    for key in meters.keys:
        line = phase.sources[key]
        row = SourceStatsRow(
            line.channel,
            line.source,
            line.importance,
            f"{line.received:,}/{line.offered:,}",
            _dropped(line),
            _time(line.p95_s),
            _shaped(line),
        )
        if not is_brief:
            mean, rate, sparks = _extra(phase, line, meters.rates[key])
            row = replace(row, mean=mean, rate=rate, sparks=sparks)
        rows.append(row)
    return table(SourceStatsRow, rows)


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
