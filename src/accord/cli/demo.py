"""`accord demo …`: scenarios that run unattended."""

# Imports stand in the functions: help and completion must not wait for tables.
# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from rich.live import Live

    from accord.apps.demonstrations.meters import Meters
    from accord.apps.demonstrations.scenario import DemoScenario, PhasePlan

_PHASE_S: Final = 8.0
_QUICK_S: Final = 1.2

app = typer.Typer(no_args_is_help=True, help="Run a demonstration with nodes of its own.")


@app.callback()
def demo() -> None:
    """Run a demonstration with nodes of its own."""


PhaseSeconds = Annotated[
    str, typer.Option("--seconds-per-phase", "-s", metavar="TIME", help="Length of each phase.")
]
Plain = Annotated[
    bool,
    typer.Option("--plain", help="Print a table at the end of each phase, without live tables."),
]


@app.command("grid")
def grid(*, seconds: PhaseSeconds = "20s", is_plain: Plain = False) -> None:
    """Power grid: alarms, orders, measurements and camera images share a link that gets too small.

    Starts a node of its own on free ports of this machine, with temporary data, and seven clients
    that publish about 1.2 Mbit/s to a control room. Phase 1 has no limit, phase 2 one of
    800 kbit/s; in phase 3 a storm comes, and a policy makes one substation's camera important.
    """
    from accord.apps.demonstrations.grid import GRID

    _run(GRID, seconds, is_plain=is_plain)


@app.command("targeting")
def targeting(*, seconds: PhaseSeconds = "20s", is_plain: Plain = False) -> None:
    """Time-critical targeting: images, reports and tracks share a link that gets too small.

    Starts a node of its own on free ports of this machine, with temporary data, and six clients
    that publish about 1 Mbit/s. Phase 1 has no limit, phase 2 one of 800 kbit/s; then preferences
    change (3a), then importances (3b).
    """
    from accord.apps.demonstrations.targeting import TARGETING

    _run(TARGETING, seconds, is_plain=is_plain)


@app.command("five-cities")
def five_cities(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Short phases.")] = False,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 5,
    paths: Annotated[
        int, typer.Option(min=1, max=2, help="Paths that each channel uses at once; 1 to compare.")
    ] = 2,
    ping: Annotated[
        int,
        typer.Option(
            metavar="MS",
            min=10,
            max=1_000,
            help="Milliseconds between two pings of a neighbour. Below 80 a link that gets as slow "
            "as here looks as if it had failed.",
        ),
    ] = 100,
    stretch: Annotated[
        float,
        typer.Option(
            metavar="TIMES",
            min=1.0,
            max=20.0,
            help="Make links, limits and pings so many times slower, for a machine that is busy.",
        ),
    ] = 1.0,
) -> None:
    """Five cities: links slow down and fail, a node is killed, and no event is lost.

    Starts five nodes of its own on free ports of this machine, and links between them that take as
    long as those between the cities would. Two channels are published in Seattle, 200 events a
    second each, one for Washington within 90 ms, one for Orlando within 250. Ends with exit code 1
    if an event was lost or delivered twice.
    """
    from accord.cli.five_cities import play_five_cities
    from accord.cli.five_cities_net import FiveCities
    from accord.cli.screen import open_console

    console = open_console()
    net = FiveCities(paths=paths, ping_ms=ping, seed=seed, stretch=stretch)
    seconds = (_QUICK_S if quick else _PHASE_S) * stretch
    try:
        play = asyncio.run(play_five_cities(console, net, seconds))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if not play.is_flawless:
        raise typer.Exit(1)


def _run(scenario: DemoScenario, seconds: str, *, is_plain: bool) -> None:
    from accord.cli.quantities import read_duration_s
    from accord.cli.screen import open_console

    seconds_s = read_duration_s(seconds, "--seconds-per-phase")
    is_live = open_console().is_terminal and not is_plain
    try:
        asyncio.run(_play(scenario, seconds_s, is_live=is_live))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _play(scenario: DemoScenario, seconds: float, *, is_live: bool) -> None:
    from accord.apps.demonstrations.runner import ScenarioRunner
    from accord.cli.demo_process import start_node
    from accord.cli.screen import open_console, print_line

    console = open_console()
    print_line(console, "Starting a node, painting what the cameras will see …")
    node = await start_node()
    screen = DemoScreen(is_live=is_live)
    try:
        total_s = len(scenario.phases) * seconds
        sources = await asyncio.to_thread(scenario.make_sources, total_s)
        print_line(console, f"Node at {node.mqtt_url}, its API at {node.http_url}.\n")
        runner = ScenarioRunner(
            node.mqtt_url, node, scenario, sources, on_tick=screen.tick, on_phase_end=screen.end
        )
        await runner.run(seconds)
        screen.close(runner.meters)
    finally:
        screen.stop()
        await node.stop()


class DemoScreen:
    """Updates a phase's table in place while it runs, and leaves it when the phase is over."""

    def __init__(self, *, is_live: bool) -> None:
        from accord.cli.screen import open_console

        self._console = open_console()
        self._is_live = is_live
        self._live: Live | None = None

    def tick(self, plan: PhasePlan, meters: Meters) -> None:
        from rich.live import Live

        from accord.cli.demo_screen import draw_phase

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
        from accord.cli.demo_screen import draw_phase, draw_words

        self.stop()
        self._console.print(draw_phase(plan, meters))
        self._console.print(draw_words(meters))

    def close(self, meters: Meters) -> None:
        from accord.cli.demo_screen import draw_summary

        self._console.print(draw_summary(meters))

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
