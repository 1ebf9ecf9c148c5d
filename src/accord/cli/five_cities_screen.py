"""Output of the five-cities demonstration: the paths of each phase, text, and a summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group
from rich.text import Text

from accord.apps.five_cities.cities import path_text
from accord.apps.five_cities.meters import ChannelLatencies
from accord.apps.five_cities.phases import (
    ChannelPhase,
    CityFlow,
    CityPhase,
    CityPhasePlan,
    summarise_phase,
)
from accord.cli.table import NOTHING, Table, figures

_STYLES: Final = {"+": "green", "−": "red", " ": ""}


def draw_act(act: CityPhasePlan) -> Group:
    return Group(Text(f"Phase {act.name}", "bold"), Text(act.words))


def draw_phase(phase: CityPhase) -> Group:
    """The paths before and after, and the effect in words."""
    table = Table("channel", *figures("limit"), "path", *figures("expected"))
    for line in phase.lines:
        first = [line.channel.name, f"{line.channel.max_delay_ms} ms"]
        for mark, path, delay in _changes(line):
            table.add_row(*first, Text(f"{mark} {path}", _STYLES[mark]), delay)
            first = ["", ""]
    words = [Text(f"→ {each}", "cyan") for each in summarise_phase(phase)]
    return Group(table, *words, Text())


def draw_summary(phases: Sequence[CityPhase]) -> Group:
    measured = figures("late", "violated", "gap", "settled", "median", "max")
    table = Table("phase", "channel", *measured)
    for phase in phases:
        name = phase.act.name
        for line in phase.lines:
            span = line.span
            table.add_row(
                name,
                line.channel.name,
                Text(f"{span.late:,}", "yellow" if span.late else ""),
                _ms(span.violated_s),
                _ms(span.gap_s),
                _ms(line.settled_s) if line.before.paths and line.settled_s else NOTHING,
                _ms(span.median_s),
                _ms(span.longest_s),
            )
            name = ""
    title = (
        "Each phase: how long after the change events came too late, the longest time without any, "
        "and when paths were settled"
    )
    return Group(Text(title, "italic"), table)


def draw_total(meter: ChannelLatencies) -> Text:
    """Totals: one line per channel."""
    text = Text(
        f"{meter.channel.name}: published {meter.published:,}, delivered {meter.delivered:,}, "
        f"late {meter.late:,}"
    )
    if meter.lost:
        text.append(f", lost {meter.lost:,}", "bold red")
    if meter.duplicates:
        text.append(f", twice {meter.duplicates:,}", "bold red")
    return text


def _changes(line: ChannelPhase) -> Iterator[tuple[str, str, str]]:
    """Paths that were dropped, kept and added, with their expected latencies."""
    for path in line.before.paths:
        if path not in line.after.paths:
            yield "−", path_text(path), ""
    for path, delay in _with_delays(line.after):
        is_new = line.before.paths and path not in line.before.paths
        yield "+" if is_new else " ", path_text(path), delay


def _with_delays(flow: CityFlow) -> Iterator[tuple[tuple[str, ...], str]]:
    for path, delay_ms in zip(flow.paths, flow.delays_ms, strict=True):
        yield path, f"{delay_ms:.0f} ms"


def _ms(seconds: float) -> str:
    return f"{seconds * 1_000:,.0f} ms"
