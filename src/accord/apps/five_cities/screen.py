"""Five cities on a terminal: the paths of each phase, the effect in words, and a summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from rich.console import Console, Group
from rich.status import Status
from rich.text import Text

from accord.apps.five_cities.cities import CITIES, WASHINGTON, path_text
from accord.apps.five_cities.network import FiveCities
from accord.apps.five_cities.phases import (
    ChannelLatencies,
    ChannelPhase,
    CityFlow,
    CityPhase,
    CityPhasePlan,
    phase_plans,
    summarise_phase,
)
from accord.apps.five_cities.scenario import FiveCitiesScenario
from accord.terminal.rows import NOTHING, Cell, Figure, table
from accord.terminal.screen import print_line

WATCHED: Final = WASHINGTON  # no fault concerns it
_STYLES: Final = {"+": "green", "−": "red", " ": ""}


class PathRow(msgspec.Struct, frozen=True):
    channel: str
    limit: Figure
    path: Cell
    expected: Figure


class PhaseRow(msgspec.Struct, frozen=True):
    phase: str
    channel: str
    late: Figure
    violated: Figure
    gap: Figure
    settled: Figure
    median: Figure
    max: Figure


def draw_act(act: CityPhasePlan) -> Group:
    return Group(Text(f"Phase {act.name}", "bold"), Text(act.text))


def draw_phase(phase: CityPhase) -> Group:
    """The paths before and after, and the effect in words."""
    rows = []
    for line in phase.channels:
        name, limit = line.channel.name, f"{line.channel.max_delay_ms} ms"
        for mark, path, delay in _changes(line):
            rows.append(PathRow(name, limit, Text(f"{mark} {path}", _STYLES[mark]), delay))
            name = limit = ""
    words = [Text(f"→ {each}", "cyan") for each in summarise_phase(phase)]
    return Group(table(PathRow, rows), *words, Text())


def draw_summary(phases: Sequence[CityPhase]) -> Group:
    rows = []
    for phase in phases:
        name = phase.plan.name
        for line in phase.channels:
            span = line.measurement
            row = PhaseRow(
                name,
                line.channel.name,
                Text(f"{span.late:,}", "yellow" if span.late else ""),
                _ms(span.violated_s),
                _ms(span.gap_s),
                _ms(line.converged_s) if line.before.paths and line.converged_s else NOTHING,
                _ms(span.median_s),
                _ms(span.longest_s),
            )
            rows.append(row)
            name = ""
    title = (
        "Each phase: how long after the change events came too late, the longest time without any, "
        "and when paths were settled"
    )
    return Group(Text(title, "italic"), table(PhaseRow, rows))


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


class PhaseReporter:
    """Reports the phases; on a terminal, with a spinner until the result is known."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None

    def begin(self, act: CityPhasePlan) -> None:
        self._console.print(draw_act(act))
        self.wait("watching what becomes of the events …")

    def wait(self, words: str) -> None:
        self.stop()
        if self._console.is_terminal:
            self._status = self._console.status(words)
            self._status.start()

    def end(self, phase: CityPhase) -> None:
        self.stop()
        self._console.print(draw_phase(phase))

    def stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


async def play_five_cities(console: Console, net: FiveCities, seconds: float) -> FiveCitiesScenario:
    """Run the whole scenario on `console`."""
    teller = PhaseReporter(console)
    print_line(console, "Starting five nodes, and links between them that take their time …")
    try:
        teller.wait("until all know each other …")
        async with net:
            teller.stop()
            where = (f"  {city:12} {net.nodes[city].http_url}\n" for city in CITIES)
            print_line(console, f"Nodes:\n{''.join(where)}")
            print_line(console, f"Watch them at {net.nodes[WATCHED].http_url}/network\n")
            play = FiveCitiesScenario(
                net.urls,
                net,
                paths=net.paths,
                channels=net.channels,
                on_phase_start=teller.begin,
                on_phase_end=teller.end,
            )
            story = phase_plans(net.stretch)
            await play.run(story, [seconds] * len(story))
    finally:
        teller.stop()
    console.print(draw_summary(play.phases))
    console.print()
    for meter in play.meters.values():
        print_line(console, draw_total(meter))
    return play
