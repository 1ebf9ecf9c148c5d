"""`accord sim`: nodes in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec import Struct

from accord.cli.parameters import argument, option
from accord.config.scenario import Scenario, load_scenario
from accord.core.overlay.options import OverlayOptions
from accord.sim import Outcome, overlay_nodes
from accord.sim.results import rows, write
from accord.terminal.rows import Column, Table, table
from accord.terminal.screen import open_console, print_line

app = typer.Typer(no_args_is_help=True, help="Simulate networks of nodes in virtual time.")


@app.callback()
def sim() -> None:
    """Simulate networks of nodes in virtual time."""


@app.command()
def run(
    scenario: Path = argument("FILE", "The scenario, as TOML."),
    seed: int | None = option("N", "Random seed; defaults to the seed in the scenario.", min=0),
    runs: int = option(
        None, "Number of runs, with consecutive seeds.", min=1, max=100_000, default=1
    ),
    ping_ms: int = option(
        None, "Milliseconds between pings of neighbours.", min=10, max=60_000, default=1_000
    ),
    out: Path | None = option("FOLDER", "Write the tables of results to this directory."),
    format_: str = option(
        None, "Format of the results: csv, json or parquet.", "--format", default="csv"
    ),
) -> None:
    """Run a scenario: the same seed gives the same run.

    Ends with exit code 1 where a check failed, and prints the command that replays the run.
    """
    # Imported late, so that other commands start faster.
    console = open_console()
    found = load_scenario(scenario)
    first = found.settings.run.seed if seed is None else seed
    outcomes = []
    for number in range(first, first + runs):
        outcome = _run(found, number, ping_ms)
        outcomes.append(outcome)
        if not outcome.is_good:
            for line in outcome.report():
                print_line(console, line)
    console.print(draw_run(outcomes), "", draw_channels(outcomes), sep="\n")
    if out is not None:
        for file in write(outcomes, out, format_):
            print_line(console, f"written: {file}")
    if not all(each.is_good for each in outcomes):
        raise typer.Exit(1)


def _run(scenario: Scenario, seed: int, ping_ms: int) -> Outcome:
    make = overlay_nodes(OverlayOptions(ping_us=ping_ms * 1_000))
    return scenario.simulation(make, seed=seed).run(scenario.duration_us)


def _ms(time_us: float) -> str:
    return f"{time_us / 1_000:,.1f}"


class RunRow(Struct, frozen=True):
    seed: Annotated[int, Column(unit=str)]
    nodes: int
    virtual_s: Annotated[float, Column(unit="{:,.0f}".format)]
    messages: int
    megabytes: Annotated[float, Column("MB", "{:,.1f}".format)]
    breaks: int
    crashes: int
    findings: int


class ChannelResultRow(Struct, frozen=True):
    seed: Annotated[int, Column(unit=str)]
    channel: str
    published: int
    wanted: int
    delivered: int
    late: int
    lost: int
    duplicates: Annotated[int, Column("twice")]
    in_time_share: Annotated[float | None, Column("in time", "{:.3%}".format)]
    p50_us: Annotated[float | None, Column("p50 ms", _ms)]
    p99_us: Annotated[float | None, Column("p99 ms", _ms)]


def draw_run(outcomes: Sequence[Outcome]) -> Table:
    """One line per run."""
    return table(RunRow, map(_run_row, outcomes))


def _run_row(outcome: Outcome) -> RunRow:
    (row,) = rows(outcome, "run")
    return RunRow(
        outcome.seed,
        outcome.nodes,
        outcome.until_us / 1_000_000,
        int(row["messages"] or 0),
        float(row["bytes"] or 0) / 1_000_000,
        outcome.breaks,
        outcome.crashes,
        outcome.found,
    )


def draw_channels(outcomes: Sequence[Outcome]) -> Table:
    """One line per channel and run."""
    found = (
        {**row, "seed": outcome.seed} for outcome in outcomes for row in rows(outcome, "channels")
    )
    return table(ChannelResultRow, (msgspec.convert(row, ChannelResultRow) for row in found))
