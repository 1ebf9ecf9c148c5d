"""`accord sim`: nodes in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from accord.config.scenario import Scenario
    from accord.sim import Outcome

app = typer.Typer(no_args_is_help=True, help="Simulate networks of nodes in virtual time.")


@app.callback()
def sim() -> None:
    """Simulate networks of nodes in virtual time."""


@app.command()
def run(  # noqa: PLR0913, PLR0917 (a parameter per option)
    scenario: Annotated[Path, typer.Argument(metavar="FILE", help="The scenario, as TOML.")],
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed; defaults to the seed in the scenario.")
    ] = None,
    runs: Annotated[
        int, typer.Option(min=1, max=100_000, help="Number of runs, with consecutive seeds.")
    ] = 1,
    ping_ms: Annotated[
        int, typer.Option(min=10, max=60_000, help="Milliseconds between pings of neighbours.")
    ] = 1_000,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the tables of results to this directory."),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", help="Format of the results: csv, json or parquet.")
    ] = "csv",
) -> None:
    """Run a scenario: the same seed gives the same run.

    Ends with exit code 1 where a check failed, and prints the command that replays the run.
    """
    # Imported late, so that other commands start faster.
    from accord.cli.screen import open_console, print_line  # noqa: PLC0415
    from accord.cli.sim_screen import draw_channels, draw_run  # noqa: PLC0415
    from accord.config.scenario import load_scenario  # noqa: PLC0415
    from accord.sim.results import write  # noqa: PLC0415

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
    from accord.core.overlay.options import OverlayOptions  # noqa: PLC0415
    from accord.sim import overlay_nodes  # noqa: PLC0415

    make = overlay_nodes(OverlayOptions(ping_us=ping_ms * 1_000))
    return scenario.simulation(make, seed=seed).run(scenario.duration_us)
