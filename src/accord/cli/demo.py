"""`accord demo …`: scenarios that run unattended."""

# Scenarios are loaded only to be played: they are large.
# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Final, TypeVar
from urllib.parse import quote

import typer

from accord.cli.arguments import read_duration_s
from accord.cli.parameters import flag, option, shared
from accord.terminal.screen import open_console, print_line

if TYPE_CHECKING:
    from accord.apps.demonstrations.scenario import DemoScenario

T = TypeVar("T")

_PHASE_S: Final = 8.0
_QUICK_S: Final = 1.2

app = typer.Typer(no_args_is_help=True, help="Run a demonstration with nodes of its own.")


@app.callback()
def demo() -> None:
    """Run a demonstration with nodes of its own."""


PhaseSeconds = Annotated[str, shared("TIME", "Length of each phase.", "--seconds-per-phase", "-s")]
Plain = Annotated[
    bool, shared("", "Print a table at the end of each phase, without live tables.", "--plain")
]


@app.command("grid")
def grid(*, seconds: PhaseSeconds = "20s", is_plain: Plain = False) -> None:
    """Power grid: alarms, orders, measurements and camera images share a link that gets too small.

    Starts a node of its own on free ports of this machine, with temporary data, and seven clients
    that publish about 1.2 Mbit/s to a control room. Phase 1 has no limit, phase 2 one of
    800 kbit/s; in phase 3 a storm comes, and a policy makes one substation's camera important.
    """
    from accord.apps.demonstrations.grid import GRID

    _run(_play(GRID, seconds, is_plain=is_plain))


@app.command("targeting")
def targeting(*, seconds: PhaseSeconds = "20s", is_plain: Plain = False) -> None:
    """Time-critical targeting: images, reports and tracks share a link that gets too small.

    Starts a node of its own on free ports of this machine, with temporary data, and six clients
    that publish about 1 Mbit/s. Phase 1 has no limit, phase 2 one of 800 kbit/s; then preferences
    change (3a), then importances (3b).
    """
    from accord.apps.demonstrations.targeting import TARGETING

    _run(_play(TARGETING, seconds, is_plain=is_plain))


@app.command("five-cities")
def five_cities(
    *,
    quick: bool = flag("Short phases.", "--quick"),
    seed: int = option("N", "Random seed.", default=5),
    paths: int = option(
        None, "Paths that each channel uses at once; 1 to compare.", min=1, max=2, default=2
    ),
    ping: int = option(
        "MS",
        "Milliseconds between two pings of a neighbour. Below 80 a link that gets as slow "
        "as here looks as if it had failed.",
        min=10,
        max=1_000,
        default=100,
    ),
    stretch: float = option(
        "TIMES",
        "Make links, limits and pings so many times slower, for a machine that is busy.",
        min=1.0,
        max=20.0,
        default=1.0,
    ),
) -> None:
    """Five cities: links slow down and fail, a node is killed, and no event is lost.

    Starts five nodes of its own on free ports of this machine, and links between them that take as
    long as those between the cities would. Two channels are published in Seattle, 200 events a
    second each, one for Washington within 90 ms, one for Orlando within 250. Ends with exit code 1
    if an event was lost or delivered twice.
    """
    from accord.apps.five_cities import screen
    from accord.apps.five_cities.network import FiveCities

    net = FiveCities(paths=paths, ping_ms=ping, seed=seed, stretch=stretch)
    seconds_s = (_QUICK_S if quick else _PHASE_S) * stretch
    if not _run(screen.play_five_cities(open_console(), net, seconds_s)).is_flawless:
        raise typer.Exit(1)


def _run(play: Coroutine[None, None, T]) -> T:
    try:
        return asyncio.run(play)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _play(scenario: DemoScenario, seconds: str, *, is_plain: bool) -> None:
    from accord.apps.demonstrations.runner import ScenarioRunner
    from accord.apps.demonstrations.screen import DemoScreen
    from accord.apps.node_process import NodeProcess
    from accord.client.http import HttpClient

    seconds_s = read_duration_s(seconds, "--seconds-per-phase")
    console = open_console()
    print_line(console, "Starting a node, painting what the cameras will see …")
    screen = DemoScreen(console, is_live=console.is_terminal and not is_plain)
    with NodeProcess(has_data=True) as node:
        await asyncio.to_thread(node.wait_ready)
        total_s = len(scenario.phases) * seconds_s
        sources = await asyncio.to_thread(scenario.make_sources, total_s)
        print_line(console, f"Node at {node.mqtt_url}, its console at {node.http_url}.")
        page = f"/clients/{quote(scenario.receiver, safe='')}"
        print_line(console, f"Watch it at {node.http_url}{page}\n")
        runner = ScenarioRunner(
            node.mqtt_url,
            HttpClient(node.http_url),
            scenario,
            sources,
            on_tick=screen.tick,
            on_phase_end=screen.end,
        )
        try:
            await runner.run(seconds_s)
            screen.close(runner.meters)
        finally:
            screen.stop()
